/* Frees what clients have, a user's in a thread of its own, and what another user may write, too,
 * in one for the two: whoever has the memory or the file can hold the system's locks on it for as
 * long as he likes, and then keeps nothing else waiting. What several others may write has a thread
 * of its own. Where the system has no thread left, what has none waits for one. A few were started
 * before anybody came: they serve in turns those who wait, until a user keeps one, which then is
 * lost to him alone. */
#ifndef CGM_SWEEPS_H
#define CGM_SWEEPS_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "daemon/executor/turns.h"

/* So many threads of each kind there are from the start. */
#define CGM_SWEEPS_RESERVE 4u

struct cgm_sweep;
struct cgm_sweeps;

/* Threads that serve whoever comes next. Everything under the lock. */
struct cgm_sweep_crew {
    struct cgm_sweeps *sweeps;
    struct cgm_rota waiting; /* sweeps that have no thread at the moment */
    unsigned n_waiting;
    unsigned n_coming;   /* threads on their way to one of these */
    pthread_cond_t more; /* with the lock: for the reserve */
};

struct cgm_sweeps {
    pthread_mutex_t lock;
    struct cgm_sweep *first; /* under lock: of each user who has something to be freed */
    /* What nobody else may write, and the rest: no guest takes the threads of those who have none.
     */
    struct cgm_sweep_crew own, lent;
    bool lacks;          /* under lock: a thread could not be had */
    pthread_cond_t lack; /* with lock */
    uint64_t told_ns;    /* when that was logged; the keeper's */
};

void cgm_sweeps_init(struct cgm_sweeps *sweeps);

/* The reserve, and the keeper that tries again where there was no room for a thread. They stay
 * until the process ends. NO_MEMORY. */
int cgm_sweeps_start(struct cgm_sweeps *sweeps);

/* guest: as in proto/guest.h. slice and done are set. Any thread that may start another one;
 * nothing is called here. */
void cgm_sweeps_add(struct cgm_sweeps *sweeps, uint32_t uid, uint32_t guest, struct cgm_turn *turn);

#endif
