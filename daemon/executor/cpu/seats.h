/* Seats: so many threads compute at a time, and of each user's no more than the machine has
 * processors. A user may have queues by the hundred, each of them a thread that multiplies; without
 * this everybody else's would get what the system gives to one thread of so many. Any thread. */
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

struct cgm_seats_guest;

struct cgm_seats {
    pthread_mutex_t lock;
    unsigned share; /* of one user */
    unsigned n_taken;
    uint32_t taken_by[CGM_SEATS]; /* the first n_taken: whose they are, in no order */
    /* Who waits, in the order of coming; a user's are all in one list. */
    struct cgm_seats_guest *first[CGM_SEATS_LISTS], *last[CGM_SEATS_LISTS];
    unsigned n_waiting, next_list;
};

/* What somebody computes for: a user's work, which is aborted when *abort (NULL: never) is not 0.
 */
struct cgm_seat {
    struct cgm_seats *seats;
    uint32_t uid;
    const _Atomic int *abort;
};

/* share: 1 to CGM_SEATS. */
void cgm_seats_init(struct cgm_seats *seats, unsigned share);
void cgm_seats_fini(struct cgm_seats *seats);
/* A share of as many as there are processors for this process, but not of all. */
unsigned cgm_seats_share(void);

/* Waits for one. False: the work was aborted meanwhile, and none is taken. */
bool cgm_seat_take(const struct cgm_seat *seat);
void cgm_seat_give(const struct cgm_seat *seat);

#endif
