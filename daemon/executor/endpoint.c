#include "daemon/executor/endpoint.h"

#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "daemon/executor/cancels.h"
#include "daemon/executor/contents.h"
#include "daemon/executor/entry.h"
#include "daemon/executor/gang.h"
#include "daemon/executor/plan.h"
#include "proto/messages.h"
#include "proto/status.h"
#include "proto/step.h"

/* Of the jobs of a session that is gone, in a round of the poller's. */
#define DROPPED_AT_ONCE 16u

/* ---- jobs ----------------------------------------------------------------------------------- */

bool cgm_job_is_ready(const struct cgm_job *job)
{
    const struct cgm_ring *ring = &job->endpoint->ring;
    /* Acquire: what the client's stream wrote before it came here is visible to the launch. */
    return !ring->header ||
           atomic_load_explicit(&ring->ready[job->slot], memory_order_acquire) >= job->ticket;
}

/* The time is read anew: the round may have begun before the client submitted it. */
static struct cgm_job *job_take(struct cgm_endpoint *endpoint, const struct cgm_entry *entry,
                                uint32_t slot)
{
    uint64_t now_ns = cgm_now_ns();
    /* There is one: no more jobs are accepted than the endpoint has. */
    struct cgm_job *job = endpoint->free_jobs;
    if (job)
        endpoint->free_jobs = job->next;
    else
        job = &endpoint->jobs[endpoint->used_jobs++];
    endpoint->in_flight++;
    memset(job, 0, offsetof(struct cgm_job, view));
    job->endpoint = endpoint;
    job->ticket = entry->ticket;
    endpoint->tickets[job - endpoint->jobs] = entry->ticket;
    job->comm_number = entry->comm_number;
    job->came = ++endpoint->poller->last_came;
    job->accept_ns = now_ns;
    /* The client's clock is the same one, but in another time namespace; its word is not. */
    job->submit_ns = entry->submit_ns;
    if (job->submit_ns < endpoint->added_ns || job->submit_ns > now_ns)
        job->submit_ns = now_ns;
    job->deadline_ms = entry->deadline_ms;
    job->slot = slot;
    job->opcode = entry->opcode;
    job->rank = entry->rank;
    job->flags = entry->flags;
    job->chunk = entry->chunk;
    return job;
}

static void endpoint_remove_if_unused(struct cgm_endpoint *endpoint);

void cgm_job_complete(struct cgm_job *job, const struct cgm_outcome *outcome)
{
    struct cgm_endpoint *endpoint = job->endpoint;
    cgm_completion_write(endpoint, job, job->ticket, job->slot, job->comm_number, outcome);
    if (!job->refused)
        cgm_contents_on_end(job, outcome->status);
    cgm_job_release(job);
    endpoint->tickets[job - endpoint->jobs] = 0;
    job->next = endpoint->free_jobs;
    endpoint->free_jobs = job;
    endpoint->in_flight--;
    endpoint_remove_if_unused(endpoint);
}

static uint64_t behind_of(const struct cgm_job *job)
{
    return job->comm_number ? job->comm_number : job->plan->comm->last_number[job->rank] + 1;
}

static bool has_results(const struct cgm_job *job)
{
    for (int i = 0; i < CGM_OPERAND_COUNT; i++)
        if (job->memory[i])
            return true;
    return false;
}

/* Its results may take a while to be made NaN; whoever comes behind it finds in user buffers at
 * once that they are none. */
static void refuse(struct cgm_job *job, int status, const char *detail)
{
    struct cgm_outcome outcome = {.status = status, .detail = detail};
    cgm_contents_on_end(job, status);
    job->refused = true;
    if (has_results(job)) {
        job->behind = behind_of(job);
        cgm_gang_fail_alone(job, status, detail);
        return;
    }
    if (job->plan)
        outcome.algorithm = (uint16_t)job->plan->algorithm->number;
    cgm_job_complete(job, &outcome);
}

static void accept_job(struct cgm_endpoint *endpoint, const struct cgm_entry *entry, uint32_t slot)
{
    char detail[CGM_CQE_DETAIL] = "";
    struct cgm_comm *burns = NULL;
    struct cgm_job *job = job_take(endpoint, entry, slot);
    int status = cgm_entry_check(endpoint, entry, job, detail, sizeof(detail), &burns);
    if (status == CGM_OK) {
        cgm_contents_on_submit(job);
        cgm_uses_wait(job);
        job->behind = behind_of(job);
        if (job->comm_number != 0)
            cgm_gang_submit(job);
        else
            cgm_gang_submit_local(job);
        return;
    }
    if (burns)
        cgm_gang_refuse(burns, job->rank, job->comm_number, &status, detail, sizeof(detail));
    refuse(job, status, detail);
}

static void accept_noop(struct cgm_endpoint *endpoint, const struct cgm_entry *entry, uint32_t slot)
{
    static const struct cgm_outcome done = {.status = CGM_OK};
    struct cgm_ring *ring = &endpoint->ring;
    if (!ring->header ||
        atomic_load_explicit(&ring->ready[slot], memory_order_acquire) >= entry->ticket) {
        cgm_completion_write(endpoint, NULL, entry->ticket, slot, 0, &done);
        return;
    }
    struct cgm_job *job = job_take(endpoint, entry, slot);
    job->comm_number = 0;
    job->clock_ns = cgm_poller_time_ns(endpoint->poller, job->accept_ns);
    cgm_noops_enter(&endpoint->poller->noops, job);
}

/* ---- the submission queue ------------------------------------------------------------------- */

static void endpoint_break(struct cgm_endpoint *endpoint, const char *detail)
{
    Cgm__SessionBad event = CGM__SESSION_BAD__INIT;
    endpoint->bad = true;
    event.session = endpoint->session;
    event.detail = (char *)(uintptr_t)detail;
    cgm_event_send(endpoint->poller->executor, CGM_MSG_SESSION_BAD, &event.base);
}

void cgm_endpoint_begin(struct cgm_endpoint *endpoint)
{
    if (cgm_ring_is_sealed(endpoint->ring_fd)) {
        close(endpoint->ring_fd);
        endpoint->ring_fd = -1;
        endpoint->poller->n_fresh--;
    } else if (!endpoint->bad) {
        endpoint_break(endpoint, "ring: it is not sealed with F_SEAL_FUTURE_WRITE, and holes could "
                                 "be made in it");
    }
}

static bool take_entry(struct cgm_endpoint *endpoint, uint32_t slot)
{
    struct cgm_entry entry;
    if (slot >= endpoint->entries) {
        endpoint_break(endpoint, "ring: a slot number on sq is not below the number of entries");
        return false;
    }
    cgm_ring_load_entry(&endpoint->ring, slot, 0, &entry);
    cgm_step(CGM_STEP_JOB, CGM_JOB_STEP_COPY);
    if (entry.ticket != endpoint->last_ticket + 1) {
        endpoint_break(endpoint, "ring: an entry's ticket is not the last one plus 1");
        return false;
    }
    endpoint->last_ticket = entry.ticket;
    endpoint->accepted++;
    cgm_journal_count(&endpoint->poller->executor->journal->jobs_accepted, 1);
    if (entry.opcode == CGM_OPCODE_NOOP) {
        accept_noop(endpoint, &entry, slot);
        return true;
    }
    cgm_ring_load_rest(&endpoint->ring, slot, &entry);
    accept_job(endpoint, &entry, slot);
    return true;
}

/* How many entries may be taken now, of `most`, so that each one's completion has room; breaks the
 * session and gives 0 when the client's indices are impossible. */
static uint32_t takeable(struct cgm_endpoint *endpoint, uint32_t most)
{
    struct cgm_ring_header *header = endpoint->ring.header;
    if (cgm_endpoint_is_mute(endpoint))
        return 0;
    /* Pairs with the library's release of sq_tail after it wrote entry and sq slot. */
    uint32_t pending =
        atomic_load_explicit(&header->sq_tail, memory_order_acquire) - endpoint->sq_head;
    if (pending == 0)
        return 0;
    uint32_t cq_head = atomic_load_explicit(&header->cq_head, memory_order_acquire);
    if (pending > endpoint->entries || endpoint->cq_tail - cq_head > endpoint->entries) {
        endpoint_break(endpoint, pending > endpoint->entries
                                     ? "ring: sq_tail is more than the ring ahead of sq_head"
                                     : "ring: cq_head is ahead of cq_tail");
        return 0;
    }
    uint32_t unreaped = endpoint->accepted - cq_head;
    uint32_t room = unreaped < endpoint->entries ? endpoint->entries - unreaped : 0;
    if (room < most)
        most = room;
    return pending < most ? pending : most;
}

bool cgm_endpoint_has_entries(const struct cgm_endpoint *endpoint)
{
    const struct cgm_ring_header *header = endpoint->ring.header;
    if (cgm_endpoint_is_mute(endpoint))
        return false;
    uint32_t reaped = atomic_load_explicit(&header->cq_head, memory_order_relaxed);
    return endpoint->accepted - reaped < endpoint->entries &&
           atomic_load_explicit(&header->sq_tail, memory_order_acquire) != endpoint->sq_head;
}

bool cgm_endpoint_has_work(const struct cgm_endpoint *endpoint)
{
    return endpoint->cancels || cgm_endpoint_has_entries(endpoint);
}

uint32_t cgm_endpoint_drain(struct cgm_endpoint *endpoint, uint32_t most)
{
    uint32_t count = takeable(endpoint, most), taken = 0;
    while (taken < count && !cgm_poller_is_tired(endpoint->poller)) {
        uint32_t at = endpoint->sq_head & endpoint->ring.mask;
        uint32_t slot = atomic_load_explicit(&endpoint->ring.sq[at], memory_order_relaxed);
        endpoint->sq_head++;
        taken++;
        if (!take_entry(endpoint, slot))
            break;
    }
    if (taken > 0)
        atomic_store_explicit(&endpoint->ring.header->sq_head, endpoint->sq_head,
                              memory_order_release);
    if (endpoint->cancels)
        cgm_cancels_step(endpoint);
    return taken;
}

void cgm_endpoint_on_submit(struct cgm_request *request)
{
    const Cgm__SubmitForward *m = (const Cgm__SubmitForward *)request->message;
    struct cgm_endpoint *endpoint = cgm_map_get(&request->executor->poller.endpoints, m->session);
    struct cgm_entry entry;
    if (!endpoint || endpoint->ring.header || endpoint->bad ||
        m->entry.len != sizeof(struct cgm_entry)) {
        cgm_request_fail(request, CGM_BAD_MESSAGE,
                         "entry: %zu bytes; a session without a ring sends %zu", m->entry.len,
                         sizeof(struct cgm_entry));
        return;
    }
    memcpy(&entry, m->entry.data, sizeof(entry));
    if (endpoint->in_flight >= endpoint->entries) {
        cgm_request_fail(request, CGM_RING_FULL, "jobs in flight: %u; at most %u",
                         endpoint->in_flight, endpoint->entries);
        return;
    }
    if (entry.ticket != endpoint->last_ticket + 1) {
        cgm_request_fail(request, CGM_BAD_MESSAGE, "ticket: %llu; expected %llu",
                         (unsigned long long)entry.ticket,
                         (unsigned long long)endpoint->last_ticket + 1);
        return;
    }
    endpoint->last_ticket = entry.ticket;
    cgm_journal_count(&endpoint->poller->executor->journal->jobs_accepted, 1);
    if (entry.opcode == CGM_OPCODE_NOOP)
        accept_noop(endpoint, &entry, 0);
    else
        accept_job(endpoint, &entry, 0);
    /* Last: whoever knows that a number was taken finds it in the journal, even if this process
     * ends here. */
    cgm_request_ok(request);
}

/* ---- coming and going ----------------------------------------------------------------------- */

static int endpoint_open_ring(struct cgm_endpoint *endpoint, struct cgm_packet *packet)
{
    endpoint->ring_fd = cgm_packet_take_fd(packet, 0);
    endpoint->wake_fd = cgm_packet_take_fd(packet, 1);
    endpoint->notify_fd = cgm_packet_take_fd(packet, 2);
    int status = cgm_ring_map(endpoint->ring_fd, endpoint->entries, &endpoint->ring);
    if (status == CGM_OK)
        status = cgm_notice_init(&endpoint->notice, &endpoint->poller->notices, endpoint->uid);
    if (status == CGM_OK)
        status = cgm_poller_add_ring(endpoint->poller, endpoint);
    return status;
}

static int endpoint_make_jobs(struct cgm_endpoint *endpoint)
{
    endpoint->jobs = calloc(endpoint->entries, sizeof(*endpoint->jobs));
    endpoint->tickets = calloc(endpoint->entries, sizeof(*endpoint->tickets));
    endpoint->noops = cgm_noops_join(&endpoint->poller->noops, endpoint->uid);
    if (!endpoint->jobs || !endpoint->tickets || !endpoint->noops)
        return CGM_NO_MEMORY;
    return CGM_OK;
}

static void endpoint_detach(struct cgm_endpoint *endpoint)
{
    if (endpoint->ring.header)
        cgm_poller_remove_ring(endpoint->poller, endpoint);
    cgm_notice_fini(&endpoint->notice, &endpoint->poller->notices, endpoint->uid);
    cgm_noops_part(&endpoint->poller->noops, endpoint->noops);
}

/* Sessions mostly come in the order of their numbers. */
static void list_enter(struct cgm_endpoint *endpoint)
{
    struct cgm_poller *poller = endpoint->poller;
    struct cgm_endpoint *before = poller->last_endpoint;
    while (before && before->session > endpoint->session)
        before = before->previous;
    endpoint->previous = before;
    endpoint->next = before ? before->next : poller->first_endpoint;
    *(before ? &before->next : &poller->first_endpoint) = endpoint;
    *(endpoint->next ? &endpoint->next->previous : &poller->last_endpoint) = endpoint;
}

static void list_leave(struct cgm_endpoint *endpoint)
{
    struct cgm_poller *poller = endpoint->poller;
    *(endpoint->previous ? &endpoint->previous->next : &poller->first_endpoint) = endpoint->next;
    *(endpoint->next ? &endpoint->next->previous : &poller->last_endpoint) = endpoint->previous;
}

static void grant_free(void *context, uint64_t id, void *grant)
{
    (void)context;
    (void)id;
    free(grant);
}

/* Any thread; the poller knows it no more. It takes a while: the ring, of tens of megabytes, may be
 * nobody else's any more, and of the jobs there are thousands. */
static void endpoint_free(struct cgm_endpoint *endpoint)
{
    cgm_ring_unmap(&endpoint->ring);
    if (endpoint->ring_fd >= 0)
        close(endpoint->ring_fd);
    if (endpoint->wake_fd >= 0)
        close(endpoint->wake_fd);
    if (endpoint->notify_fd >= 0)
        close(endpoint->notify_fd);
    cgm_map_each(&endpoint->grants, grant_free, NULL);
    cgm_map_fini(&endpoint->grants);
    free(endpoint->tickets);
    free(endpoint->jobs);
    free(endpoint);
}

void cgm_endpoint_on_add(struct cgm_request *request)
{
    const Cgm__SessionAdd *m = (const Cgm__SessionAdd *)request->message;
    struct cgm_poller *poller = &request->executor->poller;
    struct cgm_endpoint *endpoint = calloc(1, sizeof(*endpoint));
    int status = endpoint ? CGM_OK : CGM_NO_MEMORY;
    if (endpoint) {
        *endpoint = (struct cgm_endpoint){.session = m->session,
                                          .uid = m->uid,
                                          .pid = m->pid,
                                          .poller = poller,
                                          .added_ns = cgm_now_ns(),
                                          .ring_fd = -1,
                                          .wake_fd = -1,
                                          .notify_fd = -1};
        endpoint->entries = request->packet->n_fds ? m->entries : CGM_RING_ENTRIES_DEFAULT;
        if (request->packet->n_fds == 3)
            status = endpoint_open_ring(endpoint, request->packet);
        if (status == CGM_OK)
            status = endpoint_make_jobs(endpoint);
        if (status == CGM_OK)
            status = cgm_map_add(&poller->endpoints, m->session, endpoint);
    }
    if (status == CGM_OK) {
        list_enter(endpoint);
        cgm_request_ok(request);
        return;
    }
    if (endpoint) {
        endpoint_detach(endpoint);
        endpoint_free(endpoint);
    }
    cgm_request_fail(request, status, "session %llu cannot be served",
                     (unsigned long long)m->session);
}

/* On a thread of its user's. */
static bool free_slice(struct cgm_request *request)
{
    endpoint_free(request->object);
    return false;
}

static void endpoint_free_step(struct cgm_request *request)
{
    const struct cgm_endpoint *endpoint = request->object;
    cgm_request_in_sweep(request, endpoint->uid, CGM_NOBODY, free_slice, cgm_request_ok);
}

static void endpoint_finish_removal(struct cgm_endpoint *endpoint)
{
    struct cgm_request *removal = endpoint->removal;
    cgm_map_remove(&endpoint->poller->endpoints, endpoint->session);
    list_leave(endpoint);
    endpoint_detach(endpoint);
    removal->object = endpoint;
    cgm_request_to_sweeper(removal, endpoint_free_step);
}

static void endpoint_remove_if_unused(struct cgm_endpoint *endpoint)
{
    if (endpoint->removal && !endpoint->loss.listed && endpoint->in_flight == 0)
        endpoint_finish_removal(endpoint);
}

static struct cgm_endpoint *endpoint_of_loss(struct cgm_loss *loss)
{
    return (struct cgm_endpoint *)(void *)((char *)loss - offsetof(struct cgm_endpoint, loss));
}

static bool drop_noops(struct cgm_loss *loss)
{
    struct cgm_endpoint *endpoint = endpoint_of_loss(loss);
    for (uint32_t i = 0; i < DROPPED_AT_ONCE && endpoint->n_dropped < endpoint->used_jobs; i++) {
        uint32_t at = endpoint->n_dropped++;
        struct cgm_job *job = &endpoint->jobs[at];
        if (endpoint->tickets[at] == 0 || job->opcode != CGM_OPCODE_NOOP)
            continue;
        cgm_noops_leave(&endpoint->poller->noops, job);
        cgm_job_complete(job, &(struct cgm_outcome){.status = CGM_PEER_LOST});
    }
    return endpoint->n_dropped < endpoint->used_jobs;
}

static void noops_dropped(struct cgm_loss *loss)
{
    endpoint_remove_if_unused(endpoint_of_loss(loss));
}

static void lose_session(void *context, uint64_t id, void *comm)
{
    (void)id;
    cgm_comm_session_lost(comm, ((struct cgm_endpoint *)context)->session);
}

/* All of a session's death on this side: nothing more is read, what is not launched fails on all
 * ranks, launched jobs finish, then ring and grants go and the broker is told. Imports go by their
 * own requests. */
void cgm_endpoint_on_remove(struct cgm_request *request)
{
    const Cgm__SessionRemove *m = (const Cgm__SessionRemove *)request->message;
    struct cgm_poller *poller = &request->executor->poller;
    struct cgm_endpoint *endpoint = cgm_map_get(&poller->endpoints, m->session);
    if (!endpoint || endpoint->removal) {
        cgm_request_fail(request, CGM_NOT_FOUND, "session: %llu is not here",
                         (unsigned long long)m->session);
        return;
    }
    endpoint->bad = true;
    cgm_cancels_drop(endpoint);
    cgm_map_each(&poller->comms, lose_session, endpoint);
    cgm_wishes_session_lost(&request->executor->wishes, m->session);
    endpoint->removal = request;
    endpoint->loss.piece = drop_noops;
    endpoint->loss.done = noops_dropped;
    cgm_losses_add(poller, &endpoint->loss);
}

/* ---- grants --------------------------------------------------------------------------------- */

int cgm_endpoint_grant(struct cgm_endpoint *endpoint, struct cgm_memory *memory, bool writable)
{
    if (!endpoint)
        return CGM_NOT_FOUND;
    if (writable && endpoint->uid != memory->uid)
        memory->guest = cgm_guest_with(memory->guest, endpoint->uid);
    struct cgm_grant *grant = cgm_map_get(&endpoint->grants, memory->id);
    if (grant) {
        grant->writable = grant->writable || writable;
        return CGM_OK;
    }
    grant = malloc(sizeof(*grant));
    if (!grant)
        return CGM_NO_MEMORY;
    *grant = (struct cgm_grant){memory, writable};
    int status = cgm_map_add(&endpoint->grants, memory->id, grant);
    if (status != CGM_OK)
        free(grant);
    return status;
}

void cgm_endpoint_revoke(struct cgm_endpoint *endpoint, uint64_t id)
{
    free(cgm_map_remove(&endpoint->grants, id));
}
