/* What auto chose a plan's algorithm from, and what is said about it. */
#ifndef CGM_TUNED_H
#define CGM_TUNED_H

#include <stddef.h>
#include <stdint.h>

#include "daemon/executor/variant.h"

/* All algorithms of an operation, and the variants of one. */
#define CGM_TUNED_MAX 16u

struct cgm_tried {
    struct cgm_candidate candidate;
    uint64_t ns; /* 0: it failed, or there was no time for it */
};

/* The chosen one, serial, and the others, the faster ones first. */
struct cgm_tuned {
    struct cgm_tried tried[CGM_TUNED_MAX];
    uint32_t n;      /* 0: nothing was measured */
    uint32_t n_late; /* of them: there was no time for them, now */
    uint64_t at_s;   /* when, in seconds of the epoch, where it was remembered; 0: now */
};

/* Brings what is behind the first one into that order. */
void cgm_tuned_sort(struct cgm_tuned *tuned);

/* Writes "auto: a num_splits=8 measured 48 us; b 75, c - and 2 more; no time for 1; kept since
 * 2026-11-20". */
void cgm_tuned_write(const struct cgm_tuned *tuned, char *ret_text, size_t size);

#endif
