#include "daemon/executor/noops.h"

#include <stddef.h>

#include "daemon/executor/endpoint.h"
#include "daemon/executor/executor.h"
#include "daemon/executor/poller.h"
#include "proto/messages.h"
#include "proto/status.h"

/* Each one is some memory that is in no cache. */
#define NOOPS_PER_ROUND 32u

void cgm_noops_enter(struct cgm_noops *noops, struct cgm_job *job)
{
    job->previous = NULL;
    job->next = noops->first;
    if (noops->first)
        noops->first->previous = job;
    noops->first = job;
}

void cgm_noops_leave(struct cgm_noops *noops, struct cgm_job *job)
{
    if (noops->looked_at == job)
        noops->looked_at = job->next;
    if (job->previous)
        job->previous->next = job->next;
    else
        noops->first = job->next;
    if (job->next)
        job->next->previous = job->previous;
}

static void end_look(struct cgm_noops *noops, uint64_t now_ns)
{
    noops->next_look_ns = now_ns + (uint64_t)noops->seen * CGM_LOOK_NS_PER_MEMBER;
    noops->seen = 0;
}

/* The limit that is reached; 0: none is. */
static uint64_t late_by(const struct cgm_job *job, uint64_t now_ns)
{
    const struct cgm_poller *poller = job->endpoint->poller;
    uint64_t default_ms = poller->executor->limits.ready_timeout_ns / 1000000;
    uint64_t limit_ms = job->deadline_ms ? job->deadline_ms : default_ms;
    uint64_t clock_ns = cgm_poller_time_ns(poller, now_ns);
    bool is_late = limit_ms != 0 && clock_ns > job->clock_ns &&
                   (clock_ns - job->clock_ns) / 1000000 >= limit_ms;
    return is_late ? limit_ms : 0;
}

static void end(struct cgm_noops *noops, struct cgm_job *job, const struct cgm_outcome *outcome)
{
    cgm_noops_leave(noops, job);
    cgm_job_complete(job, outcome);
}

/* True when it has ended. */
static bool look_at(struct cgm_noops *noops, struct cgm_job *job, uint64_t now_ns)
{
    char detail[CGM_CQE_DETAIL];
    uint64_t limit_ms;
    if (cgm_job_is_ready(job)) {
        end(noops, job, &(struct cgm_outcome){.status = CGM_OK});
        return true;
    }
    limit_ms = late_by(job, now_ns);
    if (limit_ms == 0)
        return false;
    cgm_detail(detail, sizeof(detail), 0, "the stream did not reach the noop within %llu ms",
               (unsigned long long)limit_ms);
    end(noops, job, &(struct cgm_outcome){.status = CGM_READY_TIMEOUT, .detail = detail});
    return true;
}

bool cgm_noops_step(struct cgm_noops *noops, uint64_t now_ns)
{
    bool busy = false;
    if (!noops->looked_at && now_ns < noops->next_look_ns)
        return false;
    if (!noops->looked_at)
        noops->looked_at = noops->first;
    for (unsigned i = 0; noops->looked_at && i < NOOPS_PER_ROUND; i++) {
        struct cgm_job *job = noops->looked_at;
        noops->looked_at = job->next;
        noops->seen++;
        busy |= look_at(noops, job, now_ns);
    }
    if (!noops->looked_at)
        end_look(noops, now_ns);
    return busy;
}
