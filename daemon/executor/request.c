#include "daemon/executor/request.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "proto/messages.h"
#include "proto/status.h"
#include "proto/step.h"

int cgm_request_new(struct cgm_executor *executor, struct cgm_packet *packet,
                    struct cgm_request **ret_request)
{
    struct cgm_request *request = calloc(1, sizeof(*request));
    size_t bytes = offsetof(struct cgm_packet, body);
    struct cgm_packet *copy = malloc(bytes);
    int status = request && copy ? cgm_packet_read(packet, &request->message) : CGM_NO_MEMORY;
    if (status != CGM_OK) {
        free(copy);
        free(request);
        return status;
    }
    memcpy(copy, packet, bytes);
    request->packet = copy;
    request->executor = executor;
    request->type = packet->header.type;
    request->serial = packet->header.serial;
    *ret_request = request;
    return CGM_OK;
}

static void request_run(struct cgm_task *task)
{
    struct cgm_request *request = (struct cgm_request *)task;
    request->step(request);
}

void cgm_request_to_sweeper(struct cgm_request *request, void (*step)(struct cgm_request *request))
{
    request->step = step;
    request->task.run = request_run;
    cgm_worker_post(&request->executor->sweeper, &request->task);
}

void cgm_request_to_poller(struct cgm_request *request, void (*step)(struct cgm_request *request))
{
    request->step = step;
    request->task.run = request_run;
    cgm_poller_post(&request->executor->poller, &request->task);
}

static void request_free_step(struct cgm_request *request)
{
    cgm_packet_close_fds(request->packet);
    free(request->packet);
    cgm_message_free(request->message);
    free(request);
}

static bool nothing_before(struct cgm_request *request)
{
    (void)request;
    return false;
}

/* Of all users, as the broker has the memory, too, and mostly closes it last. */
static void request_sweep_step(struct cgm_request *request)
{
    cgm_request_in_sweep(request, CGM_NOBODY, CGM_NOBODY, nothing_before, request_free_step);
}

static bool has_fds(const struct cgm_packet *packet)
{
    for (unsigned i = 0; i < packet->n_fds; i++)
        if (packet->fds[i] >= 0)
            return true;
    return false;
}

/* Whoever closes a client's memory last frees it, which takes long: no thread that others wait for.
 */
static void request_free(struct cgm_request *request)
{
    if (has_fds(request->packet))
        cgm_request_to_sweeper(request, request_sweep_step);
    else
        request_free_step(request);
}

static struct cgm_request *of_turn(struct cgm_turn *turn)
{
    return (struct cgm_request *)(void *)((char *)turn - offsetof(struct cgm_request, turn));
}

static bool turn_slice(struct cgm_turn *turn)
{
    struct cgm_request *request = of_turn(turn);
    return request->slice(request);
}

static void turn_done(struct cgm_turn *turn)
{
    struct cgm_request *request = of_turn(turn);
    request->step(request);
}

static void set_turn(struct cgm_request *request, bool (*slice)(struct cgm_request *request),
                     void (*step)(struct cgm_request *request))
{
    request->slice = slice;
    request->step = step;
    request->turn = (struct cgm_turn){.slice = slice ? turn_slice : NULL, .done = turn_done};
}

void cgm_request_in_slices(struct cgm_request *request, uint32_t uid,
                           bool (*slice)(struct cgm_request *request),
                           void (*step)(struct cgm_request *request))
{
    set_turn(request, slice, step);
    cgm_turns_add(&request->executor->slices, uid, &request->turn);
}

void cgm_request_to_mapper(struct cgm_request *request, uint32_t uid,
                           void (*step)(struct cgm_request *request))
{
    set_turn(request, NULL, step);
    cgm_turns_add(&request->executor->steps, uid, &request->turn);
}

void cgm_request_in_sweep(struct cgm_request *request, uint32_t uid, uint32_t guest,
                          bool (*slice)(struct cgm_request *request),
                          void (*step)(struct cgm_request *request))
{
    set_turn(request, slice, step);
    cgm_sweeps_add(&request->executor->sweeps, uid, guest, &request->turn);
}

/* Out of memory for a moment: the socket itself waits for room. */
#define SEND_TRIES 1000
#define SEND_NAP_US 1000

void cgm_link_send(struct cgm_executor *executor, int type, uint32_t serial,
                   const ProtobufCMessage *message, const int *fds, unsigned n_fds)
{
    for (int i = 0; i < SEND_TRIES; i++) {
        int status = cgm_packet_send(executor->link, (uint16_t)type, serial, message, fds, n_fds);
        if (status == CGM_OK || status == CGM_DAEMON_LOST)
            return;
        if (status != CGM_RING_FULL && status != CGM_NO_MEMORY)
            break;
        usleep(SEND_NAP_US);
    }
    cgm_executor_log(3, "broker: %s cannot be sent: the executor ends", cgm_message_name(type));
    abort();
}

void cgm_request_answer(struct cgm_request *request, int type, const ProtobufCMessage *message,
                        const int *fds, unsigned n_fds)
{
    cgm_step(CGM_STEP_EXECUTOR_ANSWER, (unsigned)request->type);
    if (request->serial != 0)
        cgm_link_send(request->executor, type, request->serial, message, fds, n_fds);
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
    cgm_link_send(executor, type, 0, message, NULL, 0);
}
