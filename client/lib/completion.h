/* A completion as the caller gets it, from the record of an ended slot. */
#ifndef CGM_CLIENT_COMPLETION_H
#define CGM_CLIENT_COMPLETION_H

#include "client/include/commgemm.h"

struct cgm_slot;

/* All but the phases; those fields are zeroed. */
void cgm_completion_take(const struct cgm_slot *slot, struct commgemm_completion *ret_completion);

/* With the phases, which may allocate. */
void cgm_completion_take_all(const struct cgm_slot *slot,
                             struct commgemm_completion *ret_completion);

#endif
