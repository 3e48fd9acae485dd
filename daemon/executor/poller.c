#include "daemon/executor/poller.h"

#include <errno.h>
#include <limits.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "daemon/executor/endpoint.h"
#include "daemon/executor/executor.h"
#include "daemon/executor/gang.h"
#include "daemon/executor/idle_imports.h"
#include "daemon/executor/losses.h"
#include "daemon/executor/memory.h"
#include "daemon/executor/plan.h"
#include "daemon/executor/query.h"
#include "daemon/executor/quiet.h"
#include "daemon/executor/runway.h"
#include "daemon/executor/slice.h"
#include "daemon/executor/transfer.h"
#include "daemon/executor/tuning.h"
#include "proto/room.h"
#include "proto/status.h"

/* How often deadlines are looked at, and how long a sleep may last while one may pass. */
#define DEADLINE_LOOK_NS 1000000ull
#define SLEEP_WITH_GANGS_MS 10
/* A stream's write wakes nobody: while one is awaited, sleeps are this short. */
#define SLEEP_WITH_STREAMS_MS 1
/* Where a device's flags wake nobody, the end of a job is polled for this long before a sleep. */
#define SPIN_WITH_FLIGHTS_NS 20000000ull
/* ... and how long the sleeps are then, and while streams are awaited that a device writes for. */
#define SLEEP_WITH_DEVICES_NS 100000
/* How often devices are looked at while there are sessions, and while something runs: another
 * process may have taken the contexts of all along (MPS), and nobody says so. */
#define HEALTH_NS 100000000ull
#define HEALTH_WITH_FLIGHTS_NS 5000000ull

/* So long after a round, with work under way, the poller has stood still. */
#define STOOD_NS 200000000ull

#define NS_PER_S 1000000000u
#define IMPORTS_LOOK_NS_MAX (60ull * NS_PER_S)

/* How often the wake-ups of rings that have not begun are looked for while it is awake. */
#define FRESH_LOOK_NS 1000000ull

#define TASKS_PER_ROUND 8u

/* Of the gangs so many are looked at at a time. */
#define GANGS_PER_ROUND 128u
#define MOVING_PER_ROUND 256u

/* ---- being told ----------------------------------------------------------------------------- */

void cgm_poller_wake(struct cgm_poller *poller)
{
    uint64_t one = 1;
    /* Pairs with the fence in poller_sleep: either the poller sees the work that was made before
     * this call, or this sees it asleep. */
    atomic_thread_fence(memory_order_seq_cst);
    if (atomic_load_explicit(&poller->asleep, memory_order_relaxed))
        (void)!write(poller->wake_fd, &one, sizeof(one));
}

void cgm_poller_post(struct cgm_poller *poller, struct cgm_task *task)
{
    cgm_task_list_post(&poller->inbox, task);
    cgm_poller_wake(poller);
}

/* ---- lists ---------------------------------------------------------------------------------- */

/* endpoint: whose ring begins with its first event; NULL: none does. */
static int poller_watch(struct cgm_poller *poller, int fd, struct cgm_endpoint *endpoint)
{
    /* Edge-triggered and never read: every write is an event, and nobody who shares the eventfd can
     * make a read of it block or take a wake-up away. */
    struct epoll_event event = {.events = EPOLLIN | EPOLLET, .data.ptr = endpoint};
    if (epoll_ctl(poller->epoll_fd, EPOLL_CTL_ADD, fd, &event) == 0)
        return CGM_OK;
    return errno == EPERM || errno == EBADF ? CGM_BAD_MESSAGE : cgm_status_of_errno(errno);
}

int cgm_poller_add_ring(struct cgm_poller *poller, struct cgm_endpoint *endpoint)
{
    int status = cgm_rings_add(&poller->rings, endpoint);
    if (status == CGM_OK)
        status = poller_watch(poller, endpoint->wake_fd, endpoint);
    if (status == CGM_OK)
        poller->n_fresh++;
    else
        cgm_rings_remove(&poller->rings, endpoint);
    return status;
}

void cgm_poller_remove_ring(struct cgm_poller *poller, struct cgm_endpoint *endpoint)
{
    if (!cgm_rings_remove(&poller->rings, endpoint))
        return;
    poller->n_fresh -= endpoint->ring_fd >= 0;
    epoll_ctl(poller->epoll_fd, EPOLL_CTL_DEL, endpoint->wake_fd, NULL);
}

/* ---- events ---------------------------------------------------------------------------------- */

#define EVENTS_AT_ONCE 16

/* No endpoint is removed between the wait and this. */
static void take_events(const struct epoll_event *events, int count)
{
    for (int i = 0; i < count; i++) {
        struct cgm_endpoint *endpoint = events[i].data.ptr;
        if (endpoint && endpoint->ring_fd >= 0)
            cgm_endpoint_begin(endpoint);
    }
}

/* While the poller is awake nothing else wakes it: that is for rings which have begun. */
static void look_at_fresh_rings(struct cgm_poller *poller, uint64_t now_ns)
{
    struct epoll_event events[EVENTS_AT_ONCE];
    if (now_ns < poller->next_fresh_look_ns)
        return;
    poller->next_fresh_look_ns = now_ns + FRESH_LOOK_NS;
    poller->counters.syscalls++;
    take_events(events, epoll_wait(poller->epoll_fd, events, EVENTS_AT_ONCE, 0));
}

/* ---- one round ------------------------------------------------------------------------------ */

/* There is other work, from which however many tasks somebody can cause must not keep it. */
static bool round_inbox(struct cgm_poller *poller)
{
    unsigned seen = 0;
    poller->effort = 0;
    while (seen < TASKS_PER_ROUND && !cgm_poller_is_tired(poller) &&
           cgm_task_list_run(&poller->inbox))
        seen++;
    return seen > 0;
}

/* A piece of them, up to the last one. New ones go to the end. */
static bool round_moving(struct cgm_poller *poller, uint64_t now_ns, unsigned most)
{
    bool busy = false;
    poller->effort = 0;
    if (!poller->moving_at)
        poller->moving_at = poller->moving;
    for (unsigned i = 0; poller->moving_at && i < most && !cgm_poller_is_tired(poller); i++) {
        struct cgm_gang *gang = poller->moving_at;
        poller->moving_at = gang->links[CGM_GANGS_MOVING].next;
        if (gang->state == CGM_GANG_COLLECTED && !cgm_gang_may_launch(gang))
            cgm_gang_list_move(gang, false); /* its client has taken its word back */
        else
            busy |= cgm_gang_step(gang, now_ns, false);
    }
    return busy;
}

static void begin_look(struct cgm_poller *poller, uint64_t now_ns)
{
    poller->looked_at = poller->gangs;
    poller->look_found_streams = false;
    poller->look_seen = 0;
    poller->look_has_deadlines = now_ns >= poller->next_deadline_look_ns;
    if (poller->look_has_deadlines)
        poller->next_deadline_look_ns = now_ns + DEADLINE_LOOK_NS;
}

/* A piece of a look at all of them. */
static bool round_gangs(struct cgm_poller *poller, uint64_t now_ns)
{
    bool busy = false;
    if (!poller->looked_at)
        begin_look(poller, now_ns);
    poller->effort = 0;
    for (unsigned i = 0; poller->looked_at && i < GANGS_PER_ROUND && !cgm_poller_is_tired(poller);
         i++) {
        struct cgm_gang *gang = poller->looked_at;
        poller->looked_at = gang->links[CGM_GANGS_ALL].next;
        poller->look_seen++;
        poller->look_found_streams |= cgm_gang_awaits_stream(gang);
        busy |= cgm_gang_step(gang, now_ns, poller->look_has_deadlines);
    }
    if (poller->looked_at)
        return busy;
    poller->next_gangs_look_ns = now_ns + (uint64_t)poller->look_seen * CGM_LOOK_NS_PER_MEMBER;
    poller->awaits_streams = poller->look_found_streams;
    return busy;
}

static void health_run(struct cgm_task *task)
{
    struct cgm_poller *poller =
        (struct cgm_poller *)(void *)((char *)task - offsetof(struct cgm_poller, health));
    poller->executor->ops->check(poller->executor->backend);
    atomic_store_explicit(&poller->health_asked, false, memory_order_release);
}

static bool anything_runs(const struct cgm_poller *poller);

/* By the mapper: calls of the device's library may take long while memory is mapped or freed. */
static void round_health(struct cgm_poller *poller, uint64_t now_ns)
{
    if (!poller->executor->ops->check || poller->rings.n_rings == 0 ||
        now_ns - poller->health_ns < (anything_runs(poller) ? HEALTH_WITH_FLIGHTS_NS : HEALTH_NS) ||
        atomic_load_explicit(&poller->health_asked, memory_order_acquire))
        return;
    poller->health_ns = now_ns;
    atomic_store_explicit(&poller->health_asked, true, memory_order_relaxed);
    poller->health.run = health_run;
    cgm_worker_post(&poller->executor->mapper, &poller->health);
}

/* How often imports are looked at that may have been idle for long enough; 0: never. */
static uint64_t imports_look_every_ns(const struct cgm_poller *poller)
{
    uint64_t part_ns = poller->executor->limits.import_idle_ns / 4;
    return part_ns < IMPORTS_LOOK_NS_MAX ? part_ns : IMPORTS_LOOK_NS_MAX;
}

static void look_at_imports(struct cgm_poller *poller, uint64_t now_ns)
{
    uint64_t every_ns = imports_look_every_ns(poller);
    if (every_ns == 0 || now_ns < poller->next_imports_look_ns)
        return;
    poller->next_imports_look_ns = now_ns + every_ns;
    cgm_imports_close_idle(poller, now_ns);
}

static bool has_work_under_way(const struct cgm_poller *poller)
{
    return poller->gangs || poller->noops.n_noops > 0 || poller->warming || poller->tunings ||
           poller->overdue || poller->executor->copiers;
}

static void look_for_standstill(struct cgm_poller *poller, uint64_t now_ns)
{
    if (now_ns - poller->round_ns >= STOOD_NS && has_work_under_way(poller))
        poller->stood_ns += now_ns - poller->round_ns;
    poller->round_ns = now_ns;
}

static bool poller_round(struct cgm_poller *poller)
{
    uint64_t now_ns = cgm_now_ns();
    look_for_standstill(poller, now_ns);
    look_at_imports(poller, now_ns);
    bool busy = round_inbox(poller);
    if (poller->n_fresh > 0)
        look_at_fresh_rings(poller, now_ns);
    if (poller->first_query)
        busy |= cgm_query_step(poller);
    if (!poller->ends)
        busy |= cgm_rings_drain(&poller->rings, now_ns);
    if (poller->losses) {
        poller->effort = 0;
        cgm_losses_step(poller);
        busy = true;
    }
    if (poller->noops.n_noops > 0)
        busy |= cgm_noops_step(&poller->noops, now_ns);
    if (poller->moving)
        busy |= round_moving(poller, now_ns, MOVING_PER_ROUND);
    if (poller->gangs && (poller->looked_at || now_ns >= poller->next_gangs_look_ns))
        busy |= round_gangs(poller, now_ns);
    if (poller->warming)
        busy |= cgm_plan_step_warming(poller);
    if (poller->tunings || poller->overdue)
        busy |= cgm_tuning_step(poller);
    if (poller->executor->copiers)
        busy |= cgm_transfer_step(poller->executor);
    if (poller->holding)
        busy |= cgm_runway_step(poller, now_ns);
    if (poller->quiet_first || poller->aborting)
        busy |= cgm_quiet_step(poller);
    poller->next_notice_ns = cgm_rings_notify(&poller->rings);
    if (now_ns - poller->health_ns > HEALTH_WITH_FLIGHTS_NS)
        round_health(poller, now_ns);
    return busy;
}

/* ---- sleeping ------------------------------------------------------------------------------- */

static bool poller_has_work(struct cgm_poller *poller)
{
    return atomic_load_explicit(&poller->inbox.filled, memory_order_acquire) ||
           (!poller->ends && cgm_rings_have_work(&poller->rings));
}

/* Whatever a queue signalled before the fence is seen by this look, whatever came later by wake. */
static bool gangs_have_work(struct cgm_poller *poller)
{
    return (poller->moving && round_moving(poller, cgm_now_ns(), UINT_MAX)) ||
           (poller->warming && cgm_plan_step_warming(poller)) ||
           ((poller->tunings || poller->overdue) && cgm_tuning_step(poller)) ||
           (poller->executor->copiers && cgm_transfer_step(poller->executor));
}

static bool anything_runs(const struct cgm_poller *poller)
{
    for (const struct cgm_gang *gang = poller->moving; gang;
         gang = gang->links[CGM_GANGS_MOVING].next)
        if (gang->state == CGM_GANG_RUNNING || gang->state == CGM_GANG_FAILING)
            return true;
    return (poller->holding && !poller->ends) || poller->warming || cgm_tuning_runs(poller);
}

/* A look that has begun is not work, but it is brought to its end. */
static bool looks(const struct cgm_poller *poller)
{
    return poller->looked_at || poller->moving_at || poller->noops.n_looks > 0;
}

static bool awaits_stream(const struct cgm_poller *poller)
{
    return poller->noops.n_noops > 0 || (poller->gangs && poller->awaits_streams);
}

/* Whether a device will write a word and wake nobody. */
static bool awaits_device(const struct cgm_poller *poller)
{
    return poller->executor->ops->host_flags_need_polling &&
           (anything_runs(poller) || poller->executor->copiers || awaits_stream(poller));
}

/* ns, 0 being for ever, or less: until a client that waits for its notice may have it. */
static uint64_t until_notice(const struct cgm_poller *poller, uint64_t ns)
{
    if (poller->next_notice_ns == 0)
        return ns;
    uint64_t now_ns = cgm_now_ns();
    uint64_t rest_ns = poller->next_notice_ns > now_ns ? poller->next_notice_ns - now_ns : 1;
    return ns == 0 || rest_ns < ns ? rest_ns : ns;
}

/* Of the rest that launches are given before what is quiet. */
static uint64_t until_quiet(const struct cgm_poller *poller, uint64_t ns)
{
    uint64_t now_ns = cgm_now_ns();
    uint64_t rest_ns = poller->quiet_rest_ns > now_ns ? poller->quiet_rest_ns - now_ns : ns;
    return rest_ns < ns ? rest_ns : ns;
}

/* False: for ever. */
static bool sleep_limit(const struct cgm_poller *poller, struct timespec *ret_limit)
{
    bool rests = poller->quiet_first && !poller->quiet_runs;
    uint64_t ns = SLEEP_WITH_GANGS_MS * 1000000u;
    if (awaits_device(poller))
        ns = SLEEP_WITH_DEVICES_NS;
    else if (awaits_stream(poller) || rests)
        ns = SLEEP_WITH_STREAMS_MS * 1000000u;
    else if (poller->n_warming > CGM_WARMING_FEW)
        ns = CGM_WARMING_LOOK_NS;
    else if (!has_work_under_way(poller) && poller->executor->ops->check &&
             poller->rings.n_rings > 0)
        ns = HEALTH_NS;
    else if (!has_work_under_way(poller))
        ns = imports_look_every_ns(poller);
    if (rests)
        ns = until_quiet(poller, ns);
    ns = until_notice(poller, ns);
    *ret_limit = (struct timespec){(time_t)(ns / NS_PER_S), (long)(ns % NS_PER_S)};
    return ns != 0;
}

/* Older kernels round it up to milliseconds. */
static void sleep_in_epoll(const struct cgm_poller *poller)
{
    struct epoll_event events[EVENTS_AT_ONCE];
    struct timespec limit;
    bool limited = sleep_limit(poller, &limit);
    int count =
        epoll_pwait2(poller->epoll_fd, events, EVENTS_AT_ONCE, limited ? &limit : NULL, NULL);
    if (count < 0 && errno == ENOSYS)
        count = epoll_wait(poller->epoll_fd, events, EVENTS_AT_ONCE,
                           limited ? (int)(limit.tv_sec * 1000 + (limit.tv_nsec + 999999) / 1000000)
                                   : -1);
    take_events(events, count);
}

static void poller_sleep(struct cgm_poller *poller)
{
    atomic_store_explicit(&poller->asleep, true, memory_order_relaxed);
    cgm_rings_ask_for_wakeup(&poller->rings, 1);
    /* Pairs with the fences in cgm_poller_wake and in the library's submit. */
    atomic_thread_fence(memory_order_seq_cst);
    if (!poller_has_work(poller) && !gangs_have_work(poller)) {
        poller->counters.sleeps++;
        poller->counters.syscalls++;
        sleep_in_epoll(poller);
    }
    cgm_rings_ask_for_wakeup(&poller->rings, 0);
    atomic_store_explicit(&poller->asleep, false, memory_order_relaxed);
}

/* ---- the thread ----------------------------------------------------------------------------- */

static void relax(struct cgm_poller *poller, uint64_t idle_ns, uint64_t now_ns)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#endif
    if (cgm_spin_yield(&poller->spin, idle_ns, now_ns))
        poller->counters.syscalls++;
}

static void *poller_main(void *argument)
{
    struct cgm_poller *poller = argument;
    uint64_t spin_ns = poller->executor->limits.spin_ns, idle_since_ns = 0;
    cgm_slice_shorten();
    for (;;) {
        if (poller_round(poller)) {
            idle_since_ns = 0;
            continue;
        }
        if (poller->shutdown && !anything_runs(poller)) {
            cgm_request_ok(poller->shutdown);
            poller->shutdown = NULL;
        }
        uint64_t now_ns = cgm_now_ns();
        if (idle_since_ns == 0)
            idle_since_ns = now_ns;
        uint64_t limit_ns = awaits_device(poller) ? SPIN_WITH_FLIGHTS_NS : spin_ns;
        uint64_t idle_ns = now_ns - idle_since_ns;
        if (idle_ns < limit_ns && cgm_spin_goes_on(&poller->spin, idle_ns, now_ns)) {
            relax(poller, idle_ns, now_ns);
            continue;
        }
        if (!looks(poller))
            poller_sleep(poller);
    }
    return NULL;
}

int cgm_poller_start(struct cgm_poller *poller, struct cgm_executor *executor)
{
    poller->executor = executor;
    poller->job_memory.own_bytes = CGM_ROOM_OF_BROKER;
    poller->failed_memory.own_bytes = CGM_ROOM_OF_BROKER / 2;
    poller->phase_memory.own_bytes = CGM_ROOM_OF_DAEMON;
    cgm_task_list_init(&poller->inbox);
    poller->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    poller->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (poller->epoll_fd < 0 || poller->wake_fd < 0 ||
        poller_watch(poller, poller->wake_fd, NULL) != CGM_OK)
        return CGM_NO_MEMORY;
    if (pthread_create(&poller->thread, NULL, poller_main, poller) != 0)
        return CGM_NO_MEMORY;
    pthread_setname_np(poller->thread, "cgm-poller");
    return CGM_OK;
}
