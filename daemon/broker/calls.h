/* Requests to the executor that are not answered yet. A call is a small value that names its
 * objects by id; when its answer comes, or never will, its callback runs exactly once. If making
 * the call fails, the callback never runs. */
#ifndef CGM_CALLS_H
#define CGM_CALLS_H

#include <stdint.h>

#include "daemon/broker/registry.h"
#include "proto/packet.h"

struct cgm_broker;
struct cgm_call;

struct cgm_result {
    int status;         /* OK, the executor's error, or EXECUTOR_LOST */
    const char *detail; /* "" on success */
    const ProtobufCMessage
        *message;              /* of the reply type that belongs to the request; NULL on error */
    struct cgm_packet *packet; /* its fds, to be taken; NULL on error */
};

typedef void cgm_call_fn(struct cgm_broker *broker, const struct cgm_call *call,
                         const struct cgm_result *result);

struct cgm_call {
    cgm_call_fn *done; /* NULL: a failure is logged, nobody waits */
    uint64_t session;  /* the client that waits; 0: none */
    uid_t uid;         /* who asked; 0: root, or the daemon itself */
    uint32_t serial;   /* of the client's request */
    uint32_t index;    /* free for the caller, like the two below */
    uint64_t object, other;
};

/* What a session may have at the executor at once. Most requests weigh 1; a query all of it, as the
 * executor answers it on the thread that launches everybody's jobs. */
#define CGM_CALL_WEIGHT_MAX 128

struct cgm_calls {
    struct cgm_registry pending; /* by serial */
    uint32_t last_serial;
};

/* Sends a request. NO_EXECUTOR or NO_MEMORY when it cannot be sent. The fds stay the caller's. */
int cgm_call_executor(struct cgm_broker *broker, uint16_t type, const ProtobufCMessage *message,
                      const int *fds, unsigned n_fds, const struct cgm_call *call);

/* The same for those that do not care when it is done, or whether there is an executor. */
void cgm_tell_executor(struct cgm_broker *broker, uint16_t type, const ProtobufCMessage *message);

/* A reply has come. BAD_MESSAGE when it belongs to no call or has the wrong type. */
int cgm_calls_on_reply(struct cgm_broker *broker, struct cgm_packet *packet);

/* A reply has come without all of its fds: its call ends with NO_MEMORY. BAD_MESSAGE: there is
 * none. */
int cgm_calls_on_cut(struct cgm_broker *broker, uint32_t serial);

/* The executor is gone: every callback runs with EXECUTOR_LOST. */
void cgm_calls_fail_all(struct cgm_broker *broker, const char *why);

#endif
