/* What a worker does for users: a step or a slice for one of them and then one for the next, each
 * user's in the order of their coming, and between two of them whatever else the worker was sent.
 * However much one user asks for, another waits for as many turns as there are users. Any thread
 * adds; all of it is done on the worker. What may wait for a client is no work of a worker's, but
 * of sweeps.h. */
#ifndef CGM_TURNS_H
#define CGM_TURNS_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "daemon/executor/task.h"
#include "proto/guest.h"
#include "proto/rota.h"

/* How long a slice goes on with what it could do in one go. Another user's plan waits for several
 * of them. */
#define CGM_TURN_NS 500000ull

struct cgm_turn {
    struct cgm_rota_entry entry;
    /* A little of what takes long; true: there is more. NULL: done is all of it. */
    bool (*slice)(struct cgm_turn *turn);
    void (*done)(struct cgm_turn *turn); /* may free it, or add it again */
};

struct cgm_turns {
    struct cgm_task task; /* the worker's next turn, while the rota has somebody */
    struct cgm_worker *worker;
    pthread_mutex_t lock;
    struct cgm_rota rota; /* under the lock */
};

void cgm_turns_init(struct cgm_turns *turns, struct cgm_worker *worker);

/* slice and done are set. Any thread; on the worker itself nothing is called yet. */
void cgm_turns_add(struct cgm_turns *turns, uint32_t uid, struct cgm_turn *turn);

#endif
