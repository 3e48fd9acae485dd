#include "daemon/executor/cpu/seats.h"

#include <sched.h>
#include <string.h>
#include <time.h>

#include "daemon/executor/cpu/matrix.h"
#include "daemon/executor/cpu/park.h"

/* Nobody wakes who waits for a seat when the work is aborted: it looks this often. */
#define ABORT_LOOK_NS 100000000
#define NS_PER_S 1000000000

/* On the stack of who waits. */
struct cgm_seats_guest {
    struct cgm_seats_guest *next;
    uint32_t uid;
    bool seated;
    unsigned number; /* of the seat */
    pthread_cond_t wake;
};

/* Some are left for others, however many processors there are. */
static unsigned share_max(unsigned most)
{
    return most > 1 ? most * 3 / 4 : 1;
}

unsigned cgm_seats_share(unsigned most)
{
    cpu_set_t processors;
    unsigned max = share_max(most), count = max;
    if (sched_getaffinity(0, sizeof(processors), &processors) == 0)
        count = (unsigned)CPU_COUNT(&processors);
    return count < max ? count : max;
}

void cgm_seats_init(struct cgm_seats *seats, unsigned most, unsigned share)
{
    memset(seats, 0, sizeof(*seats));
    pthread_mutex_init(&seats->lock, NULL);
    seats->most = most;
    seats->share = share;
}

void cgm_seats_fini(struct cgm_seats *seats)
{
    pthread_mutex_destroy(&seats->lock);
}

/* ---- under the lock ---------------------------------------------------------------------------
 */

static unsigned list_of(uint32_t uid)
{
    return uid % CGM_SEATS_LISTS;
}

static bool may_sit(const struct cgm_seats *seats, uint32_t uid)
{
    unsigned count = 0;
    for (uint32_t mask = seats->taken; mask; mask &= mask - 1)
        count += seats->taken_by[__builtin_ctz(mask)] == uid;
    return seats->n_taken < seats->most && count < seats->share;
}

/* The lowest one, so that hardly more are ever used than at a time. */
static void sit(struct cgm_seats *seats, struct cgm_seats_guest *guest)
{
    guest->number = (unsigned)__builtin_ctz(~seats->taken);
    guest->seated = true;
    seats->taken |= 1u << guest->number;
    seats->taken_by[guest->number] = guest->uid;
    seats->n_taken++;
}

static void stand_up(struct cgm_seats *seats, unsigned number)
{
    seats->taken &= ~(1u << number);
    seats->n_taken--;
}

_Static_assert(CGM_SEATS == 32, "bits of one word");

static void queue_up(struct cgm_seats *seats, struct cgm_seats_guest *guest)
{
    unsigned list = list_of(guest->uid);
    if (seats->first[list])
        seats->last[list]->next = guest;
    else
        seats->first[list] = guest;
    seats->last[list] = guest;
    atomic_fetch_add(&seats->n_waiting, 1);
}

static void leave(struct cgm_seats *seats, const struct cgm_seats_guest *guest)
{
    unsigned list = list_of(guest->uid);
    struct cgm_seats_guest *before = NULL, *at = seats->first[list];
    for (; at != guest; at = at->next)
        before = at;
    if (before)
        before->next = guest->next;
    else
        seats->first[list] = guest->next;
    if (seats->last[list] == guest)
        seats->last[list] = before;
    atomic_fetch_sub(&seats->n_waiting, 1);
}

/* The first one of the list that may. */
static bool seat_one(struct cgm_seats *seats, unsigned list)
{
    struct cgm_seats_guest *guest = seats->first[list];
    while (guest && !may_sit(seats, guest->uid))
        guest = guest->next;
    if (!guest)
        return false;
    leave(seats, guest);
    sit(seats, guest);
    pthread_cond_signal(&guest->wake);
    return true;
}

/* Users in turn, and the one who has just got up last. */
static void seat_next(struct cgm_seats *seats, uint32_t uid)
{
    if (atomic_load(&seats->n_waiting) == 0)
        return;
    for (unsigned i = 0; seats->n_taken == seats->most - 1 && i < CGM_SEATS_LISTS; i++) {
        unsigned list = seats->next_list++ % CGM_SEATS_LISTS;
        if (list != list_of(uid) && seat_one(seats, list))
            return;
    }
    seat_one(seats, list_of(uid));
}

static bool await_seat(struct cgm_seats *seats, struct cgm_seats_guest *guest,
                       const _Atomic int *abort)
{
    struct timespec until;
    while (!guest->seated && !cgm_is_aborted(abort)) {
        clock_gettime(CLOCK_MONOTONIC, &until);
        until.tv_nsec += ABORT_LOOK_NS;
        until.tv_sec += until.tv_nsec / NS_PER_S;
        until.tv_nsec %= NS_PER_S;
        pthread_cond_clockwait(&guest->wake, &seats->lock, CLOCK_MONOTONIC, &until);
    }
    if (!guest->seated)
        leave(seats, guest);
    return guest->seated;
}

/* ---- from outside -----------------------------------------------------------------------------
 */

static bool take(struct cgm_seats *seats, uint32_t uid, const _Atomic int *abort,
                 unsigned *ret_number)
{
    struct cgm_seats_guest guest = {.uid = uid, .wake = PTHREAD_COND_INITIALIZER};
    pthread_mutex_lock(&seats->lock);
    if (may_sit(seats, uid)) {
        sit(seats, &guest);
    } else {
        queue_up(seats, &guest);
        await_seat(seats, &guest, abort);
    }
    *ret_number = guest.number;
    pthread_mutex_unlock(&seats->lock);
    pthread_cond_destroy(&guest.wake);
    return guest.seated;
}

/* Whoever waits may be one whom this seat does not help; that is seen when it is given back, and
 * then it is taken again for another turn. */
static bool may_keep(const struct cgm_seat *seat)
{
    return atomic_load_explicit(&seat->seats->n_waiting, memory_order_relaxed) == 0 ||
           cgm_cpu_now_ns() < seat->until_ns;
}

void cgm_seat_serve(struct cgm_seat *seat, uint32_t uid, const _Atomic int *abort)
{
    if (seat->uid != uid)
        cgm_seat_give(seat);
    seat->uid = uid;
    seat->abort = abort;
}

bool cgm_seat_take(struct cgm_seat *seat)
{
    if (seat->taken && may_keep(seat))
        return true;
    cgm_seat_give(seat);
    seat->taken = take(seat->seats, seat->uid, seat->abort, &seat->number);
    seat->until_ns = cgm_cpu_now_ns() + CGM_SEATS_TURN_NS;
    return seat->taken;
}

void cgm_seat_give(struct cgm_seat *seat)
{
    struct cgm_seats *seats = seat->seats;
    if (!seat->taken)
        return;
    seat->taken = false;
    pthread_mutex_lock(&seats->lock);
    stand_up(seats, seat->number);
    seat_next(seats, seat->uid);
    pthread_mutex_unlock(&seats->lock);
}
