/* What the command line of commgemm-bench says. The table in options.c is the one source of parser,
 * --help, manual and the arguments in the JSON report. */
#ifndef CGM_BENCH_OPTIONS_H
#define CGM_BENCH_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "client/common/args.h"

#define CGM_BENCH_DETAIL_BYTES 1280u
#define CGM_BENCH_SIZE_LIMIT (1 << 24) /* of m, n and k */

struct cgm_bench_options {
    /* The job. After cgm_bench_options_parse: algorithm is a number of proto/types.h. */
    int op, method, algorithm;
    const char *algorithm_name;
    uint64_t world;
    uint64_t m, n, k;     /* capacity of the plan, sizes of the whole product */
    uint64_t rows;        /* active rows; 0: m */
    int dtype, out_dtype; /* out_dtype -1: dtype */
    bool transa, transb, bias, gelu, grad, accumulate, aux, atomic;

    /* The plan. 0 or -1: the daemon's default. */
    int comm_type, buffer_dtype;
    const char *buffer_shape_text;
    uint64_t buffer_shape[2];
    uint64_t tp_size, num_splits, num_max_streams, comm_cga_size, num_comm_sm;
    int64_t gemm_priority, comm_priority;
    bool set_sm_margin, use_ce, no_ce, rs_overlap_first_gemm, aggregate_ag, tf32;
    uint32_t mode;

    /* What to do with it. */
    bool validate, benchmark, debug;
    uint64_t iters, warmup;
    double time_limit_s; /* of the timed runs; 0: none */
    const char *lhs_file, *rhs_file, *bias_file, *save_out, *save_aux;
    uint64_t lhs_axis, rhs_axis; /* axis boundaries of the files; 0: the last axis */
    const char *output_file, *timeline;
    bool compare, json;
    const char *shapes_file, *csv, *plot;

    /* How. */
    const char *socket;
    int private_daemon; /* enum cgm_private_backend */
    const char *set;    /* configuration of the private daemon: "key=value,key=value" */
    bool one_process, no_ring, import;
    uint64_t seed, timeout_s, threads, blas_threads;

    bool help, version, manual, completion;

    char command[512]; /* the command line as typed; what is too long is left out */

    /* Which of them were on the command line. */
    bool iters_given, sizes_given[3];
    char note[160]; /* one line for the reader: how an option was taken; "" for none */
};

enum cgm_private_backend { CGM_PRIVATE_NONE, CGM_PRIVATE_AUTO, CGM_PRIVATE_CPU, CGM_PRIVATE_CUDA };

extern const struct cgm_program cgm_bench_program;

/* Fills ret_options from a command line and checks every option against the others. OK or
 * INVALID_ARGUMENT; the detail (CGM_BENCH_DETAIL_BYTES) contains the offending option or value. */
int cgm_bench_options_parse(int argc, char **argv, char *ret_detail,
                            struct cgm_bench_options *ret_options);

/* OK, or the status and a detail when one of the files that the run will write cannot be written.
 * Files that did not exist do not exist afterwards either. */
int cgm_bench_options_probe_outputs(const struct cgm_bench_options *options, char *ret_detail);

#endif
