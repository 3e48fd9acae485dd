/* One message of a client while it is handled, and the ways to answer it. */
#ifndef CGM_BROKER_REQUEST_H
#define CGM_BROKER_REQUEST_H

#include <stdint.h>

#include "daemon/broker/calls.h"
#include "proto/messages.h"
#include "proto/packet.h"
#include "proto/status.h"

struct cgm_broker;
struct cgm_session;

struct cgm_request {
    struct cgm_broker *broker;
    struct cgm_session *session;
    uint16_t type;
    uint32_t serial;
    const ProtobufCMessage *message;
    struct cgm_packet *packet; /* its fds */
    void *object;              /* what the dispatch table's `find` found */
    char detail[384];          /* of the failure that a step returns */
};

/* Writes the request's detail and returns the status. */
#define cgm_refuse(request, status, ...)                                                           \
    cgm_detail((request)->detail, sizeof((request)->detail), (status), __VA_ARGS__)

/* Answers the client at once. */
void cgm_reply(struct cgm_request *request, uint16_t type, const ProtobufCMessage *message);
void cgm_reply_ok(struct cgm_request *request);

/* Answers a client later, if its session still lives. */
void cgm_answer(struct cgm_broker *broker, uint64_t session, uint32_t serial, uint16_t type,
                const ProtobufCMessage *message, const int *fds, unsigned n_fds);
void cgm_answer_ok(struct cgm_broker *broker, uint64_t session, uint32_t serial);
void cgm_answer_error(struct cgm_broker *broker, uint64_t session, uint32_t serial, int status,
                      const char *format, ...) __attribute__((format(printf, 5, 6)));

/* The call that carries this request's session and serial to its callback. */
struct cgm_call cgm_request_call(const struct cgm_request *request, cgm_call_fn *done,
                                 uint64_t object);

/* Callback: passes an Ok or the error on to the client. */
void cgm_call_done_relay(struct cgm_broker *broker, const struct cgm_call *call,
                         const struct cgm_result *result);

#endif
