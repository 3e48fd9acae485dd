/* One run of the program: made by the parent before it forks the clients, shared with them where it
 * says so. */
#ifndef CGM_BENCH_BENCH_H
#define CGM_BENCH_BENCH_H

#include "client/bench/cases.h"
#include "client/bench/crew.h"
#include "client/bench/machine.h"
#include "client/bench/options.h"
#include "proto/ring.h"

/* What the clients can be told; cgm_worker_obey. */
enum cgm_verb_number {
    CGM_DO_SETUP, /* connect, join, create plans and memory */
    CGM_DO_LOAD,  /* the inputs from the shared matrices into the job's operands */
    CGM_DO_RUN,   /* one job of the variant that the argument says; results into the shared ones */
    CGM_DO_MEASURE,
    CGM_DO_TRACE, /* one job with its phases */
    CGM_DO_LEAVE,
};

/* One variant's job, as one client saw it; CLOCK_MONOTONIC. */
struct cgm_sample {
    uint64_t begin_ns, end_ns;
    uint64_t running_ns; /* launch until done, as the executor says */
};

/* Phases of one rank's completion. */
struct cgm_trace {
    uint32_t count, lost;
    struct commgemm_phase phases[CGM_PHASES_PER_JOB];
};

struct cgm_plan_answer {
    int algorithm;
    char reason[160];
};

/* Why an algorithm takes no part in a comparison. */
struct cgm_refusal {
    _Atomic uint32_t teller; /* worker + 1 of the one that writes the rest; 0: it takes part */
    char why[256];
};

/* Shared; written by the workers, read by the parent after the order, unless it says otherwise. */
struct cgm_bench_results {
    char backend[16];
    uint32_t devices;
    char gpus[CGM_GPUS_BYTES];
    struct cgm_plan_answer plans[CGM_VARIANT_COUNT];
    struct cgm_refusal refusals[CGM_VARIANT_COUNT];
    /* Take part in the run. The parent changes it between orders, worker 0 during the set-up,
     * before a barrier. */
    bool wanted[CGM_VARIANT_COUNT];
    _Atomic uint64_t stop_at;     /* iterations, warm-up included, after which the time is up */
    uint64_t warmups, iterations; /* done by the last measurement */
    struct cgm_sample last[CGM_CREW_MAX]; /* of CGM_DO_RUN and _TRACE, by worker */
};

struct cgm_bench {
    const struct cgm_bench_options *options;
    char socket[128]; /* "": the library's default */
    char comm[64];    /* name */
    struct cgm_case cases[CGM_VARIANT_COUNT];
    uint32_t workers;

    /* Shared from here on; sized by the job's matrices, in the job's types. */
    struct cgm_bench_results *results;
    void *whole[CGM_MATRIX_COUNT];  /* what goes in; out: what is accumulated into; else NULL */
    char *shards[CGM_MATRIX_COUNT]; /* out, aux: every rank's shard behind the other */
    struct cgm_sample *samples;     /* [variant][worker][iteration] */
    struct cgm_trace *traces;       /* [rank] */
};

static inline struct cgm_sample *cgm_bench_samples(const struct cgm_bench *bench,
                                                   enum cgm_variant variant, uint32_t worker)
{
    size_t row = (size_t)variant * bench->workers + worker;
    return bench->samples + row * bench->options->iters;
}

/* Where rank's shard of out or aux is in the shared memory. */
static inline char *cgm_bench_shard(const struct cgm_bench *bench, enum cgm_matrix_name name,
                                    uint32_t rank)
{
    const struct cgm_matrix *matrix = &bench->cases[CGM_VARIANT_JOB].matrix[name];
    return bench->shards[name] + rank * cgm_matrix_shard_bytes(matrix);
}

struct cgm_report;

/* Gets a run's report while what it is of is still there. Returns a status. */
typedef int cgm_bench_done(void *context, const struct cgm_report *report, char *ret_detail);

/* The whole run of an operation: clients, files, checks, times, and then `done`. Returns the
 * status; ret_detail (CGM_BENCH_DETAIL_BYTES) says why it is not OK: a result was wrong, and `done`
 * saw it, or something failed before. One at a time. */
int cgm_bench_run(const struct cgm_bench_options *options, const char *socket, cgm_bench_done *done,
                  void *context, char *ret_detail);

#endif
