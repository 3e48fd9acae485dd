#include "daemon/executor/completions.h"

#include <string.h>

#include "daemon/executor/endpoint.h"
#include "daemon/executor/poller.h"
#include "proto/messages.h"
#include "proto/status.h"
#include "proto/step.h"

/* Cut off where there is no more room. */
static void set_detail(struct cgm_cqe *cqe, const char *detail)
{
    size_t bytes = strnlen(detail, sizeof(cqe->detail) - 1);
    memcpy(cqe->detail, detail, bytes);
    cqe->detail[bytes] = '\0';
}

static void cqe_fill(struct cgm_cqe *cqe, uint64_t ticket, uint32_t slot, uint64_t comm_number,
                     const struct cgm_outcome *outcome)
{
    cqe->ticket = ticket;
    cqe->status = outcome->status;
    cqe->slot = slot;
    cqe->comm_number = comm_number;
    cqe->queued_ns = outcome->queued_ns;
    cqe->waiting_ns = outcome->waiting_ns;
    cqe->running_ns = outcome->running_ns;
    cqe->algorithm = outcome->algorithm;
    cqe->n_phases = (uint16_t)outcome->phases_stored;
    cqe->phases_lost = outcome->n_phases - outcome->phases_stored;
    cqe->begin_ns = outcome->begin_ns;
    if (outcome->status != CGM_OK)
        set_detail(cqe, outcome->detail ? outcome->detail : "");
}

/* The pages of a slot's phases are made by whoever writes there first, and stay. */
static bool makes_phases(struct cgm_endpoint *endpoint, uint32_t slot)
{
    uint64_t *word = &endpoint->has_phases[slot / 64], bit = 1ull << slot % 64;
    if (!(*word & bit) && cgm_spare_take(&endpoint->poller->phase_memory, CGM_PHASES_BYTES))
        *word |= bit;
    return *word & bit;
}

static uint32_t store_phases(struct cgm_endpoint *endpoint, uint32_t slot,
                             const struct cgm_outcome *outcome)
{
    if (outcome->phases_stored == 0 || !makes_phases(endpoint, slot))
        return 0;
    memcpy(&endpoint->ring.phase[(size_t)slot * CGM_PHASES_PER_JOB], outcome->phases,
           outcome->phases_stored * sizeof(struct cgm_phase));
    return outcome->phases_stored;
}

static void complete_on_ring(struct cgm_endpoint *endpoint, struct cgm_job *job, uint64_t ticket,
                             uint32_t slot, uint64_t comm_number, const struct cgm_outcome *outcome)
{
    struct cgm_ring *ring = &endpoint->ring;
    struct cgm_outcome told = *outcome;
    told.phases_stored = store_phases(endpoint, slot, outcome);
    bool is_told = cgm_ring_complete(ring, slot, ticket, outcome->status);
    if (job)
        cgm_job_end_writes(job);
    if (!is_told)
        return;
    cgm_step(CGM_STEP_JOB, CGM_JOB_STEP_COMPLETE);
    cqe_fill(&ring->cq[endpoint->cq_tail & ring->mask], ticket, slot, comm_number, &told);
    /* Pairs with the library's acquire of cq_tail before it reads the record. */
    atomic_store_explicit(&ring->header->cq_tail, ++endpoint->cq_tail, memory_order_release);
    endpoint->notify = true;
}

static void complete_on_socket(struct cgm_endpoint *endpoint, struct cgm_job *job, uint64_t ticket,
                               uint64_t comm_number, const struct cgm_outcome *outcome)
{
    struct cgm_cqe cqe = {0};
    Cgm__CompletionForward event = CGM__COMPLETION_FORWARD__INIT;
    cqe_fill(&cqe, ticket, 0, comm_number, outcome);
    event.session = endpoint->session;
    event.cqe.data = (uint8_t *)&cqe;
    event.cqe.len = sizeof(cqe);
    event.has_phases = outcome->phases_stored > 0;
    event.phases.data = (uint8_t *)(uintptr_t)outcome->phases;
    event.phases.len = outcome->phases_stored * sizeof(struct cgm_phase);
    endpoint->cq_tail++;
    cgm_event_send(endpoint->poller->executor, CGM_MSG_COMPLETION_FORWARD, &event.base);
    if (job)
        cgm_job_end_writes(job);
}

void cgm_completion_write(struct cgm_endpoint *endpoint, struct cgm_job *job, uint64_t ticket,
                          uint32_t slot, uint64_t comm_number, const struct cgm_outcome *outcome)
{
    struct cgm_journal *journal = endpoint->poller->executor->journal;
    cgm_journal_count(outcome->status == CGM_OK ? &journal->jobs_done : &journal->jobs_failed, 1);
    if (endpoint->ring.header)
        complete_on_ring(endpoint, job, ticket, slot, comm_number, outcome);
    else
        complete_on_socket(endpoint, job, ticket, comm_number, outcome);
}

uint64_t cgm_completions_notify(struct cgm_endpoint *endpoint)
{
    if (!endpoint->notify)
        return 0;
    /* Pairs with the library's fence between setting cq_need_wakeup and looking at cq_tail: one of
     * the two sees the other. */
    atomic_thread_fence(memory_order_seq_cst);
    _Atomic uint32_t *asleep = &endpoint->ring.header->cq_need_wakeup;
    bool sleeps = atomic_load_explicit(asleep, memory_order_relaxed);
    uint64_t again_ns = sleeps ? cgm_notice_ask(&endpoint->notice, cgm_now_ns()) : 0;
    if (again_ns)
        return again_ns;
    cgm_notice_pass(&endpoint->notice);
    endpoint->notify = false;
    cgm_step(CGM_STEP_JOB, CGM_JOB_STEP_REAP);
    if (sleeps && atomic_exchange(asleep, 0)) {
        endpoint->poller->counters.syscalls++;
        cgm_notice_send(&endpoint->notice, endpoint->notify_fd);
    }
    return 0;
}
