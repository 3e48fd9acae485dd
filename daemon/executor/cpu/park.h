/* Sleeping until another thread changed something.
 *
 * The waiter:  key = cgm_park_prepare(p); if (not yet) cgm_park_sleep(p, key, timeout);
 *              cgm_park_finish(p); and looks again.
 * The other:   changes it; cgm_park_wake(p).
 *
 * The change and the look are seq_cst operations, as are those on `sleepers`: either the waiter
 * sees the change, or the other sees the sleeper, raises `sequence` and so ends or prevents the
 * sleep. Without sleepers a wake costs one load. */
#ifndef CGM_CPU_PARK_H
#define CGM_CPU_PARK_H

#include <stdatomic.h>
#include <stdint.h>

struct cgm_park {
    _Atomic uint32_t sequence;
    _Atomic uint32_t sleepers;
};

/* Once for the process: thousands of threads may sleep at a time. */
void cgm_park_open(void);

uint32_t cgm_park_prepare(struct cgm_park *park);

/* Returns at a wake after `key` was taken, at the timeout (0: never), and now and then for nothing.
 */
void cgm_park_sleep(struct cgm_park *park, uint32_t key, uint64_t timeout_ns);

void cgm_park_finish(struct cgm_park *park);

void cgm_park_wake_slow(struct cgm_park *park);

static inline void cgm_park_wake(struct cgm_park *park)
{
    if (atomic_load(&park->sleepers) != 0)
        cgm_park_wake_slow(park);
}

/* CLOCK_MONOTONIC. */
uint64_t cgm_cpu_now_ns(void);

/* What a loop that polls does between two looks. */
static inline void cgm_cpu_relax(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
}

#endif
