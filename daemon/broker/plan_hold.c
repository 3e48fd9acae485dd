#include "daemon/broker/plan_hold.h"

#include <stdlib.h>

#include "daemon/broker/broker.h"
#include "daemon/broker/buffer.h"
#include "daemon/broker/comm.h"
#include "daemon/broker/plan.h"
#include "daemon/broker/plan_waiters.h"
#include "daemon/broker/session.h"
#include "daemon/broker/user_log.h"
#include "proto/status.h"

int cgm_plan_reference(struct cgm_session *session, struct cgm_plan *plan, char *ret_detail,
                       size_t size)
{
    struct cgm_plan_hold *hold = cgm_registry_find(&session->plans, plan->id);
    /* Who comes back to what is his has it at his own cost again. */
    if (session->uid == plan->owner.uid) {
        int status = cgm_estate_pass(session->broker, plan->estate, session->uid, ret_detail, size);
        if (status != CGM_OK)
            return status;
    }
    if (hold)
        return CGM_OK;
    hold = calloc(1, sizeof(*hold));
    if (!hold || cgm_registry_add(&session->plans, plan->id, hold) != CGM_OK) {
        free(hold);
        return CGM_NO_MEMORY;
    }
    hold->plan = plan;
    plan->references++;
    return CGM_OK;
}

static void let_go(struct cgm_session *session, struct cgm_plan_hold *hold)
{
    struct cgm_plan *plan = hold->plan;
    for (uint32_t rank = 0; rank < plan->world; rank++)
        cgm_buffer_drop_of_plan(session, plan->buffers[rank]);
    cgm_registry_remove(&session->plans, plan->id);
    plan->references--;
    free(hold);
}

/* Some session that has it: of who pays, if he has one, else of anybody. */
static struct cgm_session *find_payer(const struct cgm_broker *broker, const struct cgm_plan *plan)
{
    const struct cgm_comm *comm = cgm_registry_find(&broker->comms, plan->comm);
    struct cgm_session *payer = NULL, *session;
    for (uint32_t rank = 0; comm && (session = cgm_comm_next(broker, comm, &rank));)
        if (cgm_registry_find(&session->plans, plan->id) &&
            (!payer || session->uid == plan->estate->uid))
            payer = session;
    return payer;
}

static void take_away(struct cgm_session *session, struct cgm_plan *plan, int status,
                      const char *why)
{
    cgm_user_log(session->broker, session->uid, CGM_LOG_WARNING,
                 "plan %016jx: session %ju loses it: who paid for it has let go of it, and uid %u "
                 "has no room for it in its quotas: %s",
                 (uintmax_t)plan->id, (uintmax_t)session->id, (unsigned)session->uid, why);
    let_go(session, cgm_registry_find(&session->plans, plan->id));
    cgm_plan_refuse_waiters(session->broker, plan, session->id, status, why);
}

/* Its owner pays while he has it, then another while that one has; who has no room for it in his
 * quotas loses it. */
void cgm_plan_settle_cost(struct cgm_broker *broker, struct cgm_plan *plan)
{
    struct cgm_session *payer;
    while ((payer = find_payer(broker, plan))) {
        char why[384] = "";
        int status = cgm_estate_pass(broker, plan->estate, payer->uid, why, sizeof(why));
        if (status == CGM_OK)
            return;
        take_away(payer, plan, status, why);
    }
}

void cgm_plan_free_unused(struct cgm_broker *broker, struct cgm_plan *plan)
{
    if (plan->waiters)
        return;
    cgm_plan_settle_cost(broker, plan);
    if (plan->references == 0)
        cgm_plan_free(broker, plan);
}

/* May free the plan. */
static void drop(struct cgm_session *session, struct cgm_plan_hold *hold)
{
    struct cgm_plan *plan = hold->plan;
    let_go(session, hold);
    cgm_plan_free_unused(session->broker, plan);
}

uint32_t cgm_plan_drop_all(struct cgm_session *session, uint64_t comm_or_0)
{
    uint64_t at = 0;
    uint32_t count = 0;
    struct cgm_plan_hold *hold;
    while ((hold = cgm_registry_next(&session->plans, &at))) {
        if (comm_or_0 && hold->plan->comm != comm_or_0)
            continue;
        drop(session, hold);
        count++;
    }
    return count;
}

int cgm_plan_find_held(struct cgm_request *request)
{
    uint64_t id = request->type == CGM_MSG_PLAN_CHUNK
                      ? ((const Cgm__PlanChunk *)request->message)->plan
                      : ((const Cgm__PlanDestroy *)request->message)->id;
    request->object = cgm_registry_find(&request->session->plans, id);
    return request->object ? CGM_OK
                           : cgm_refuse(request, CGM_NOT_FOUND, "session %ju has no plan %016jx",
                                        (uintmax_t)request->session->id, (uintmax_t)id);
}

int cgm_plan_on_destroy(struct cgm_request *request)
{
    drop(request->session, request->object);
    cgm_reply_ok(request);
    return CGM_OK;
}

int cgm_plan_on_destroy_all(struct cgm_request *request)
{
    Cgm__PlanDestroyAllReply reply = CGM__PLAN_DESTROY_ALL_REPLY__INIT;
    reply.count = cgm_plan_drop_all(request->session, 0);
    cgm_reply(request, CGM_MSG_PLAN_DESTROY_ALL_REPLY, &reply.base);
    return CGM_OK;
}
