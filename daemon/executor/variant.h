/* What auto may take for a plan: an algorithm, as it is by default or with one of its parameters
 * changed. No devices here. */
#ifndef CGM_EXECUTOR_VARIANT_H
#define CGM_EXECUTOR_VARIANT_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/executor/algorithm.h"

/* More than an algorithm has. */
#define CGM_VARIANTS_MAX 8u

/* What the devices and the comm leave open. */
struct cgm_means {
    bool copies_by_sms; /* devices copy by engines or by multiprocessors */
    bool library;       /* there is a library for collectives */
};

struct cgm_candidate {
    const struct cgm_algorithm *algorithm;
    cgm_variant variant; /* 0: as if the algorithm were named and nothing else */
};

/* Makes a spec, in which no variant is yet, that of a candidate. What was given in the request
 * stays as it is. */
void cgm_spec_take(struct cgm_spec *spec, const struct cgm_candidate *candidate);

/* The variants of an algorithm that make another plan of this spec: of parameters that have an
 * effect on it and were not given. Where a library does the collective it is without use_ce; with
 * it, copies do. Returns how many. */
uint32_t cgm_algorithm_variants(const struct cgm_algorithm *algorithm, const struct cgm_spec *spec,
                                const struct cgm_means *means,
                                cgm_variant ret_variants[CGM_VARIANTS_MAX]);

#endif
