#include "client/lib/client.h"
#include "client/lib/completion.h"

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
    status = cgm_jobs_wait_given(&client->jobs, ticket, timeout_ms, &slot);
    if (status == CGM_OK) {
        if (ret_completion)
            cgm_completion_take_all(slot, ret_completion);
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
        cgm_completion_take_all(slot, &ret_completions[count++]);
        cgm_jobs_release(jobs, slot);
    }
    bool gone = count == 0 && jobs->loose == 0 && cgm_jobs_are_lost(jobs);
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
