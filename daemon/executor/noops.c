#include "daemon/executor/noops.h"

#include <stddef.h>

#include "daemon/executor/endpoint.h"
#include "daemon/executor/poller.h"
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
        if (!cgm_job_is_ready(job))
            continue;
        cgm_noops_leave(noops, job);
        cgm_job_complete(job, &(struct cgm_outcome){.status = CGM_OK});
        busy = true;
    }
    if (!noops->looked_at)
        end_look(noops, now_ns);
    return busy;
}
