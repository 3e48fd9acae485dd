#include "daemon/executor/poison.h"

#include "daemon/executor/comm.h"
#include "daemon/executor/entry.h"
#include "daemon/executor/gang.h"
#include "daemon/executor/window.h"
#include "proto/status.h"

/* Whether the gang has such an operand that shares bytes with the view; looks at jobs as long as it
 * may. */
static bool has_there(const struct cgm_gang *gang, const struct cgm_view *view, bool written,
                      uint32_t *looks)
{
    for (uint32_t rank = 0; rank < gang->comm->size; rank++) {
        const struct cgm_job *job = gang->jobs[rank];
        if (*looks == 0)
            return true;
        *looks -= 1;
        for (int i = 0; job && i < CGM_OPERAND_COUNT; i++)
            if (job->memory[i] &&
                (written ? CGM_OPERANDS_WRITTEN >> i & 1 : cgm_job_reads(job, i)) &&
                cgm_views_overlap(&job->view[i], view))
                return true;
    }
    return false;
}

/* By one that was submitted before it and is not launched. */
static bool will_be_read(struct cgm_comm *comm, uint64_t behind, const struct cgm_view *view,
                         uint32_t *looks)
{
    if (comm->dead_status != CGM_OK)
        return false;
    if (behind > comm->launched + *looks)
        return true;
    for (uint64_t number = comm->launched + 1; number < behind; number++) {
        const struct cgm_gang *other = *cgm_window_slot(comm, number);
        if (other && other->state < CGM_GANG_RUNNING && has_there(other, view, false, looks))
            return true;
    }
    return false;
}

/* By one that was launched behind it. None of those was seen to end before it (flight.c). */
static bool is_written(const struct cgm_gang *gang, const struct cgm_view *view, uint32_t *looks)
{
    for (const struct cgm_gang *other = gang->comm->gangs; other;
         other = other->links[CGM_GANGS_OF_COMM].next) {
        if (*looks == 0)
            return true;
        *looks -= 1;
        if (other != gang && other->state == CGM_GANG_RUNNING && other->launch > gang->launch &&
            has_there(other, view, true, looks))
            return true;
    }
    return false;
}

void cgm_poison_spare(const struct cgm_gang *gang, uint32_t rank, struct cgm_view *views,
                      uint32_t *looks)
{
    const struct cgm_job *job = gang->jobs[rank];
    for (int i = 0; i < CGM_OPERAND_COUNT; i++) {
        if (!(CGM_OPERANDS_WRITTEN >> i & 1) || !job->memory[i])
            continue;
        bool spared = gang->launch
                          ? is_written(gang, &views[i], looks)
                          : job->memory[i]->contents ||
                                will_be_read(gang->comm, job->comm_number, &views[i], looks);
        if (spared)
            views[i].mem = NULL;
    }
}
