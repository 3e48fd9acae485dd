#include "daemon/executor/reclaim.h"

#include <stddef.h>

#include "daemon/executor/executor.h"

static struct cgm_reclaims *of_quiet(struct cgm_quiet *quiet)
{
    return (struct cgm_reclaims *)(void *)((char *)quiet - offsetof(struct cgm_reclaims, quiet));
}

static void free_first(struct cgm_reclaims *reclaims)
{
    struct cgm_reclaim *first = reclaims->first;
    reclaims->first = first->next;
    if (!reclaims->first)
        reclaims->end = &reclaims->first;
    reclaims->executor->ops->mem_free(first->mem);
    first->done(first);
}

/* Mapper. */
static void run(struct cgm_quiet *quiet)
{
    struct cgm_reclaims *reclaims = of_quiet(quiet);
    uint64_t until_ns = cgm_now_ns() + CGM_TURN_NS;
    while (reclaims->first) {
        free_first(reclaims);
        if (cgm_now_ns() >= until_ns)
            break;
    }
    quiet->again = reclaims->first != NULL;
    reclaims->posted = quiet->again;
}

static void done(struct cgm_quiet *quiet)
{
    (void)quiet;
}

/* Poller. If the work was done before, the poller knows: that task came first. */
static void post(struct cgm_task *task)
{
    struct cgm_reclaims *reclaims = (struct cgm_reclaims *)task;
    cgm_quiet_post(&reclaims->executor->poller, &reclaims->quiet);
}

void cgm_reclaims_init(struct cgm_reclaims *reclaims, struct cgm_executor *executor)
{
    *reclaims = (struct cgm_reclaims){
        .task = {.run = post}, .quiet = {.run = run, .done = done}, .executor = executor};
    reclaims->end = &reclaims->first;
}

static bool holds_up(const struct cgm_backend_ops *ops, const struct cgm_mem *mem)
{
    return ops->mem_holds_up && ops->mem_holds_up(mem);
}

void cgm_reclaim(struct cgm_executor *executor, struct cgm_reclaim *reclaim)
{
    struct cgm_reclaims *reclaims = &executor->reclaims;
    if (!reclaim->mem || !holds_up(executor->ops, reclaim->mem)) {
        if (reclaim->mem)
            executor->ops->mem_free(reclaim->mem);
        reclaim->done(reclaim);
        return;
    }
    reclaim->next = NULL;
    *reclaims->end = reclaim;
    reclaims->end = &reclaim->next;
    if (reclaims->posted)
        return;
    reclaims->posted = true;
    cgm_poller_post(&executor->poller, &reclaims->task);
}
