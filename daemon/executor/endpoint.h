/* The executor's end of a session: its ring, its grants, its jobs. Owned by the poller. */
#ifndef CGM_ENDPOINT_H
#define CGM_ENDPOINT_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/executor/completions.h"
#include "daemon/executor/job.h"
#include "daemon/executor/losses.h"
#include "daemon/executor/map.h"
#include "daemon/executor/notices.h"
#include "daemon/executor/request.h"
#include "proto/ring.h"

struct cgm_endpoint {
    struct cgm_endpoint *next, *previous; /* by session */
    uint64_t session;
    uint32_t uid, pid;
    uint64_t added_ns;
    struct cgm_poller *poller;
    struct cgm_ring ring; /* header NULL: the session submits through the socket */
    uint32_t entries;     /* most jobs accepted and not reaped */
    int ring_fd;          /* until the ring has begun, which is not looked at before; -1: it has */
    int wake_fd;          /* in the poller's epoll set, never read: its other end is the client's */
    int notify_fd;        /* one byte wakes the client; MSG_DONTWAIT always */
    uint32_t sq_head, cq_tail;
    uint64_t has_phases[CGM_RING_ENTRIES_MAX / 64]; /* slots of the ring whose phases have pages */
    uint32_t accepted; /* entries taken, free-running like the ring's indices */
    uint64_t last_ticket;
    uint32_t in_flight; /* jobs not completed */
    bool bad;           /* broke the protocol: nothing is read from it any more */
    bool notify;        /* completions were written that the client may not know of */
    struct cgm_job *jobs, *free_jobs;
    uint32_t used_jobs;       /* from the start on: those behind were never in flight */
    uint64_t *tickets;        /* of jobs, in the same order; 0: it is free */
    struct cgm_map grants;    /* id -> struct cgm_grant */
    struct cgm_task *cancels; /* requests that await their entry, or their turn */
    struct cgm_request *removal;
    struct cgm_loss loss; /* of the noops that it leaves; until then it is not removed */
    uint32_t n_dropped;   /* of the jobs: so many were looked at */
    struct cgm_notice notice;
    struct cgm_noops *noops; /* its user's */
};

/* The broker's requests; on the poller. */
void cgm_endpoint_on_add(struct cgm_request *request);
void cgm_endpoint_on_remove(struct cgm_request *request);
void cgm_endpoint_on_submit(struct cgm_request *request);

/* The client has written the wake fd, so its ring is mapped and sealed; or the session is bad. */
void cgm_endpoint_begin(struct cgm_endpoint *endpoint);

/* True when nothing is to be read from its ring, not even whether there is something. */
static inline bool cgm_endpoint_is_mute(const struct cgm_endpoint *endpoint)
{
    return endpoint->ring_fd >= 0 || endpoint->bad;
}

/* Takes what the client has submitted, in its order and at most so many entries; how many. */
uint32_t cgm_endpoint_drain(struct cgm_endpoint *endpoint, uint32_t most);

/* True when the ring has entries that could be taken now. */
bool cgm_endpoint_has_entries(const struct cgm_endpoint *endpoint);

/* True when it has, or cancels. */
bool cgm_endpoint_has_work(const struct cgm_endpoint *endpoint);

/* True when the job's stream has come. */
bool cgm_job_is_ready(const struct cgm_job *job);

/* Writes done slot and completion, ends the job's writes, drops the job's references and frees it.
 */
void cgm_job_complete(struct cgm_job *job, const struct cgm_outcome *outcome);

/* NOT_FOUND for a NULL endpoint. Granting again changes the right. */
int cgm_endpoint_grant(struct cgm_endpoint *endpoint, struct cgm_memory *memory, bool writable);
void cgm_endpoint_revoke(struct cgm_endpoint *endpoint, uint64_t id);

#endif
