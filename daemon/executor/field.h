/* Whom auto may choose from for a plan: algorithms, and their variants. */
#ifndef CGM_FIELD_H
#define CGM_FIELD_H

#include "daemon/executor/tuned.h"
#include "proto/messages.h"

struct cgm_plan;

struct cgm_field {
    const struct cgm_algorithm *const *algorithms; /* as of cgm_algorithm_candidates */
    uint32_t n;                                    /* 0: there is no choice */
    struct cgm_means means;
};

/* The algorithms are written to ret_algorithms, which the field refers to. */
struct cgm_field cgm_field_of(const struct cgm_plan *plan,
                              const struct cgm_algorithm *ret_algorithms[CGM_TUNED_MAX]);

/* Takes the times that the message has, when every one is of the field. */
bool cgm_field_recall(const struct cgm_field *field, const struct cgm_spec *spec,
                      const Cgm__PlanAdd *m, struct cgm_tuned *ret_tuned);

#endif
