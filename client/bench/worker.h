/* A client process: one session that holds one rank, or with --one-process all of them. */
#ifndef CGM_BENCH_WORKER_H
#define CGM_BENCH_WORKER_H

#include "client/bench/bench.h"
#include "client/bench/tensor.h"

struct cgm_worker_rank {
    uint32_t rank;
    struct cgm_tensor tensors[CGM_VARIANT_COUNT][CGM_MATRIX_COUNT];
};

/* Filled in the worker's process; the parent's copy stays empty but for `bench`. */
struct cgm_worker {
    const struct cgm_bench *bench;
    struct cgm_seat *seat;
    commgemm_client *client;
    uint64_t comm;
    uint64_t plans[CGM_VARIANT_COUNT];
    uint32_t n_ranks;
    struct cgm_worker_rank *ranks;
};

cgm_crew_obey cgm_worker_obey; /* state: struct cgm_worker */

/* The operands of a variant: no_overlap works on the job's. */
const struct cgm_tensor *cgm_worker_tensors(const struct cgm_worker_rank *rank,
                                            enum cgm_variant variant);

/* Runs one job of the variant on all of this client's ranks and waits for it; ends the process when
 * it fails. ret_traces: NULL, or by rank. */
void cgm_worker_run(const struct cgm_worker *worker, enum cgm_variant variant,
                    struct cgm_trace *ret_traces, struct cgm_sample *ret_sample);

/* The timed runs, with all other workers. */
void cgm_worker_measure(const struct cgm_worker *worker);

/* OpenBLAS on the operands of one rank, on this process's own threads. */
void cgm_worker_blas(const struct cgm_worker *worker, const struct cgm_worker_rank *rank);

#endif
