#include "daemon/executor/cancels.h"

#include "daemon/executor/endpoint.h"
#include "daemon/executor/gang.h"
#include "daemon/executor/poller.h"
#include "proto/messages.h"
#include "proto/status.h"

/* To find one takes microseconds. */
#define SEEN_AT_ONCE 64u

/* NULL: it is not in flight. Whoever asks again and again for what is not there takes little time
 * of the poller, whatever else is in flight. */
static struct cgm_job *job_find(const struct cgm_endpoint *endpoint, uint64_t ticket)
{
    for (uint32_t i = 0; ticket != 0 && i < endpoint->entries; i++)
        if (endpoint->tickets[i] == ticket)
            return &endpoint->jobs[i];
    return NULL;
}

static void cancel_noop(struct cgm_job *job, const char *detail)
{
    cgm_noops_leave(&job->endpoint->poller->noops, job);
    cgm_job_complete(job, &(struct cgm_outcome){.status = CGM_CANCELLED, .detail = detail});
}

static void cancel_now(struct cgm_endpoint *endpoint, uint64_t ticket)
{
    char detail[CGM_CQE_DETAIL];
    struct cgm_job *job = job_find(endpoint, ticket);
    if (!job)
        return;
    cgm_detail(detail, sizeof(detail), 0, "session %llu cancelled its ticket %llu",
               (unsigned long long)endpoint->session, (unsigned long long)ticket);
    if (job->opcode == CGM_OPCODE_NOOP)
        cancel_noop(job, detail);
    else
        cgm_gang_cancel(job, detail);
}

/* True when the entry to cancel may still lie in the ring, which is taken out of it when it has its
 * turn. */
static bool may_be_ahead(const struct cgm_endpoint *endpoint, uint64_t ticket)
{
    return ticket > endpoint->last_ticket && ticket - endpoint->last_ticket <= endpoint->entries &&
           endpoint->ring.header && cgm_endpoint_has_entries(endpoint);
}

/* The others have their turn when the ring is drained again. */
static bool goes_on(const struct cgm_endpoint *endpoint, uint32_t seen)
{
    return !endpoint->ring.header ||
           (seen < SEEN_AT_ONCE && !cgm_poller_is_tired(endpoint->poller));
}

void cgm_cancels_step(struct cgm_endpoint *endpoint)
{
    struct cgm_task **link = &endpoint->cancels;
    uint32_t seen = 0;
    while (*link && goes_on(endpoint, seen++)) {
        struct cgm_request *request = (struct cgm_request *)*link;
        uint64_t ticket = ((const Cgm__CancelForward *)request->message)->ticket;
        if (may_be_ahead(endpoint, ticket)) {
            link = &request->task.next;
            continue;
        }
        *link = request->task.next;
        cancel_now(endpoint, ticket);
        cgm_request_ok(request);
    }
}

void cgm_cancels_drop(struct cgm_endpoint *endpoint)
{
    while (endpoint->cancels) {
        struct cgm_request *request = (struct cgm_request *)endpoint->cancels;
        endpoint->cancels = request->task.next;
        cgm_request_ok(request);
    }
}

void cgm_cancels_on_request(struct cgm_request *request)
{
    const Cgm__CancelForward *m = (const Cgm__CancelForward *)request->message;
    struct cgm_endpoint *endpoint = cgm_map_get(&request->executor->poller.endpoints, m->session);
    if (!endpoint || endpoint->removal) {
        cgm_request_ok(request);
        return;
    }
    if (endpoint->ring_fd >= 0)
        cgm_endpoint_begin(endpoint);
    request->task.next = endpoint->cancels;
    endpoint->cancels = &request->task;
    cgm_cancels_step(endpoint);
}
