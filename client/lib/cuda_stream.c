/* Jobs in the order of a CUDA stream: the stream writes the ready word of the job's slot and then
 * waits for its done word; the calling thread waits for nothing.
 *
 * Order. The entry is pushed first, which changes nothing yet: nobody launches a job whose ready
 * word is behind its ticket. So tickets reach the ring in order without a lock held across calls
 * of the driver, which may block in a full launch queue until a job ends: the watcher thread, which
 * ends jobs, must get the lock of the jobs then. Of several jobs all have a place before the first
 * is pushed, so that their ranks' numbers go on together; and all ready words are written before
 * the first wait: streams that share a hardware queue run in one order.
 *
 * No stream waits for ever. The daemon scans a ring that dies (cgm_ring_kill): the scan either
 * finds the pushed ticket, whether the wait is enqueued by then or not, or the push sees that the
 * ring is dead and ends it itself. Every done word only grows, so a wait that a stream reaches
 * late, when its slot carries a later job, still finds it passed. The ready word would not forgive:
 * a late write of the old ticket over a newer one hides that the newer job is ready. That is what
 * CGM_SLOT_LATE is for.
 */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include "client/lib/cuda_timeline.h"
#include "client/lib/submit.h"

/* cuda.h: CU_STREAM_WRITE_VALUE_DEFAULT orders the write behind all that the stream did before. */
enum { WRITE_DEFAULT = 0, WAIT_GEQ = 0, CAPTURE_NONE = 0 };

/* One job on its way. The stream's part needs no slot, which may be another's by then. */
struct part {
    commgemm_client *client;
    const struct commgemm_job *job; /* perhaps the copy */
    struct commgemm_job copy;
    void *stream;
    struct cgm_cuda_context context;
    bool is_written;
    struct cgm_slot *slot; /* held from take to take_back, let_go or forget_job; NULL: none is */
    uint64_t ticket, entry_ticket;
    uint64_t ready, done; /* device addresses */
};

static int check_stream(const struct part *part)
{
    const struct cgm_cuda_driver *driver = part->context.driver;
    void *stream = part->stream;
    int state = CAPTURE_NONE;
    if (part->client->no_ring)
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

/* ---- places, under the locks of all clients ----------------------------------------------------
 */

/* Under the lock. */
static bool has_timeline(const struct part *part)
{
    const struct cgm_lane *lane = part->client->jobs.lane;
    return lane && lane->timeline;
}

static int open_timeline(struct part *part)
{
    struct cgm_jobs *jobs = &part->client->jobs;
    struct cgm_cuda_context entered;
    int status = cgm_cuda_context_enter(part->context.context, &entered);
    if (status != CGM_OK)
        return status;
    cgm_jobs_lock(jobs);
    status = cgm_cuda_timelines_open(&part->client->timelines, jobs, &entered);
    cgm_jobs_unlock(jobs);
    cgm_cuda_context_leave(&entered);
    return status;
}

static commgemm_client *next_client(const struct part *parts, uint32_t n,
                                    const commgemm_client *after)
{
    commgemm_client *next = NULL;
    for (uint32_t i = 0; i < n; i++)
        if ((uintptr_t)parts[i].client > (uintptr_t)after &&
            (!next || (uintptr_t)parts[i].client < (uintptr_t)next))
            next = parts[i].client;
    return next;
}

/* Each one's once, in the order of their addresses: no two threads wait for each other. */
static void lock_clients(const struct part *parts, uint32_t n)
{
    for (commgemm_client *c = NULL; (c = next_client(parts, n, c));)
        cgm_jobs_lock(&c->jobs);
}

static void unlock_clients(const struct part *parts, uint32_t n)
{
    for (commgemm_client *c = NULL; (c = next_client(parts, n, c));)
        cgm_jobs_unlock(&c->jobs);
}

static int take(struct part *part)
{
    struct cgm_jobs *jobs = &part->client->jobs;
    struct cgm_slot *slot;
    int status = cgm_submit_take(jobs, part->job, &slot);
    if (status != CGM_OK)
        return status;
    slot->submitting = true;
    cgm_jobs_hold(slot);
    part->slot = slot;
    return CGM_OK;
}

/* In the opposite order: each is its client's last. */
static void take_back(struct part *part)
{
    struct cgm_jobs *jobs = &part->client->jobs;
    struct cgm_lane *lane = part->slot->lane;
    part->slot->submitting = false;
    cgm_jobs_unhold(jobs, part->slot);
    cgm_submit_take_back(jobs, part->slot);
    cgm_jobs_put_lane(jobs, lane);
    part->slot = NULL;
}

/* Also one that has ended by then, lost with its ring when another was pushed: its done word says
 * so to the stream. */
static void push(struct part *part)
{
    struct cgm_slot *slot = part->slot;
    const struct cgm_cuda_timeline *timeline = slot->lane->timeline;
    part->ticket = slot->ticket;
    part->entry_ticket = slot->entry_ticket;
    part->ready = timeline->ready + slot->index * sizeof(uint64_t);
    part->done = timeline->done + slot->index * sizeof(struct cgm_done);
    slot->on_stream = true;
    cgm_submit_push(&part->client->jobs, slot, part->job);
}
_Static_assert(offsetof(struct cgm_done, ticket) == 0, "streams wait for the ticket");

/* Under the lock. */
static void let_go(const struct part *part)
{
    part->slot->submitting = false;
    cgm_jobs_unhold(&part->client->jobs, part->slot);
    cgm_jobs_settle(&part->client->jobs, part->slot);
}

static void give_ticket(const struct part *part, uint64_t *ret_ticket)
{
    cgm_jobs_lock(&part->client->jobs);
    let_go(part);
    cgm_jobs_unlock(&part->client->jobs);
    *ret_ticket = part->ticket;
}

/* The stream did not take its part: the job must be over when the call returns. It is cancelled on
 * all ranks; one that was launched meanwhile ends by itself. Where not even that can be said, the
 * deadlines of the daemon end it. True when it was lost with its executor. */
static bool end_job(const struct part *part)
{
    struct cgm_jobs *jobs = &part->client->jobs;
    struct cgm_slot *slot;
    bool is_lost = false;
    cgm_jobs_lock(jobs);
    part->slot->on_stream = part->is_written;
    cgm_jobs_unlock(jobs);
    bool ends = commgemm_cancel(part->client, part->ticket) == CGM_OK;
    cgm_jobs_lock(jobs);
    if (cgm_jobs_wait(jobs, part->ticket, ends ? -1 : 0, &slot) == CGM_OK)
        is_lost = slot->cqe.status == CGM_EXECUTOR_LOST || slot->cqe.status == CGM_GPU_LOST ||
                  slot->cqe.status == CGM_DAEMON_LOST;
    cgm_jobs_unlock(jobs);
    return is_lost;
}

/* Nobody gets its ticket. */
static void forget_job(const struct part *part)
{
    struct cgm_jobs *jobs = &part->client->jobs;
    cgm_jobs_lock(jobs);
    if (cgm_slot_has_ended(part->slot)) {
        cgm_jobs_release(jobs, part->slot);
    } else {
        if (!part->slot->detached)
            cgm_jobs_detach(jobs, part->slot);
        let_go(part);
    }
    cgm_jobs_unlock(jobs);
}

/* ---- the steps, each of all jobs before the next -----------------------------------------
 */

/* All that can be refused without a place. */
static int step_check(struct part *part, const struct commgemm_stream_job *job)
{
    int status = cgm_submit_check(job->client, job->job, &job->ticket, &part->copy, &part->job);
    if (status != CGM_OK)
        return status;
    part->client = job->client;
    part->stream = job->stream;
    status = cgm_cuda_context_of_stream(part->stream, &part->context);
    if (status != CGM_OK)
        return status;
    status = check_stream(part);
    cgm_cuda_context_leave(&part->context);
    return status;
}

/* Locks all clients when each has a ring that streams can use, or none. */
static int lock_with_timelines(struct part *parts, uint32_t n)
{
    int status = CGM_OK;
    for (bool have_all = false; !have_all;) {
        for (uint32_t i = 0; i < n && status == CGM_OK; i++)
            status = open_timeline(&parts[i]);
        if (status != CGM_OK)
            return status;
        lock_clients(parts, n);
        have_all = true;
        for (uint32_t i = 0; i < n && have_all; i++)
            have_all = has_timeline(&parts[i]);
        if (!have_all)
            unlock_clients(parts, n);
    }
    return CGM_OK;
}

static uint32_t count_of_client(const struct part *parts, uint32_t n, const commgemm_client *client)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < n; i++)
        count += parts[i].client == client ? 1 : 0;
    return count;
}

/* Of one that never can: INVALID_ARGUMENT. */
static int check_room(const struct part *parts, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        uint32_t count = count_of_client(parts, n, parts[i].client);
        if (count > parts[i].client->ring_entries)
            return cgm_fail(CGM_INVALID_ARGUMENT,
                            "%u of the jobs are of one client, whose ring_entries is %u", count,
                            parts[i].client->ring_entries);
    }
    return CGM_OK;
}

/* Under the locks, when the places that were taken are given back. */
static int fail_full(const struct part *parts, uint32_t n, const commgemm_client *client)
{
    const struct cgm_lane *lane = client->jobs.lane;
    return cgm_fail(CGM_RING_FULL,
                    "%u jobs are in flight or not reaped%s, and %u are to follow together; "
                    "ring_entries is %u",
                    lane->outstanding,
                    lane->n_late ? ", others wait for the streams of jobs that ended before" : "",
                    count_of_client(parts, n, client), lane->entries);
}

static int step_push(struct part *parts, uint32_t n)
{
    uint32_t taken = 0;
    int status = lock_with_timelines(parts, n);
    if (status != CGM_OK)
        return status;
    while (taken < n && (status = take(&parts[taken])) == CGM_OK)
        taken++;
    if (status == CGM_OK)
        for (uint32_t i = 0; i < n; i++)
            push(&parts[i]);
    const commgemm_client *refused = status == CGM_OK ? NULL : parts[taken].client;
    while (status != CGM_OK && taken > 0)
        take_back(&parts[--taken]);
    if (status == CGM_RING_FULL && n > 1)
        status = fail_full(parts, n, refused);
    unlock_clients(parts, n);
    return status;
}

/* A stream's call in the stream's context. */
static int call(struct part *part, const char *name,
                int (*enqueue)(void *stream, uint64_t address, uint64_t value, unsigned flags),
                uint64_t address, unsigned flags)
{
    struct cgm_cuda_context entered;
    int status = cgm_cuda_context_enter(part->context.context, &entered);
    if (status != CGM_OK)
        return status;
    int result = enqueue(part->stream, address, part->entry_ticket, flags);
    cgm_cuda_context_leave(&entered);
    if (result == CGM_CUDA_SUCCESS)
        return CGM_OK;
    return cgm_fail(
        cgm_cuda_status(result),
        "stream is %p; %s: %s; job %llu is over: it was cancelled, unless it ran before",
        part->stream, name, cgm_cuda_error_name(entered.driver, result),
        (unsigned long long)part->ticket);
}

static int step_write(struct part *part)
{
    int status = call(part, "cuStreamWriteValue64", part->context.driver->stream_write, part->ready,
                      WRITE_DEFAULT);
    part->is_written = status == CGM_OK;
    return status;
}

static int step_wait(struct part *part)
{
    return call(part, "cuStreamWaitValue64", part->context.driver->stream_wait, part->done,
                WAIT_GEQ);
}

/* ---- calls ------------------------------------------------------------------------------------
 */

/* Ends what was pushed, and keeps the detail of the failure. OK when a job was lost by then: its
 * other ranks submit it again, and its completion says so here, as the completions of the others
 * say what became of them; their streams need not wait for what is over. */
static int end_all(const struct part *parts, uint32_t n, int status)
{
    struct cgm_kept_error kept;
    bool is_lost = false;
    if (!parts[0].slot) /* nor has any other */
        return status;
    cgm_error_keep(&kept);
    for (uint32_t i = 0; i < n; i++)
        is_lost |= end_job(&parts[i]);
    for (uint32_t i = 0; i < n && !is_lost; i++)
        forget_job(&parts[i]);
    cgm_error_restore(&kept);
    return is_lost ? CGM_OK : status;
}

static int submit_all(struct part *parts, const struct commgemm_stream_job *jobs, uint32_t n)
{
    int status = CGM_OK;
    for (uint32_t i = 0; i < n && status == CGM_OK; i++)
        status = step_check(&parts[i], &jobs[i]);
    if (status == CGM_OK)
        status = check_room(parts, n);
    if (status == CGM_OK)
        status = step_push(parts, n);
    for (uint32_t i = 0; i < n && status == CGM_OK; i++)
        status = step_write(&parts[i]);
    for (uint32_t i = 0; i < n && status == CGM_OK; i++)
        status = step_wait(&parts[i]);
    return status;
}

static int run_all(struct part *parts, struct commgemm_stream_job *jobs, uint32_t n)
{
    struct cgm_kept_error before;
    cgm_error_keep(&before);
    int status = submit_all(parts, jobs, n);
    if (status != CGM_OK && (status = end_all(parts, n, status)) == CGM_OK)
        cgm_error_restore(&before);
    for (uint32_t i = 0; i < n && status == CGM_OK; i++)
        if (parts[i].slot) /* all have one then */
            give_ticket(&parts[i], &jobs[i].ticket);
    return status;
}

int commgemm_submit_on_streams(struct commgemm_stream_job *jobs, uint32_t n_jobs)
{
    int status = cgm_check_pointer(jobs, "jobs");
    if (status != CGM_OK)
        return status;
    if (n_jobs == 0 || n_jobs > COMMGEMM_STREAM_JOBS_MAX)
        return cgm_fail(CGM_INVALID_ARGUMENT, "n_jobs is %u; it must be 1 to %d", n_jobs,
                        COMMGEMM_STREAM_JOBS_MAX);
    struct part *parts = calloc(n_jobs, sizeof(*parts));
    if (!parts)
        return cgm_fail_plain(CGM_NO_MEMORY);
    status = run_all(parts, jobs, n_jobs);
    free(parts);
    return status;
}

int commgemm_submit_on_stream(commgemm_client *client, const struct commgemm_job *job, void *stream,
                              uint64_t *ret_ticket)
{
    struct commgemm_stream_job one = {.client = client, .job = job, .stream = stream};
    struct part part = {.client = NULL};
    int status = cgm_check_client(client);
    if (status == CGM_OK)
        status = cgm_check_pointer(ret_ticket, "ret_ticket");
    if (status == CGM_OK)
        status = run_all(&part, &one, 1);
    if (status == CGM_OK)
        *ret_ticket = one.ticket;
    return status;
}
