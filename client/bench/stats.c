#include "client/bench/stats.h"

#include <math.h>
#include <stdlib.h>

static int compare(const void *left, const void *right)
{
    double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

struct cgm_stats cgm_stats_of(double *values, uint64_t count)
{
    if (count == 0)
        return (struct cgm_stats){0};
    qsort(values, count, sizeof(*values), compare);
    uint64_t rank99 = (uint64_t)ceil(0.99 * (double)count);
    return (struct cgm_stats){
        .count = count,
        .median = count % 2 ? values[count / 2] : (values[count / 2 - 1] + values[count / 2]) / 2,
        .min = values[0],
        .max = values[count - 1],
        .p99 = values[rank99 - 1],
    };
}

uint64_t cgm_bench_job_ns(const struct cgm_sample *samples, uint32_t workers, uint64_t stride)
{
    uint64_t begin_ns = 0, end_ns = 0;
    for (uint32_t i = 0; i < workers; i++) {
        const struct cgm_sample *sample = &samples[i * stride];
        if (sample->begin_ns > begin_ns)
            begin_ns = sample->begin_ns;
        if (sample->end_ns > end_ns)
            end_ns = sample->end_ns;
    }
    return end_ns - begin_ns;
}

static uint64_t longest_running_ns(const struct cgm_sample *samples, uint32_t workers,
                                   uint64_t stride)
{
    uint64_t longest_ns = 0;
    for (uint32_t i = 0; i < workers; i++)
        if (samples[i * stride].running_ns > longest_ns)
            longest_ns = samples[i * stride].running_ns;
    return longest_ns;
}

static struct cgm_stats stats_by(const struct cgm_bench *bench, enum cgm_variant variant,
                                 uint64_t (*of)(const struct cgm_sample *, uint32_t, uint64_t))
{
    uint64_t count = bench->results->wanted[variant] ? bench->results->iterations : 0;
    double *values = malloc(count * sizeof(*values) + 1);
    struct cgm_stats stats = {0};
    for (uint64_t i = 0; values && i < count; i++)
        values[i] = 1e-6 * (double)of(cgm_bench_samples(bench, variant, 0) + i, bench->workers,
                                      bench->options->iters);
    if (values)
        stats = cgm_stats_of(values, count);
    free(values);
    return stats;
}

struct cgm_stats cgm_bench_stats(const struct cgm_bench *bench, enum cgm_variant variant)
{
    return stats_by(bench, variant, cgm_bench_job_ns);
}

struct cgm_stats cgm_bench_running_stats(const struct cgm_bench *bench, enum cgm_variant variant)
{
    return stats_by(bench, variant, longest_running_ns);
}
