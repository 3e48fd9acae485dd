/* Imports: memory of a client, as fds or cudaIpc handles. The broker keeps the fds for executors to
 * come. An import ends with its session. */
#ifndef CGM_BROKER_IMPORT_H
#define CGM_BROKER_IMPORT_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/broker/estate.h"
#include "daemon/broker/request.h"

#define CGM_IMPORT_GENERATION 1u /* ids are never reused: it changes when the memory is closed */

struct cgm_import {
    uint64_t id;
    uint64_t session;
    uint64_t bytes;
    struct cgm_estate *estate;
    bool ready;              /* an executor has had it */
    bool opening;            /* an executor is told of it */
    bool idle;               /* and has closed it: there are no fds any more */
    Cgm__ImportAdd *message; /* what an executor is told */
    int *fds;                /* [n_fds], as many as there is room for */
    unsigned n_fds;
};

int cgm_import_find_held(struct cgm_request *request);
int cgm_import_on_create(struct cgm_request *request);
int cgm_import_on_release(struct cgm_request *request);

/* The session ends. */
void cgm_import_drop_all(struct cgm_session *session);

int cgm_import_tell(struct cgm_broker *broker, struct cgm_import *import,
                    const struct cgm_call *call);

/* Event of the executor. */
void cgm_import_on_idle(struct cgm_broker *broker, const ProtobufCMessage *message);

/* No executor gets its memory any more: as if the last one had closed it because it was idle. False
 * when none had it, or one has closed it. */
bool cgm_import_leave_out(struct cgm_broker *broker, struct cgm_import *import);

/* The executor has it. If it was released meanwhile, the ImportRemove may have come too early. */
void cgm_import_on_added(struct cgm_broker *broker, uint64_t id, const struct cgm_result *result);

#endif
