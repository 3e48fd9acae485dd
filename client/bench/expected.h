/* The float64 reference of the job, from its whole inputs. */
#ifndef CGM_BENCH_EXPECTED_H
#define CGM_BENCH_EXPECTED_H

#include "client/bench/bench.h"
#include "kernels/reference.h"

/* OK or NO_MEMORY, with nothing to free then. Free with cgm_reference_fini. */
int cgm_expected_make(const struct cgm_bench *bench, struct cgm_reference *ret_reference);

/* The same of what bulk_rs scatters beside its product. */
int cgm_expected_make_moved(const struct cgm_bench *bench, struct cgm_reference *ret_reference);

/* rank's bias_grad, which is one row or, of a sum of lhs, one column. `of`: what cgm_expected_make
 * made. OK or NO_MEMORY, with nothing to free then. */
int cgm_expected_make_gradient(const struct cgm_bench *bench, const struct cgm_reference *of,
                               uint32_t rank, struct cgm_reference *ret_reference);

/* What a variant may round, as its plan's reason says: a device's library rounds sums at every
 * step, and TF32 the inputs. Before the variant's result is checked. */
void cgm_expected_allow(const struct cgm_bench *bench, enum cgm_variant variant,
                        struct cgm_reference *reference);
void cgm_expected_allow_moved(const struct cgm_bench *bench, enum cgm_variant variant,
                              struct cgm_reference *reference);

#endif
