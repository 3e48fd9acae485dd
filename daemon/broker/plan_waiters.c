#include "daemon/broker/plan_waiters.h"

#include <stdlib.h>

#include "daemon/broker/broker.h"
#include "daemon/broker/comm.h"
#include "daemon/broker/plan.h"
#include "daemon/broker/plan_hold.h"
#include "daemon/broker/session.h"
#include "proto/status.h"

void cgm_plan_forget_waiters(struct cgm_broker *broker, struct cgm_plan *plan)
{
    while (plan->waiters) {
        struct cgm_plan_waiter *waiter = plan->waiters;
        plan->waiters = waiter->next;
        cgm_session_count_call(broker, waiter->session, -1, 0);
        free(waiter);
    }
}

int cgm_plan_wait(struct cgm_request *request, struct cgm_plan *plan, bool existed)
{
    struct cgm_plan_waiter *waiter = malloc(sizeof(*waiter));
    if (!waiter)
        return CGM_NO_MEMORY;
    *waiter = (struct cgm_plan_waiter){plan->waiters, request->session->id, request->serial,
                                       existed, CGM_OK};
    plan->waiters = waiter;
    cgm_session_count_call(request->broker, request->session->id, 1, 0);
    return CGM_OK;
}

void cgm_plan_send_reply(struct cgm_broker *broker, const struct cgm_plan *plan, uint64_t session,
                         uint32_t serial, bool existed)
{
    Cgm__PlanReply reply = CGM__PLAN_REPLY__INIT;
    Cgm__PlanCreate *create = cgm__plan_create__unpack(NULL, plan->request_bytes, plan->request);
    reply.id = plan->id;
    reply.algorithm = plan->algorithm;
    reply.reason = (char *)(uintptr_t)plan->reason;
    reply.has_comm = reply.has_workspace_bytes = reply.has_existed = 1;
    reply.comm = plan->comm;
    reply.has_op = create != NULL;
    reply.op = create ? create->op : 0;
    reply.workspace_bytes = plan->workspace_bytes;
    reply.existed = existed;
    cgm_answer(broker, session, serial, CGM_MSG_PLAN_REPLY, &reply.base, NULL, 0);
    if (create)
        cgm__plan_create__free_unpacked(create, NULL);
}

/* Gives every waiting session that is still in the comm its reference. */
static int reference_waiter(struct cgm_broker *broker, struct cgm_plan *plan, uint64_t id)
{
    const struct cgm_comm *comm = cgm_registry_find(&broker->comms, plan->comm);
    struct cgm_session *session = cgm_registry_find(&broker->sessions, id);
    if (!comm || !session || !cgm_comm_has_session(comm, id))
        return CGM_NOT_FOUND;
    return cgm_plan_reference(session, plan);
}

/* Who has it at nobody's cost but his own, and has no room for it, has lost it already. */
static int check_waiter(const struct cgm_broker *broker, const struct cgm_plan *plan, uint64_t id)
{
    const struct cgm_session *session = cgm_registry_find(&broker->sessions, id);
    return session && cgm_registry_find(&session->plans, plan->id) ? CGM_OK : CGM_QUOTA;
}

static const char *why_without(int status)
{
    return status == CGM_NOT_FOUND ? "the session has left the comm" : cgm_status_text(status);
}

void cgm_plan_answer_waiters(struct cgm_broker *broker, struct cgm_plan *plan, int status,
                             const char *detail)
{
    for (struct cgm_plan_waiter *w = plan->waiters; w; w = w->next)
        w->status = status == CGM_OK ? reference_waiter(broker, plan, w->session) : status;
    cgm_plan_settle_cost(broker, plan);
    for (const struct cgm_plan_waiter *w = plan->waiters; w; w = w->next) {
        int result = w->status == CGM_OK ? check_waiter(broker, plan, w->session) : w->status;
        if (result == CGM_OK)
            cgm_plan_send_reply(broker, plan, w->session, w->serial, w->existed);
        else
            cgm_answer_error(broker, w->session, w->serial, result, "%s",
                             status == CGM_OK ? why_without(result) : detail);
    }
    cgm_plan_forget_waiters(broker, plan);
}
