/* The phases of one job: as a list, and as a picture. */
#ifndef CGM_BENCH_TIMELINE_H
#define CGM_BENCH_TIMELINE_H

#include <stdio.h>

#include "client/bench/bench.h"

/* Phases of all ranks in the order of device, queue and time, each once. */
struct cgm_timeline {
    struct commgemm_phase *phases;
    uint32_t count, lost;
    uint64_t end_ns;
};

/* From bench->traces. 0, or -1 when memory is short. Free with cgm_timeline_fini. */
int cgm_timeline_make(const struct cgm_bench *bench, struct cgm_timeline *ret_timeline);
void cgm_timeline_fini(struct cgm_timeline *timeline);

void cgm_timeline_print(const struct cgm_timeline *timeline, FILE *out);

/* An SVG file: a row for each device queue, GEMM in one colour, communication in another. IO with a
 * detail (CGM_BENCH_DETAIL_BYTES) that names the path. */
int cgm_timeline_draw(const struct cgm_timeline *timeline, const struct cgm_bench *bench,
                      const char *path, char *ret_detail);

#endif
