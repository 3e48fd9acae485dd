#include "client/lib/completion.h"

#include <stdlib.h>
#include <string.h>

#include "client/lib/lane.h"
#include "client/lib/plans.h"
#include "proto/status.h"

static void convert_phase(const struct cgm_phase *from, struct commgemm_phase *ret_phase)
{
    *ret_phase = (struct commgemm_phase){
        .begin_ns = from->begin_ns,
        .end_ns = from->end_ns,
        .kind = from->kind,
        .device = from->device,
        .rank = from->rank,
        .queue = from->queue,
        .chunk = from->chunk,
        .peer = from->peer_or_zero,
    };
}

/* The only allocation of a wait, and only for a job that asked for phases. */
static void take_phases(const struct cgm_slot *slot, struct commgemm_completion *ret_completion)
{
    uint32_t count = slot->cqe.n_phases;
    const struct cgm_ring *ring = &slot->lane->ring;
    const struct cgm_phase *from =
        ring->header ? ring->phase + (size_t)slot->index * CGM_PHASES_PER_JOB : slot->phases;
    ret_completion->phases = count ? calloc(count, sizeof(struct commgemm_phase)) : NULL;
    ret_completion->n_phases = ret_completion->phases ? count : 0;
    ret_completion->phases_lost = slot->cqe.phases_lost + count - ret_completion->n_phases;
    for (uint32_t i = 0; i < ret_completion->n_phases; i++) {
        struct cgm_phase phase = from[i];
        convert_phase(&phase, &ret_completion->phases[i]);
    }
}

void cgm_completion_take(const struct cgm_slot *slot, struct commgemm_completion *ret_completion)
{
    const struct cgm_cqe *cqe = &slot->cqe;
    ret_completion->ticket = slot->ticket;
    ret_completion->status = cqe->status;
    ret_completion->algorithm = cqe->algorithm;
    ret_completion->plan = slot->plan ? slot->plan->id : 0;
    ret_completion->comm_number = slot->comm_number;
    ret_completion->queued_ns = cqe->queued_ns;
    ret_completion->waiting_ns = cqe->waiting_ns;
    ret_completion->running_ns = cqe->running_ns;
    ret_completion->reason[0] = ret_completion->detail[0] = '\0';
    if (slot->plan)
        memcpy(ret_completion->reason, slot->plan->reason, sizeof(ret_completion->reason));
    if (cqe->status != CGM_OK)
        memcpy(ret_completion->detail, cqe->detail, sizeof(ret_completion->detail));
    ret_completion->phases = NULL;
    ret_completion->n_phases = ret_completion->phases_lost = 0;
}

void cgm_completion_take_all(const struct cgm_slot *slot,
                             struct commgemm_completion *ret_completion)
{
    cgm_completion_take(slot, ret_completion);
    take_phases(slot, ret_completion);
}
_Static_assert(sizeof(((struct commgemm_completion *)0)->detail) == CGM_CQE_DETAIL, "copied");
_Static_assert(sizeof(((struct commgemm_completion *)0)->reason) == CGM_REASON_BYTES, "copied");

void commgemm_completion_fini(struct commgemm_completion *completion)
{
    if (!completion)
        return;
    free(completion->phases);
    completion->phases = NULL;
    completion->n_phases = 0;
}
