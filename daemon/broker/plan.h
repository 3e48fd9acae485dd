/* Plans: one for all ranks of a comm, known by a hash of everything in its request. The hash has a
 * secret key of this daemon's life, so that nobody can make another's plan collide with one of his.
 * plan_hold.h says who has it, plan_waiters.h who waits for it, plan_make.h how it is made. */
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
struct cgm_plan_waiter;

struct cgm_plan {
    uint64_t id;
    uint64_t comm;
    struct cgm_owner owner; /* who asked first of those who have room for it */
    uint8_t *request;       /* the packed PlanCreate: what the id is a hash of */
    size_t request_bytes;
    bool ready;    /* it was made, and is there unless it is unmade */
    bool unmade;   /* this executor does not have it */
    bool remaking; /* it is asked again; there are waiters */
    struct cgm_plan_waiter *waiters;
    uint32_t references;
    uint32_t world;
    int gemm_priority, comm_priority;
    struct cgm_buffer *buffers[CGM_COMM_SIZE_MAX]; /* by rank */
    struct cgm_estate *estate;
    /* What the executor said. */
    uint32_t algorithm, user_dtype, chunks;
    uint64_t user_rows, user_cols, workspace_bytes;
    char reason[160];
    struct cgm_times times; /* what auto chose from */
    const char *no_trial;   /* why nothing may be measured; NULL: it may */
};

/* What the dispatch table calls. */
int cgm_plan_find_comm(struct cgm_request *request);
int cgm_plan_on_create(struct cgm_request *request);
int cgm_plan_on_chunk(struct cgm_request *request);

/* Whether the session holds the rank whose user buffer this is. */
bool cgm_plan_buffer_is_of(const struct cgm_session *session, const struct cgm_buffer *buffer);

/* Its waiters get no answer; nobody has it any more. */
void cgm_plan_free(struct cgm_broker *broker, struct cgm_plan *plan);
void cgm_plan_free_all(struct cgm_broker *broker);

#endif
