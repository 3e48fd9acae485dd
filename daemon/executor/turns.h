/* Long work of a worker's, in slices: one of one user's and then one of the next one's, and between
 * two of them whatever else the worker was sent. All of it on the worker. What may wait for a client
 * is no work of a worker's, but of sweeps.h. */
#ifndef CGM_TURNS_H
#define CGM_TURNS_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/executor/task.h"
#include "proto/rota.h"

struct cgm_turn {
    struct cgm_rota_entry entry;
    bool (*slice)(struct cgm_turn *turn); /* a few milliseconds; true: there is more */
    void (*done)(struct cgm_turn *turn);  /* may free it */
};

struct cgm_turns {
    struct cgm_task task; /* the worker's next slice, while the rota has somebody */
    struct cgm_worker *worker;
    struct cgm_rota rota;
};

void cgm_turns_init(struct cgm_turns *turns, struct cgm_worker *worker);

/* slice and done are set. Nothing is called yet. */
void cgm_turns_add(struct cgm_turns *turns, uint32_t uid, struct cgm_turn *turn);

#endif
