/* Jobs in the order of a CUDA stream: the stream writes the ready word of the job's slot and then
 * waits for its done word; the calling thread waits for nothing.
 *
 * Order. The entry is pushed first, which changes nothing yet: nobody launches a job whose ready
 * word is behind its ticket. So tickets reach the ring in order without a lock held across calls
 * of the driver, which may block in a full launch queue until a job ends: the watcher thread, which
 * ends jobs, must get the lock of the jobs then.
 *
 * No stream waits for ever. A ring that dies is scanned (cgm_ring_kill): the scan either finds the
 * pushed ticket, whether the wait is enqueued by then or not, or the push sees that the ring is
 * dead and scans itself. Every done word only grows, so a wait that a stream reaches late, when its
 * slot carries a later job, still finds it passed. The ready word would not forgive: a late write
 * of the old ticket over a newer one hides that the newer job is ready. That is what CGM_SLOT_LATE
 * is for.
 */
#include <stdbool.h>

#include "client/lib/cuda_timeline.h"
#include "client/lib/submit.h"

/* cuda.h: CU_STREAM_WRITE_VALUE_DEFAULT orders the write behind all that the stream did before. */
enum { WRITE_DEFAULT = 0, WAIT_GEQ = 0, CAPTURE_NONE = 0 };

/* What the stream must know of a job; the slot itself may be another's by then. */
struct pushed {
    struct cgm_slot *slot;
    uint64_t ticket, entry_ticket;
    uint64_t ready, done; /* device addresses */
};

static int check_stream(const commgemm_client *client, void *stream,
                        const struct cgm_cuda_driver *driver)
{
    int state = CAPTURE_NONE;
    if (client->no_ring)
        return cgm_fail(CGM_NOT_SUPPORTED,
                        "no_ring is 1; a stream needs the ring: connect with no_ring 0");
    int result = driver->stream_capturing(stream, &state);
    if (result != CGM_CUDA_SUCCESS)
        return cgm_fail(cgm_cuda_status(result), "stream is %p; cuStreamIsCapturing: %s", stream,
                        cgm_cuda_error_name(driver, result));
    if (state != CAPTURE_NONE)
        return cgm_fail(CGM_NOT_SUPPORTED,
                        "stream %p is being captured; a job runs once and cannot be replayed with "
                        "a graph: submit it between graphs",
                        stream);
    return CGM_OK;
}

/* The slot is held, so that nobody else reaps it before the stream has its part. */
static int push(commgemm_client *client, const struct commgemm_job *job,
                const struct cgm_cuda_context *context, struct pushed *ret_pushed)
{
    struct cgm_jobs *jobs = &client->jobs;
    struct cgm_slot *slot;
    cgm_jobs_lock(jobs);
    int status = cgm_cuda_timelines_open(&client->timelines, jobs, context);
    if (status == CGM_OK)
        status = cgm_submit_take(jobs, job, &slot);
    if (status == CGM_OK) {
        const struct cgm_cuda_timeline *timeline = slot->lane->timeline;
        *ret_pushed = (struct pushed){
            .slot = slot,
            .ticket = slot->ticket,
            .entry_ticket = slot->entry_ticket,
            .ready = timeline->ready + slot->index * sizeof(uint64_t),
            .done = timeline->done + slot->index * sizeof(struct cgm_done),
        };
        slot->on_stream = true;
        cgm_jobs_hold(slot);
        cgm_submit_push(jobs, slot, job);
    }
    cgm_jobs_unlock(jobs);
    return status;
}
_Static_assert(offsetof(struct cgm_done, ticket) == 0, "streams wait for the ticket");

/* Lets go of the slot, unless a thread that guessed the ticket has taken it. */
static void let_go(struct cgm_jobs *jobs, const struct pushed *pushed, bool is_written)
{
    struct cgm_slot *slot = pushed->slot;
    cgm_jobs_lock(jobs);
    if (cgm_jobs_find(jobs, pushed->ticket) == slot) {
        slot->on_stream = is_written;
        cgm_jobs_unhold(jobs, slot);
        cgm_jobs_settle(jobs, slot);
    }
    cgm_jobs_unlock(jobs);
}

/* The stream did not take its part, and the caller gets no ticket: the job must be over when this
 * returns. It is cancelled on all ranks; one that was launched meanwhile ends by itself. Where not
 * even that can be said, the deadlines of the daemon end it. */
static void end_job(commgemm_client *client, const struct pushed *pushed, bool is_written)
{
    struct cgm_jobs *jobs = &client->jobs;
    struct cgm_slot *slot;
    cgm_jobs_lock(jobs);
    if (cgm_jobs_find(jobs, pushed->ticket) == pushed->slot)
        pushed->slot->on_stream = is_written;
    cgm_jobs_unlock(jobs);
    bool ends = commgemm_cancel(client, pushed->ticket) == CGM_OK;
    cgm_jobs_lock(jobs);
    if (cgm_jobs_wait(jobs, pushed->ticket, ends ? -1 : 0, &slot) == CGM_OK) {
        cgm_jobs_release(jobs, slot);
    } else if ((slot = cgm_jobs_find(jobs, pushed->ticket))) {
        if (!slot->detached)
            cgm_jobs_detach(jobs, slot);
        cgm_jobs_unhold(jobs, slot);
    }
    cgm_jobs_unlock(jobs);
}

static int fail_stream(const struct cgm_cuda_driver *driver, const char *call, int result,
                       void *stream, const struct pushed *pushed)
{
    return cgm_fail(cgm_cuda_status(result), "stream is %p; %s: %s; job %llu was cancelled", stream,
                    call, cgm_cuda_error_name(driver, result), (unsigned long long)pushed->ticket);
}

static int enqueue(commgemm_client *client, const struct cgm_cuda_driver *driver, void *stream,
                   const struct pushed *pushed)
{
    int result = driver->stream_write(stream, pushed->ready, pushed->entry_ticket, WRITE_DEFAULT);
    if (result != CGM_CUDA_SUCCESS) {
        end_job(client, pushed, false);
        return fail_stream(driver, "cuStreamWriteValue64", result, stream, pushed);
    }
    result = driver->stream_wait(stream, pushed->done, pushed->entry_ticket, WAIT_GEQ);
    if (result != CGM_CUDA_SUCCESS) {
        end_job(client, pushed, true);
        return fail_stream(driver, "cuStreamWaitValue64", result, stream, pushed);
    }
    let_go(&client->jobs, pushed, true);
    return CGM_OK;
}

static int submit(commgemm_client *client, const struct commgemm_job *job, void *stream,
                  const struct cgm_cuda_context *context, uint64_t *ret_ticket)
{
    struct pushed pushed;
    int status = check_stream(client, stream, context->driver);
    if (status == CGM_OK)
        status = push(client, job, context, &pushed);
    if (status == CGM_OK)
        status = enqueue(client, context->driver, stream, &pushed);
    if (status == CGM_OK)
        *ret_ticket = pushed.ticket;
    return status;
}

int commgemm_submit_on_stream(commgemm_client *client, const struct commgemm_job *job, void *stream,
                              uint64_t *ret_ticket)
{
    struct cgm_cuda_context context;
    struct commgemm_job copy;
    int status = cgm_submit_check(client, job, ret_ticket, &copy, &job);
    if (status == CGM_OK)
        status = cgm_cuda_context_of_stream(stream, &context);
    if (status != CGM_OK)
        return status;
    status = submit(client, job, stream, &context, ret_ticket);
    cgm_cuda_context_leave(&context);
    return status;
}
