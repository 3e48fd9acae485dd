#include "daemon/broker/calls.h"

#include <stdlib.h>

#include "daemon/broker/broker.h"
#include "daemon/broker/quota.h"
#include "daemon/broker/session.h"
#include "daemon/broker/user_log.h"
#include "proto/messages.h"
#include "proto/status.h"
#include "proto/step.h"

struct pending {
    uint16_t type;
    struct cgm_call call;
    size_t unheard; /* bytes that were queued, and are counted for who asked */
};

static uint16_t reply_type(uint16_t request_type)
{
    static const struct {
        uint16_t request, reply;
    } rows[] = {
        {CGM_MSG_EXECUTOR_SETUP, CGM_MSG_EXECUTOR_HELLO},
        {CGM_MSG_BUFFER_ALLOC, CGM_MSG_MEMORY},
        {CGM_MSG_PLAN_ADD, CGM_MSG_PLAN_ADDED},
        {CGM_MSG_PLAN_MEASURE, CGM_MSG_PLAN_MEASURED},
        {CGM_MSG_QUERY, CGM_MSG_QUERY_REPLY},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        if (rows[i].request == request_type)
            return rows[i].reply;
    return CGM_MSG_OK;
}

static int weight(uint16_t type)
{
    return type == CGM_MSG_QUERY ? CGM_CALL_WEIGHT_MAX : 1;
}

/* To clients, with the answer. */
static bool brings_fds(uint16_t type)
{
    return type == CGM_MSG_BUFFER_ALLOC || type == CGM_MSG_GRANT || type == CGM_MSG_SESSION_ADD;
}

static void count(struct cgm_broker *broker, const struct pending *pending, int change)
{
    int fds = pending->call.session && brings_fds(pending->type) ? change : 0;
    cgm_session_count_call(broker, pending->call.session, change * weight(pending->type), fds);
    cgm_quota_count_unread(broker, pending->call.uid, fds);
    if (pending->type == CGM_MSG_QUERY)
        cgm_quota_count_query(broker, pending->call.uid, change);
}

static uint32_t next_serial(struct cgm_calls *calls)
{
    do
        calls->last_serial++;
    while (calls->last_serial == 0 || cgm_registry_find(&calls->pending, calls->last_serial));
    return calls->last_serial;
}

int cgm_call_executor(struct cgm_broker *broker, uint16_t type, const ProtobufCMessage *message,
                      const int *fds, unsigned n_fds, const struct cgm_call *call)
{
    struct cgm_executor *executor = &broker->executor;
    if (!cgm_executor_hears(executor))
        return CGM_NO_EXECUTOR;
    struct pending *pending = malloc(sizeof(*pending));
    uint32_t serial = next_serial(&executor->calls);
    if (!pending || cgm_registry_add(&executor->calls.pending, serial, pending) != CGM_OK) {
        free(pending);
        return CGM_NO_MEMORY;
    }
    *pending = (struct pending){.type = type, .call = *call};
    count(broker, pending, 1);
    size_t queued_bytes = executor->link.queued_bytes;
    cgm_connection_send(&executor->link, type, serial, message, fds, n_fds);
    pending->unheard = executor->link.queued_bytes - queued_bytes;
    cgm_quota_count_unheard(broker, call->uid, (int64_t)pending->unheard);
    return CGM_OK;
}

void cgm_tell_executor(struct cgm_broker *broker, uint16_t type, const ProtobufCMessage *message)
{
    struct cgm_call nobody = {.done = NULL};
    if (cgm_call_executor(broker, type, message, NULL, 0, &nobody) == CGM_NO_MEMORY)
        cgm_executor_doom(broker, "no memory to tell it what is gone");
}

/* Removes the pending call and runs its callback. */
static void finish(struct cgm_broker *broker, uint32_t serial, const struct cgm_result *result)
{
    struct pending *pending = cgm_registry_remove(&broker->executor.calls.pending, serial);
    cgm_step(CGM_STEP_BROKER_ANSWERED, pending->type);
    count(broker, pending, -1);
    cgm_quota_count_unheard(broker, pending->call.uid, -(int64_t)pending->unheard);
    if (result->status != CGM_OK && result->status != CGM_EXECUTOR_LOST)
        cgm_user_log(broker, pending->call.uid, CGM_LOG_DEBUG, "executor: %s failed: %s: %s",
                     cgm_message_name(pending->type), cgm_status_text(result->status),
                     result->detail);
    if (pending->call.done)
        pending->call.done(broker, &pending->call, result);
    free(pending);
}

static int finish_with_error(struct cgm_broker *broker, uint32_t serial, const Cgm__Error *error)
{
    struct cgm_result result = {
        .status = error->status == CGM_OK ? CGM_INTERNAL : error->status,
        .detail = error->detail ? error->detail : "",
    };
    finish(broker, serial, &result);
    return CGM_OK;
}

/* What the executor has made cannot be had. */
static int answer_lost(struct cgm_broker *broker, uint32_t serial, const char *why)
{
    const struct cgm_result result = {.status = CGM_NO_MEMORY, .detail = why};
    if (!cgm_registry_find(&broker->executor.calls.pending, serial))
        return CGM_BAD_MESSAGE;
    finish(broker, serial, &result);
    return CGM_OK;
}

static int handle_reply(struct cgm_broker *broker, struct cgm_packet *packet)
{
    uint32_t serial = packet->header.serial;
    const struct pending *pending = cgm_registry_find(&broker->executor.calls.pending, serial);
    ProtobufCMessage *message = NULL;
    int status = CGM_BAD_MESSAGE;
    if (cgm_packet_read(packet, &message) == CGM_NO_MEMORY) {
        status = answer_lost(broker, serial, "the daemon has no memory left for the answer");
    } else if (pending && message && packet->header.type == CGM_MSG_ERROR) {
        status = finish_with_error(broker, serial, (const Cgm__Error *)message);
    } else if (pending && message && packet->header.type == reply_type(pending->type)) {
        struct cgm_result result = {CGM_OK, "", message, packet};
        finish(broker, serial, &result);
        status = CGM_OK;
    }
    cgm_message_free(message);
    return status;
}

/* At the cost of the user that it is for, whose session may be gone. */
int cgm_calls_on_reply(struct cgm_broker *broker, struct cgm_packet *packet)
{
    const struct pending *pending =
        cgm_registry_find(&broker->executor.calls.pending, packet->header.serial);
    if (pending && (pending->call.session != 0 || pending->call.uid != 0))
        broker->executor.payer = pending->call.uid;
    return handle_reply(broker, packet);
}

int cgm_calls_on_cut(struct cgm_broker *broker, uint32_t serial)
{
    return answer_lost(broker, serial,
                       "the daemon has no file descriptors left for what the executor has made");
}

void cgm_calls_fail_all(struct cgm_broker *broker, const char *why)
{
    struct cgm_result result = {.status = CGM_EXECUTOR_LOST, .detail = why};
    uint64_t serial = 0;
    while (cgm_registry_next(&broker->executor.calls.pending, &serial))
        finish(broker, (uint32_t)serial, &result);
}
