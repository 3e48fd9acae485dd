/* Who has a plan, and at whose cost. Sessions hold it by reference; it ends with the last one. */
#ifndef CGM_BROKER_PLAN_HOLD_H
#define CGM_BROKER_PLAN_HOLD_H

#include <stdint.h>

#include "daemon/broker/request.h"

struct cgm_plan;

/* A session's, by the plan's id. */
struct cgm_plan_hold {
    struct cgm_plan *plan;
};

/* The session has it from now on, however often it asks. CGM_QUOTA: it comes back to its owner, who
 * has no room for it. */
int cgm_plan_reference(struct cgm_session *session, struct cgm_plan *plan, char *ret_detail,
                       size_t size);

/* Drops every plan of the comm that the session has, or of all comms when it is 0. Returns how many
 * there were. */
uint32_t cgm_plan_drop_all(struct cgm_session *session, uint64_t comm_or_0);

/* Some of those who have it may lose it. */
void cgm_plan_settle_cost(struct cgm_broker *broker, struct cgm_plan *plan);

/* Settles its cost, and frees it when nobody has it or waits for it. */
void cgm_plan_free_unused(struct cgm_broker *broker, struct cgm_plan *plan);

/* What the dispatch table calls. */
int cgm_plan_find_held(struct cgm_request *request);
int cgm_plan_on_destroy(struct cgm_request *request);
int cgm_plan_on_destroy_all(struct cgm_request *request);

#endif
