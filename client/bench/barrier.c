#include "client/bench/barrier.h"

#include <limits.h>
#include <linux/futex.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define SPINS 500u

void cgm_futex_wait(_Atomic uint32_t *word, uint32_t value, int timeout_ms)
{
    struct timespec limit = {timeout_ms / 1000, timeout_ms % 1000 * 1000000l};
    syscall(SYS_futex, word, FUTEX_WAIT, value, timeout_ms < 0 ? NULL : &limit, NULL, 0);
}

void cgm_futex_wake(_Atomic uint32_t *word)
{
    syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

void cgm_barrier_init(struct cgm_barrier *barrier, uint32_t parties)
{
    barrier->parties = parties;
    atomic_init(&barrier->arrived, 0);
    atomic_init(&barrier->round, 0);
}

void cgm_barrier_wait(struct cgm_barrier *barrier)
{
    uint32_t round = atomic_load_explicit(&barrier->round, memory_order_relaxed);
    /* acq_rel: the last to arrive has seen the writes of all; they see them through `round`. */
    uint32_t before = atomic_fetch_add_explicit(&barrier->arrived, 1, memory_order_acq_rel);
    if (before + 1 == barrier->parties) {
        atomic_store_explicit(&barrier->arrived, 0, memory_order_relaxed);
        /* Pairs with the acquire loads below. */
        atomic_store_explicit(&barrier->round, round + 1, memory_order_release);
        cgm_futex_wake(&barrier->round);
        return;
    }
    for (unsigned i = 0; i < SPINS; i++) {
        if (atomic_load_explicit(&barrier->round, memory_order_acquire) != round)
            return;
        __builtin_ia32_pause();
    }
    while (atomic_load_explicit(&barrier->round, memory_order_acquire) == round)
        cgm_futex_wait(&barrier->round, round, -1);
}
