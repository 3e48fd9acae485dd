/* --op noop: what submission alone costs. */
#ifndef CGM_BENCH_NOOP_H
#define CGM_BENCH_NOOP_H

#include "client/bench/options.h"

/* Measures, prints and writes the report. Status; the detail says why it is not OK. Call it before
 * there are threads. */
int cgm_noop_run(const struct cgm_bench_options *options, const char *socket, char *ret_detail);

#endif
