/* The rings that the poller reads, user by user: in a round a user's rings together get so much of
 * it, however many they are, and the next round goes on where this one ended. Owned by the poller.
 */
#ifndef CGM_RINGS_H
#define CGM_RINGS_H

#include <stdbool.h>
#include <stdint.h>

struct cgm_endpoint;

/* What a user has of a round, in looks: a ring that is looked at is one, an entry that is taken
 * takes about as long as several. Another user waits for as long as this takes. */
#define CGM_RINGS_LOOKS_PER_ENTRY 4u
/* Where others have rings, too, and where one of them has lately submitted something. */
#define CGM_RINGS_LOOKS 256u
#define CGM_RINGS_LOOKS_SHARED 64u
/* How long that is ago at most. */
#define CGM_RINGS_LATELY_NS 10000000u
/* Entries that are taken from one ring before the user's others get their turn. */
#define CGM_RINGS_ENTRIES_AT_ONCE 64u

struct cgm_ring_user {
    struct cgm_ring_user *next;
    uint32_t uid;
    uint32_t n_rings, capacity; /* at least one */
    uint32_t at;                /* the index of the ring whose turn it is; may be n_rings */
    struct cgm_endpoint **rings;
    uint64_t took_ns; /* when something was taken from them; 0: never */
};

struct cgm_rings {
    struct cgm_ring_user *first;
    uint32_t n_rings, n_users;
    uint32_t n_active; /* users that lately submitted something, as the last round found it */
};

/* OK or NO_MEMORY. */
int cgm_rings_add(struct cgm_rings *rings, struct cgm_endpoint *endpoint);
/* False: it was not there. May be called while they are drained. */
bool cgm_rings_remove(struct cgm_rings *rings, const struct cgm_endpoint *endpoint);

/* One round; true when something was taken. */
bool cgm_rings_drain(struct cgm_rings *rings, uint64_t now_ns);

/* True when a ring has entries that could be taken now: its user's next round begins with it. */
bool cgm_rings_have_work(struct cgm_rings *rings);

/* Tells all clients whether to write their wake fd (1) or not (0). */
void cgm_rings_ask_for_wakeup(struct cgm_rings *rings, uint32_t value);

/* Wakes the clients that are to be told of completions. 0, or when to call this again, because one
 * has to wait. */
uint64_t cgm_rings_notify(struct cgm_rings *rings);

#endif
