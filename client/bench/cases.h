/* What is run: the job that was asked for, and what it is compared with. All of them are run in
 * turn, so that nothing that drifts can favour one. */
#ifndef CGM_BENCH_CASES_H
#define CGM_BENCH_CASES_H

#include "commgemm.h"

#include "client/bench/options.h"
#include "client/bench/shards.h"
#include "proto/types.h"

enum cgm_variant {
    CGM_VARIANT_JOB,
    CGM_VARIANT_SERIAL, /* the same by no_overlap, on the same buffers */
    CGM_VARIANT_GEMM,   /* the GEMM of one rank, without communication */
    CGM_VARIANT_COMM,   /* the collective alone */
    CGM_VARIANT_BLAS,   /* OpenBLAS in the client, without the daemon */
    /* From here on, with --compare: the same by one algorithm each, on the same buffers; in the
     * order of proto/types.h. */
    CGM_VARIANT_ALGORITHM,
#define X(number, SYMBOL, spelling) +1
    CGM_VARIANT_COUNT = CGM_VARIANT_ALGORITHM CGM_ALGORITHMS(X),
#undef X
};

#define CGM_COUNTS_MAX (64u * 64u)

struct cgm_case {
    bool exists; /* makes sense for the operation */
    bool shaped; /* `matrix` is there; the daemon may know an operation that has no shapes here */
    struct cgm_sizes sizes;
    uint64_t capacity; /* the plan's m */
    struct cgm_matrix matrix[CGM_MATRIX_COUNT];
    int method, algorithm;
    bool knobs; /* the plan's parameters from the command line */
    bool accumulate;
    uint32_t counts[CGM_COUNTS_MAX]; /* a2av */
};

/* Derives every case from the options. */
void cgm_cases_derive(const struct cgm_bench_options *options,
                      struct cgm_case ret_cases[CGM_VARIANT_COUNT]);

/* "job", "no_overlap", ... Static. */
const char *cgm_variant_name(enum cgm_variant variant);

/* The algorithm of a variant from CGM_VARIANT_ALGORITHM on. */
int cgm_variant_algorithm(enum cgm_variant variant);

/* Whether it works on the job's operands. */
bool cgm_variant_shares(enum cgm_variant variant);

/* Bytes that the rank which sends most has to send. */
uint64_t cgm_case_sent_bytes(const struct cgm_case *c);

/* The request for a case's plan; it points into the case. */
void cgm_case_plan(const struct cgm_bench_options *options, const struct cgm_case *c, uint64_t comm,
                   struct commgemm_plan_options *ret_plan);

#endif
