/* Polling that makes room: who polls and finds nothing yields the processor now and then, and where
 * others want it, stops polling for some time and sleeps at once.
 *
 * A yield is cheap while nobody wants this processor but the one who is waited for. Anybody else
 * gets a whole slice out of it, milliseconds (Linux 6.6 and later: who yields forfeits its own). A
 * thread that sleeps keeps its place instead, and takes the processor back from who only computes
 * as soon as it is woken. So a yield that came back late says: from now on sleep.
 *
 * Threads may share a struct cgm_spin, all zero at first: what one of them learnt holds for all,
 * and none needs it to be exact. */
#ifndef CGM_SPIN_H
#define CGM_SPIN_H

#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <time.h>

/* Who has had that long to answer and did not may be waiting for this very processor. */
#define CGM_SPIN_ALONE_NS 5000u
/* A yield to who answers, or has something small to compute, comes back sooner; from who only
 * computes, not before the end of its slice. */
#define CGM_SPIN_LATE_NS 1000000u
/* How long polling is then left alone; doubled while the next attempt is no better. */
#define CGM_SPIN_REST_MIN_NS 10000000u
#define CGM_SPIN_REST_MAX_NS 320000000u

struct cgm_spin {
    _Atomic uint64_t rest_until_ns; /* CLOCK_MONOTONIC, as all times here */
    _Atomic uint64_t rest_ns;       /* the last one's length */
};

/* Whether to poll on, after waited_ns without an answer; else sleep. */
static inline bool cgm_spin_goes_on(const struct cgm_spin *spin, uint64_t waited_ns,
                                    uint64_t now_ns)
{
    return waited_ns < CGM_SPIN_ALONE_NS ||
           now_ns >= atomic_load_explicit(&spin->rest_until_ns, memory_order_relaxed);
}

/* A yield began and ended then. */
static inline void cgm_spin_note(struct cgm_spin *spin, uint64_t begin_ns, uint64_t end_ns)
{
    if (end_ns - begin_ns < CGM_SPIN_LATE_NS)
        return;
    uint64_t until_ns = atomic_load_explicit(&spin->rest_until_ns, memory_order_relaxed);
    uint64_t rest_ns = atomic_load_explicit(&spin->rest_ns, memory_order_relaxed);
    if (begin_ns < until_ns) /* another thread has noted it */
        return;
    rest_ns = begin_ns - until_ns < rest_ns ? 2 * rest_ns : CGM_SPIN_REST_MIN_NS;
    if (rest_ns > CGM_SPIN_REST_MAX_NS)
        rest_ns = CGM_SPIN_REST_MAX_NS;
    atomic_store_explicit(&spin->rest_ns, rest_ns, memory_order_relaxed);
    atomic_store_explicit(&spin->rest_until_ns, end_ns + rest_ns, memory_order_relaxed);
}

/* Between two looks: yields if it is time for that, which it then says. */
static inline bool cgm_spin_yield(struct cgm_spin *spin, uint64_t waited_ns, uint64_t now_ns)
{
    struct timespec now;
    if (waited_ns < CGM_SPIN_ALONE_NS)
        return false;
    sched_yield();
    clock_gettime(CLOCK_MONOTONIC, &now);
    cgm_spin_note(spin, now_ns, (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec);
    return true;
}

#endif
