#include "daemon/broker/request.h"

#include <stdarg.h>
#include <stdio.h>

#include "daemon/broker/broker.h"
#include "daemon/broker/session.h"

void cgm_reply(struct cgm_request *request, uint16_t type, const ProtobufCMessage *message)
{
    cgm_connection_send(&request->session->connection, type, request->serial, message, NULL, 0);
}

void cgm_reply_ok(struct cgm_request *request)
{
    Cgm__Ok ok = CGM__OK__INIT;
    cgm_reply(request, CGM_MSG_OK, &ok.base);
}

void cgm_answer(struct cgm_broker *broker, uint64_t session_id, uint32_t serial, uint16_t type,
                const ProtobufCMessage *message, const int *fds, unsigned n_fds)
{
    struct cgm_session *session = cgm_registry_find(&broker->sessions, session_id);
    if (session)
        cgm_connection_send(&session->connection, type, serial, message, fds, n_fds);
}

void cgm_answer_ok(struct cgm_broker *broker, uint64_t session, uint32_t serial)
{
    Cgm__Ok ok = CGM__OK__INIT;
    cgm_answer(broker, session, serial, CGM_MSG_OK, &ok.base, NULL, 0);
}

void cgm_answer_error(struct cgm_broker *broker, uint64_t session, uint32_t serial, int status,
                      const char *format, ...)
{
    char detail[384];
    Cgm__Error error = CGM__ERROR__INIT;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(detail, sizeof(detail), format, arguments);
    va_end(arguments);
    error.status = status;
    error.detail = detail;
    cgm_answer(broker, session, serial, CGM_MSG_ERROR, &error.base, NULL, 0);
}

struct cgm_call cgm_request_call(const struct cgm_request *request, cgm_call_fn *done,
                                 uint64_t object)
{
    return (struct cgm_call){
        .done = done,
        .session = request->session->id,
        .uid = request->session->uid,
        .serial = request->serial,
        .object = object,
    };
}

void cgm_call_done_relay(struct cgm_broker *broker, const struct cgm_call *call,
                         const struct cgm_result *result)
{
    if (result->status == CGM_OK)
        cgm_answer_ok(broker, call->session, call->serial);
    else
        cgm_answer_error(broker, call->session, call->serial, result->status, "%s", result->detail);
}
