/* Seats: so many threads compute at a time, and of each user's no more than the machine has
 * processors. A user may have queues by the hundred, each of them a thread that multiplies; without
 * this everybody else's would get what the system gives to one thread of so many.
 *
 * A thread keeps its seat from one operation to the next, as a seat that changes hands costs more
 * than a small operation: until it has to wait for something, or has had it for a turn and somebody
 * waits for a seat. */
#ifndef CGM_CPU_SEATS_H
#define CGM_CPU_SEATS_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* Well below the number of buffers that any build of OpenBLAS has: it ends the process when more
 * threads than that are inside it. */
#define CGM_SEATS 32u
#define CGM_SEATS_LISTS 64u
#define CGM_SEATS_TURN_NS 1000000u

struct cgm_seats_guest;

struct cgm_seats {
    pthread_mutex_t lock;
    unsigned most;  /* of all users */
    unsigned share; /* of one user */
    unsigned n_taken;
    uint32_t taken;               /* a bit of each */
    uint32_t taken_by[CGM_SEATS]; /* whose they are */
    /* Who waits, in the order of coming; a user's are all in one list. */
    struct cgm_seats_guest *first[CGM_SEATS_LISTS], *last[CGM_SEATS_LISTS];
    _Atomic unsigned n_waiting; /* who has a seat looks at it without the lock */
    unsigned next_list;
};

/* A thread's, which alone uses it. At first all but `seats` is 0. */
struct cgm_seat {
    struct cgm_seats *seats;
    uint32_t uid;             /* whose work the thread does */
    const _Atomic int *abort; /* not 0: that work is aborted; NULL: it never is */
    bool taken;
    unsigned number;   /* which seat it is, below CGM_SEATS: what is kept for it is the thread's */
    uint64_t until_ns; /* CLOCK_MONOTONIC: the end of its turn */
};

/* most: 1 to CGM_SEATS; share: 1 to most. */
void cgm_seats_init(struct cgm_seats *seats, unsigned most, unsigned share);
void cgm_seats_fini(struct cgm_seats *seats);
/* A share of as many as there are processors for this process, but not of all, unless there is but
 * one. */
unsigned cgm_seats_share(unsigned most);

/* The thread's next work. A seat for another user's is given back. */
void cgm_seat_serve(struct cgm_seat *seat, uint32_t uid, const _Atomic int *abort);
/* Before each operation, and within a long one now and then: waits for a seat, unless the thread
 * has one that it may keep; it may be another one then. False: the work was aborted meanwhile, and
 * none is taken. */
bool cgm_seat_take(struct cgm_seat *seat);
/* Before the thread waits for anything; it need not have one. */
void cgm_seat_give(struct cgm_seat *seat);

#endif
