#include "daemon/executor/warmth.h"

#include <stdlib.h>

#include "daemon/executor/executor.h"
#include "daemon/executor/gang.h"
#include "daemon/executor/plan.h"
#include "daemon/executor/quiet.h"

/* A stream that was idle when its job was submitted comes sooner; warming up would be in its way.
 */
#define AFTER_NS 50000u
/* It takes 10 to 20 us, for which a launch may have to wait. */
#define EVERY_NS 200000u

static void warm_up(struct cgm_task *task)
{
    struct cgm_warmth *warmth = (struct cgm_warmth *)task; /* its first member */
    struct cgm_executor *executor = warmth->executor;
    executor->ops->warm_up(executor->backend, warmth->device);
    atomic_store_explicit(&warmth->asked, false, memory_order_release);
    atomic_fetch_sub(&executor->poller.enqueuing, 1);
}

struct cgm_warmth *cgm_warmth_new(struct cgm_executor *executor)
{
    struct cgm_warmth *warmth = calloc(executor->n_devices, sizeof(*warmth));
    for (uint32_t i = 0; warmth && i < executor->n_devices; i++) {
        warmth[i].task.run = warm_up;
        warmth[i].executor = executor;
        warmth[i].device = i;
    }
    return warmth;
}

/* Counted like a launch: what wants no calls beside its own waits for it. */
static void ask(struct cgm_warmth *warmth, uint64_t now_ns)
{
    if (now_ns < warmth->next_ns || atomic_load_explicit(&warmth->asked, memory_order_acquire))
        return;
    warmth->next_ns = now_ns + EVERY_NS;
    atomic_store_explicit(&warmth->asked, true, memory_order_relaxed);
    atomic_fetch_add(&warmth->executor->poller.enqueuing, 1);
    cgm_worker_post(&warmth->executor->devices[warmth->device], &warmth->task);
}

void cgm_warmth_keep(const struct cgm_gang *gang, uint64_t now_ns)
{
    struct cgm_executor *executor = gang->comm->poller->executor;
    uint64_t waited_ns = now_ns > gang->collected_ns ? now_ns - gang->collected_ns : 0;
    /* Later the threads sleep: nobody is to be woken for this. */
    if (!executor->ops->warm_up || waited_ns < AFTER_NS || waited_ns > executor->limits.spin_ns ||
        cgm_quiet_holds(gang->comm->poller))
        return;
    for (uint32_t rank = 0; rank < gang->comm->size; rank++)
        if (gang->jobs[rank])
            ask(&executor->warmth[gang->plan->ranks[rank].device], now_ns);
}
