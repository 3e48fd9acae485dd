/* Has the executor make plans: it is asked how much memory one takes, which its owner's quota must
 * have room for, then to make it; and each executor after that makes it anew. */
#ifndef CGM_BROKER_PLAN_MAKE_H
#define CGM_BROKER_PLAN_MAKE_H

#include <stdint.h>

#include "daemon/broker/calls.h"

struct cgm_plan;

/* The first step for a new plan; its waiters are told what came of it. */
int cgm_plan_measure(struct cgm_broker *broker, const struct cgm_plan *plan);

/* Asks this executor once more for an unmade plan; its waiters, of which there is one at least, are
 * told. When it cannot be asked they are forgotten. */
int cgm_plan_remake(struct cgm_broker *broker, struct cgm_plan *plan);

/* PlanAdd, with what is remembered of its times. */
int cgm_plan_tell(struct cgm_broker *broker, const struct cgm_plan *plan,
                  const struct cgm_call *call);

/* An executor has made the plan anew, or not; first_buffer: of that plan, as another one may have
 * its id meanwhile. */
void cgm_plan_on_readded(struct cgm_broker *broker, uint64_t id, uint64_t first_buffer,
                         const struct cgm_result *result);

/* The executor does not have the comm, so that no plan of it can be made. */
void cgm_plan_unmake_all(struct cgm_broker *broker, uint64_t comm);

#endif
