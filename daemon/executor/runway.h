/* The runway of a comm: its flights in the order of their start, and how much room they take in the
 * queues of its ranks. A device's thread serves all users and must not wait for room in one queue:
 * a flight that does not fit is held until those before it have landed, for all of its ranks, so
 * that launches are enqueued in one order on all devices. On the poller. */
#ifndef CGM_RUNWAY_H
#define CGM_RUNWAY_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/messages.h"

struct cgm_comm;
struct cgm_flight;
struct cgm_flight_rank;
struct cgm_poller;

struct cgm_runway {
    uint32_t queued[CGM_COMM_SIZE_MAX]; /* operations on a queue of each rank, at most */
    struct cgm_flight_rank *last[CGM_COMM_SIZE_MAX]; /* in them; NULL: none */
    struct cgm_flight *held, **end; /* by next; end is of meaning while there are any */
    struct cgm_comm *next;          /* with held flights, too: from poller->holding */
};

/* Takes off as soon as there is room and launches are not held (quiet.h). */
void cgm_runway_enter(struct cgm_flight *flight, uint64_t now_ns);
/* It is through, or it was so before: others may have its room. */
void cgm_runway_leave(struct cgm_flight *flight);

/* Lets those take off that can; true when one did. */
bool cgm_runway_step(struct cgm_poller *poller, uint64_t now_ns);

#endif
