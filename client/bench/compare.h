/* A comparison: every variant of one job beside no_overlap and beside the floor, the least time
 * that a job could take: the longer of its product alone and its bytes on the links. */
#ifndef CGM_BENCH_COMPARE_H
#define CGM_BENCH_COMPARE_H

#include <jansson.h>
#include <stdio.h>

#include "client/bench/report.h"

/* What the links carry. */
struct cgm_link {
    double bytes_per_ms; /* each rank's; 0: not measured, as with one rank */
    const char *by;      /* what carried that much */
};

struct cgm_compared {
    enum cgm_variant variant;
    int algorithm;               /* -1: it has none */
    char reason[160];            /* why its plan has that */
    char refusal[256];           /* why it was not run; "": it was */
    bool whole;                  /* does all that the job does, and by the daemon */
    struct cgm_stats ms;         /* from the last submission to the last result */
    struct cgm_stats running_ms; /* inside the executor */
    double speedup;              /* no_overlap's median over its own; NAN where that is unknown */
    double fraction;             /* the floor over its median; NAN */
    double error_ratio;          /* of the bound; NAN: not validated */
};

struct cgm_compare {
    struct cgm_compared rows[CGM_VARIANT_COUNT];
    uint32_t count;
    double floor_ms; /* NAN: unknown */
    struct cgm_link link;
};

void cgm_compare_make(const struct cgm_report *report, const struct cgm_link *link,
                      struct cgm_compare *ret_comparison);

/* "auto", "no_overlap", "fused_ag", ...: what the row of the job itself is called depends on how it
 * was asked for. Static. */
const char *cgm_compared_name(const struct cgm_compared *row, const struct cgm_bench_options *o);

/* The fastest of those that do the whole job, the job itself left out; NULL when there is none. */
const struct cgm_compared *cgm_compare_best(const struct cgm_compare *comparison);

/* NULL where the variant took no part. */
const struct cgm_compared *cgm_compare_find(const struct cgm_compare *comparison,
                                            enum cgm_variant variant);

void cgm_compare_print(const struct cgm_compare *comparison,
                       const struct cgm_bench_options *options, FILE *out);

/* Adds "variants", the floor and the link to a report. Not 0 when there is no memory. */
int cgm_compare_add_json(const struct cgm_compare *comparison,
                         const struct cgm_bench_options *options, json_t *object);

#endif
