/* A trial: a plan that no client knows, on which algorithms of another plan are run: its shapes,
 * its devices and queues, operands of random numbers. It is there for as long as they are compared.
 */
#ifndef CGM_TRIAL_H
#define CGM_TRIAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/executor/field.h"

struct cgm_plan;

struct cgm_trial {
    const struct cgm_spec *spec; /* of the other plan, in which there is no variant */
    struct cgm_plan *plan;       /* with the scratch and flags of whoever wants most */
    struct cgm_mem *numbers[CGM_COMM_SIZE_MAX]; /* what operands are filled with; by rank */
    struct cgm_mem *scratch[CGM_COMM_SIZE_MAX];
    struct cgm_recorded *recorded[CGM_TUNED_MAX]; /* [world] of an entrant; NULL: of none */
    bool landed;                                  /* there will be no more launches */
};

/* The scratch of whoever of the field wants most, variants included, on each rank; and all bytes of
 * a trial with it, of all ranks.
 */
uint64_t cgm_trial_scratch(const struct cgm_plan *plan, const struct cgm_field *field);
uint64_t cgm_trial_bytes(const struct cgm_plan *plan, uint64_t scratch_bytes);

/* For `plan`, which is not made yet, and whose flight it flies. NO_MEMORY when it would take more
 * than half of what is free; ret_why: a few words. Mapper, as are the next three. */
int cgm_trial_new(const struct cgm_plan *plan, const struct cgm_field *field, char *ret_why,
                  size_t why_bytes, struct cgm_trial **ret_trial);
/* A slice of making what it has on its devices; *ret_more: there is more. Its memory is filled
 * after that (cgm_plan_fill). */
int cgm_trial_make(struct cgm_trial *trial, bool *ret_more);
/* Nothing of it is under way. First all of that goes, slice by slice: true: there is more. */
bool cgm_trial_drain(struct cgm_trial *trial);
/* Then what its operands were filled with, which is the caller's (reclaim.h); NULL: no more. */
struct cgm_mem *cgm_trial_numbers(struct cgm_trial *trial);
void cgm_trial_free(struct cgm_trial *trial);

/* Makes its plan a candidate's. Nothing of it is under way. */
void cgm_trial_take(struct cgm_trial *trial, const struct cgm_candidate *candidate);

/* Records a rank's part of a candidate's launch as entrant `index`, as plans that are launched
 * often have it. False: this candidate has no recordings. Mapper, while launches are held. */
bool cgm_trial_record(struct cgm_trial *trial, uint32_t index, uint32_t rank);

/* Starts one launch of all ranks, of the candidate that is entrant `index`; the flight is done when
 * it is through. ahead: after so many more launches it will be the candidate's turn again. Poller.
 */
void cgm_trial_launch(struct cgm_trial *trial, const struct cgm_candidate *candidate,
                      uint32_t index, uint32_t ahead);

/* The same, of what fills lhs and rhs. */
void cgm_trial_fill(struct cgm_trial *trial);

#endif
