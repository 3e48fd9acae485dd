#include "daemon/executor/poison.h"

#include "daemon/executor/comm.h"
#include "daemon/executor/executor.h"
#include "daemon/executor/gang.h"
#include "daemon/executor/overlap.h"
#include "daemon/executor/plan.h"
#include "proto/status.h"

#define OUTPUTS_MAX (4u * CGM_COMM_SIZE_MAX)
_Static_assert(__builtin_popcount(CGM_OPERANDS_WRITTEN) == 4, "of each job");

/* That may be made NaN, as far as is known. */
struct output {
    struct cgm_memory *memory;
    const struct cgm_job *job;
    struct cgm_view *view; /* of the flight's */
    uint64_t begin, end;   /* as in struct cgm_use */
};

static struct output output_of(const struct cgm_job *job, int operand, struct cgm_view *view)
{
    struct output output = {job->memory[operand], job, view, view->offset_bytes, 0};
    cgm_view_end(view, &output.end);
    return output;
}

static uint32_t outputs_of(struct cgm_gang *gang, struct output *ret_outputs)
{
    uint32_t count = 0;
    for (uint32_t rank = 0; rank < gang->comm->size; rank++) {
        const struct cgm_job *job = gang->jobs[rank];
        for (int i = 0; job && i < CGM_OPERAND_COUNT; i++) {
            if (!(CGM_OPERANDS_WRITTEN >> i & 1) || !job->memory[i])
                continue;
            struct cgm_view *view = &cgm_flight_views(gang->flight, rank)[i];
            if (!gang->launch && job->memory[i]->contents)
                view->mem = NULL;
            else
                ret_outputs[count++] = output_of(job, i, view);
        }
    }
    return count;
}

/* Moves those that lie in the first one's object to the front; how many there are. */
static uint32_t bring_together(struct output *outputs, uint32_t count)
{
    uint32_t together = 1;
    for (uint32_t i = 1; i < count; i++) {
        struct output one = outputs[i];
        if (one.memory != outputs[0].memory)
            continue;
        outputs[i] = outputs[together];
        outputs[together++] = one;
    }
    return together;
}

/* Whether the job comes before this one, and will be launched. */
static bool will_read(const struct cgm_job *job, const struct cgm_job *before)
{
    const struct cgm_comm *comm = job->plan->comm;
    if (before->plan->comm != comm)
        return false;
    if (before->comm_number)
        return comm->dead_status == CGM_OK && before->comm_number < job->behind;
    return before->came < job->came && !(comm->lost_ranks >> before->rank & 1);
}

static bool is_to_stay(const struct cgm_gang *gang, const struct output *output,
                       const struct cgm_use *use)
{
    if (use->end <= output->begin || output->end <= use->begin)
        return false;
    return (gang->launch ? use->job->plan->comm == gang->comm : will_read(output->job, use->job)) &&
           cgm_views_overlap(output->view, cgm_use_view(use));
}

/* Takes out those that share bytes with the use; how many are left. */
static uint32_t spare_from(const struct cgm_gang *gang, struct output *outputs, uint32_t count,
                           const struct cgm_use *use)
{
    for (uint32_t i = 0; i < count;) {
        if (!is_to_stay(gang, &outputs[i], use)) {
            i++;
            continue;
        }
        outputs[i].view->mem = NULL;
        outputs[i] = outputs[--count];
    }
    return count;
}

static void give_up(struct cgm_executor *executor, const struct output *outputs, uint32_t count)
{
    cgm_memory_taint(executor, outputs[0].memory);
    for (uint32_t i = 0; i < count; i++)
        outputs[i].view->mem = NULL;
}

/* Of outputs in one object: those that were launched behind the gang come first among its writers,
 * and none of them was seen to end before it (flight.c). A look at one that is not in the
 * processor's caches takes as long as eight comparisons with it. */
static bool spare_in_object(const struct cgm_gang *gang, struct output *outputs, uint32_t count,
                            uint32_t *looks)
{
    const struct cgm_memory *memory = outputs[0].memory;
    const struct cgm_use *use = gang->launch ? memory->writers.first : memory->readers.first;
    for (; use && count > 0; use = use->next) {
        if (gang->launch && use->job->gang->launch <= gang->launch)
            return true;
        gang->comm->poller->looks += 1 + count / 8;
        if (++*looks > CGM_POISON_LOOKS) {
            give_up(gang->comm->poller->executor, outputs, count);
            return false;
        }
        count = spare_from(gang, outputs, count, use);
    }
    return true;
}

bool cgm_poison_spare(struct cgm_gang *gang)
{
    struct output outputs[OUTPUTS_MAX];
    uint32_t count = outputs_of(gang, outputs), together, looks = 0;
    bool all = true;
    for (uint32_t i = 0; i < count; i += together) {
        together = bring_together(&outputs[i], count - i);
        all &= spare_in_object(gang, &outputs[i], together, &looks);
    }
    return all;
}
