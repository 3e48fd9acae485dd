#include <stdlib.h>
#include <string.h>

#include "client/lib/client.h"

/* ---- completions ------------------------------------------------------------------------------
 */

static void convert_phase(const struct cgm_phase *from, struct commgemm_phase *ret_phase)
{
    *ret_phase = (struct commgemm_phase){
        .begin_ns = from->begin_ns,
        .end_ns = from->end_ns,
        .kind = from->kind,
        .device = from->device,
        .rank = from->rank,
        .queue = from->queue,
        .chunk = from->chunk,
        .peer = from->peer_or_zero,
    };
}

/* The only allocation of a wait, and only for a job that asked for phases. */
static void take_phases(const struct cgm_slot *slot, struct commgemm_completion *ret_completion)
{
    uint32_t count = slot->cqe.n_phases;
    const struct cgm_ring *ring = &slot->lane->ring;
    const struct cgm_phase *from =
        ring->header ? ring->phase + (size_t)slot->index * CGM_PHASES_PER_JOB : slot->phases;
    ret_completion->phases = count ? calloc(count, sizeof(struct commgemm_phase)) : NULL;
    ret_completion->n_phases = ret_completion->phases ? count : 0;
    ret_completion->phases_lost = slot->cqe.phases_lost + count - ret_completion->n_phases;
    for (uint32_t i = 0; i < ret_completion->n_phases; i++) {
        struct cgm_phase phase = from[i];
        convert_phase(&phase, &ret_completion->phases[i]);
    }
}

static void take_completion(const struct cgm_slot *slot, struct commgemm_completion *ret_completion)
{
    const struct cgm_cqe *cqe = &slot->cqe;
    ret_completion->ticket = slot->ticket;
    ret_completion->status = cqe->status;
    ret_completion->algorithm = cqe->algorithm;
    ret_completion->plan = slot->plan ? slot->plan->id : 0;
    ret_completion->comm_number = slot->comm_number;
    ret_completion->queued_ns = cqe->queued_ns;
    ret_completion->waiting_ns = cqe->waiting_ns;
    ret_completion->running_ns = cqe->running_ns;
    ret_completion->reason[0] = ret_completion->detail[0] = '\0';
    if (slot->plan)
        memcpy(ret_completion->reason, slot->plan->reason, sizeof(ret_completion->reason));
    if (cqe->status != CGM_OK)
        memcpy(ret_completion->detail, cqe->detail, sizeof(ret_completion->detail));
    take_phases(slot, ret_completion);
}
_Static_assert(sizeof(((struct commgemm_completion *)0)->detail) == CGM_CQE_DETAIL, "copied");
_Static_assert(sizeof(((struct commgemm_completion *)0)->reason) == CGM_REASON_BYTES, "copied");

void commgemm_completion_fini(struct commgemm_completion *completion)
{
    if (!completion)
        return;
    free(completion->phases);
    completion->phases = NULL;
    completion->n_phases = 0;
}

/* ---- calls ------------------------------------------------------------------------------------
 */

/* A lost daemon is a failed call too, so that no program takes it for the end of its job. */
static int status_of_wait(const struct cgm_slot *slot)
{
    if (slot->cqe.status != CGM_DAEMON_LOST)
        return CGM_OK;
    return cgm_fail(CGM_DAEMON_LOST, "the daemon went away before job %llu had ended",
                    (unsigned long long)slot->ticket);
}

int commgemm_wait(commgemm_client *client, uint64_t ticket, int timeout_ms,
                  struct commgemm_completion *ret_completion)
{
    struct cgm_slot *slot;
    int status = cgm_check_client(client);
    if (status != CGM_OK)
        return status;
    cgm_jobs_lock(&client->jobs);
    status = cgm_jobs_wait(&client->jobs, ticket, timeout_ms, &slot);
    if (status == CGM_OK) {
        if (ret_completion)
            take_completion(slot, ret_completion);
        status = status_of_wait(slot);
        cgm_jobs_release(&client->jobs, slot);
    }
    cgm_jobs_unlock(&client->jobs);
    return status;
}

static int check_reap(commgemm_client *client, const void *completions, const void *count)
{
    int status = cgm_check_client(client);
    if (status == CGM_OK)
        status = cgm_check_pointer(completions, "ret_completions");
    if (status == CGM_OK)
        status = cgm_check_pointer(count, "ret_count");
    return status;
}

int commgemm_reap(commgemm_client *client, struct commgemm_completion *ret_completions,
                  uint32_t max, uint32_t *ret_count)
{
    struct cgm_slot *slot;
    uint32_t count = 0;
    int status = check_reap(client, ret_completions, ret_count);
    if (status != CGM_OK)
        return status;
    struct cgm_jobs *jobs = &client->jobs;
    cgm_jobs_lock(jobs);
    if (jobs->poll_fd >= 0 && jobs->lane && jobs->lane->ring.header && !jobs->lane->hung_up)
        cgm_jobs_drain_notify(jobs, jobs->lane);
    cgm_jobs_collect(jobs);
    while (count < max && (slot = cgm_jobs_next_loose(jobs))) {
        take_completion(slot, &ret_completions[count++]);
        cgm_jobs_release(jobs, slot);
    }
    bool gone = jobs->lost && count == 0 && jobs->loose == 0;
    cgm_jobs_unlock(jobs);
    if (gone)
        return cgm_fail(CGM_DAEMON_LOST, "the daemon closed the connection");
    *ret_count = count;
    return CGM_OK;
}

int commgemm_poll_fd(commgemm_client *client, int *ret_fd)
{
    int status = cgm_check_client(client);
    if (status == CGM_OK)
        status = cgm_check_pointer(ret_fd, "ret_fd");
    if (status != CGM_OK)
        return status;
    cgm_jobs_lock(&client->jobs);
    status = cgm_jobs_poll_fd(&client->jobs, ret_fd);
    cgm_jobs_unlock(&client->jobs);
    return status;
}
