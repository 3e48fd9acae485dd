#include "daemon/executor/request.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/messages.h"
#include "proto/status.h"
#include "proto/step.h"

struct cgm_request *cgm_request_new(struct cgm_executor *executor, struct cgm_packet *packet)
{
    struct cgm_request *request = calloc(1, sizeof(*request));
    size_t bytes = offsetof(struct cgm_packet, body);
    if (!request || !(request->packet = malloc(bytes)) ||
        !(request->message = cgm_packet_unpack(packet))) {
        if (request)
            free(request->packet);
        free(request);
        cgm_packet_close_fds(packet);
        return NULL;
    }
    memcpy(request->packet, packet, bytes);
    request->executor = executor;
    request->type = packet->header.type;
    request->serial = packet->header.serial;
    return request;
}

static void request_free(struct cgm_request *request)
{
    cgm_packet_close_fds(request->packet);
    free(request->packet);
    cgm_message_free(request->message);
    free(request);
}

static void request_run(struct cgm_task *task)
{
    struct cgm_request *request = (struct cgm_request *)task;
    request->step(request);
}

void cgm_request_to_mapper(struct cgm_request *request, void (*step)(struct cgm_request *request))
{
    request->step = step;
    request->task.run = request_run;
    cgm_worker_post(&request->executor->mapper, &request->task);
}

void cgm_request_to_poller(struct cgm_request *request, void (*step)(struct cgm_request *request))
{
    request->step = step;
    request->task.run = request_run;
    cgm_poller_post(&request->executor->poller, &request->task);
}

void cgm_request_answer(struct cgm_request *request, int type, const ProtobufCMessage *message,
                        const int *fds, unsigned n_fds)
{
    cgm_step(CGM_STEP_EXECUTOR_ANSWER, (unsigned)request->type);
    if (request->serial != 0)
        cgm_packet_send(request->executor->link, (uint16_t)type, request->serial, message, fds,
                        n_fds);
    request_free(request);
}

void cgm_request_ok(struct cgm_request *request)
{
    Cgm__Ok ok = CGM__OK__INIT;
    cgm_request_answer(request, CGM_MSG_OK, &ok.base, NULL, 0);
}

void cgm_request_fail(struct cgm_request *request, int status, const char *format, ...)
{
    char detail[512];
    Cgm__Error error = CGM__ERROR__INIT;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(detail, sizeof(detail), format, arguments);
    va_end(arguments);
    error.status = status;
    error.detail = detail;
    cgm_request_answer(request, CGM_MSG_ERROR, &error.base, NULL, 0);
}

void cgm_event_send(struct cgm_executor *executor, int type, const ProtobufCMessage *message)
{
    cgm_packet_send(executor->link, (uint16_t)type, 0, message, NULL, 0);
}
