/* The ring of a session: made here, served by the executor, used by the client. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "daemon/broker/broker.h"
#include "daemon/broker/log.h"
#include "daemon/broker/mps.h"
#include "daemon/broker/session.h"

#define RING_FDS 3u

/* What the client gets, or has got. */
static void close_ends(struct cgm_session *session)
{
    struct cgm_session_ring *ring = &session->ring;
    const int fds[] = {ring->wake_fd, ring->notify_fd};
    cgm_closer_drop_made(session->broker, session->uid, fds, 2);
    ring->wake_fd = ring->notify_fd = -1;
}

static void ring_close(struct cgm_session *session)
{
    struct cgm_session_ring *ring = &session->ring;
    close_ends(session);
    cgm_closer_unmap(session->broker, session->uid, &ring->map, ring->ring_fd);
    ring->ring_fd = -1;
    ring->life = 0;
}

/* *ret_far_end is the executor's end of the notify socket, the caller's to close. */
static int ring_open(struct cgm_session *session, uint64_t life, int *ret_far_end)
{
    struct cgm_session_ring *ring = &session->ring;
    int pair[2];
    int status = cgm_ring_create(ring->entries, session->id, life, &ring->ring_fd);
    if (status != CGM_OK)
        return status;
    ring->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    status = ring->wake_fd < 0 ? cgm_status_of_errno(errno)
                               : cgm_ring_map(ring->ring_fd, ring->entries, &ring->map);
    if (status == CGM_OK &&
        socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) < 0)
        status = cgm_status_of_errno(errno);
    if (status != CGM_OK) {
        ring_close(session);
        return status;
    }
    shutdown(pair[1], SHUT_RD); /* nobody would read, or close, what the client sends */
    ring->notify_fd = pair[0];
    ring->life = life;
    *ret_far_end = pair[1];
    return CGM_OK;
}

int cgm_session_readd(struct cgm_session *session, const struct cgm_call *call)
{
    struct cgm_broker *broker = session->broker;
    struct cgm_session_ring *ring = &session->ring;
    Cgm__SessionAdd add = CGM__SESSION_ADD__INIT;
    int fds[3], status;
    if (!cgm_executor_hears(&broker->executor))
        return CGM_NO_EXECUTOR;
    add.session = session->id;
    add.entries = ring->entries;
    add.uid = session->uid;
    add.has_pid = 1;
    add.pid = (uint32_t)session->pid;
    if (ring->entries == 0)
        return cgm_call_executor(broker, CGM_MSG_SESSION_ADD, &add.base, NULL, 0, call);
    status = ring_open(session, broker->executor.life, &fds[2]);
    if (status != CGM_OK)
        return status;
    fds[0] = ring->ring_fd;
    fds[1] = ring->wake_fd;
    status = cgm_call_executor(broker, CGM_MSG_SESSION_ADD, &add.base, fds, 3, call);
    close(fds[2]);
    if (status != CGM_OK)
        ring_close(session);
    return status;
}

void cgm_session_send_ring(struct cgm_session *session)
{
    struct cgm_executor *executor = &session->broker->executor;
    struct cgm_session_ring *ring = &session->ring;
    Cgm__Ring message = CGM__RING__INIT;
    const int fds[3] = {ring->ring_fd, ring->wake_fd, ring->notify_fd};
    message.executor_life = executor->life;
    message.backend = executor->backend;
    message.has_devices = 1;
    message.devices = executor->n_devices;
    if (ring->entries == 0) {
        cgm_connection_send(&session->connection, CGM_MSG_RING, 0, &message.base, NULL, 0);
        return;
    }
    if (ring->notify_fd < 0)
        return;
    message.entries = ring->entries;
    cgm_connection_send(&session->connection, CGM_MSG_RING, ring->serial, &message.base, fds, 3);
    close_ends(session);
    ring->serial = 0;
}

const struct cgm_ring *cgm_session_ring(const struct cgm_session *session)
{
    const struct cgm_session_ring *ring = &session->ring;
    return ring->map.header && cgm_ring_is_sealed(ring->ring_fd) ? &ring->map : NULL;
}

void cgm_session_kill_ring(struct cgm_session *session, int status)
{
    struct cgm_session_ring *ring = &session->ring;
    uint64_t comm, number;
    bool is_ending = cgm_executor_ending(&session->broker->executor, &comm, &number);
    if (cgm_session_ring(session)) {
        if (is_ending) /* before the client may see that the ring is dead, and end it */
            cgm_ring_end_well(&ring->map, ring->ring_fd, comm, number);
        cgm_ring_kill(&ring->map, ring->ring_fd, status);
    }
    ring_close(session);
}

static void on_added(struct cgm_broker *broker, const struct cgm_call *call,
                     const struct cgm_result *result)
{
    struct cgm_session *session = cgm_registry_find(&broker->sessions, call->session);
    if (!session)
        return;
    if (result->status == CGM_OK && cgm_executor_is_ready(&broker->executor)) {
        cgm_session_send_ring(session);
        return;
    }
    struct cgm_result answer = *result;
    if (result->status == CGM_OK)
        answer = (struct cgm_result){.status = CGM_NO_EXECUTOR,
                                     .detail = cgm_executor_why_not(&broker->executor)};
    session->ring.serial = 0;
    cgm_answer_error(broker, call->session, call->serial, answer.status, "%s", answer.detail);
    if (result->status == CGM_OK || result->status == CGM_EXECUTOR_LOST)
        return; /* it, or the next one, will serve it, and a Ring event tells */
    ring_close(session);
    cgm_session_settle_jobs(session); /* it may be the answer alone that found no memory */
    session->ring.entries = 0;
    session->added = false;
}

static int check_setup(struct cgm_request *request, uint32_t entries)
{
    const struct cgm_session *session = request->session;
    if (cgm_ring_bytes(entries) == 0)
        return cgm_refuse(request, CGM_INVALID_ARGUMENT,
                          "entries is %u; it must be a power of two from %u to %u", entries,
                          CGM_RING_ENTRIES_MIN, CGM_RING_ENTRIES_MAX);
    if (session->ring.entries != 0)
        return cgm_refuse(request, CGM_EXISTS,
                          "session %ju has a ring of %u entries already, or gets it from the next "
                          "executor",
                          (uintmax_t)session->id, session->ring.entries);
    if (session->added && session->ring.entries == 0)
        return cgm_refuse(request, CGM_INVALID_ARGUMENT,
                          "RingSetup must come before the session's first comm, buffer, import "
                          "and job");
    return CGM_OK;
}

/* Its CUDA calls would hang, and with them everybody who waits for its ranks. */
static int check_mps(struct cgm_request *request)
{
    uid_t uid = request->session->uid;
    struct cgm_mps mps;
    if (!cgm_executor_is_cuda(&request->broker->executor))
        return CGM_OK;
    cgm_mps_look(&mps);
    if (!cgm_mps_excludes(&mps, uid))
        return CGM_OK;
    return cgm_refuse(request, CGM_PERMISSION,
                      "the MPS of this machine serves uid %u alone, CUDA calls of uid %u would "
                      "hang; %s",
                      (unsigned)mps.uid, (unsigned)uid, CGM_MPS_FIX_MULTI_USER);
}

/* Without an executor that serves the wish is noted: a Ring event follows when there is one. */
int cgm_session_on_ring_setup(struct cgm_request *request)
{
    const Cgm__RingSetup *setup = (const Cgm__RingSetup *)request->message;
    struct cgm_session *session = request->session;
    int status = check_setup(request, setup->entries);
    if (status == CGM_OK)
        status = check_mps(request);
    if (status == CGM_OK)
        status = cgm_session_charge_jobs(session, setup->entries, RING_FDS, request->detail,
                                         sizeof(request->detail));
    if (status != CGM_OK)
        return status;
    session->ring.entries = setup->entries;
    session->added = true;
    if (!cgm_executor_hears(&request->broker->executor))
        return cgm_refuse(request, CGM_NO_EXECUTOR, "%s",
                          cgm_executor_why_not(&request->broker->executor));
    struct cgm_call call = cgm_request_call(request, on_added, 0);
    status = cgm_session_readd(session, &call);
    session->ring.serial = status == CGM_OK ? request->serial : 0;
    session->ring.entries = status == CGM_OK ? setup->entries : 0;
    session->added = status == CGM_OK;
    if (status != CGM_OK)
        cgm_session_give_jobs(session);
    return status;
}
