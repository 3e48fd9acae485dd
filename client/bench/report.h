/* What a run came to: a table for people, one JSON object for programs. */
#ifndef CGM_BENCH_REPORT_H
#define CGM_BENCH_REPORT_H

#include <jansson.h>
#include <stdio.h>

#include "client/bench/bench.h"
#include "client/bench/stats.h"
#include "client/bench/validate.h"

struct cgm_report {
    const struct cgm_bench *bench;
    const struct cgm_validation *validation;
    struct cgm_stats ms[CGM_VARIANT_COUNT]; /* count 0: not measured */
    struct cgm_stats running_ms;            /* the job, by the executor's clock */
    bool success;
};

/* Takes the numbers of the last measurement, or of the checked runs when there was none. */
void cgm_report_make(const struct cgm_bench *bench, const struct cgm_validation *validation,
                     struct cgm_report *ret_report);

void cgm_report_print(const struct cgm_report *report, FILE *out);
/* Its parts, for who has other times to print. */
void cgm_report_print_header(const struct cgm_report *report, FILE *out);
void cgm_report_print_validation(const struct cgm_report *report, bool only_wrong, FILE *out);

/* Prints the report and writes --output-file; a cgm_bench_done. */
int cgm_report_finish(void *context, const struct cgm_report *report, char *ret_detail);

/* Where tables go: standard output, unless JSON does. */
FILE *cgm_report_stream(const struct cgm_bench_options *options);

/* A new object, the caller's; NULL when there is no memory. */
json_t *cgm_report_json(const struct cgm_report *report);

/* Adds every argument that the object does not have yet, under its long name with '_' for '-'. */
int cgm_report_add_arguments(const struct cgm_bench_options *options, json_t *object);

/* Writes the object to --output-file, if there is one. IO with a detail that names the path. */
int cgm_report_write(const struct cgm_bench_options *options, json_t *object, char *ret_detail);

#endif
