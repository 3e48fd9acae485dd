/* Many runs: a comparison, or one run for each shape of a file, with the floor of each; a table,
 * and what --output-file, --csv and --plot name. */
#ifndef CGM_BENCH_SWEEP_H
#define CGM_BENCH_SWEEP_H

#include "client/bench/compare.h"
#include "client/bench/shapes.h"

struct cgm_sweep_row {
    struct cgm_shape shape;
    struct cgm_bench_options options; /* of its run */
    int status;                       /* a shape that the daemon refuses does not end the sweep */
    char detail[CGM_BENCH_DETAIL_BYTES];
    struct cgm_compare comparison; /* empty where the run failed */
    json_t *object;                /* the report; NULL there */
};

struct cgm_sweep {
    const struct cgm_bench_options *options;
    const char *socket;
    struct cgm_shapes shapes;
    struct cgm_sweep_row *rows;
    size_t count;
    struct cgm_link link;
    char backend[16], gpus[CGM_GPUS_BYTES];
};

/* Runs it all. The status of the first run that failed; what was measured is written all the same.
 */
int cgm_sweep_run(const struct cgm_bench_options *options, const char *socket, char *ret_detail);

/* What became of it, by sweep_files.c. */
void cgm_sweep_print(const struct cgm_sweep *sweep, FILE *out);
int cgm_sweep_write(const struct cgm_sweep *sweep, char *ret_detail);

#endif
