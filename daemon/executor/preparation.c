#include "daemon/executor/preparation.h"

#include <stdlib.h>
#include <string.h>

#include "daemon/executor/executor.h"
#include "daemon/executor/gang.h"
#include "daemon/executor/plan.h"
#include "daemon/executor/quiet.h"
#include "daemon/executor/rehearse.h"
#include "proto/status.h"

#define ALIGN_MASK 15u /* finer than this an address makes no difference */

struct cgm_preparation {
    struct cgm_quiet quiet; /* first */
    struct cgm_turn turn;
    struct cgm_plan *plan; /* referenced */
    uint64_t signature, ranks_mask;
    struct cgm_launch launch;
    int status;
    struct cgm_view views[][CGM_OPERAND_COUNT]; /* [world]; their memory may be gone */
};

/* FNV-1a. */
static uint64_t mix(uint64_t sum, uint64_t value)
{
    return (sum ^ value) * 0x100000001b3ull;
}

/* Of everything that the choice of a product's code may depend on. Never 0. */
static uint64_t signature_of(const struct cgm_gang *gang)
{
    uint64_t sum = mix(0xcbf29ce484222325ull, gang->rows);
    for (uint32_t rank = 0; rank < gang->comm->size; rank++) {
        const struct cgm_job *job = gang->jobs[rank];
        for (uint64_t i = 0; job && i < CGM_OPERAND_COUNT; i++)
            if (job->view[i].mem)
                sum = mix(mix(sum, (uint64_t)rank << 8 | i),
                          job->view[i].stride << 4 | (job->view[i].offset_bytes & ALIGN_MASK));
    }
    return sum ? sum : 1;
}

static bool is_known(const struct cgm_plan *plan, uint64_t signature)
{
    for (uint32_t i = 0; i < CGM_PLAN_PREPARED; i++)
        if (plan->prepared[i] == signature)
            return true;
    return false;
}

static void rehearse(struct cgm_preparation *p, enum cgm_prepare how)
{
    p->status = CGM_OK;
    for (uint64_t mask = p->ranks_mask; mask && p->status == CGM_OK; mask &= mask - 1)
        p->status =
            cgm_rehearse(p->plan->algorithm, &p->launch, (uint32_t)__builtin_ctzll(mask), how, 0);
}

static void preparation_run(struct cgm_quiet *quiet)
{
    rehearse((struct cgm_preparation *)quiet, CGM_PREPARE_LOAD);
}

static void preparation_done(struct cgm_quiet *quiet)
{
    struct cgm_preparation *p = (struct cgm_preparation *)quiet;
    struct cgm_plan *plan = p->plan;
    if (p->status != CGM_OK)
        cgm_executor_log(4, "plan %016llx: products of %llu rows could not be prepared (%s)",
                         (unsigned long long)plan->id, (unsigned long long)p->launch.rows,
                         cgm_status_text(p->status));
    plan->prepared[plan->n_prepared++ % CGM_PLAN_PREPARED] = p->signature;
    plan->preparing = false;
    free(p);
    cgm_plan_unref(plan);
}

/* On the poller. */
static void known_ended(struct cgm_task *task)
{
    struct cgm_preparation *p = (struct cgm_preparation *)task;
    if (p->status == CGM_NOT_FOUND)
        cgm_quiet_post(p->quiet.poller, &p->quiet);
    else
        preparation_done(&p->quiet);
}

/* On the mapper. Most of the time what is loaded will do, and others' launches go on. */
static void known_run(struct cgm_turn *turn)
{
    struct cgm_preparation *p =
        (struct cgm_preparation *)(void *)((char *)turn - offsetof(struct cgm_preparation, turn));
    rehearse(p, CGM_PREPARE_KNOWN);
    p->quiet.task.run = known_ended;
    cgm_poller_post(p->quiet.poller, &p->quiet.task);
}

static void begin(struct cgm_gang *gang, uint64_t signature)
{
    struct cgm_plan *plan = gang->plan;
    struct cgm_poller *poller = gang->comm->poller;
    struct cgm_preparation *p = calloc(1, sizeof(*p) + gang->comm->size * sizeof(p->views[0]));
    poller->counters.allocations++;
    if (!p)
        return; /* the next step tries again */
    p->quiet.run = preparation_run;
    p->quiet.done = preparation_done;
    p->plan = plan;
    p->signature = signature;
    p->launch = (struct cgm_launch){
        .ops = poller->executor->ops,
        .spec = &plan->spec,
        .ranks = plan->ranks,
        .epoch = 1,
        .rows = gang->rows,
        .accumulate = plan->spec.epilogue & CGM_EPILOGUE_ACCUMULATE,
        .operands = (const struct cgm_view(*)[CGM_OPERAND_COUNT])p->views,
    };
    for (uint32_t rank = 0; rank < gang->comm->size; rank++) {
        if (!gang->jobs[rank])
            continue;
        p->ranks_mask |= 1ull << rank;
        memcpy(p->views[rank], gang->jobs[rank]->view, sizeof(p->views[rank]));
    }
    plan->preparing = true;
    cgm_plan_ref(plan);
    p->quiet.poller = poller;
    p->turn.done = known_run;
    cgm_turns_add(&poller->executor->steps, plan->uid, &p->turn);
}

bool cgm_preparation_is_done(struct cgm_gang *gang)
{
    if (!gang->comm->poller->executor->ops->prepare_gemm || gang->opcode != CGM_OPCODE_RUN)
        return true;
    uint64_t signature = signature_of(gang);
    if (is_known(gang->plan, signature))
        return true;
    if (!gang->plan->preparing)
        begin(gang, signature);
    return false;
}
