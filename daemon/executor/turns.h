/* Long work of the mapper's, in slices: one of one user's and then one of the next one's, and
 * between two of them whatever else the mapper was sent. All of it on the mapper. */
#ifndef CGM_TURNS_H
#define CGM_TURNS_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/executor/task.h"

struct cgm_turn {
    struct cgm_turn *next;   /* of another user; of a user's first one alone */
    struct cgm_turn *behind; /* the same user's, begun when this one is done */
    uint32_t uid;
    bool (*slice)(struct cgm_turn *turn); /* a few milliseconds; true: there is more */
    void (*done)(struct cgm_turn *turn);  /* may free it */
};

struct cgm_turns {
    struct cgm_task task; /* the mapper's next slice, while there is a first turn */
    struct cgm_worker *mapper;
    struct cgm_turn *first;
};

void cgm_turns_init(struct cgm_turns *turns, struct cgm_worker *mapper);

/* uid, slice and done are set. Nothing is called yet. */
void cgm_turns_add(struct cgm_turns *turns, struct cgm_turn *turn);

#endif
