/* Who waits to be let into a comm. A join takes its ranks at once and is answered when all ranks
 * have come and the executor has made the comm, or when its time is over. */
#ifndef CGM_BROKER_COMM_JOIN_H
#define CGM_BROKER_COMM_JOIN_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/broker/calls.h"
#include "daemon/broker/request.h"

struct cgm_comm;

/* A CommJoin that is not answered. */
struct cgm_join {
    struct cgm_join *next;
    uint64_t session;
    uint32_t serial;
    uint64_t ranks;                   /* bits */
    uint64_t absent;                  /* who was not there at any time since */
    bool complete;                    /* all were there, but for an executor */
    uint64_t timeout_ns, deadline_ns; /* of cgm_lived_ns */
};

/* What the dispatch table calls. */
int cgm_comm_find_to_join(struct cgm_request *request);
int cgm_comm_on_join(struct cgm_request *request);

/* Answers those of the session, or all when it is 0, with an error. Their ranks stay taken. */
void cgm_comm_end_joins(struct cgm_broker *broker, struct cgm_comm *comm, uint64_t session_or_0,
                        int status, const char *detail);

/* There is an executor: those who wait still miss ranks that have gone again. */
void cgm_comm_want_ranks(struct cgm_comm *comm);

/* CommAdd of a complete comm; the call's callback must pass its result to cgm_comm_on_added. */
int cgm_comm_tell(struct cgm_broker *broker, struct cgm_comm *comm, const struct cgm_call *call);
void cgm_comm_on_added(struct cgm_broker *broker, uint64_t id, const struct cgm_result *result);

#endif
