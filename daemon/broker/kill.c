#include "daemon/broker/kill.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/broker/broker.h"
#include "daemon/broker/log.h"
#include "daemon/broker/mps.h"
#include "daemon/broker/query.h"
#include "daemon/broker/session.h"

#define STEP_LIMIT_MS 3000u

/* Of one SessionKill, from question to question to MPS. */
struct killing {
    struct cgm_broker *broker;
    uint64_t operator_session, victim;
    uint32_t serial;
    pid_t pid;
    char servers[512]; /* their pids, a line each */
    const char *next;  /* in servers: who is asked next */
    long server;       /* who is being asked */
};

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

static void fail(struct killing *killing, const char *command, int status, const char *output)
{
    char note[512];
    size_t length = strcspn(output, "\n");
    snprintf(note, sizeof(note), "%s of %.200s %s%s%.*s", command,
             cgm_mps_tool(&killing->broker->config),
             status == CGM_TIMEOUT ? "does not answer" : "failed", length ? ": " : "",
             (int)(length < 200 ? length : 200), output);
    finish(killing, CGM_MPS_FAILED, note);
}

static void ask(struct killing *killing, const char *command, cgm_tool_fn *done)
{
    char input[96], why[384];
    snprintf(input, sizeof(input), "%s\n", command);
    if (cgm_tool_run(killing->broker, cgm_mps_tool(&killing->broker->config), input, STEP_LIMIT_MS,
                     done, killing, why, sizeof(why)) != CGM_OK)
        finish(killing, CGM_MPS_FAILED, why);
}

static void on_terminated(void *context, int status, const char *output)
{
    struct killing *killing = context;
    if (status != CGM_OK) {
        fail(killing, "terminate_client", status, output);
        return;
    }
    cgm_log_info("session %ju: MPS terminated its process %d", (uintmax_t)killing->victim,
                 (int)killing->pid);
    finish(killing, CGM_MPS_TERMINATED, "");
}

/* True when a line of the text is this number and nothing else. */
static bool has_line(const char *text, long number)
{
    char line[32];
    size_t length = (size_t)snprintf(line, sizeof(line), "%ld", number);
    for (const char *at = text; *at; at += strcspn(at, "\n"), at += *at == '\n')
        if (strcspn(at, "\r\n") == length && strncmp(at, line, length) == 0)
            return true;
    return false;
}

static void on_clients(void *context, int status, const char *output);

static void ask_next_server(struct killing *killing)
{
    char command[64], *end;
    killing->server = strtol(killing->next, &end, 10);
    if (end == killing->next || killing->server <= 0) {
        finish(killing, CGM_MPS_NO_CLIENT, "");
        return;
    }
    killing->next = end;
    snprintf(command, sizeof(command), "get_client_list %ld", killing->server);
    ask(killing, command, on_clients);
}

static void on_clients(void *context, int status, const char *output)
{
    struct killing *killing = context;
    char command[64];
    if (status != CGM_OK) {
        fail(killing, "get_client_list", status, output);
    } else if (has_line(output, killing->pid)) {
        snprintf(command, sizeof(command), "terminate_client %ld %d", killing->server,
                 (int)killing->pid);
        ask(killing, command, on_terminated);
    } else {
        ask_next_server(killing);
    }
}

static void on_servers(void *context, int status, const char *output)
{
    struct killing *killing = context;
    if (status != CGM_OK) {
        fail(killing, "get_server_list", status, output);
        return;
    }
    snprintf(killing->servers, sizeof(killing->servers), "%s", output);
    killing->next = killing->servers;
    ask_next_server(killing);
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
    killing->pid = victim->pid;
    cgm_log_info("session %ju: session %ju ends it", (uintmax_t)victim->id,
                 (uintmax_t)request->session->id);
    cgm_mps_look(&mps);
    if (mps.on)
        ask(killing, "get_server_list", on_servers);
    else
        finish(killing, CGM_MPS_OFF, "");
    return CGM_OK;
}
