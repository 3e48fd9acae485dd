#include "daemon/broker/replay.h"

#include <string.h>

#include "daemon/broker/broker.h"
#include "daemon/broker/buffer.h"
#include "daemon/broker/comm.h"
#include "daemon/broker/comm_join.h"
#include "daemon/broker/import.h"
#include "daemon/broker/log.h"
#include "daemon/broker/plan.h"
#include "daemon/broker/plan_make.h"
#include "daemon/broker/process_state.h"
#include "daemon/broker/session.h"
#include "daemon/broker/user_log.h"

#define IN_FLIGHT_MAX 16u

/* Makes the stage's next call. NOT_FOUND when there is nothing left. */
typedef int step_fn(struct cgm_broker *broker, struct cgm_replay *replay);

static void pump(struct cgm_broker *broker);

/* Every reply of a replayed request comes through here. */
static void count_answer(struct cgm_broker *broker, const struct cgm_result *result)
{
    if (result->status == CGM_EXECUTOR_LOST)
        return; /* this replay is over */
    uv_timer_again(&broker->executor.timer);
    broker->executor.replay.in_flight--;
    pump(broker);
}

static void on_buffer(struct cgm_broker *broker, const struct cgm_call *call,
                      const struct cgm_result *result)
{
    cgm_buffer_on_adopted(broker, call->object, result);
    count_answer(broker, result);
}

static int step_buffers(struct cgm_broker *broker, struct cgm_replay *replay)
{
    struct cgm_buffer *buffer;
    while ((buffer = cgm_registry_next(&broker->buffers, &replay->cursor))) {
        struct cgm_call call = {.done = on_buffer, .object = buffer->id};
        if (buffer->plan == 0 && buffer->ready && !buffer->left_out)
            return cgm_buffer_tell(broker, buffer, &call);
    }
    return CGM_NOT_FOUND;
}

static bool is_refused(const struct cgm_result *result)
{
    return result->status != CGM_OK && result->status != CGM_EXECUTOR_LOST;
}

static void on_session(struct cgm_broker *broker, const struct cgm_call *call,
                       const struct cgm_result *result)
{
    struct cgm_session *session = cgm_registry_find(&broker->sessions, call->object);
    if (session && is_refused(result))
        cgm_session_refuse(session, 0, result->status, result->detail);
    count_answer(broker, result);
}

/* A session whose RingSetup came during this replay is there already. */
static int step_sessions(struct cgm_broker *broker, struct cgm_replay *replay)
{
    struct cgm_session *session;
    while ((session = cgm_registry_next(&broker->sessions, &replay->cursor))) {
        struct cgm_call call = {.done = on_session, .object = session->id};
        if (!session->added || session->ring.life == broker->executor.life)
            continue;
        int status = cgm_session_readd(session, &call);
        if (status == CGM_OK)
            return CGM_OK;
        cgm_session_refuse(session, 0, status, "its ring cannot be made again");
    }
    return CGM_NOT_FOUND;
}

static void log_refused(struct cgm_broker *broker, const struct cgm_call *call,
                        const struct cgm_result *result)
{
    const struct cgm_session *session = cgm_registry_find(&broker->sessions, call->other);
    if (session && is_refused(result))
        cgm_user_log(broker, session->uid, CGM_LOG_ERROR,
                     "executor: object %ju of session %ju is not taken over: %s",
                     (uintmax_t)call->object, (uintmax_t)call->other, result->detail);
}

static void on_grant(struct cgm_broker *broker, const struct cgm_call *call,
                     const struct cgm_result *result)
{
    log_refused(broker, call, result);
    count_answer(broker, result);
}

/* One session after the other, by the inner cursor through its holds. */
static int step_grants(struct cgm_broker *broker, struct cgm_replay *replay, bool of_plans)
{
    struct cgm_buffer_hold *hold;
    for (;;) {
        struct cgm_session *session = cgm_registry_find(&broker->sessions, replay->cursor);
        while (session && (hold = cgm_registry_next(&session->buffers, &replay->inner_cursor))) {
            struct cgm_call call = {
                .done = on_grant, .object = hold->buffer->id, .other = session->id};
            if ((hold->buffer->plan != 0) == of_plans)
                return cgm_buffer_tell_grant(session, hold, &call);
        }
        replay->inner_cursor = 0;
        if (!cgm_registry_next(&broker->sessions, &replay->cursor)) {
            replay->cursor = UINT64_MAX; /* asked again, there is still nothing left */
            return CGM_NOT_FOUND;
        }
    }
}

static int step_buffer_grants(struct cgm_broker *broker, struct cgm_replay *replay)
{
    return step_grants(broker, replay, false);
}

static int step_plan_grants(struct cgm_broker *broker, struct cgm_replay *replay)
{
    return step_grants(broker, replay, true);
}

/* One that the executor refuses is closed, for its client and for the executor, which is told once
 * more: jobs that name it are STALE. */
static void on_import(struct cgm_broker *broker, const struct cgm_call *call,
                      const struct cgm_result *result)
{
    struct cgm_import *import = cgm_registry_find(&broker->imports, call->object);
    cgm_import_on_added(broker, call->object, result);
    log_refused(broker, call, result);
    if (import && is_refused(result) && cgm_import_leave_out(broker, import) &&
        cgm_import_tell(broker, import, call) == CGM_OK)
        return;
    count_answer(broker, result);
}

static int step_imports(struct cgm_broker *broker, struct cgm_replay *replay)
{
    struct cgm_import *import = cgm_registry_next(&broker->imports, &replay->cursor);
    if (!import)
        return CGM_NOT_FOUND;
    struct cgm_call call = {.done = on_import, .object = import->id, .other = import->session};
    return cgm_import_tell(broker, import, &call);
}

static void on_comm(struct cgm_broker *broker, const struct cgm_call *call,
                    const struct cgm_result *result)
{
    cgm_comm_on_added(broker, call->object, result);
    count_answer(broker, result);
}

/* One that has lost a rank is handed over, too: it says so to those who still submit. */
static bool is_told(const struct cgm_comm *comm)
{
    return comm->state != CGM_COMM_FORMING && (!comm->broken || comm->lost_rank >= 0);
}

static int step_comms(struct cgm_broker *broker, struct cgm_replay *replay)
{
    struct cgm_comm *comm;
    while ((comm = cgm_registry_next(&broker->comms, &replay->cursor))) {
        struct cgm_call call = {.done = on_comm, .object = comm->id};
        if (is_told(comm))
            return cgm_comm_tell(broker, comm, &call);
        cgm_comm_want_ranks(comm);
    }
    return CGM_NOT_FOUND;
}

static void on_plan(struct cgm_broker *broker, const struct cgm_call *call,
                    const struct cgm_result *result)
{
    cgm_plan_on_readded(broker, call->object, call->other, result);
    count_answer(broker, result);
}

static int step_plans(struct cgm_broker *broker, struct cgm_replay *replay)
{
    struct cgm_plan *plan;
    while ((plan = cgm_registry_next(&broker->plans, &replay->cursor))) {
        struct cgm_call call = {.done = on_plan, .object = plan->id, .other = plan->buffers[0]->id};
        const struct cgm_comm *comm = cgm_registry_find(&broker->comms, plan->comm);
        if (!plan->ready || plan->remaking || !comm || !is_told(comm))
            continue;
        plan->unmade = false; /* unless the answer says so */
        return cgm_plan_tell(broker, plan, &call);
    }
    return CGM_NOT_FOUND;
}

static step_fn *const stages[] = {step_buffers, step_sessions, step_buffer_grants, step_imports,
                                  step_comms,   step_plans,    step_plan_grants};
#define STAGE_COUNT (sizeof(stages) / sizeof(stages[0]))

/* Who has asked for one gets it as the answer. */
static void send_rings(struct cgm_broker *broker)
{
    uint64_t at = 0;
    struct cgm_session *session;
    while ((session = cgm_registry_next(&broker->sessions, &at))) {
        if (session->greeted && session->ring.serial == 0)
            cgm_session_send_ring(session);
    }
}

static void finish(struct cgm_broker *broker)
{
    broker->executor.replay.stage = STAGE_COUNT + 1;
    cgm_executor_on_replayed(broker);
    send_rings(broker);
}

static void next_stage(struct cgm_replay *replay)
{
    replay->stage++;
    replay->cursor = replay->inner_cursor = 0;
}

/* Keeps a few requests of the stage in flight; goes to the next one when all are answered. */
static void pump(struct cgm_broker *broker)
{
    struct cgm_replay *replay = &broker->executor.replay;
    while (replay->stage < STAGE_COUNT && replay->in_flight < IN_FLIGHT_MAX &&
           broker->executor.state == CGM_EXECUTOR_REPLAYING) {
        int status = stages[replay->stage](broker, replay);
        if (status == CGM_OK)
            replay->in_flight++;
        else if (status != CGM_NOT_FOUND)
            cgm_executor_give_up(broker, "no memory to hand everything over");
        else if (replay->in_flight > 0)
            return;
        else
            next_stage(replay);
    }
    if (replay->stage == STAGE_COUNT && broker->executor.state == CGM_EXECUTOR_REPLAYING)
        finish(broker);
}

/* ---- who holds it up --------------------------------------------------------------------------
 */

static void leave_out(struct cgm_broker *broker, uid_t uid, uint32_t guest)
{
    uint64_t at = 0;
    struct cgm_buffer *buffer;
    struct cgm_import *import;
    cgm_log_warning("executor: it was held up by memory of uid %u, which the next one does not get",
                    (unsigned)uid);
    while (guest != CGM_SEVERAL && (buffer = cgm_registry_next(&broker->buffers, &at)))
        buffer->left_out |= buffer->owner.uid == uid && buffer->guest == guest;
    at = 0;
    while (guest == CGM_NOBODY && (import = cgm_registry_next(&broker->imports, &at)))
        if (import->estate->uid == uid)
            cgm_import_leave_out(broker, import);
}

void cgm_replay_on_stuck(struct cgm_broker *broker)
{
    /* One that is stopped or starved is not held up by anybody's memory. */
    uint64_t id = cgm_process_is_held(broker->executor.pid)
                      ? atomic_load(&broker->executor.journal->mapping)
                      : 0;
    struct cgm_buffer *buffer = cgm_registry_find(&broker->buffers, id);
    const struct cgm_import *import = cgm_registry_find(&broker->imports, id);
    if (buffer) {
        buffer->left_out = true;
        leave_out(broker, buffer->owner.uid, buffer->guest);
    } else if (import) {
        leave_out(broker, import->estate->uid, CGM_NOBODY);
    }
}

void cgm_replay_start(struct cgm_broker *broker)
{
    memset(&broker->executor.replay, 0, sizeof(broker->executor.replay));
    uv_timer_again(&broker->executor.timer);
    pump(broker);
}
