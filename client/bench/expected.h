/* The float64 reference of the job, from its whole inputs. */
#ifndef CGM_BENCH_EXPECTED_H
#define CGM_BENCH_EXPECTED_H

#include "client/bench/bench.h"
#include "kernels/reference.h"

/* OK or NO_MEMORY, with nothing to free then. Free with cgm_reference_fini. */
int cgm_expected_make(const struct cgm_bench *bench, struct cgm_reference *ret_reference);

#endif
