/* Hands the whole state to a new executor, in this order: sessions need memory, comms need
 * sessions, plans need comms, and clients get their new rings last. One stage ends when all of its
 * requests are answered; a few are in flight at a time. Objects can go away meanwhile, but none is
 * added.
 *
 * Who has memory, too, can hold the system's locks on it, and then an executor that maps it cannot
 * map anything else either. What one does not come through with in time is left out for the next
 * one, with all that may be held in the same way: what its owner has alone, or with that guest. */
#ifndef CGM_REPLAY_H
#define CGM_REPLAY_H

#include <stdint.h>

struct cgm_broker;

struct cgm_replay {
    unsigned stage;
    uint64_t cursor, inner_cursor; /* of the stage's objects */
    unsigned in_flight;
};

void cgm_replay_start(struct cgm_broker *broker);

/* Nothing was answered for too long, and the executor is about to be given up. */
void cgm_replay_on_stuck(struct cgm_broker *broker);

#endif
