/* A request of the broker on its way through the executor's threads. Each step runs on one thread
 * and ends by passing the request on or by answering it, which frees it. */
#ifndef CGM_REQUEST_H
#define CGM_REQUEST_H

#include "daemon/executor/executor.h"
#include "daemon/executor/task.h"
#include "daemon/executor/turns.h"

struct cgm_request {
    struct cgm_task task;
    struct cgm_executor *executor;
    int type;
    uint32_t serial; /* 0: an event, nobody waits for an answer */
    ProtobufCMessage *message;
    struct cgm_packet *packet; /* its fds; taken or closed with the request */
    void (*step)(struct cgm_request *request);
    struct cgm_turn turn;
    bool (*slice)(struct cgm_request *request);
    int status;   /* of a step that went wrong, for the one that answers */
    void *object; /* what the steps build: memory, plan, comm or endpoint */
};

/* Takes over the packet's fds on success alone. NO_MEMORY, BAD_MESSAGE. */
int cgm_request_new(struct cgm_executor *executor, struct cgm_packet *packet,
                    struct cgm_request **ret_request);

void cgm_request_to_sweeper(struct cgm_request *request, void (*step)(struct cgm_request *request));
void cgm_request_to_poller(struct cgm_request *request, void (*step)(struct cgm_request *request));
/* In turns with the steps that other users have for the mapper, and behind those of this one. */
void cgm_request_to_mapper(struct cgm_request *request, uint32_t uid,
                           void (*step)(struct cgm_request *request));

/* slice is called until it is false, in turns with those of other users, and then the step; all on
 * the mapper. */
void cgm_request_in_slices(struct cgm_request *request, uint32_t uid,
                           bool (*slice)(struct cgm_request *request),
                           void (*step)(struct cgm_request *request));
/* From the sweeper: the same on a thread of the user's and of the guest's; see sweeps.h. */
void cgm_request_in_sweep(struct cgm_request *request, uint32_t uid, uint32_t guest,
                          bool (*slice)(struct cgm_request *request),
                          void (*step)(struct cgm_request *request));

/* Answers and frees. The fds stay the caller's. */
void cgm_request_answer(struct cgm_request *request, int type, const ProtobufCMessage *message,
                        const int *fds, unsigned n_fds);
void cgm_request_ok(struct cgm_request *request);
void cgm_request_fail(struct cgm_request *request, int status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Sends a message to the broker. Any thread. Without it the broker would wait for ever: an executor
 * that cannot send for a second ends, and is followed by another one. */
void cgm_link_send(struct cgm_executor *executor, int type, uint32_t serial,
                   const ProtobufCMessage *message, const int *fds, unsigned n_fds);

/* Sends an event to the broker. Any thread. */
void cgm_event_send(struct cgm_executor *executor, int type, const ProtobufCMessage *message);

#endif
