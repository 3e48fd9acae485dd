/* Plans: one for all ranks of a comm, known by a hash of everything in its request. The hash has a
 * secret key of this daemon's life, so that nobody can make another's plan collide with one of his.
 * Sessions hold a plan by reference; it ends with the last one, its user buffers with it. */
#ifndef CGM_BROKER_PLAN_H
#define CGM_BROKER_PLAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/broker/estate.h"
#include "daemon/broker/owner.h"
#include "daemon/broker/request.h"
#include "proto/timing.h"

struct cgm_buffer;
struct cgm_comm;

/* A PlanCreate that waits for the executor. */
struct cgm_plan_waiter {
    struct cgm_plan_waiter *next;
    uint64_t session;
    uint32_t serial;
    bool existed;
    int status; /* of its reference */
};

struct cgm_plan {
    uint64_t id;
    uint64_t comm;
    struct cgm_owner owner;
    uint8_t *request; /* the packed PlanCreate: what the id is a hash of */
    size_t request_bytes;
    bool ready;    /* it was made, and is there unless it is unmade */
    bool unmade;   /* this executor does not have it */
    bool remaking; /* it is asked again; there are waiters */
    struct cgm_plan_waiter *waiters;
    uint32_t references;
    uint32_t world;
    struct cgm_buffer *buffers[CGM_COMM_SIZE_MAX]; /* by rank */
    struct cgm_estate *estate;
    /* What the executor said. */
    uint32_t algorithm, user_dtype, chunks;
    uint64_t user_rows, user_cols, workspace_bytes;
    char reason[160];
    struct cgm_times times; /* what auto chose from */
    const char *no_trial;   /* why nothing may be measured; NULL: it may */
};

struct cgm_plan_hold {
    struct cgm_plan *plan;
    uint32_t references;
};

/* What the dispatch table calls. */
int cgm_plan_find_comm(struct cgm_request *request);
int cgm_plan_find_held(struct cgm_request *request);
int cgm_plan_on_create(struct cgm_request *request);
int cgm_plan_on_destroy(struct cgm_request *request);
int cgm_plan_on_destroy_all(struct cgm_request *request);
int cgm_plan_on_chunk(struct cgm_request *request);

/* Whether the session holds the rank whose user buffer this is. */
bool cgm_plan_buffer_is_of(const struct cgm_session *session, const struct cgm_buffer *buffer);

/* Drops every reference of the session to plans of the comm, or of all comms when it is 0. Returns
 * how many references. */
uint32_t cgm_plan_drop_all(struct cgm_session *session, uint64_t comm_or_0);

int cgm_plan_tell(struct cgm_broker *broker, const struct cgm_plan *plan,
                  const struct cgm_call *call);
/* An executor has made the plan anew, or not; first_buffer: of that plan, as another one may have
 * its id meanwhile. */
void cgm_plan_on_readded(struct cgm_broker *broker, uint64_t id, uint64_t first_buffer,
                         const struct cgm_result *result);

void cgm_plan_free_all(struct cgm_broker *broker);

#endif
