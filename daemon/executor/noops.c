#include "daemon/executor/noops.h"

#include <stddef.h>
#include <stdlib.h>

#include "daemon/executor/endpoint.h"
#include "daemon/executor/executor.h"
#include "daemon/executor/poller.h"
#include "proto/messages.h"
#include "proto/status.h"

/* Each one is some memory that is in no cache. */
#define NOOPS_PER_ROUND 32u

/* ---- users ---------------------------------------------------------------------------------- */

struct cgm_noops *cgm_noops_join(struct cgm_noops_users *users, uint32_t uid)
{
    struct cgm_noops **end = &users->first;
    while (*end && (*end)->uid != uid)
        end = &(*end)->next;
    if (!*end && (*end = calloc(1, sizeof(**end))))
        (*end)->uid = uid;
    if (*end)
        (*end)->n_sessions++;
    return *end;
}

void cgm_noops_part(struct cgm_noops_users *users, struct cgm_noops *noops)
{
    struct cgm_noops **link = &users->first;
    if (!noops || --noops->n_sessions > 0)
        return;
    while (*link != noops)
        link = &(*link)->next;
    *link = noops->next;
    if (users->turn == noops)
        users->turn = noops->next;
    free(noops);
}

/* ---- noops ---------------------------------------------------------------------------------- */

void cgm_noops_enter(struct cgm_noops_users *users, struct cgm_job *job)
{
    struct cgm_noops *noops = job->endpoint->noops;
    job->previous = NULL;
    job->next = noops->first;
    if (noops->first)
        noops->first->previous = job;
    noops->first = job;
    users->n_noops++;
}

static void look_on(struct cgm_noops_users *users, struct cgm_noops *noops, struct cgm_job *next)
{
    users->n_looks -= noops->looked_at != NULL;
    users->n_looks += next != NULL;
    noops->looked_at = next;
}

void cgm_noops_leave(struct cgm_noops_users *users, struct cgm_job *job)
{
    struct cgm_noops *noops = job->endpoint->noops;
    if (noops->looked_at == job)
        look_on(users, noops, job->next);
    if (job->previous)
        job->previous->next = job->next;
    else
        noops->first = job->next;
    if (job->next)
        job->next->previous = job->previous;
    users->n_noops--;
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

static void end(struct cgm_noops_users *users, struct cgm_job *job,
                const struct cgm_outcome *outcome)
{
    cgm_noops_leave(users, job);
    cgm_job_complete(job, outcome);
}

/* True when it has ended. */
static bool look_at(struct cgm_noops_users *users, struct cgm_job *job, uint64_t now_ns)
{
    char detail[CGM_CQE_DETAIL];
    uint64_t limit_ms;
    if (cgm_job_is_ready(job)) {
        end(users, job, &(struct cgm_outcome){.status = CGM_OK});
        return true;
    }
    limit_ms = late_by(job, now_ns);
    if (limit_ms == 0)
        return false;
    cgm_detail(detail, sizeof(detail), 0, "the stream did not reach the noop within %llu ms",
               (unsigned long long)limit_ms);
    end(users, job, &(struct cgm_outcome){.status = CGM_READY_TIMEOUT, .detail = detail});
    return true;
}

/* ---- looks ---------------------------------------------------------------------------------- */

static bool is_time(const struct cgm_noops *noops, uint64_t now_ns)
{
    return noops->looked_at || (noops->first && now_ns >= noops->next_look_ns);
}

/* From the one whose turn it is on, each once; NULL: nobody's time has come. */
static struct cgm_noops *next_user(const struct cgm_noops_users *users, uint64_t now_ns)
{
    struct cgm_noops *begin = users->turn ? users->turn : users->first, *noops = begin;
    while (noops && !is_time(noops, now_ns)) {
        noops = noops->next ? noops->next : users->first;
        if (noops == begin)
            return NULL;
    }
    return noops;
}

/* No session goes with a noop that ends here: one that is to go has dropped its own before. */
bool cgm_noops_step(struct cgm_noops_users *users, uint64_t now_ns)
{
    bool busy = false;
    struct cgm_noops *noops = next_user(users, now_ns);
    if (!noops)
        return false;
    users->turn = noops->next;
    if (!noops->looked_at)
        look_on(users, noops, noops->first);
    for (unsigned i = 0; noops->looked_at && i < NOOPS_PER_ROUND; i++) {
        struct cgm_job *job = noops->looked_at;
        look_on(users, noops, job->next);
        noops->seen++;
        busy |= look_at(users, job, now_ns);
    }
    if (noops->looked_at)
        return busy;
    noops->next_look_ns = now_ns + (uint64_t)noops->seen * CGM_LOOK_NS_PER_MEMBER;
    noops->seen = 0;
    return busy;
}
