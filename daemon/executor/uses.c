#include "daemon/executor/uses.h"

#include "daemon/executor/comm.h"
#include "daemon/executor/endpoint.h"
#include "daemon/executor/entry.h"
#include "daemon/executor/plan.h"
#include "daemon/executor/poller.h"

static const struct cgm_memory *memory_of(const struct cgm_use *use)
{
    return use->job->memory[use - use->job->uses];
}

/* Where the first one of a comm and object is, or would be. Clients know ids, but not these
 * addresses: nobody can fill the slot of another one. */
static struct cgm_use **find(const struct cgm_comm *comm, const struct cgm_memory *memory,
                             enum cgm_use_kind kind)
{
    uint64_t key = (uintptr_t)comm * 0x9e3779b97f4a7c15 + (uintptr_t)memory;
    struct cgm_use **slots = comm->poller->uses.slots[kind];
    struct cgm_use **link = &slots[key * 0xc2b2ae3d27d4eb4f >> 32 & (CGM_USES_SLOTS - 1)];
    while (*link && ((*link)->job->plan->comm != comm || memory_of(*link) != memory))
        link = &(*link)->other;
    return link;
}

static void enter(struct cgm_job *job, int operand, enum cgm_use_kind kind)
{
    struct cgm_use **link = find(job->plan->comm, job->memory[operand], kind), *first = *link;
    struct cgm_use *use = &job->uses[operand];
    *use = (struct cgm_use){.next = first,
                            .other = first ? first->other : NULL,
                            .job = job,
                            .begin = job->view[operand].offset_bytes};
    cgm_view_end(&job->view[operand], &use->end); /* it was checked when the job came */
    use->low = first && first->low < use->begin ? first->low : use->begin;
    use->high = first && first->high > use->end ? first->high : use->end;
    if (first)
        first->previous = use;
    *link = use;
}

static void leave(const struct cgm_use *use, enum cgm_use_kind kind)
{
    struct cgm_use *next = use->next;
    if (next)
        next->previous = use->previous;
    if (use->previous) {
        use->previous->next = next;
        return;
    }
    if (next) {
        next->other = use->other;
        next->low = use->low;
        next->high = use->high;
    }
    *find(use->job->plan->comm, memory_of(use), kind) = next ? next : use->other;
}

static void leave_all(struct cgm_job *job, uint32_t *operands, enum cgm_use_kind kind)
{
    for (; *operands; *operands &= *operands - 1)
        leave(&job->uses[__builtin_ctz(*operands)], kind);
}

static enum cgm_use_kind reads_as(const struct cgm_job *job)
{
    return job->comm_number ? CGM_USE_READ : CGM_USE_READ_ALONE;
}

void cgm_uses_wait(struct cgm_job *job)
{
    for (int i = 0; i < CGM_OPERAND_COUNT; i++) {
        if (!job->memory[i] || !cgm_job_reads(job, i))
            continue;
        enter(job, i, reads_as(job));
        job->reading |= 1u << i;
    }
}

void cgm_uses_begin(struct cgm_job *job)
{
    leave_all(job, &job->reading, reads_as(job));
    for (int i = 0; i < CGM_OPERAND_COUNT; i++) {
        if (!job->memory[i] || !(CGM_OPERANDS_WRITTEN >> i & 1))
            continue;
        enter(job, i, CGM_USE_WRITTEN);
        job->writing |= 1u << i;
    }
}

void cgm_uses_end(struct cgm_job *job)
{
    leave_all(job, &job->reading, reads_as(job));
    leave_all(job, &job->writing, CGM_USE_WRITTEN);
}

const struct cgm_use *cgm_uses_last(const struct cgm_comm *comm, const struct cgm_memory *memory,
                                    enum cgm_use_kind kind)
{
    return *find(comm, memory, kind);
}

const struct cgm_view *cgm_use_view(const struct cgm_use *use)
{
    return &use->job->view[use - use->job->uses];
}
