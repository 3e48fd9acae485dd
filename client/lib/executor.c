/* Waiting for an executor: the daemon says when there is one. */
#include "client/lib/client.h"
#include "client/lib/clock.h"

#define LOOK_AGAIN_NS 50000000u

uint64_t cgm_client_serving_life(const commgemm_client *client)
{
    uint64_t life = atomic_load(&client->executor_life);
    return life > client->jobs.highest_lost_life && life > client->jobs.silent_life ? life : 0;
}

int cgm_client_check_served(commgemm_client *client)
{
    int status = cgm_jobs_ready(&client->jobs);
    if (status != CGM_OK || cgm_client_serving_life(client) != 0)
        return status;
    return cgm_fail(CGM_NO_EXECUTOR, "the daemon has no executor at the moment");
}

/* OK when an executor serves the session, NO_EXECUTOR or EXECUTOR_LOST when none does yet. */
static int look(commgemm_client *client)
{
    cgm_jobs_lock(&client->jobs);
    int status = cgm_client_check_served(client);
    cgm_jobs_unlock(&client->jobs);
    return status;
}

/* Also the longest that a change between a look and this goes unnoticed. */
static void pause_until(commgemm_client *client, uint64_t deadline_ns)
{
    uint64_t soon = cgm_now_ns() + LOOK_AGAIN_NS;
    cgm_jobs_lock(&client->jobs);
    cgm_jobs_wait_change(&client->jobs, soon < deadline_ns ? soon : deadline_ns);
    cgm_jobs_unlock(&client->jobs);
}

static int wait_for_one(commgemm_client *client, int timeout_ms)
{
    uint64_t deadline = cgm_deadline_ns(timeout_ms);
    for (;;) {
        int status = look(client);
        if (status != CGM_NO_EXECUTOR && status != CGM_EXECUTOR_LOST && status != CGM_GPU_LOST)
            return status;
        if (cgm_now_ns() >= deadline)
            return cgm_fail(CGM_TIMEOUT, "no executor after %d ms", timeout_ms);
        pause_until(client, deadline);
    }
}

int commgemm_wait_executor(commgemm_client *client, int timeout_ms)
{
    struct cgm_kept_error kept;
    int status = cgm_check_client(client);
    if (status != CGM_OK)
        return status;
    cgm_error_keep(&kept);
    status = wait_for_one(client, timeout_ms);
    if (status == CGM_OK)
        cgm_error_restore(&kept);
    return status;
}
