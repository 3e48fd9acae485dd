/* What is left of jobs whose completions nobody takes. */
#include <string.h>

#include "client/lib/client.h"

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

static int wait_until_few(commgemm_client *client, uint32_t max_left, int timeout_ms)
{
    struct cgm_jobs *jobs = &client->jobs;
    cgm_jobs_lock(jobs);
    int status = cgm_jobs_wait_for_few(jobs, max_left, timeout_ms);
    uint32_t left = jobs->n_detached;
    bool is_lost = cgm_jobs_are_lost(jobs);
    cgm_jobs_unlock(jobs);
    if (status == CGM_TIMEOUT)
        return cgm_fail(status, "%u detached jobs have not ended after %d ms; max_left is %u", left,
                        timeout_ms, max_left);
    return is_lost ? cgm_fail(CGM_DAEMON_LOST, "the daemon closed the connection") : CGM_OK;
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
