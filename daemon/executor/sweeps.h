/* Frees what clients have, a user's in a thread of its own, and what another user may write, too,
 * in one for the two: whoever has the memory or the file can hold the system's locks on it for as
 * long as he likes, and then keeps nothing else waiting. What several others may write has a thread
 * of its own. */
#ifndef CGM_SWEEPS_H
#define CGM_SWEEPS_H

#include <pthread.h>
#include <stdint.h>

#include "daemon/executor/turns.h"

struct cgm_sweep;

struct cgm_sweeps {
    pthread_mutex_t lock;
    struct cgm_sweep *first; /* under lock: of each user who has something to be freed */
};

void cgm_sweeps_init(struct cgm_sweeps *sweeps);

/* guest: as in proto/guest.h. slice and done are set. Any thread that may start another
 * one; where that fails, they are called here. */
void cgm_sweeps_add(struct cgm_sweeps *sweeps, uint32_t uid, uint32_t guest, struct cgm_turn *turn);

#endif
