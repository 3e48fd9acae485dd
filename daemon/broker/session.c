#include "daemon/broker/session.h"

#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "daemon/broker/admission.h"
#include "daemon/broker/broker.h"
#include "daemon/broker/buffer.h"
#include "daemon/broker/comm.h"
#include "daemon/broker/dispatch.h"
#include "daemon/broker/ghost.h"
#include "daemon/broker/import.h"
#include "daemon/broker/plan.h"
#include "daemon/broker/plan_hold.h"
#include "daemon/broker/user_log.h"
#include "proto/step.h"

#define QUEUED_BYTES_MAX (1u << 20)
#define CALLS_MAX CGM_CALL_WEIGHT_MAX    /* of one session at the executor */
#define QUEUED_FDS_MAX (CALLS_MAX + 32u) /* without a byte beside them: those of all calls, too */
#define NS_PER_MS 1000000u
#define UNHEARD_MS 10u /* until the executor, or who has to read fds, may have read on */

static void on_packet(void *owner, struct cgm_packet *packet)
{
    cgm_dispatch(owner, packet);
}

/* It is freed later, if it has ended. */
static void on_spent(void *owner, uint64_t ns)
{
    const struct cgm_session *session = owner;
    cgm_quota_spend(session->broker, session->uid, ns);
}

static void on_garbage(void *owner, uint32_t serial)
{
    cgm_session_refuse(owner, serial, CGM_BAD_MESSAGE,
                       "the packet is truncated, or its header does not say what it has");
}

static void on_end(void *owner, const char *why)
{
    cgm_session_end(owner, why);
}

static void hang_up(void *owner, int fd)
{
    const struct cgm_session *session = owner;
    cgm_linger_hang_up(session->broker, session->uid, fd, session->connection.unread_fds);
}

static bool close_fds(void *owner, const int *fds, unsigned n_fds)
{
    const struct cgm_session *session = owner;
    return cgm_closer_close(session->broker, session->uid, fds, n_fds);
}

static void drop_fds(void *owner, const int *fds, unsigned n_fds)
{
    const struct cgm_session *session = owner;
    cgm_closer_drop(session->broker, session->uid, fds, n_fds);
}

static void on_closed(void *owner)
{
    struct cgm_session *session = owner;
    session->broker->closing_sessions--;
    free(session);
}

static bool has_turn(void *owner)
{
    const struct cgm_session *session = owner;
    return cgm_quota_has_turn(session->broker, session->uid);
}

bool cgm_session_owes_reading(struct cgm_session *session)
{
    unsigned n_fds = cgm_connection_unread_fds(&session->connection) + session->fds_to_come;
    return n_fds > 0 && !cgm_quota_lets_unread(session->broker, session->uid, n_fds + 1, 1);
}

static uint64_t rest_ms(void *owner)
{
    const struct cgm_session *session = owner;
    bool owes = cgm_session_owes_reading(owner);
    if (owes)
        cgm_ghost_watch(session->broker);
    if (owes || cgm_quota_is_unheard(session->broker, session->uid))
        return UNHEARD_MS;
    return (cgm_quota_rest_ns(session->broker, session->uid) + NS_PER_MS - 1) / NS_PER_MS;
}

static void on_long_send(void *owner, uint64_t ns)
{
    const struct cgm_session *session = owner;
    cgm_quota_spend_on_sends(session->broker, session->uid, ns);
}

static uint64_t sends_rest_ms(void *owner)
{
    const struct cgm_session *session = owner;
    return (cgm_quota_sends_rest_ns(session->broker, session->uid) + NS_PER_MS - 1) / NS_PER_MS;
}

static const char *must_end(void *owner)
{
    const struct cgm_session *session = owner;
    return cgm_quota_is_overdrawn(session->broker, session->uid)
               ? "its user's file descriptors are not closed, and they are more than it may have"
               : NULL;
}

static bool lets_fds_come(void *owner)
{
    const struct cgm_session *session = owner;
    return cgm_quota_lets_fds_come(session->broker, session->uid);
}

static bool lets_unread(void *owner, unsigned of_peer, unsigned n_more)
{
    const struct cgm_session *session = owner;
    return cgm_quota_lets_unread(session->broker, session->uid, of_peer, n_more);
}

static void count_unread(void *owner, int n_more)
{
    const struct cgm_session *session = owner;
    cgm_quota_count_unread(session->broker, session->uid, n_more);
}

static const struct cgm_connection_events events = {
    .fd_weight_bytes = QUEUED_BYTES_MAX / QUEUED_FDS_MAX,
    .lets_unread = lets_unread,
    .count_unread = count_unread,
    .on_long_send = on_long_send,
    .sends_rest_ms = sends_rest_ms,
    .keeps_reserve = true,
    .must_end = must_end,
    .lets_fds_come = lets_fds_come,
    .packets_per_turn = 8,
    .has_turn = has_turn,
    .rest_ms = rest_ms,
    .on_spent = on_spent,
    .on_packet = on_packet,
    .on_garbage = on_garbage,
    .hang_up = hang_up,
    .close_fds = close_fds,
    .drop_fds = drop_fds,
    .on_end = on_end,
    .on_closed = on_closed,
};

static struct cgm_session *session_new(struct cgm_broker *broker, int fd, const struct ucred *peer,
                                       const struct cgm_charge *charge)
{
    struct cgm_session *session = calloc(1, sizeof(*session));
    if (!session)
        return NULL;
    session->broker = broker;
    session->id = ++broker->last_session;
    session->pid = peer->pid;
    session->uid = peer->uid;
    session->gid = peer->gid;
    session->charge = *charge;
    session->connected_ns = cgm_lived_ns(broker);
    session->ring.ring_fd = session->ring.wake_fd = session->ring.notify_fd = -1;
    if (cgm_registry_add(&broker->sessions, session->id, session) != CGM_OK) {
        free(session);
        return NULL;
    }
    if (cgm_connection_open(&session->connection, &broker->loop, broker->wire, fd, QUEUED_BYTES_MAX,
                            &events, session) != CGM_OK) {
        cgm_registry_remove(&broker->sessions, session->id);
        free(session);
        return NULL;
    }
    return session;
}

static bool accept_peer(struct cgm_broker *broker, int fd, struct ucred *ret_peer)
{
    struct cgm_session *session;
    struct cgm_charge charge;
    char detail[256];
    int status = cgm_admission_check(broker, fd, ret_peer, &charge, detail, sizeof(detail));
    if (status != CGM_OK) {
        cgm_admission_refuse(broker, fd, ret_peer, status, detail);
        return false;
    }
    cgm_listener_admit(fd);
    session = session_new(broker, fd, ret_peer, &charge);
    if (!session) {
        cgm_quota_give(broker, ret_peer->uid, &charge);
        cgm_admission_refuse(broker, fd, ret_peer, CGM_NO_MEMORY, "the daemon has no memory left");
        return false;
    }
    cgm_user_log(broker, session->uid, CGM_LOG_DEBUG, "session %ju: connected, pid %d uid %u",
                 (uintmax_t)session->id, (int)session->pid, (unsigned)session->uid);
    cgm_admission_await_hello(broker);
    cgm_broker_tell_status(broker);
    return true;
}

bool cgm_session_accept(void *owner, int fd)
{
    struct cgm_broker *broker = owner;
    struct ucred peer = {0};
    uint64_t begin_ns = cgm_spent_ns();
    cgm_step(CGM_STEP_BROKER, CGM_BROKER_STEP_ACCEPT);
    bool admitted = accept_peer(broker, fd, &peer);
    cgm_quota_spend(broker, peer.uid, cgm_spent_ns() - begin_ns);
    return admitted;
}

void cgm_session_end(struct cgm_session *session, const char *why)
{
    struct cgm_broker *broker = session->broker;
    cgm_user_log(broker, session->uid, CGM_LOG_INFO, "session %ju: %s (%s, pid %d) ended: %s",
                 (uintmax_t)session->id, session->name[0] ? session->name : "unnamed",
                 session->greeted ? "greeted" : "silent", (int)session->pid, why);
    cgm_step(CGM_STEP_BROKER, CGM_BROKER_STEP_SESSION_END);
    cgm_registry_remove(&broker->sessions, session->id);
    /* Before its memory goes: who finds holes there finds the hang-up too. */
    broker->closing_sessions++;
    cgm_connection_close(&session->connection);
    /* Before the executor hears of it, and ends its jobs as those of a peer that has gone. */
    cgm_session_kill_ring(session, CGM_DAEMON_LOST);
    if (session->added)
        cgm_session_settle_jobs(session);
    else
        cgm_session_give_jobs(session);
    cgm_plan_drop_all(session, 0);
    cgm_comm_drop_all(session);
    cgm_import_drop_all(session);
    cgm_buffer_drop_all(session);
    cgm_quota_give(broker, session->uid, &session->charge);
    cgm_broker_tell_status(broker);
}

void cgm_session_refuse(struct cgm_session *session, uint32_t serial, int status,
                        const char *detail)
{
    cgm_answer_error(session->broker, session->id, serial, status, "%s", detail);
    cgm_session_end(session, detail);
}

void cgm_session_count_call(struct cgm_broker *broker, uint64_t id, int change, int fds)
{
    struct cgm_session *session = id ? cgm_registry_find(&broker->sessions, id) : NULL;
    if (!session)
        return;
    session->fds_to_come += (unsigned)fds;
    session->calls += (uint32_t)change;
    cgm_connection_pause(&session->connection, session->calls >= CALLS_MAX);
    if (session->calls >= CALLS_MAX)
        cgm_ghost_watch(broker);
}

static int negotiate(struct cgm_request *request, const Cgm__Hello *hello, uint32_t *ret_version)
{
    uint32_t version =
        hello->max_version < CGM_PROTOCOL_MAX ? hello->max_version : CGM_PROTOCOL_MAX;
    if (version < CGM_PROTOCOL_MIN || version < hello->min_version)
        return cgm_refuse(request, CGM_VERSION,
                          "the client speaks protocol %u to %u, the daemon (release %s) %u to %u",
                          hello->min_version, hello->max_version, COMMGEMM_RELEASE,
                          CGM_PROTOCOL_MIN, CGM_PROTOCOL_MAX);
    *ret_version = version;
    return CGM_OK;
}

static int check_hello(struct cgm_request *request, const Cgm__Hello *hello, uint32_t *ret_version)
{
    if (request->session->greeted)
        return cgm_refuse(request, CGM_EXISTS, "Hello was answered already");
    if (hello->name && !cgm_name_is_valid(hello->name))
        return cgm_refuse(request, CGM_INVALID_ARGUMENT,
                          "name of the program must be 1 to %u characters of [A-Za-z0-9._:-], the "
                          "first none of . - :",
                          CGM_NAME_BYTES_MAX);
    return negotiate(request, hello, ret_version);
}

int cgm_session_on_hello(struct cgm_request *request)
{
    const Cgm__Hello *hello = (const Cgm__Hello *)request->message;
    struct cgm_session *session = request->session;
    struct cgm_executor *executor = &request->broker->executor;
    Cgm__HelloReply reply = CGM__HELLO_REPLY__INIT;
    int status = check_hello(request, hello, &reply.version);
    if (status != CGM_OK)
        return status;
    if (hello->name)
        strcpy(session->name, hello->name);
    session->greeted = true;
    reply.has_features = reply.has_session = reply.has_devices = reply.has_executor_life = 1;
    reply.features = CGM_FEATURE_BUFFER_CHECK;
    reply.session = session->id;
    reply.release = (char *)(uintptr_t)COMMGEMM_RELEASE;
    reply.backend = executor->backend;
    reply.devices = executor->n_devices;
    reply.executor_life = cgm_executor_is_ready(executor) ? executor->life : 0;
    cgm_user_log(request->broker, session->uid, CGM_LOG_INFO, "session %ju: %s, pid %d uid %u",
                 (uintmax_t)session->id, session->name[0] ? session->name : "unnamed",
                 (int)session->pid, (unsigned)session->uid);
    cgm_reply(request, CGM_MSG_HELLO_REPLY, &reply.base);
    return CGM_OK;
}

int cgm_session_charge_jobs(struct cgm_session *session, uint64_t jobs, uint64_t fds,
                            char *ret_detail, size_t size)
{
    const struct cgm_charge charge = {{[CGM_QUOTA_JOBS] = jobs, [CGM_QUOTA_FDS] = fds}};
    if (session->jobs)
        return CGM_OK;
    return cgm_estate_new(session->broker, session->uid, &charge, NULL, 0, ret_detail, size,
                          &session->jobs);
}

void cgm_session_give_jobs(struct cgm_session *session)
{
    cgm_estate_free(session->broker, session->jobs);
    session->jobs = NULL;
}

void cgm_session_settle_jobs(struct cgm_session *session)
{
    Cgm__SessionRemove remove = CGM__SESSION_REMOVE__INIT;
    remove.session = session->id;
    cgm_estate_settle(session->broker, session->jobs, CGM_MSG_SESSION_REMOVE, &remove.base);
    session->jobs = NULL;
}

int cgm_session_ensure_added(struct cgm_session *session, char *ret_detail, size_t size)
{
    struct cgm_call nobody = {.done = NULL};
    if (session->added)
        return CGM_OK;
    int status = cgm_session_charge_jobs(session, CGM_RING_ENTRIES_DEFAULT, 0, ret_detail, size);
    if (status == CGM_OK)
        status = cgm_session_readd(session, &nobody);
    session->added = status == CGM_OK;
    if (!session->added)
        cgm_session_give_jobs(session);
    return status;
}

/* Each executor counts a session's tickets anew. */
static bool is_current(const struct cgm_broker *broker, uint64_t executor_life)
{
    return broker->executor.life == executor_life;
}

int cgm_session_on_submit(struct cgm_request *request)
{
    const Cgm__Submit *submit = (const Cgm__Submit *)request->message;
    Cgm__SubmitForward forward = CGM__SUBMIT_FORWARD__INIT;
    if (submit->entry.len != sizeof(struct cgm_entry))
        return cgm_refuse(request, CGM_BAD_MESSAGE, "entry has %zu bytes; it must have %zu",
                          submit->entry.len, sizeof(struct cgm_entry));
    if (request->session->ring.entries != 0)
        return cgm_refuse(request, CGM_INVALID_ARGUMENT,
                          "this session has a ring; its jobs must go through it");
    if (submit->has_executor_life && !is_current(request->broker, submit->executor_life))
        return cgm_refuse(request, CGM_EXECUTOR_LOST,
                          "the executor that the job was for has ended (executor_life %ju)",
                          (uintmax_t)submit->executor_life);
    struct cgm_call call = cgm_request_call(request, cgm_call_done_relay, 0);
    forward.session = request->session->id;
    forward.entry = submit->entry;
    return cgm_call_executor(request->broker, CGM_MSG_SUBMIT_FORWARD, &forward.base, NULL, 0,
                             &call);
}

/* A job ends with its executor. */
static bool may_be_in_flight(const struct cgm_request *request, const Cgm__Cancel *cancel)
{
    const struct cgm_broker *broker = request->broker;
    return request->session->added && cgm_executor_is_ready(&broker->executor) &&
           (!cancel->has_executor_life || is_current(broker, cancel->executor_life));
}

static void on_cancelled(struct cgm_broker *broker, const struct cgm_call *call,
                         const struct cgm_result *result)
{
    if (result->status == CGM_EXECUTOR_LOST)
        cgm_answer_ok(broker, call->session, call->serial);
    else
        cgm_call_done_relay(broker, call, result);
}

int cgm_session_on_cancel(struct cgm_request *request)
{
    const Cgm__Cancel *cancel = (const Cgm__Cancel *)request->message;
    Cgm__CancelForward forward = CGM__CANCEL_FORWARD__INIT;
    if (!may_be_in_flight(request, cancel)) {
        cgm_reply_ok(request);
        return CGM_OK;
    }
    struct cgm_call call = cgm_request_call(request, on_cancelled, 0);
    forward.session = request->session->id;
    forward.ticket = cancel->ticket;
    return cgm_call_executor(request->broker, CGM_MSG_CANCEL_FORWARD, &forward.base, NULL, 0,
                             &call);
}

static int check_generation(struct cgm_request *request, const char *side, uint64_t id,
                            uint32_t generation)
{
    const struct cgm_buffer *buffer = cgm_registry_find(&request->broker->buffers, id);
    if (!buffer || buffer->plan == 0 || buffer->generation == generation)
        return CGM_OK;
    return cgm_refuse(request, CGM_STALE,
                      "%s: generation is %u, and the memory went with its executor; buffer %ju is "
                      "at %u: open it again",
                      side, generation, (uintmax_t)id, buffer->generation);
}

/* The executor knows what the session may name, for copies as for jobs. */
int cgm_session_on_copy(struct cgm_request *request)
{
    const Cgm__MemoryCopy *copy = (const Cgm__MemoryCopy *)request->message;
    Cgm__CopyForward forward = CGM__COPY_FORWARD__INIT;
    int status = CGM_OK;
    if (copy->has_dst_generation)
        status = check_generation(request, "dst", copy->dst, copy->dst_generation);
    if (status == CGM_OK && copy->has_src_generation)
        status = check_generation(request, "src", copy->src, copy->src_generation);
    if (status != CGM_OK)
        return status;
    struct cgm_call call = cgm_request_call(request, cgm_call_done_relay, 0);
    forward.session = request->session->id;
    forward.dst = copy->dst;
    forward.dst_offset = copy->dst_offset;
    forward.src = copy->src;
    forward.src_offset = copy->src_offset;
    forward.bytes = copy->bytes;
    return cgm_call_executor(request->broker, CGM_MSG_COPY_FORWARD, &forward.base, NULL, 0, &call);
}

/* Who does not read for a while shall have all completions, and is cut off when they are too many.
 */
static bool has_room_for_phases(const struct cgm_session *session)
{
    return session->connection.queued_bytes < session->connection.queued_bytes_max / 2;
}

static void lose_phases(Cgm__Completion *completion, struct cgm_cqe *ret_cqe)
{
    if (completion->cqe.len != sizeof(*ret_cqe))
        return;
    memcpy(ret_cqe, completion->cqe.data, sizeof(*ret_cqe));
    ret_cqe->phases_lost += ret_cqe->n_phases;
    ret_cqe->n_phases = 0;
    completion->cqe.data = (uint8_t *)ret_cqe;
    completion->has_phases = 0;
}

void cgm_session_on_completion(struct cgm_broker *broker, const ProtobufCMessage *message)
{
    const Cgm__CompletionForward *forward = (const Cgm__CompletionForward *)message;
    Cgm__Completion completion = CGM__COMPLETION__INIT;
    struct cgm_cqe cqe;
    completion.cqe = forward->cqe;
    completion.has_phases = forward->has_phases;
    completion.phases = forward->phases;
    const struct cgm_session *session = cgm_registry_find(&broker->sessions, forward->session);
    if (session)
        broker->executor.payer = session->uid;
    if (session && forward->has_phases && !has_room_for_phases(session))
        lose_phases(&completion, &cqe);
    cgm_answer(broker, forward->session, 0, CGM_MSG_COMPLETION, &completion.base, NULL, 0);
}

void cgm_session_on_bad(struct cgm_broker *broker, const ProtobufCMessage *message)
{
    const Cgm__SessionBad *bad = (const Cgm__SessionBad *)message;
    struct cgm_session *session = cgm_registry_find(&broker->sessions, bad->session);
    if (session)
        cgm_session_refuse(session, 0, CGM_BAD_MESSAGE, bad->detail);
}
