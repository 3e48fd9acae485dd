#include "daemon/broker/plan_waiters.h"

#include <stdlib.h>

#include "daemon/broker/broker.h"
#include "daemon/broker/buffer.h"
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

/* Gives the session its reference, if it is still in the comm. */
static int reference_waiter(struct cgm_broker *broker, struct cgm_plan *plan, uint64_t id,
                            char *ret_detail, size_t size)
{
    const struct cgm_comm *comm = cgm_registry_find(&broker->comms, plan->comm);
    struct cgm_session *session = cgm_registry_find(&broker->sessions, id);
    if (!comm || !session || !cgm_comm_has_session(comm, id))
        return cgm_detail(ret_detail, size, CGM_CANCELLED,
                          "plan: the session left its comm while it was being made");
    return cgm_plan_reference(session, plan, ret_detail, size);
}

static void refuse(struct cgm_broker *broker, struct cgm_plan_waiter *waiter, int status,
                   const char *detail)
{
    waiter->status = status;
    cgm_answer_error(broker, waiter->session, waiter->serial, status, "%s",
                     detail[0] ? detail : cgm_status_text(status));
}

void cgm_plan_refuse_waiters(struct cgm_broker *broker, struct cgm_plan *plan, uint64_t session,
                             int status, const char *detail)
{
    for (struct cgm_plan_waiter *w = plan->waiters; w; w = w->next)
        if (w->session == session && w->status == CGM_OK)
            refuse(broker, w, status, detail);
}

static void refuse_user(struct cgm_broker *broker, struct cgm_plan *plan, uid_t uid, int status,
                        const char *detail)
{
    for (struct cgm_plan_waiter *w = plan->waiters; w; w = w->next) {
        const struct cgm_session *session = cgm_registry_find(&broker->sessions, w->session);
        if (w->status == CGM_OK && session && session->uid == uid)
            refuse(broker, w, status, detail);
    }
}

/* Who came first of those that have not been refused. */
static const struct cgm_session *first_waiter(const struct cgm_broker *broker,
                                              const struct cgm_plan *plan)
{
    const struct cgm_session *first = NULL, *session;
    for (const struct cgm_plan_waiter *w = plan->waiters; w; w = w->next)
        if (w->status == CGM_OK && (session = cgm_registry_find(&broker->sessions, w->session)))
            first = session;
    return first;
}

/* It is as if he had asked first. */
static void set_owner(struct cgm_plan *plan, const struct cgm_session *session)
{
    plan->owner.uid = session->uid;
    plan->owner.gid = session->gid;
    for (uint32_t rank = 0; rank < plan->world; rank++)
        plan->buffers[rank]->owner = plan->owner;
}

bool cgm_plan_pass_to_waiter(struct cgm_broker *broker, struct cgm_plan *plan, const char *detail)
{
    const struct cgm_session *next;
    refuse_user(broker, plan, plan->estate->uid, CGM_QUOTA, detail);
    while ((next = first_waiter(broker, plan))) {
        char why[384] = "";
        int status = cgm_estate_pass(broker, plan->estate, next->uid, why, sizeof(why));
        if (status == CGM_OK) {
            set_owner(plan, next);
            return true;
        }
        refuse_user(broker, plan, next->uid, status, why);
    }
    return false;
}

/* Nobody is told that he has it before it is known who pays. */
void cgm_plan_answer_waiters(struct cgm_broker *broker, struct cgm_plan *plan, int status,
                             const char *detail)
{
    for (struct cgm_plan_waiter *w = plan->waiters; w; w = w->next) {
        char why[384] = "";
        if (w->status != CGM_OK)
            continue;
        int result = status == CGM_OK ? reference_waiter(broker, plan, w->session, why, sizeof(why))
                                      : status;
        if (result != CGM_OK)
            refuse(broker, w, result, status == CGM_OK ? why : detail);
    }
    cgm_plan_settle_cost(broker, plan);
    for (const struct cgm_plan_waiter *w = plan->waiters; w; w = w->next)
        if (w->status == CGM_OK)
            cgm_plan_send_reply(broker, plan, w->session, w->serial, w->existed);
    cgm_plan_forget_waiters(broker, plan);
}
