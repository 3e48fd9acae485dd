#include "daemon/executor/control.h"

#include <stdlib.h>
#include <unistd.h>

#include "daemon/executor/cancels.h"
#include "daemon/executor/endpoint.h"
#include "daemon/executor/heap.h"
#include "daemon/executor/memory.h"
#include "daemon/executor/plan.h"
#include "daemon/executor/query.h"
#include "daemon/executor/request.h"
#include "daemon/executor/transfer.h"
#include "proto/messages.h"
#include "proto/status.h"
#include "proto/step.h"

static void on_shutdown(struct cgm_request *request)
{
    request->executor->poller.ends = true;
    request->executor->poller.shutdown = request;
}

/* The poller's answer says that jobs move. */
static void on_ping(struct cgm_request *request)
{
    const Cgm__Ping *ping = (const Cgm__Ping *)request->message;
    if (ping->has_log_level)
        cgm_executor_set_log_level((int)ping->log_level);
    cgm_request_ok(request);
}

/* First steps; all on the poller. */
static const struct {
    int type;
    void (*step)(struct cgm_request *request);
} handlers[] = {
    {CGM_MSG_SESSION_ADD, cgm_endpoint_on_add},
    {CGM_MSG_SESSION_REMOVE, cgm_endpoint_on_remove},
    {CGM_MSG_COMM_ADD, cgm_comm_on_add},
    {CGM_MSG_COMM_REMOVE, cgm_comm_on_remove},
    {CGM_MSG_COMM_RANK_LEFT, cgm_comm_on_rank_left},
    {CGM_MSG_BUFFER_ALLOC, cgm_buffer_on_alloc},
    {CGM_MSG_BUFFER_ADOPT, cgm_buffer_on_adopt},
    {CGM_MSG_BUFFER_REMOVE, cgm_memory_on_remove},
    {CGM_MSG_BUFFER_REWRITTEN, cgm_memory_on_rewritten},
    {CGM_MSG_GRANT, cgm_grant_on_add},
    {CGM_MSG_REVOKE, cgm_grant_on_revoke},
    {CGM_MSG_IMPORT_ADD, cgm_import_on_add},
    {CGM_MSG_IMPORT_REMOVE, cgm_memory_on_remove},
    {CGM_MSG_PLAN_ADD, cgm_plan_on_add},
    {CGM_MSG_PLAN_MEASURE, cgm_plan_on_measure},
    {CGM_MSG_PLAN_REMOVE, cgm_plan_on_remove},
    {CGM_MSG_SUBMIT_FORWARD, cgm_endpoint_on_submit},
    {CGM_MSG_CANCEL_FORWARD, cgm_cancels_on_request},
    {CGM_MSG_COPY_FORWARD, cgm_transfer_on_copy},
    {CGM_MSG_QUERY, cgm_query_on_query},
    {CGM_MSG_SHUTDOWN, on_shutdown},
    {CGM_MSG_PING, on_ping},
};

static void dispatch(struct cgm_request *request)
{
    cgm_step(CGM_STEP_EXECUTOR_REQUEST, (unsigned)request->type);
    for (size_t i = 0; i < sizeof(handlers) / sizeof(handlers[0]); i++) {
        if (handlers[i].type != request->type)
            continue;
        cgm_request_to_poller(request, handlers[i].step);
        return;
    }
    cgm_request_fail(request, CGM_BAD_MESSAGE, "message %d is not for an executor", request->type);
}

static void refuse(struct cgm_executor *executor, const struct cgm_packet *packet, int status,
                   const char *detail)
{
    Cgm__Error error = CGM__ERROR__INIT;
    error.status = status;
    error.detail = (char *)(uintptr_t)detail;
    if (packet->header.serial != 0)
        cgm_link_send(executor, CGM_MSG_ERROR, packet->header.serial, &error.base, NULL, 0);
}

/* Where its fds do not fit into this process the broker is told, and everything else goes on. */
static int receive(struct cgm_executor *executor, struct cgm_packet *packet)
{
    int status;
    while ((status = cgm_packet_recv(executor->link, 0, packet)) == CGM_NO_MEMORY)
        refuse(executor, packet, status, "the executor has no file descriptors left");
    return status;
}

/* A request that is dropped would leave the broker waiting, or something lying here: whoever finds
 * no memory for one within a second ends, and is followed by one that has all of it. */
#define READ_TRIES 1000
#define READ_NAP_US 1000

static void take(struct cgm_executor *executor, struct cgm_packet *packet)
{
    struct cgm_request *request;
    int status, tries = 0;
    while ((status = cgm_request_new(executor, packet, &request)) == CGM_NO_MEMORY &&
           ++tries < READ_TRIES)
        usleep(READ_NAP_US);
    if (status == CGM_OK) {
        dispatch(request);
        if (packet->header.type == CGM_MSG_PING)
            cgm_heap_look();
        return;
    }
    cgm_executor_log(3, "broker: a message of type %d cannot be read: %s", packet->header.type,
                     cgm_status_text(status));
    if (status == CGM_NO_MEMORY)
        abort();
    cgm_packet_close_fds(packet);
    refuse(executor, packet, status, "the message cannot be read");
}

void cgm_control_run(struct cgm_executor *executor)
{
    struct cgm_packet *packet = malloc(sizeof(*packet));
    int status = packet ? CGM_OK : CGM_NO_MEMORY;
    while (status == CGM_OK && (status = receive(executor, packet)) == CGM_OK)
        take(executor, packet);
    free(packet);
    if (status != CGM_DAEMON_LOST)
        cgm_executor_log(3, "broker: %s", cgm_status_text(status));
}
