/* Who has asked for a named buffer that is still being made: they are answered when it is there, or
 * is not to be. */
#ifndef CGM_BROKER_BUFFER_WAITERS_H
#define CGM_BROKER_BUFFER_WAITERS_H

#include <stdint.h>

#include "daemon/broker/buffer.h"
#include "daemon/broker/calls.h"

struct cgm_buffer_waiter {
    struct cgm_buffer_waiter *next;
    struct cgm_call call; /* as that of its request will be */
};

/* The request is answered later. NO_MEMORY. */
int cgm_buffer_wait(struct cgm_request *request, struct cgm_buffer *buffer,
                    const struct cgm_call *call);

/* Calls `answer` for each in the order of their coming, and forgets them. The buffer may be gone by
 * then, or afterwards: it goes by the call's object. */
void cgm_buffer_answer_waiters(struct cgm_broker *broker, struct cgm_buffer *buffer,
                               void (*answer)(struct cgm_broker *broker,
                                              const struct cgm_call *call));

/* Without an answer. */
void cgm_buffer_forget_waiters(struct cgm_buffer *buffer);

#endif
