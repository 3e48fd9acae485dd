/* How a thread waits for the end of a job; the rules are in jobs.h. */
#include <poll.h>
#include <sched.h>
#include <unistd.h>

#include "client/lib/clock.h"
#include "client/lib/error.h"
#include "client/lib/jobs.h"

/* Iterations between two looks at the clock. */
#define SPINS_PER_CLOCK 32
/* Until an executor that is at other users' jobs has come to a ring, be its processor as busy as it
 * is; and how soon it mostly does. */
#define TAKEN_WITHIN_NS 1000000000u
#define TAKEN_SOON_NS 1000000u
#define TAKEN_NAP_US 100u

/* Without the lock: what it reads are hints, and the lane stays because of lane->waiters. */
static void spin(struct cgm_jobs *jobs, const struct cgm_slot *slot, uint64_t begin_ns,
                 uint64_t until_ns)
{
    const struct cgm_lane *lane = slot->lane;
    for (unsigned i = 1;; i++) {
        if (atomic_load_explicit(&slot->state, memory_order_acquire) != CGM_SLOT_FLIGHT ||
            (lane->ring.header && (cgm_lane_has_news(lane) || cgm_lane_dead(lane))))
            return;
        cgm_pause();
        if (i % SPINS_PER_CLOCK != 0)
            continue;
        uint64_t now = cgm_now_ns();
        if (now >= until_ns || !cgm_spin_goes_on(&jobs->spin, now - begin_ns, now))
            return;
        cgm_spin_yield(&jobs->spin, now - begin_ns, now);
    }
}

static void poll_until(struct cgm_jobs *jobs, const struct cgm_lane *lane, uint64_t deadline_ns)
{
    struct pollfd fds[2] = {
        {.fd = jobs->kick_fd, .events = POLLIN},
        {.fd = lane->hung_up ? -1 : lane->notify_fd, .events = POLLIN},
    };
    uint64_t now = cgm_now_ns();
    struct timespec left = cgm_timespec(deadline_ns > now ? deadline_ns - now : 0);
    cgm_jobs_unlock(jobs);
    ppoll(fds, 2, deadline_ns == UINT64_MAX ? NULL : &left, NULL);
    cgm_jobs_lock(jobs);
}

/* Polls for everybody. Whatever ends the poll, the others look again. */
static void sleep_as_sleeper(struct cgm_jobs *jobs, const struct cgm_slot *slot,
                             uint64_t deadline_ns)
{
    struct cgm_lane *lane = slot->lane;
    uint64_t count;
    if (!cgm_lane_arm(lane))
        return;
    jobs->sleeper = slot;
    poll_until(jobs, lane, deadline_ns);
    jobs->sleeper = NULL;
    if (read(jobs->kick_fd, &count, sizeof(count)) < 0)
        count = 0; /* EAGAIN: nobody kicked */
    cgm_jobs_drain_notify(jobs, lane);
    if (jobs->poll_fd < 0)
        cgm_lane_disarm(lane);
    cgm_jobs_collect(jobs);
    pthread_cond_broadcast(&jobs->changed);
}

static void sleep_once(struct cgm_jobs *jobs, const struct cgm_slot *slot, uint64_t deadline_ns)
{
    if (jobs->sleeper || !slot->lane->ring.header)
        cgm_jobs_wait_change(jobs, deadline_ns);
    else
        sleep_as_sleeper(jobs, slot, deadline_ns);
}

#define NEVER_FEW (-1)

/* The slot may change hands while the lock is dropped: the ticket says whether it did. */
static int wait_for_slot(struct cgm_jobs *jobs, struct cgm_slot *slot, uint64_t ticket,
                         uint64_t deadline, int64_t few)
{
    uint64_t begin = cgm_now_ns(), spin_until = begin + jobs->spin_ns;
    if (spin_until > deadline)
        spin_until = deadline;
    while (cgm_jobs_find(jobs, ticket) == slot) {
        if (cgm_slot_has_ended(slot))
            return CGM_OK;
        uint64_t now = cgm_now_ns();
        if (now >= deadline || jobs->n_detached <= few)
            return CGM_TIMEOUT;
        if (now < spin_until && cgm_spin_goes_on(&jobs->spin, now - begin, now)) {
            cgm_jobs_unlock(jobs);
            spin(jobs, slot, begin, spin_until);
            cgm_jobs_lock(jobs);
        } else {
            sleep_once(jobs, slot, deadline);
        }
        cgm_jobs_collect(jobs);
    }
    return CGM_NOT_FOUND;
}

static int fail_wait(const struct cgm_jobs *jobs, int status, uint64_t ticket, int timeout_ms)
{
    if (status == CGM_TIMEOUT)
        return cgm_fail(status, "job %llu has not ended after %d ms", (unsigned long long)ticket,
                        timeout_ms);
    return cgm_fail(status,
                    "ticket is %llu; that job is not outstanding, the last submitted is %llu",
                    (unsigned long long)ticket, (unsigned long long)jobs->last_ticket);
}

int cgm_jobs_wait(struct cgm_jobs *jobs, uint64_t ticket, int timeout_ms,
                  struct cgm_slot **ret_slot)
{
    struct cgm_slot *slot = ticket ? cgm_jobs_find(jobs, ticket) : NULL;
    if (!slot)
        return fail_wait(jobs, CGM_NOT_FOUND, ticket, timeout_ms);
    if (!cgm_slot_has_ended(slot)) {
        cgm_jobs_collect(jobs);
        if (cgm_jobs_find(jobs, ticket) != slot) /* a detached one that went as it ended */
            return fail_wait(jobs, CGM_NOT_FOUND, ticket, timeout_ms);
    }
    if (!cgm_slot_has_ended(slot)) {
        struct cgm_lane *lane = slot->lane;
        cgm_jobs_hold(slot);
        lane->waiters++;
        int status = wait_for_slot(jobs, slot, ticket, cgm_deadline_ns(timeout_ms), NEVER_FEW);
        if (status != CGM_NOT_FOUND)
            cgm_jobs_unhold(jobs, slot);
        lane->waiters--;
        cgm_jobs_put_lane(jobs, lane);
        if (status != CGM_OK)
            return fail_wait(jobs, status, ticket, timeout_ms);
    }
    *ret_slot = slot;
    return CGM_OK;
}

int cgm_jobs_wait_given(struct cgm_jobs *jobs, uint64_t ticket, int timeout_ms,
                        struct cgm_slot **ret_slot)
{
    const struct cgm_slot *slot = cgm_jobs_find(jobs, ticket);
    if (slot && slot->submitting)
        return fail_wait(jobs, CGM_NOT_FOUND, ticket, timeout_ms);
    return cgm_jobs_wait(jobs, ticket, timeout_ms, ret_slot);
}

/* The detached job in flight that was submitted first. */
static struct cgm_slot *oldest_detached(const struct cgm_jobs *jobs)
{
    struct cgm_slot *oldest = NULL;
    for (uint32_t i = 0; jobs->lane && i < jobs->lane->entries; i++) {
        struct cgm_slot *slot = &jobs->lane->slots[i];
        if (slot->detached && cgm_slot_is_in_flight(slot) &&
            (!oldest || slot->ticket < oldest->ticket))
            oldest = slot;
    }
    return oldest;
}

/* It is not held: it goes as it ends. Where none is in flight, those that are left have ended, and
 * other threads are about to take them. */
static int wait_for_oldest(struct cgm_jobs *jobs, uint32_t max_left, uint64_t deadline)
{
    struct cgm_slot *slot = oldest_detached(jobs);
    if (!slot) {
        jobs->few_idle++;
        cgm_jobs_wait_change(jobs, deadline);
        jobs->few_idle--;
        cgm_jobs_collect(jobs);
        return cgm_now_ns() < deadline ? CGM_OK : CGM_TIMEOUT;
    }
    struct cgm_lane *lane = slot->lane;
    lane->waiters++;
    int status = wait_for_slot(jobs, slot, slot->ticket, deadline, max_left);
    lane->waiters--;
    cgm_jobs_put_lane(jobs, lane);
    return status == CGM_NOT_FOUND ? CGM_OK : status;
}

int cgm_jobs_wait_for_few(struct cgm_jobs *jobs, uint32_t max_left, int timeout_ms)
{
    uint64_t deadline = cgm_deadline_ns(timeout_ms);
    int status = CGM_OK;
    cgm_jobs_collect(jobs);
    if (jobs->few_waiters++ == 0 || jobs->few < max_left)
        jobs->few = max_left;
    while (status == CGM_OK && jobs->n_detached > max_left)
        status = wait_for_oldest(jobs, max_left, deadline);
    jobs->few_waiters--;
    return jobs->n_detached <= max_left ? CGM_OK : CGM_TIMEOUT;
}

/* Or never will be. */
static bool is_taken(const struct cgm_jobs *jobs, const struct cgm_lane *lane, uint32_t tail)
{
    if (!lane || jobs->lane != lane || lane->buried || !lane->ring.header || cgm_lane_dead(lane))
        return true;
    /* Pairs with the poller's release after it has taken the entries. */
    uint32_t head = atomic_load_explicit(&lane->ring.header->sq_head, memory_order_acquire);
    return (int32_t)(head - tail) >= 0;
}

/* False: that was the last one that there is time for. */
static bool nap(uint64_t begin_ns)
{
    uint64_t waited_ns = cgm_now_ns() - begin_ns;
    if (waited_ns < TAKEN_SOON_NS)
        sched_yield();
    else
        usleep(TAKEN_NAP_US);
    return waited_ns < TAKEN_WITHIN_NS;
}

void cgm_jobs_await_taken(struct cgm_jobs *jobs)
{
    uint64_t begin_ns = cgm_now_ns();
    bool in_time = true;
    cgm_jobs_lock(jobs);
    struct cgm_lane *lane = jobs->lane;
    uint32_t tail = lane ? lane->sq_tail : 0;
    while (!is_taken(jobs, lane, tail) && in_time && lane->vain_tail != tail) {
        cgm_jobs_unlock(jobs);
        in_time = nap(begin_ns);
        cgm_jobs_lock(jobs);
    }
    if (!in_time && jobs->lane == lane)
        lane->vain_tail = tail;
    cgm_jobs_unlock(jobs);
}
