/* A barrier for processes, in memory that they share. Waiting spins for a moment, then sleeps. Who
 * is killed inside leaves the others waiting: their parent must end them. */
#ifndef CGM_BENCH_BARRIER_H
#define CGM_BENCH_BARRIER_H

#include <stdatomic.h>
#include <stdint.h>

struct cgm_barrier {
    uint32_t parties;
    _Atomic uint32_t arrived;
    _Atomic uint32_t round; /* slept on */
};

void cgm_barrier_init(struct cgm_barrier *barrier, uint32_t parties);

/* Everything written before by any party is seen after by every party. */
void cgm_barrier_wait(struct cgm_barrier *barrier);

/* Sleeps while *word is `value`, at most timeout_ms (negative: for ever); may return early. The
 * word may be shared between processes. */
void cgm_futex_wait(_Atomic uint32_t *word, uint32_t value, int timeout_ms);
void cgm_futex_wake(_Atomic uint32_t *word);

#endif
