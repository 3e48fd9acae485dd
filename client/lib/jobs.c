#include "client/lib/jobs.h"

#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "client/lib/clock.h"
#include "client/lib/completion.h"
#include "client/lib/error.h"

int cgm_jobs_init(struct cgm_jobs *jobs, uint32_t entries, uint64_t spin_ns)
{
    pthread_condattr_t monotonic;
    *jobs = (struct cgm_jobs){.spin_ns = spin_ns, .poll_fd = -1, .event_fd = -1};
    jobs->buckets = calloc(entries, sizeof(struct cgm_slot *));
    jobs->bucket_mask = entries - 1;
    if (!jobs->buckets)
        return cgm_fail_plain(CGM_NO_MEMORY);
    jobs->kick_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (jobs->kick_fd < 0) {
        free(jobs->buckets);
        return cgm_fail(CGM_NO_MEMORY, "no file descriptor is left for the session");
    }
    TAILQ_INIT(&jobs->ended);
    pthread_mutex_init(&jobs->lock, NULL);
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&jobs->changed, &monotonic);
    pthread_condattr_destroy(&monotonic);
    return CGM_OK;
}

static void lane_close(struct cgm_lane *lane)
{
    for (uint32_t i = 0; i < lane->entries; i++)
        if (lane->slots[i].plan)
            cgm_plan_unref(lane->slots[i].plan);
    cgm_lane_free(lane);
}

void cgm_jobs_fini(struct cgm_jobs *jobs)
{
    if (jobs->poll_fd >= 0) {
        close(jobs->poll_fd);
        close(jobs->event_fd);
    }
    close(jobs->kick_fd);
    if (jobs->lane)
        lane_close(jobs->lane);
    for (struct cgm_lane *next, *lane = jobs->old; lane; lane = next) {
        next = lane->next_old;
        lane_close(lane);
    }
    cgm_plans_fini(&jobs->plans);
    pthread_cond_destroy(&jobs->changed);
    pthread_mutex_destroy(&jobs->lock);
    free(jobs->buckets);
}

/* Keeps event_fd readable while there is something for commgemm_reap. */
static void event_update(struct cgm_jobs *jobs)
{
    uint64_t count = 1;
    bool wanted = jobs->loose > 0 || jobs->lost;
    if (jobs->event_fd < 0 || wanted == jobs->event_is_set)
        return;
    ssize_t done = wanted ? write(jobs->event_fd, &count, sizeof(count))
                          : read(jobs->event_fd, &count, sizeof(count));
    if (done == sizeof(count))
        jobs->event_is_set = wanted;
}

void cgm_jobs_lock(struct cgm_jobs *jobs)
{
    pthread_mutex_lock(&jobs->lock);
}

void cgm_jobs_unlock(struct cgm_jobs *jobs)
{
    event_update(jobs);
    pthread_mutex_unlock(&jobs->lock);
}

void cgm_jobs_wait_change(struct cgm_jobs *jobs, uint64_t deadline_ns)
{
    struct timespec deadline = cgm_timespec(deadline_ns);
    event_update(jobs);
    if (deadline_ns == UINT64_MAX)
        pthread_cond_wait(&jobs->changed, &jobs->lock);
    else
        pthread_cond_timedwait(&jobs->changed, &jobs->lock, &deadline);
}

static void kick(const struct cgm_jobs *jobs)
{
    static const uint64_t one = 1;
    if (write(jobs->kick_fd, &one, sizeof(one)) < 0)
        return; /* EAGAIN: it is readable already */
}

static void wake_everybody(struct cgm_jobs *jobs)
{
    pthread_cond_broadcast(&jobs->changed);
    if (jobs->sleeper)
        kick(jobs);
}

/* ---- tickets ----------------------------------------------------------------------------------
 */

struct cgm_slot *cgm_jobs_find(const struct cgm_jobs *jobs, uint64_t ticket)
{
    struct cgm_slot *slot = jobs->buckets[ticket & jobs->bucket_mask];
    while (slot && slot->ticket != ticket)
        slot = slot->next_same_bucket;
    return slot;
}

static void index_add(struct cgm_jobs *jobs, struct cgm_slot *slot)
{
    struct cgm_slot **bucket = &jobs->buckets[slot->ticket & jobs->bucket_mask];
    slot->next_same_bucket = *bucket;
    *bucket = slot;
}

static void index_remove(struct cgm_jobs *jobs, struct cgm_slot *slot)
{
    struct cgm_slot **at = &jobs->buckets[slot->ticket & jobs->bucket_mask];
    while (*at != slot)
        at = &(*at)->next_same_bucket;
    *at = slot->next_same_bucket;
}

int cgm_jobs_take(struct cgm_jobs *jobs, struct cgm_plan *plan, struct cgm_slot **ret_slot)
{
    struct cgm_slot *slot = cgm_lane_take(jobs->lane);
    if (!slot)
        return cgm_fail(CGM_RING_FULL, "%u jobs are in flight or not reaped; ring_entries is %u%s",
                        jobs->lane->outstanding, jobs->lane->entries,
                        jobs->lane->n_late ? "; the others wait for the streams of jobs that "
                                             "ended before"
                                           : "");
    if (slot->lane->is_fresh)
        slot->lane->ticket_base = jobs->last_ticket;
    slot->lane->is_fresh = false;
    slot->ticket = ++jobs->last_ticket;
    slot->entry_ticket = slot->ticket - slot->lane->ticket_base;
    slot->comm_number = 0;
    slot->plan = plan;
    if (plan)
        plan->refs++;
    index_add(jobs, slot);
    *ret_slot = slot;
    return CGM_OK;
}

static void one_detached_less(struct cgm_jobs *jobs)
{
    jobs->n_detached--;
    if (jobs->few_idle > 0 || (jobs->few_waiters > 0 && jobs->n_detached <= jobs->few))
        wake_everybody(jobs);
}

static void slot_give(struct cgm_jobs *jobs, struct cgm_slot *slot)
{
    index_remove(jobs, slot);
    if (slot->plan)
        cgm_plan_unref(slot->plan);
    if (slot->detached)
        one_detached_less(jobs);
    cgm_lane_give(slot);
}

static void ended_remove(struct cgm_jobs *jobs, struct cgm_slot *slot)
{
    TAILQ_REMOVE(&jobs->ended, slot, ended);
    if (slot->waiters == 0)
        jobs->loose--;
}

void cgm_jobs_untake(struct cgm_jobs *jobs, struct cgm_slot *slot)
{
    if (cgm_slot_has_ended(slot))
        ended_remove(jobs, slot);
    jobs->last_ticket--;
    slot_give(jobs, slot);
}

void cgm_jobs_hold(struct cgm_slot *slot)
{
    slot->waiters++;
}

void cgm_jobs_unhold(struct cgm_jobs *jobs, struct cgm_slot *slot)
{
    if (--slot->waiters == 0 && cgm_slot_has_ended(slot))
        jobs->loose++;
}

/* ---- detached jobs ----------------------------------------------------------------------------
 */

/* The first failure tells most: what follows is often its consequence. One that a thread waited for
 * is noted late. */
static void note_failure(struct cgm_jobs *jobs, const struct cgm_slot *slot)
{
    if (slot->cqe.status == CGM_OK)
        return;
    if (jobs->n_failures++ > 0 && slot->end > jobs->failure_end)
        return;
    cgm_completion_take(slot, &jobs->failure);
    jobs->failure_end = slot->end;
}

void cgm_jobs_settle(struct cgm_jobs *jobs, struct cgm_slot *slot)
{
    if (!slot->detached || slot->waiters > 0 || !cgm_slot_has_ended(slot))
        return;
    note_failure(jobs, slot);
    cgm_jobs_release(jobs, slot);
}

void cgm_jobs_detach(struct cgm_jobs *jobs, struct cgm_slot *slot)
{
    slot->detached = true;
    jobs->n_detached++;
    if (jobs->few_idle > 0)
        pthread_cond_broadcast(&jobs->changed);
    cgm_jobs_settle(jobs, slot);
}

/* Without a place among the ended, which nobody would take it from. */
static void end_detached(struct cgm_jobs *jobs, struct cgm_slot *slot)
{
    note_failure(jobs, slot);
    slot_give(jobs, slot);
}

void cgm_jobs_end(struct cgm_jobs *jobs, struct cgm_slot *slot)
{
    slot->end = ++jobs->last_end;
    if (slot->detached && slot->waiters == 0) {
        end_detached(jobs, slot);
        return;
    }
    /* Pairs with a spinning waiter's acquire; what it then reads it reads under the lock. */
    atomic_store_explicit(&slot->state, CGM_SLOT_ENDED, memory_order_release);
    TAILQ_INSERT_TAIL(&jobs->ended, slot, ended);
    if (slot->waiters == 0) {
        jobs->loose++;
        return;
    }
    pthread_cond_broadcast(&jobs->changed);
    if (slot == jobs->sleeper) /* the record's byte may be read already */
        kick(jobs);
}

struct cgm_slot *cgm_jobs_next_loose(struct cgm_jobs *jobs)
{
    struct cgm_slot *slot;
    if (jobs->loose == 0)
        return NULL;
    TAILQ_FOREACH(slot, &jobs->ended, ended)
    if (slot->waiters == 0)
        return slot;
    return NULL;
}

/* ---- lanes ------------------------------------------------------------------------------------
 */

void cgm_jobs_put_lane(struct cgm_jobs *jobs, struct cgm_lane *lane)
{
    if (lane == jobs->lane || lane->outstanding > 0 || lane->waiters > 0)
        return;
    struct cgm_lane **at = &jobs->old;
    while (*at != lane)
        at = &(*at)->next_old;
    *at = lane->next_old;
    cgm_lane_free(lane);
}

void cgm_jobs_release(struct cgm_jobs *jobs, struct cgm_slot *slot)
{
    struct cgm_lane *lane = slot->lane;
    ended_remove(jobs, slot);
    slot_give(jobs, slot);
    cgm_jobs_put_lane(jobs, lane);
}

static void notify_watch(struct cgm_jobs *jobs, const struct cgm_lane *lane, int operation)
{
    struct epoll_event readable = {.events = EPOLLIN};
    if (jobs->poll_fd >= 0 && lane->notify_fd >= 0)
        epoll_ctl(jobs->poll_fd, operation, lane->notify_fd, &readable);
}

void cgm_jobs_drain_notify(struct cgm_jobs *jobs, struct cgm_lane *lane)
{
    cgm_lane_drain_notify(lane);
    if (lane->hung_up) /* else the poll fd would be readable for ever */
        notify_watch(jobs, lane, EPOLL_CTL_DEL);
}

static void drain_records(struct cgm_jobs *jobs, struct cgm_lane *lane)
{
    struct cgm_slot *slot;
    if (!lane->ring.header)
        return;
    while ((slot = cgm_lane_next(lane)))
        cgm_jobs_end(jobs, slot);
}

/* Who submits it again is matched as with this one. */
static void give_number_if_lost(const struct cgm_slot *slot)
{
    int status = slot->cqe.status;
    if (slot->comm_number && (status == CGM_EXECUTOR_LOST || status == CGM_GPU_LOST))
        cgm_numbers_give(slot->plan->comm->numbers[slot->rank], slot->comm_number);
}

/* Ends every job in flight. A lane with a ring is dead from then on. */
static void lane_bury(struct cgm_jobs *jobs, struct cgm_lane *lane, int status, const char *detail)
{
    if (lane->buried)
        return;
    /* Where the ring was seen to be dead, its executor was gone before that: these are its last. */
    drain_records(jobs, lane);
    if (lane->ring.header)
        cgm_ring_declare_dead(&lane->ring, status);
    for (uint32_t i = 0; i < lane->entries; i++) {
        struct cgm_slot *slot = &lane->slots[i];
        if (!cgm_slot_is_in_flight(slot))
            continue;
        cgm_slot_abandon(slot, status, detail);
        give_number_if_lost(slot);
        cgm_jobs_end(jobs, slot);
    }
    lane->is_fresh = true; /* without a ring the lane serves the next executor too */
    if (lane->ring.header) {
        lane->buried = true;
        notify_watch(jobs, lane, EPOLL_CTL_DEL);
        if (jobs->highest_lost_life < lane->life)
            jobs->highest_lost_life = lane->life;
    }
    wake_everybody(jobs);
}

void cgm_jobs_collect(struct cgm_jobs *jobs)
{
    struct cgm_lane *lane = jobs->lane;
    if (!lane || lane->buried || !lane->ring.header)
        return;
    do
        drain_records(jobs, lane);
    while (jobs->poll_fd >= 0 && !cgm_lane_arm(lane) && !cgm_lane_dead(lane));
    int dead = cgm_lane_dead(lane);
    if (dead)
        lane_bury(jobs, lane, dead, NULL);
}

/* A ring whose executor was declared lost, or replaced, before the ring arrived here. */
static bool lane_is_late(const struct cgm_jobs *jobs, const struct cgm_lane *lane)
{
    return lane->ring.header && (lane->life <= jobs->highest_lost_life ||
                                 (jobs->lane && jobs->lane->life >= lane->life));
}

bool cgm_jobs_install(struct cgm_jobs *jobs, struct cgm_lane *lane)
{
    struct cgm_lane *before = jobs->lane;
    if (jobs->lost || lane_is_late(jobs, lane)) {
        cgm_lane_free(lane);
        return false;
    }
    if (before) {
        lane_bury(jobs, before, CGM_EXECUTOR_LOST, NULL);
        before->next_old = jobs->old;
        jobs->old = before;
    }
    jobs->lane = lane;
    if (before)
        cgm_jobs_put_lane(jobs, before);
    notify_watch(jobs, lane, EPOLL_CTL_ADD);
    cgm_jobs_collect(jobs);
    wake_everybody(jobs);
    return true;
}

void cgm_jobs_end_well(struct cgm_jobs *jobs, uint64_t comm, uint64_t comm_number)
{
    struct cgm_lane *lane = jobs->lane;
    for (uint32_t i = 0; lane && !lane->buried && i < lane->entries; i++) {
        struct cgm_slot *slot = &lane->slots[i];
        if (!cgm_slot_is_in_flight(slot) || !slot->plan || slot->plan->comm->id != comm ||
            slot->comm_number != comm_number)
            continue;
        cgm_slot_abandon(slot, CGM_OK, NULL);
        cgm_jobs_end(jobs, slot);
    }
}

void cgm_jobs_lose(struct cgm_jobs *jobs, uint64_t life, int status, const char *detail)
{
    struct cgm_lane *lane = jobs->lane;
    if (status == CGM_DAEMON_LOST)
        jobs->lost = true;
    else if (jobs->highest_lost_life < life)
        jobs->highest_lost_life = life;
    if (lane && !lane->buried && (jobs->lost || lane->life <= life)) {
        lane_bury(jobs, lane, status, detail);
    }
    wake_everybody(jobs);
}

bool cgm_jobs_are_lost(const struct cgm_jobs *jobs)
{
    /* The ring may tell it before the socket hangs up, but until it is buried some of its jobs have
     * not ended here. */
    const struct cgm_lane *lane = jobs->lane;
    return jobs->lost || (lane && lane->buried && cgm_lane_dead(lane) == CGM_DAEMON_LOST);
}

int cgm_jobs_ready(struct cgm_jobs *jobs)
{
    int dead = jobs->lane ? cgm_lane_dead(jobs->lane) : CGM_OK;
    if (dead)
        cgm_jobs_collect(jobs);
    if (cgm_jobs_are_lost(jobs))
        return cgm_fail(CGM_DAEMON_LOST, "the daemon closed the connection");
    if (!jobs->lane)
        return cgm_fail(CGM_NO_EXECUTOR, "no executor has served this session yet");
    if (jobs->lane->buried)
        return cgm_fail(dead == CGM_GPU_LOST ? CGM_GPU_LOST : CGM_EXECUTOR_LOST,
                        "executor %llu has ended; there is no new one yet",
                        (unsigned long long)jobs->lane->life);
    return CGM_OK;
}

int cgm_jobs_poll_fd(struct cgm_jobs *jobs, int *ret_fd)
{
    struct epoll_event readable = {.events = EPOLLIN};
    if (jobs->poll_fd < 0) {
        int event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
        int poll_fd = epoll_create1(EPOLL_CLOEXEC);
        if (event_fd < 0 || poll_fd < 0 ||
            epoll_ctl(poll_fd, EPOLL_CTL_ADD, event_fd, &readable) < 0) {
            close(event_fd);
            close(poll_fd);
            return cgm_fail(CGM_NO_MEMORY, "no file descriptor is left for the poll fd");
        }
        jobs->event_fd = event_fd;
        jobs->poll_fd = poll_fd;
        if (jobs->lane && !jobs->lane->buried)
            notify_watch(jobs, jobs->lane, EPOLL_CTL_ADD);
        cgm_jobs_collect(jobs);
    }
    *ret_fd = jobs->poll_fd;
    return CGM_OK;
}
