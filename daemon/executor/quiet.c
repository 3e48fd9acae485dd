#include "daemon/executor/quiet.h"

#include <stddef.h>

#include "daemon/executor/executor.h"

static struct cgm_quiet *of_task(struct cgm_task *task)
{
    return (struct cgm_quiet *)task; /* its first member */
}

/* Poller. */
static void quiet_ended(struct cgm_task *task)
{
    struct cgm_quiet *quiet = of_task(task);
    struct cgm_poller *poller = quiet->poller;
    uint64_t now_ns = cgm_now_ns();
    poller->quiet_first = quiet->next;
    poller->quiet_runs = false;
    poller->quiet_rest_ns = now_ns + (now_ns - poller->quiet_begin_ns);
    if (quiet->again)
        cgm_quiet_post(poller, quiet);
    else
        quiet->done(quiet);
}

/* Mapper. */
static void quiet_run(struct cgm_task *task)
{
    struct cgm_quiet *quiet = of_task(task);
    quiet->run(quiet);
    quiet->task.run = quiet_ended;
    cgm_poller_post(quiet->poller, &quiet->task);
}

void cgm_quiet_post(struct cgm_poller *poller, struct cgm_quiet *quiet)
{
    struct cgm_quiet **end = &poller->quiet_first;
    while (*end)
        end = &(*end)->next;
    quiet->poller = poller;
    quiet->next = NULL;
    *end = quiet;
}

static void step_aborts(struct cgm_poller *poller)
{
    struct cgm_executor *executor = poller->executor;
    if (poller->aborting && atomic_load(&poller->enqueuing) == 0)
        poller->aborting = executor->ops->abort_waits(executor->backend);
}

bool cgm_quiet_step(struct cgm_poller *poller)
{
    struct cgm_quiet *quiet = poller->quiet_first;
    step_aborts(poller);
    if (!quiet || poller->quiet_runs || !cgm_quiet_holds(poller) ||
        atomic_load(&poller->enqueuing) > 0)
        return false;
    poller->quiet_runs = true;
    poller->quiet_begin_ns = cgm_now_ns();
    quiet->again = false;
    quiet->task.run = quiet_run;
    cgm_worker_post_next(&poller->executor->mapper, &quiet->task);
    return true;
}

bool cgm_quiet_holds(const struct cgm_poller *poller)
{
    return poller->aborting || (poller->quiet_first && (poller->quiet_rest_ns == 0 ||
                                                        cgm_now_ns() >= poller->quiet_rest_ns));
}
