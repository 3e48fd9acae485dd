/* Who waits for a plan that the executor is making. */
#ifndef CGM_BROKER_PLAN_WAITERS_H
#define CGM_BROKER_PLAN_WAITERS_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/broker/request.h"

struct cgm_plan;

/* A PlanCreate that waits for the executor. */
struct cgm_plan_waiter {
    struct cgm_plan_waiter *next;
    uint64_t session;
    uint32_t serial;
    bool existed;
    int status; /* but for CGM_OK it has been answered */
};

/* The request is answered later. existed: whether another one had made it. */
int cgm_plan_wait(struct cgm_request *request, struct cgm_plan *plan, bool existed);

/* With CGM_OK each that is still in the comm gets its reference, as far as its quotas have room. */
void cgm_plan_answer_waiters(struct cgm_broker *broker, struct cgm_plan *plan, int status,
                             const char *detail);

/* There is no room for it in the quotas of who pays, as the detail says: his are refused, and
 * another that waits pays and owns it. False: there is none that has room. */
bool cgm_plan_pass_to_waiter(struct cgm_broker *broker, struct cgm_plan *plan, const char *detail);

/* The session's, while they are answered: it has lost the plan that they had got. */
void cgm_plan_refuse_waiters(struct cgm_broker *broker, struct cgm_plan *plan, uint64_t session,
                             int status, const char *detail);

/* Without an answer. */
void cgm_plan_forget_waiters(struct cgm_broker *broker, struct cgm_plan *plan);

void cgm_plan_send_reply(struct cgm_broker *broker, const struct cgm_plan *plan, uint64_t session,
                         uint32_t serial, bool existed);

#endif
