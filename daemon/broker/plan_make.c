#include "daemon/broker/plan_make.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "daemon/broker/broker.h"
#include "daemon/broker/buffer.h"
#include "daemon/broker/comm.h"
#include "daemon/broker/log.h"
#include "daemon/broker/plan.h"
#include "daemon/broker/plan_hold.h"
#include "daemon/broker/plan_waiters.h"
#include "daemon/broker/tune.h"
#include "daemon/broker/user_log.h"
#include "proto/status.h"
#include "proto/types.h"

/* ---- what the executor says of it -------------------------------------------------------------
 */

/* Its owner has it in the quota already; now it is known how much it is. */
static int charge_bytes(struct cgm_broker *broker, struct cgm_plan *plan, uint64_t bytes,
                        char *ret_detail, size_t size)
{
    struct cgm_charge *charge = &plan->estate->charge;
    uint64_t charged = charge->amount[CGM_QUOTA_BYTES];
    if (bytes > charged)
        return cgm_quota_raise(broker, plan->estate->uid, charge, CGM_QUOTA_BYTES, bytes,
                               ret_detail, size);
    struct cgm_charge less = {{[CGM_QUOTA_BYTES] = charged - bytes}};
    charge->amount[CGM_QUOTA_BYTES] = bytes;
    cgm_quota_give(broker, plan->estate->uid, &less);
    return CGM_OK;
}

static void store_times(struct cgm_broker *broker, struct cgm_plan *plan,
                        const Cgm__PlanAdded *added)
{
    size_t n = added->n_tried;
    if (n == 0 || n > CGM_TIMES_MAX || n != added->n_tried_ns || n != added->n_tried_variant)
        return;
    memcpy(plan->times.algorithm, added->tried, n * sizeof(added->tried[0]));
    memcpy(plan->times.variant, added->tried_variant, n * sizeof(added->tried_variant[0]));
    memcpy(plan->times.ns, added->tried_ns, n * sizeof(added->tried_ns[0]));
    plan->times.n = (uint32_t)n;
    plan->times.at_s = (uint64_t)time(NULL);
    cgm_tune_remember(broker, plan);
}

static int store_answer(struct cgm_broker *broker, struct cgm_plan *plan,
                        const struct cgm_result *result, char *ret_detail, size_t size)
{
    const Cgm__PlanAdded *added = (const Cgm__PlanAdded *)result->message;
    uint64_t bytes = added->workspace_bytes * plan->world;
    for (unsigned i = 0; i < result->packet->n_fds; i++)
        if (!cgm_quota_spares_fd(result->packet->fds[i], ret_detail, size))
            return CGM_NO_MEMORY;
    int status = charge_bytes(broker, plan, bytes, ret_detail, size);
    if (status != CGM_OK)
        return status;
    plan->algorithm = added->algorithm;
    plan->user_rows = added->user_rows;
    plan->user_cols = added->user_cols;
    plan->user_dtype = added->user_dtype;
    plan->chunks = added->chunks;
    plan->workspace_bytes = added->workspace_bytes;
    snprintf(plan->reason, sizeof(plan->reason), "%s", added->reason);
    store_times(broker, plan, added);
    for (uint32_t rank = 0; rank < plan->world; rank++) {
        struct cgm_buffer *buffer = plan->buffers[rank];
        cgm_buffer_set_fd(broker, buffer, cgm_packet_take_fd(result->packet, rank));
        buffer->bytes = added->user_bytes;
        buffer->generation = (uint32_t)broker->executor.life; /* the executor counts it so too */
        buffer->tainted = false;
        buffer->ready = true;
    }
    return CGM_OK;
}

/* ---- made -------------------------------------------------------------------------------------
 */

/* It is there, or it is not: whoever waited is told. */
static void settle(struct cgm_broker *broker, struct cgm_plan *plan, int status, const char *detail)
{
    plan->ready = status == CGM_OK;
    cgm_plan_answer_waiters(broker, plan, status, detail);
    cgm_plan_free_unused(broker, plan);
}

static void on_made(struct cgm_broker *broker, const struct cgm_call *call,
                    const struct cgm_result *result)
{
    char detail[384];
    struct cgm_plan *plan = cgm_registry_find(&broker->plans, call->object);
    int status = result->status;
    snprintf(detail, sizeof(detail), "%s", result->detail);
    if (status == CGM_OK)
        status = store_answer(broker, plan, result, detail, sizeof(detail));
    if (status == CGM_OK)
        cgm_user_log(broker, plan->owner.uid, CGM_LOG_INFO, "plan %016jx: %s on comm %ju",
                     (uintmax_t)plan->id, cgm_type_name(CGM_TABLE_ALGO, (int)plan->algorithm),
                     (uintmax_t)plan->comm);
    settle(broker, plan, status, detail);
}

/* What a trial takes is in the quota until the plan is made; without room the plan goes without. */
static void charge_trial(struct cgm_broker *broker, struct cgm_plan *plan,
                         const Cgm__PlanMeasured *measured)
{
    char unused[384];
    uint64_t bytes;
    if (plan->times.n > 0 || !measured->has_trial_bytes)
        return;
    if (__builtin_add_overflow(measured->bytes, measured->trial_bytes, &bytes) ||
        charge_bytes(broker, plan, bytes, unused, sizeof(unused)) != CGM_OK)
        plan->no_trial = "there is no room for it in quota_bytes";
}

/* Only now, as the executor has refused none of its parameters; and it stays charged when the plan
 * fails, as the executor may have the queues by then, which it keeps as long as the comm. It has no
 * comm that is gone. */
static int charge_queues(struct cgm_broker *broker, const struct cgm_plan *plan, char *ret_detail,
                         size_t size)
{
    struct cgm_comm *comm = cgm_registry_find(&broker->comms, plan->comm);
    return comm ? cgm_comm_charge_pair(broker, comm, plan->gemm_priority, plan->comm_priority,
                                       ret_detail, size)
                : CGM_OK;
}

/* Who asked first pays, as far as he has room. */
static int charge_waiters(struct cgm_broker *broker, struct cgm_plan *plan, uint64_t bytes,
                          char *ret_detail, size_t size)
{
    int status;
    do
        status = charge_bytes(broker, plan, bytes, ret_detail, size);
    while (status == CGM_QUOTA && cgm_plan_pass_to_waiter(broker, plan, ret_detail));
    return status;
}

/* Plans that are being made at the same time are all in the quota before any has its memory. */
static void on_measured(struct cgm_broker *broker, const struct cgm_call *call,
                        const struct cgm_result *result)
{
    char detail[384];
    struct cgm_plan *plan = cgm_registry_find(&broker->plans, call->object);
    int status = result->status;
    snprintf(detail, sizeof(detail), "%s", result->detail);
    if (status == CGM_OK)
        status = charge_waiters(broker, plan, ((const Cgm__PlanMeasured *)result->message)->bytes,
                                detail, sizeof(detail));
    if (status == CGM_OK)
        status = charge_queues(broker, plan, detail, sizeof(detail));
    if (status == CGM_OK) {
        const struct cgm_call next = {.done = on_made, .uid = plan->owner.uid, .object = plan->id};
        charge_trial(broker, plan, (const Cgm__PlanMeasured *)result->message);
        status = cgm_plan_tell(broker, plan, &next);
        snprintf(detail, sizeof(detail), "%s", cgm_status_text(status));
    }
    if (status != CGM_OK)
        settle(broker, plan, status, detail);
}

int cgm_plan_measure(struct cgm_broker *broker, const struct cgm_plan *plan)
{
    Cgm__PlanMeasure message = CGM__PLAN_MEASURE__INIT;
    const struct cgm_call call = {.done = on_measured, .uid = plan->owner.uid, .object = plan->id};
    message.request.data = plan->request;
    message.request.len = plan->request_bytes;
    return cgm_call_executor(broker, CGM_MSG_PLAN_MEASURE, &message.base, NULL, 0, &call);
}

int cgm_plan_tell(struct cgm_broker *broker, const struct cgm_plan *plan,
                  const struct cgm_call *call)
{
    Cgm__PlanAdd add = CGM__PLAN_ADD__INIT;
    uint64_t ids[CGM_COMM_SIZE_MAX];
    uint32_t journals[CGM_COMM_SIZE_MAX];
    for (uint32_t rank = 0; rank < plan->world; rank++) {
        ids[rank] = plan->buffers[rank]->id;
        journals[rank] = plan->buffers[rank]->index;
    }
    add.id = plan->id;
    add.request.data = plan->request;
    add.request.len = plan->request_bytes;
    add.n_buffer_ids = add.n_journals = plan->world;
    add.buffer_ids = ids;
    add.journals = journals;
    /* A plan that was made keeps its algorithm whatever is remembered of others meanwhile. */
    add.n_tried = add.n_tried_ns = add.n_tried_variant = plan->times.n;
    add.tried = (uint32_t *)(uintptr_t)plan->times.algorithm;
    add.tried_variant = (uint32_t *)(uintptr_t)plan->times.variant;
    add.tried_ns = (uint64_t *)(uintptr_t)plan->times.ns;
    add.has_tried_at = 1;
    add.tried_at = plan->times.at_s;
    add.no_trial = (char *)(uintptr_t)(plan->ready ? "an executor before this did not, either"
                                                   : plan->no_trial);
    add.has_uid = 1;
    add.uid = plan->owner.uid;
    add.has_lost = 1;
    add.lost = plan->ready; /* made before, by an executor that has ended */
    return cgm_call_executor(broker, CGM_MSG_PLAN_ADD, &add.base, NULL, 0, call);
}

/* ---- made anew --------------------------------------------------------------------------------
 */

/* The memory of its buffers was that of an executor that is gone: whoever wrote there would not be
 * read. Whoever creates it again has this one asked once more, and the next one is asked anyway. */
static void unmake(struct cgm_broker *broker, struct cgm_plan *plan)
{
    Cgm__PlanRemove remove = CGM__PLAN_REMOVE__INIT;
    plan->unmade = true;
    remove.id = plan->id;
    cgm_tell_executor(broker, CGM_MSG_PLAN_REMOVE, &remove.base);
    for (uint32_t rank = 0; rank < plan->world; rank++) {
        cgm_buffer_set_fd(broker, plan->buffers[rank], -1);
        plan->buffers[rank]->ready = false;
    }
}

static int readd(struct cgm_broker *broker, struct cgm_plan *plan, const struct cgm_result *result,
                 char *ret_detail, size_t size)
{
    int status = result->status;
    snprintf(ret_detail, size, "%s", result->detail);
    if (status == CGM_OK)
        status = store_answer(broker, plan, result, ret_detail, size);
    plan->unmade = false;
    if (status != CGM_OK)
        unmake(broker, plan);
    return status;
}

void cgm_plan_unmake_all(struct cgm_broker *broker, uint64_t comm)
{
    uint64_t at = 0;
    struct cgm_plan *plan;
    while ((plan = cgm_registry_next(&broker->plans, &at)))
        if (plan->comm == comm && plan->ready)
            unmake(broker, plan);
}

void cgm_plan_on_readded(struct cgm_broker *broker, uint64_t id, uint64_t first_buffer,
                         const struct cgm_result *result)
{
    char detail[256];
    struct cgm_plan *plan = cgm_registry_find(&broker->plans, id);
    Cgm__PlanRemove remove = CGM__PLAN_REMOVE__INIT;
    int status = result->status;
    remove.id = id;
    if (plan && plan->buffers[0]->id != first_buffer) /* it was freed, and made by who wanted it */
        return;
    if (!plan && status == CGM_OK) /* freed meanwhile, before it was there */
        cgm_tell_executor(broker, CGM_MSG_PLAN_REMOVE, &remove.base);
    if (!plan || status == CGM_EXECUTOR_LOST)
        return;
    if (readd(broker, plan, result, detail, sizeof(detail)) != CGM_OK)
        cgm_user_log(broker, plan->owner.uid, CGM_LOG_ERROR,
                     "plan %016jx: the new executor does not make it: %s", (uintmax_t)id, detail);
}

static void on_remade(struct cgm_broker *broker, const struct cgm_call *call,
                      const struct cgm_result *result)
{
    char detail[384];
    struct cgm_plan *plan =
        cgm_registry_find(&broker->plans, call->object); /* its waiters keep it */
    int status = readd(broker, plan, result, detail, sizeof(detail));
    plan->remaking = false;
    cgm_plan_answer_waiters(broker, plan, status, detail);
    cgm_plan_free_unused(broker, plan);
}

/* Of one who waits already. */
int cgm_plan_remake(struct cgm_broker *broker, struct cgm_plan *plan)
{
    const struct cgm_call call = {.done = on_remade, .uid = plan->owner.uid, .object = plan->id};
    int status = plan->remaking ? CGM_OK : cgm_plan_tell(broker, plan, &call);
    plan->remaking = status == CGM_OK;
    if (status != CGM_OK)
        cgm_plan_forget_waiters(broker, plan);
    return status;
}
