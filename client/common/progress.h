/* A progress line on a terminal for what takes longer than two seconds; silent otherwise and where
 * the stream is no terminal. One thread. */
#ifndef CGM_PROGRESS_H
#define CGM_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

struct cgm_progress {
    FILE *out;
    const char *label; /* must outlive it */
    uint64_t total, begin_ns, drawn_ns;
    bool terminal, drawn;
};

/* total: what `done` counts up to; 0: unknown, then only a count and the time are shown. */
void cgm_progress_init(struct cgm_progress *progress, FILE *out, const char *label, uint64_t total);

/* Cheap enough for every iteration: draws at most ten times a second. */
void cgm_progress_update(struct cgm_progress *progress, uint64_t done);

/* Wipes the line, so that results start on a clean one. */
void cgm_progress_fini(struct cgm_progress *progress);

#endif
