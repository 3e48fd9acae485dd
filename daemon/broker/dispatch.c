#include "daemon/broker/dispatch.h"

#include "daemon/broker/broker.h"
#include "daemon/broker/buffer.h"
#include "daemon/broker/comm.h"
#include "daemon/broker/comm_join.h"
#include "daemon/broker/import.h"
#include "daemon/broker/kill.h"
#include "daemon/broker/log.h"
#include "daemon/broker/plan.h"
#include "daemon/broker/plan_hold.h"
#include "daemon/broker/query.h"
#include "daemon/broker/session.h"
#include "daemon/broker/tune.h"
#include "proto/step.h"

/* What must hold before a handler runs. */
enum needs {
    GREETED = 1 << 0,  /* the session's Hello was answered */
    EXECUTOR = 1 << 1, /* an executor serves, and knows the session */
    NEW_WORK = 1 << 2, /* refused to sessions that came while it drains */
};

struct message_row {
    uint16_t type;
    unsigned needs;
    unsigned fds_max;
    /* Finds request->object and checks that the session may use it. NULL: there is no object. */
    int (*find)(struct cgm_request *request);
    /* Checks the arguments and does it. OK: it has answered, or a callback will. */
    int (*handle)(struct cgm_request *request);
};

static const struct message_row rows[] = {
    {CGM_MSG_HELLO, 0, 0, NULL, cgm_session_on_hello},
    {CGM_MSG_RING_SETUP, GREETED | NEW_WORK, 0, NULL, cgm_session_on_ring_setup},
    {CGM_MSG_COMM_CREATE, GREETED | NEW_WORK, 0, NULL, cgm_comm_on_create},
    {CGM_MSG_COMM_JOIN, GREETED | EXECUTOR | NEW_WORK, 0, cgm_comm_find_to_join, cgm_comm_on_join},
    {CGM_MSG_COMM_LEAVE, GREETED, 0, cgm_comm_find_held, cgm_comm_on_leave},
    {CGM_MSG_BUFFER_CREATE, GREETED | EXECUTOR | NEW_WORK, 0, NULL, cgm_buffer_on_create},
    {CGM_MSG_BUFFER_OPEN, GREETED | EXECUTOR, 0, cgm_buffer_find_to_open, cgm_buffer_on_open},
    {CGM_MSG_BUFFER_CLOSE, GREETED, 0, cgm_buffer_find_held, cgm_buffer_on_close},
    {CGM_MSG_BUFFER_DESTROY, GREETED, 0, cgm_buffer_find_owned, cgm_buffer_on_destroy},
    {CGM_MSG_BUFFER_CHECK, GREETED, 0, cgm_buffer_find_held, cgm_buffer_on_check},
    {CGM_MSG_BUFFER_REWRITTEN, GREETED | EXECUTOR, 0, cgm_buffer_find_held,
     cgm_buffer_on_rewritten},
    {CGM_MSG_IMPORT_CREATE, GREETED | EXECUTOR | NEW_WORK, CGM_IMPORT_SEGMENTS_MAX, NULL,
     cgm_import_on_create},
    {CGM_MSG_IMPORT_RELEASE, GREETED, 0, cgm_import_find_held, cgm_import_on_release},
    {CGM_MSG_PLAN_CREATE, GREETED | EXECUTOR | NEW_WORK, 0, cgm_plan_find_comm, cgm_plan_on_create},
    {CGM_MSG_PLAN_DESTROY, GREETED, 0, cgm_plan_find_held, cgm_plan_on_destroy},
    {CGM_MSG_PLAN_DESTROY_ALL, GREETED, 0, NULL, cgm_plan_on_destroy_all},
    {CGM_MSG_PLAN_CHUNK, GREETED | EXECUTOR, 0, cgm_plan_find_held, cgm_plan_on_chunk},
    {CGM_MSG_SUBMIT, GREETED | EXECUTOR, 0, NULL, cgm_session_on_submit},
    {CGM_MSG_CANCEL, GREETED, 0, NULL, cgm_session_on_cancel},
    {CGM_MSG_MEMORY_COPY, GREETED | EXECUTOR, 0, NULL, cgm_session_on_copy},
    {CGM_MSG_QUERY, GREETED, 0, NULL, cgm_query_on_query},
    {CGM_MSG_DRAIN, GREETED, 0, cgm_query_find_operator, cgm_query_on_drain},
    {CGM_MSG_TUNE, GREETED, 0, cgm_query_find_operator, cgm_tune_on_tune},
    {CGM_MSG_SESSION_KILL, GREETED, 0, cgm_kill_find_session, cgm_kill_on_kill},
};

static const struct message_row *find_row(uint16_t type)
{
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        if (rows[i].type == type)
            return &rows[i];
    return NULL;
}

/* Failures after which the session cannot go on. */
static int check_protocol(struct cgm_request *request, const struct message_row *row)
{
    if (!row)
        return cgm_refuse(request, CGM_BAD_MESSAGE, "message type %u (%s) is not a request",
                          request->type, cgm_message_name(request->type));
    if (row->needs & GREETED && !request->session->greeted)
        return cgm_refuse(request, CGM_BAD_MESSAGE, "the first message must be Hello, not %s",
                          cgm_message_name(request->type));
    if (request->serial == 0)
        return cgm_refuse(request, CGM_BAD_MESSAGE, "serial of %s is 0; it must count from 1",
                          cgm_message_name(request->type));
    if (request->packet->n_fds > row->fds_max)
        return cgm_refuse(request, CGM_BAD_MESSAGE,
                          "%s has %u file descriptors; it must have at most %u",
                          cgm_message_name(request->type), request->packet->n_fds, row->fds_max);
    if (!request->message)
        return cgm_refuse(request, CGM_BAD_MESSAGE, "the body of %s is malformed",
                          cgm_message_name(request->type));
    return CGM_OK;
}

static int check_needs(struct cgm_request *request, const struct message_row *row)
{
    struct cgm_broker *broker = request->broker;
    if (row->needs & NEW_WORK && broker->draining && request->session->id > broker->drained_after)
        return cgm_refuse(request, CGM_DRAINING,
                          "the daemon takes no new work; session %ju came after that",
                          (uintmax_t)request->session->id);
    if (!(row->needs & EXECUTOR))
        return CGM_OK;
    if (!cgm_executor_is_ready(&broker->executor))
        return cgm_refuse(request, CGM_NO_EXECUTOR, "%s", cgm_executor_why_not(&broker->executor));
    return cgm_session_ensure_added(request->session, request->detail, sizeof(request->detail));
}

static int run(struct cgm_request *request, const struct message_row *row)
{
    int status = request->broker->ending ? cgm_refuse(request, CGM_DAEMON_LOST, "the daemon ends")
                                         : check_needs(request, row);
    if (status == CGM_OK && row->find)
        status = row->find(request);
    if (status == CGM_OK)
        status = row->handle(request);
    return status;
}

void cgm_dispatch(struct cgm_session *session, struct cgm_packet *packet)
{
    struct cgm_request request = {
        .broker = session->broker,
        .session = session,
        .type = packet->header.type,
        .serial = packet->header.serial,
        .packet = packet,
    };
    cgm_step(CGM_STEP_CLIENT_REQUEST, request.type);
    const struct message_row *row = find_row(request.type);
    ProtobufCMessage *message = NULL;
    int read = row ? cgm_packet_read(packet, &message) : CGM_OK;
    request.message = message;
    int protocol = read == CGM_NO_MEMORY ? CGM_OK : check_protocol(&request, row);
    int status = protocol != CGM_OK ? protocol : read != CGM_OK ? read : run(&request, row);
    bool fatal = protocol != CGM_OK || status == CGM_BAD_MESSAGE ||
                 (request.type == CGM_MSG_HELLO && status != CGM_OK);
    if (status != CGM_OK && !request.detail[0])
        cgm_refuse(&request, status, "%s", cgm_status_text(status));
    if (fatal)
        cgm_session_refuse(session, request.serial, status, request.detail);
    else if (status != CGM_OK)
        cgm_answer_error(request.broker, session->id, request.serial, status, "%s", request.detail);
    cgm_message_free(message);
}
