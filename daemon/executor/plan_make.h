/* What a plan owns on its ranks' devices: made, prepared and freed by the mapper. */
#ifndef CGM_PLAN_MAKE_H
#define CGM_PLAN_MAKE_H

#include <stdbool.h>
#include <stdint.h>

struct cgm_executor;
struct cgm_plan;
struct cgm_spec;
struct cgm_algorithm;

/* Which operands a plan that is being made gets to run on. */
enum cgm_plan_operands {
    CGM_PLAN_OPERANDS_FEW, /* the fewest rows that a job can have, optional operands included */
    CGM_PLAN_OPERANDS_ALL, /* the whole capacity, what a job must have alone */
};

enum cgm_plan_memory { CGM_PLAN_OPERANDS, CGM_PLAN_SCRATCH, CGM_PLAN_USER_BUFFERS };

uint64_t cgm_plan_operands_rows(const struct cgm_spec *spec, enum cgm_plan_operands operands);

/* Of one rank, as they are laid behind each other. The plan was checked: there are so many bytes.
 */
uint64_t cgm_plan_operands_bytes(const struct cgm_spec *spec, uint32_t rank,
                                 enum cgm_plan_operands operands);

/* What a rank's memory takes while the plan is being made: with the operands of its first run. */
uint64_t cgm_plan_bytes(const struct cgm_plan *plan, uint32_t rank);

/* A slice of making queues, user buffers, scratch, flags, and the operands, which the plan's flight
 * is given; *ret_more: the next call goes on. comm, spec, flight, scratch_bytes and n_flags are
 * set. buffer_ids and journals: of the user buffers, by rank; NULL: nobody will name them. On
 * failure plan->doing says at what. */
int cgm_plan_make(struct cgm_plan *plan, enum cgm_plan_operands operands,
                  const uint64_t *buffer_ids, const uint32_t *journals, bool *ret_more);

/* A slice of the plan's memory that is not there yet, where the backend makes it in slices. Before
 * anything uses it. */
int cgm_plan_fill(struct cgm_plan *plan, bool *ret_more);

/* Gives back a slice of such memory of the plan; true: there is more. Nothing uses it any more. */
bool cgm_plan_drain(struct cgm_plan *plan, struct cgm_executor *executor,
                    enum cgm_plan_memory first, enum cgm_plan_memory last);

/* It awaits one, with operands of its own, before its creation is answered. */
bool cgm_plan_has_first_run(const struct cgm_plan *plan);

/* What an algorithm wants on each rank. */
uint64_t cgm_plan_scratch_bytes(const struct cgm_plan *plan, const struct cgm_algorithm *algorithm);
uint32_t cgm_plan_flags(const struct cgm_plan *plan, const struct cgm_algorithm *algorithm);

/* Prepares the products of jobs that use the whole capacity, while launches are held (quiet.h).
 * TIMEOUT: that took as long as they should be held; the next call goes on. */
int cgm_plan_rehearse(const struct cgm_plan *plan);

/* The plan's operands are not needed any more. */
void cgm_plan_free_operands(struct cgm_plan *plan);

/* A slice of freeing all but the user buffers, also of what was made in part; true: there is more.
 * Not the comm, nor the flight. */
bool cgm_plan_fini(struct cgm_plan *plan, struct cgm_executor *executor);
/* On whatever thread frees what clients may have, too. The comm may be gone. */
void cgm_plan_free_user_buffers(struct cgm_plan *plan, struct cgm_executor *executor);

#endif
