#include "daemon/executor/poison.h"

#include "daemon/executor/comm.h"
#include "daemon/executor/entry.h"
#include "daemon/executor/gang.h"
#include "daemon/executor/plan.h"
#include "daemon/executor/window.h"
#include "proto/status.h"

/* Whether the job has such an operand that shares bytes with the view. */
static bool job_has_there(const struct cgm_job *job, const struct cgm_view *view, bool written)
{
    for (int i = 0; i < CGM_OPERAND_COUNT; i++)
        if (job->memory[i] && (written ? CGM_OPERANDS_WRITTEN >> i & 1 : cgm_job_reads(job, i)) &&
            cgm_views_overlap(&job->view[i], view))
            return true;
    return false;
}

/* Or one of the gang's jobs; looks at them as long as it may. */
static bool has_there(const struct cgm_gang *gang, const struct cgm_view *view, bool written,
                      uint32_t *looks)
{
    for (uint32_t rank = 0; rank < gang->comm->size; rank++) {
        const struct cgm_job *job = gang->jobs[rank];
        if (*looks == 0)
            return true;
        *looks -= 1;
        if (job && job_has_there(job, view, written))
            return true;
    }
    return false;
}

/* By a number before the job that is not launched. */
static bool a_number_reads(const struct cgm_job *job, const struct cgm_view *view, uint32_t *looks)
{
    struct cgm_comm *comm = job->plan->comm;
    if (comm->dead_status != CGM_OK)
        return false;
    if (job->behind > comm->launched + *looks)
        return true;
    for (uint64_t number = comm->launched + 1; number < job->behind; number++) {
        const struct cgm_gang *other = *cgm_window_slot(comm, number);
        if (other && other->state < CGM_GANG_RUNNING && has_there(other, view, false, looks))
            return true;
    }
    return false;
}

/* By one that has no number, came before the job and is not launched. Those of lost ranks will not
 * be. */
static bool a_local_one_reads(const struct cgm_job *job, const struct cgm_view *view,
                              uint32_t *looks)
{
    const struct cgm_comm *comm = job->plan->comm;
    for (const struct cgm_gang *gang = comm->waiting; gang;
         gang = gang->links[CGM_GANGS_WAITING].next) {
        const struct cgm_job *other = gang->jobs[cgm_gang_first_rank(gang)];
        if (other->came > job->came)
            return false;
        if (*looks == 0)
            return true;
        *looks -= 1;
        if (!(comm->lost_ranks >> other->rank & 1) && job_has_there(other, view, false))
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

static bool is_spared(const struct cgm_gang *gang, const struct cgm_job *job, int operand,
                      const struct cgm_view *view, uint32_t *looks)
{
    if (gang->launch)
        return is_written(gang, view, looks);
    return job->memory[operand]->contents || a_number_reads(job, view, looks) ||
           a_local_one_reads(job, view, looks);
}

void cgm_poison_spare(const struct cgm_gang *gang, uint32_t rank, struct cgm_view *views,
                      uint32_t *looks)
{
    const struct cgm_job *job = gang->jobs[rank];
    for (int i = 0; i < CGM_OPERAND_COUNT; i++)
        if (CGM_OPERANDS_WRITTEN >> i & 1 && job->memory[i] &&
            is_spared(gang, job, i, &views[i], looks))
            views[i].mem = NULL;
}
