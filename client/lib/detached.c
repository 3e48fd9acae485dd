/* What is left of jobs whose completions nobody takes. */
#include <string.h>

#include "client/lib/client.h"
#include "client/lib/clock.h"

#define LITTLE_MS 5

int commgemm_detached_failures(commgemm_client *client, struct commgemm_completion *ret_first,
                               uint64_t *ret_count)
{
    int status = cgm_check_client(client);
    if (status == CGM_OK)
        status = cgm_check_pointer(ret_count, "ret_count");
    if (status != CGM_OK)
        return status;
    struct cgm_jobs *jobs = &client->jobs;
    cgm_jobs_lock(jobs);
    cgm_jobs_collect(jobs);
    *ret_count = jobs->n_failures;
    if (ret_first)
        *ret_first = jobs->failure;
    jobs->n_failures = 0;
    memset(&jobs->failure, 0, sizeof(jobs->failure));
    cgm_jobs_unlock(jobs);
    return CGM_OK;
}

/* The detached job in flight that was submitted first; 0: there is none. */
static uint64_t oldest(const struct cgm_jobs *jobs)
{
    uint64_t ticket = 0;
    for (uint32_t i = 0; jobs->lane && i < jobs->lane->entries; i++) {
        const struct cgm_slot *slot = &jobs->lane->slots[i];
        if (slot->detached && !cgm_slot_has_ended(slot) && (ticket == 0 || slot->ticket < ticket))
            ticket = slot->ticket;
    }
    return ticket;
}

/* Waits for the job that is to end first, a little: others may end before it, unseen by this thread
 * when another takes their completions, and it may end and go while the lock is dropped. */
static int wait_a_little(struct cgm_jobs *jobs, uint64_t ticket, uint32_t max_left,
                         uint64_t deadline_ns)
{
    uint64_t now = cgm_now_ns();
    struct cgm_slot *slot;
    int left_ms = LITTLE_MS;
    if (now >= deadline_ns)
        left_ms = 0;
    else if (deadline_ns - now < LITTLE_MS * 1000000ull)
        left_ms = (int)((deadline_ns - now + 999999) / 1000000);
    int status = cgm_jobs_wait_for_few(jobs, ticket, left_ms, max_left, &slot);
    if (status == CGM_OK)
        cgm_jobs_settle(jobs, slot);
    bool goes_on = status == CGM_NOT_FOUND || (status == CGM_TIMEOUT && cgm_now_ns() < deadline_ns);
    return goes_on ? CGM_OK : status;
}

static int wait_until_few(commgemm_client *client, uint32_t max_left, int timeout_ms)
{
    int status = CGM_OK;
    uint64_t deadline_ns = cgm_deadline_ns(timeout_ms);
    struct cgm_jobs *jobs = &client->jobs;
    cgm_jobs_lock(jobs);
    cgm_jobs_collect(jobs);
    while (status == CGM_OK && jobs->n_detached > max_left)
        status = wait_a_little(jobs, oldest(jobs), max_left, deadline_ns);
    uint32_t left = jobs->n_detached;
    if (status == CGM_TIMEOUT && left <= max_left) /* others ended while the oldest did not */
        status = CGM_OK;
    if (status == CGM_OK && cgm_jobs_are_lost(jobs))
        status = cgm_fail(CGM_DAEMON_LOST, "the daemon closed the connection");
    cgm_jobs_unlock(jobs);
    if (status != CGM_TIMEOUT)
        return status;
    return cgm_fail(status, "%u detached jobs have not ended after %d ms; max_left is %u", left,
                    timeout_ms, max_left);
}

int commgemm_wait_detached(commgemm_client *client, uint32_t max_left, int timeout_ms)
{
    struct cgm_kept_error kept;
    int status = cgm_check_client(client);
    if (status != CGM_OK)
        return status;
    cgm_error_keep(&kept);
    status = wait_until_few(client, max_left, timeout_ms);
    if (status == CGM_OK)
        cgm_error_restore(&kept);
    return status;
}
