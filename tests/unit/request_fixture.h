/* Requests of a broker's, for tests that call what serves them. Include the headers of cmocka
 * before it. */
#ifndef REQUEST_FIXTURE_H
#define REQUEST_FIXTURE_H

#include <stdlib.h>

#include "daemon/executor/request.h"

/* Takes over the message, which was allocated. serial 0: nobody waits for an answer. */
static inline struct cgm_request *request_of(struct cgm_executor *executor, uint32_t serial,
                                             ProtobufCMessage *message)
{
    struct cgm_request *request = calloc(1, sizeof(*request));
    assert_non_null(request);
    request->packet = calloc(1, sizeof(*request->packet));
    assert_non_null(request->packet);
    request->executor = executor;
    request->serial = serial;
    request->message = message;
    return request;
}

#endif
