/* One executor life's ring as the client sees it: the mapping, its fds, and this side's record of
 * every slot. Without a ring (no_ring) only the records. Nothing here locks: every call is made
 * under the lock of the jobs (client/lib/jobs.h) unless it says otherwise.
 *
 * A slot goes FREE -> FLIGHT (submitted) -> ENDED (its completion is in the record) -> FREE (taken
 * by the user). A job on a stream may end, by cancel or deadline, before its stream comes to write
 * the ready word: given back, its slot is LATE, and FREE once the word has arrived, so that it can
 * never land on a later job's larger ticket. The shared memory is never trusted: what is read from
 * it is copied once, and only a record in FLIGHT with the same ticket is changed by it. */
#ifndef CGM_CLIENT_LANE_H
#define CGM_CLIENT_LANE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <sys/queue.h>

#include "proto/ring.h"

struct cgm_plan;

enum cgm_slot_state { CGM_SLOT_FREE = 0, CGM_SLOT_FLIGHT, CGM_SLOT_ENDED, CGM_SLOT_LATE };
struct cgm_cuda_timeline;

struct cgm_slot {
    _Atomic int state; /* written under the lock; a spinning waiter peeks at it without */
    uint32_t index;
    uint64_t ticket;       /* counts the session's submissions */
    uint64_t entry_ticket; /* counts those to this executor: what entries, cqes and slots carry */
    uint64_t comm_number;  /* 0: a job of one rank alone */
    uint32_t rank;         /* whose number it is */
    struct cgm_lane *lane;
    struct cgm_plan *plan; /* a reference; NULL for a noop */
    uint32_t waiters;      /* threads inside a call for this ticket */
    uint64_t end;          /* once ENDED: its place among all ends of the session */
    bool submitting;       /* its submission has not returned: nobody has the ticket yet */
    bool on_stream;        /* a stream writes its ready word */
    bool detached;         /* nobody takes the completion */
    struct cgm_slot *next_same_bucket;
    TAILQ_ENTRY(cgm_slot) ended;
    struct cgm_cqe cqe;       /* once ENDED; a copy, checked */
    struct cgm_phase *phases; /* no_ring only: owned */
};
TAILQ_HEAD(cgm_slot_list, cgm_slot);

struct cgm_lane {
    struct cgm_ring ring;      /* header NULL: no_ring */
    uint64_t life;             /* of the executor that serves it */
    int wake_fd, notify_fd;    /* -1: no_ring */
    uint64_t ticket_base;      /* the session's last ticket before this executor: the difference */
    bool is_fresh;             /* no job was submitted to this executor yet: set the base first */
    bool buried;               /* its executor is gone and every slot is ENDED or FREE */
    bool hung_up;              /* notify_fd has reached its end */
    uint32_t sq_tail, cq_head; /* what this side has published */
    uint32_t vain_tail;   /* sq_tail when somebody had waited in vain until it was read; or 0 */
    uint32_t outstanding; /* slots in FLIGHT or ENDED */
    uint32_t waiters;     /* who may look at the ring without the lock: threads, and streams */
    uint32_t entries, n_free, n_late;
    uint32_t *free; /* a stack, so that the warmest slot is taken first */
    uint32_t *late;
    struct cgm_cuda_timeline *timeline; /* NULL: no stream was used with it yet */
    struct cgm_slot *slots;
    struct cgm_lane *next_old;
};

static inline bool cgm_slot_has_ended(const struct cgm_slot *slot)
{
    return atomic_load_explicit(&slot->state, memory_order_relaxed) == CGM_SLOT_ENDED;
}

static inline bool cgm_slot_is_in_flight(const struct cgm_slot *slot)
{
    return atomic_load_explicit(&slot->state, memory_order_relaxed) == CGM_SLOT_FLIGHT;
}

/* fds: ring, wake, notify; taken over on success, and the ring fd is closed then. NULL: no_ring. */
int cgm_lane_new(uint32_t entries, uint64_t life, const int fds[3], struct cgm_lane **ret_lane);
void cgm_lane_free(struct cgm_lane *lane);

/* True when a slot is free; looks again at those that were late. */
bool cgm_lane_has_room(struct cgm_lane *lane);

/* A free slot in FLIGHT, without a ticket yet; NULL when all are in use. Never allocates. */
struct cgm_slot *cgm_lane_take(struct cgm_lane *lane);
void cgm_lane_give(struct cgm_slot *slot);

/* Publishes entry[slot->index], which the caller has filled, and wakes the poller if it sleeps. */
void cgm_lane_push(struct cgm_lane *lane, const struct cgm_slot *slot);

/* The status with which the ring was declared dead, or 0. Any thread. */
int cgm_lane_dead(const struct cgm_lane *lane);

/* True when cq holds a record that was not read yet. Any thread. */
bool cgm_lane_has_news(const struct cgm_lane *lane);

/* Copies the next record of cq and frees its place. The slot that it ended (state still FLIGHT, cqe
 * filled), or NULL when there is none; a record that fits no slot in flight is skipped, and
 * impossible indices declare the ring dead, with BAD_MESSAGE. */
struct cgm_slot *cgm_lane_next(struct cgm_lane *lane);

/* Asks for a byte on notify_fd with the next record. False when there is one already, or the ring
 * is dead: then do not sleep. */
bool cgm_lane_arm(struct cgm_lane *lane);
void cgm_lane_disarm(struct cgm_lane *lane);

/* Reads the bytes of notify_fd away. */
void cgm_lane_drain_notify(struct cgm_lane *lane);

/* Keeps a copy of a record that is for this slot, as far as it can be one. */
void cgm_slot_store_cqe(struct cgm_slot *slot, const struct cgm_cqe *cqe);

/* no_ring: keeps a copy of the phases that came with slot->cqe. What does not fit, or cannot be
 * allocated, counts as lost. */
void cgm_slot_store_phases(struct cgm_slot *slot, const void *bytes, size_t size);

/* Fills the cqe of a slot in flight that no executor will end any more: with its done word if that
 * was set in time, else with `status`, of which `detail` is the reason, and which the done word
 * gets too. */
void cgm_slot_abandon(struct cgm_slot *slot, int status, const char *detail);

#endif
