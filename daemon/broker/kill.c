#include "daemon/broker/kill.h"

#include <stdlib.h>

#include "daemon/broker/broker.h"
#include "daemon/broker/log.h"
#include "daemon/broker/mps.h"
#include "daemon/broker/mps_clients.h"
#include "daemon/broker/peer.h"
#include "daemon/broker/query.h"
#include "daemon/broker/session.h"

/* Of one SessionKill. */
struct killing {
    struct cgm_broker *broker;
    uint64_t operator_session, victim;
    uint32_t serial;
    pid_t pid; /* 0: it has ended, or this process cannot see it */
};

/* A process can leave its end of the socket to another one and end. Its number is then free, and
 * may be of somebody whom the session has nothing to do with. */
static pid_t find_process(const struct cgm_session *session)
{
    return cgm_peer_look(session->connection.fd, session->pid) == CGM_PEER_LIVES ? session->pid : 0;
}

static void finish(struct killing *killing, enum cgm_mps_part part, const char *note)
{
    struct cgm_broker *broker = killing->broker;
    struct cgm_session *victim = cgm_registry_find(&broker->sessions, killing->victim);
    Cgm__SessionKillReply reply = CGM__SESSION_KILL_REPLY__INIT;
    if (note[0])
        cgm_log_warning("session %ju: MPS: %s", (uintmax_t)killing->victim, note);
    if (victim)
        cgm_session_refuse(victim, 0, CGM_DAEMON_LOST, "an operator ended the session");
    reply.pid = (uint32_t)killing->pid;
    reply.mps = part;
    reply.note = (char *)(uintptr_t)note;
    cgm_answer(broker, killing->operator_session, killing->serial, CGM_MSG_SESSION_KILL_REPLY,
               &reply.base, NULL, 0);
    free(killing);
}

static void on_terminated(void *context, enum cgm_mps_part part, const char *note)
{
    struct killing *killing = context;
    if (part == CGM_MPS_TERMINATED)
        cgm_log_info("session %ju: MPS terminated its process %d", (uintmax_t)killing->victim,
                     (int)killing->pid);
    finish(killing, part, note);
}

int cgm_kill_find_session(struct cgm_request *request)
{
    const Cgm__SessionKill *kill = (const Cgm__SessionKill *)request->message;
    int status = cgm_query_find_operator(request);
    if (status != CGM_OK)
        return status;
    request->object = cgm_registry_find(&request->broker->sessions, kill->session);
    if (!request->object)
        return cgm_refuse(request, CGM_NOT_FOUND, "session %ju does not exist",
                          (uintmax_t)kill->session);
    return CGM_OK;
}

int cgm_kill_on_kill(struct cgm_request *request)
{
    const struct cgm_session *victim = request->object;
    struct cgm_mps mps;
    if (victim == request->session)
        return cgm_refuse(request, CGM_INVALID_ARGUMENT,
                          "session %ju is the one that asks; disconnect instead",
                          (uintmax_t)victim->id);
    struct killing *killing = calloc(1, sizeof(*killing));
    if (!killing)
        return cgm_refuse(request, CGM_NO_MEMORY, "no memory to end a session");
    killing->broker = request->broker;
    killing->operator_session = request->session->id;
    killing->serial = request->serial;
    killing->victim = victim->id;
    killing->pid = find_process(victim);
    cgm_log_info("session %ju: session %ju ends it", (uintmax_t)victim->id,
                 (uintmax_t)request->session->id);
    cgm_mps_look(&mps);
    if (mps.on && killing->pid != 0)
        cgm_mps_terminate(request->broker, killing->pid, on_terminated, killing);
    else
        finish(killing, mps.on ? CGM_MPS_NO_CLIENT : CGM_MPS_OFF, "");
    return CGM_OK;
}
