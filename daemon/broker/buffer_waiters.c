#include "daemon/broker/buffer_waiters.h"

#include <stdlib.h>

#include "daemon/broker/session.h"
#include "proto/status.h"

int cgm_buffer_wait(struct cgm_request *request, struct cgm_buffer *buffer,
                    const struct cgm_call *call)
{
    struct cgm_buffer_waiter **end = &buffer->waiters, *waiter = malloc(sizeof(*waiter));
    if (!waiter)
        return CGM_NO_MEMORY;
    while (*end)
        end = &(*end)->next;
    *waiter = (struct cgm_buffer_waiter){NULL, *call};
    *end = waiter;
    cgm_session_count_call(request->broker, call->session, 1, 0);
    return CGM_OK;
}

void cgm_buffer_answer_waiters(struct cgm_broker *broker, struct cgm_buffer *buffer,
                               void (*answer)(struct cgm_broker *broker,
                                              const struct cgm_call *call))
{
    struct cgm_buffer_waiter *waiter = buffer->waiters;
    buffer->waiters = NULL;
    while (waiter) {
        struct cgm_buffer_waiter *next = waiter->next;
        cgm_session_count_call(broker, waiter->call.session, -1, 0);
        answer(broker, &waiter->call);
        free(waiter);
        waiter = next;
    }
}

void cgm_buffer_forget_waiters(struct cgm_buffer *buffer)
{
    while (buffer->waiters) {
        struct cgm_buffer_waiter *waiter = buffer->waiters;
        buffer->waiters = waiter->next;
        free(waiter);
    }
}
