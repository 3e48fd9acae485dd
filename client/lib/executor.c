/* Waiting for an executor. With a ring the daemon says when there is one; without, this asks. */
#include <stdlib.h>
#include <string.h>

#include "client/lib/client.h"
#include "client/lib/clock.h"

#define ASK_AGAIN_NS 50000000u

/* The life of the executor that is running, from the daemon's status; 0: none. */
static int ask_life(commgemm_client *client, uint64_t *ret_life)
{
    struct cgm_reply reply;
    Cgm__Query query = CGM__QUERY__INIT;
    query.what = CGM_QUERY_STATUS;
    int status = cgm_client_call(client, CGM_MSG_QUERY, &query.base, CGM_MSG_QUERY_REPLY, &reply);
    if (status != CGM_OK)
        return status;
    const Cgm__QueryReply *page = (const Cgm__QueryReply *)reply.message;
    *ret_life = 0;
    for (size_t i = 0; i < page->n_row; i++)
        for (size_t j = 0; j < page->row[i]->n_key && j < page->row[i]->n_value; j++)
            if (strcmp(page->row[i]->key[j], "executor_life") == 0)
                *ret_life = strtoull(page->row[i]->value[j], NULL, 10);
    cgm_reply_fini(&reply);
    return CGM_OK;
}

/* OK when an executor serves the session, NO_EXECUTOR or EXECUTOR_LOST when none does yet. */
static int look_without_ring(commgemm_client *client)
{
    uint64_t life;
    int status = ask_life(client, &life);
    if (status != CGM_OK)
        return status;
    cgm_jobs_lock(&client->jobs);
    bool alive = life > client->jobs.highest_lost_life;
    cgm_jobs_unlock(&client->jobs);
    if (!alive)
        return cgm_fail(CGM_NO_EXECUTOR, "the daemon has no executor at the moment");
    atomic_store(&client->executor_life, life);
    return CGM_OK;
}

static int look(commgemm_client *client)
{
    if (client->no_ring)
        return look_without_ring(client);
    cgm_jobs_lock(&client->jobs);
    int status = cgm_jobs_ready(&client->jobs);
    cgm_jobs_unlock(&client->jobs);
    return status;
}

/* Also the longest that a change between a look and this goes unnoticed. */
static void pause_until(commgemm_client *client, uint64_t deadline_ns)
{
    uint64_t soon = cgm_now_ns() + ASK_AGAIN_NS;
    cgm_jobs_lock(&client->jobs);
    cgm_jobs_wait_change(&client->jobs, soon < deadline_ns ? soon : deadline_ns);
    cgm_jobs_unlock(&client->jobs);
}

int commgemm_wait_executor(commgemm_client *client, int timeout_ms)
{
    int status = cgm_check_client(client);
    if (status != CGM_OK)
        return status;
    uint64_t deadline = cgm_deadline_ns(timeout_ms);
    for (;;) {
        status = look(client);
        if (status != CGM_NO_EXECUTOR && status != CGM_EXECUTOR_LOST && status != CGM_GPU_LOST)
            return status;
        if (cgm_now_ns() >= deadline)
            return cgm_fail(CGM_TIMEOUT, "no executor after %d ms", timeout_ms);
        pause_until(client, deadline);
    }
}
