/* The numbers of one job: whole matrices that every rank's client makes from the job's seed, and
 * the float64 reference that every rank's client checks its own part with. */
#ifndef CHAOS_DATA_H
#define CHAOS_DATA_H

#include "client/bench/bench.h"
#include "kernels/reference.h"
#include "tests/chaos/chaos.h"

struct chaos_data {
    struct cgm_bench_options options;
    struct cgm_bench_results results; /* what was said about the plan: the reference asks */
    struct cgm_bench bench;           /* of these; nothing of it runs */
    struct cgm_reference reference;
    struct cgm_reference moved; /* bulk_rs: of the buffer that it scatters */
};

/* reason: what was said about the plan. NULL when memory is short, or there are no shapes for the
 * operation. */
struct chaos_data *chaos_data_new(const struct cgm_bench_options *plan, const char *reason,
                                  const struct chaos_job *job, uint64_t seed);
void chaos_data_free(struct chaos_data *data);

static inline const struct cgm_matrix *chaos_data_matrix(const struct chaos_data *data,
                                                         enum cgm_matrix_name name)
{
    return &data->bench.cases[CGM_VARIANT_JOB].matrix[name];
}

/* Checks rank's part of an output, its rows dense. What is wrong goes to ret_text, "" for nothing.
 */
void chaos_data_check(const struct chaos_data *data, enum cgm_matrix_name name, uint32_t rank,
                      const void *shard, char *ret_text, size_t size, uint64_t *checked,
                      double *worst);

/* Whether all elements are NaN, if the type has one: the outputs of a job that failed before its
 * launch. */
bool chaos_data_is_poison(const struct cgm_matrix *matrix, const void *shard);

#endif
