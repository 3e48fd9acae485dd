/* What auto may take for a plan: an algorithm, as it is by default or with one of its parameters
 * changed. No devices here. */
#ifndef CGM_EXECUTOR_VARIANT_H
#define CGM_EXECUTOR_VARIANT_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/executor/algorithm.h"

/* More than an algorithm has. */
#define CGM_VARIANTS_MAX 8u

struct cgm_candidate {
    const struct cgm_algorithm *algorithm;
    cgm_variant variant; /* 0: as if the algorithm were named and nothing else */
};

/* Makes a spec, in which no variant is yet, that of a candidate. What was given in the request
 * stays as it is. */
void cgm_spec_take(struct cgm_spec *spec, const struct cgm_candidate *candidate);

/* The variants of an algorithm that make another plan of this spec: of parameters that have an
 * effect on it and were not given. copies_by_sms: the devices have copy engines and
 * multiprocessors, and which of them copies is a choice. Returns how many. */
uint32_t cgm_algorithm_variants(const struct cgm_algorithm *algorithm, const struct cgm_spec *spec,
                                bool copies_by_sms, cgm_variant ret_variants[CGM_VARIANTS_MAX]);

#endif
