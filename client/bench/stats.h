/* From samples to the numbers that are reported. */
#ifndef CGM_BENCH_STATS_H
#define CGM_BENCH_STATS_H

#include "client/bench/bench.h"

struct cgm_stats {
    uint64_t count; /* 0: nothing was measured, the rest is 0 */
    double median, min, max, p99;
};

/* Sorts the values. */
struct cgm_stats cgm_stats_of(double *values, uint64_t count);

/* How long a job took: from the last client's submission until the last client had its result. The
 * clients' samples of one iteration lie `stride` apart. */
uint64_t cgm_bench_job_ns(const struct cgm_sample *samples, uint32_t workers, uint64_t stride);

/* Milliseconds of a variant's jobs in the last measurement, and those of the executor's own clock
 * (launch until done, the slowest rank's). */
struct cgm_stats cgm_bench_stats(const struct cgm_bench *bench, enum cgm_variant variant);
struct cgm_stats cgm_bench_running_stats(const struct cgm_bench *bench, enum cgm_variant variant);

#endif
