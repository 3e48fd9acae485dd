/* A flight: one launch on its way through device threads and queues: a job of all ranks, the
 * poisoning of its outputs, a copy_in, or a plan's warm-up. Started and ended by the poller. */
#ifndef CGM_FLIGHT_H
#define CGM_FLIGHT_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/executor/algorithm.h"
#include "daemon/executor/task.h"
#include "daemon/executor/turns.h"

struct cgm_plan;
struct cgm_comm;
struct cgm_recorded;
struct cgm_flight;
struct cgm_gang;
struct cgm_spare;

enum cgm_flight_kind { CGM_FLIGHT_RUN, CGM_FLIGHT_COPY_IN, CGM_FLIGHT_POISON };

/* Of what was aborted; worked_ns: processor time of the threads that work on it. */
struct cgm_grace {
    uint64_t since_ns, worked_ns; /* when it began, again perhaps */
    uint64_t first_worked_ns;     /* at the abort */
};

struct cgm_flight_rank {
    struct cgm_task task; /* on the device's thread; or */
    struct cgm_turn turn;
    struct cgm_flight *flight;
    uint32_t rank;
    struct cgm_queue_set *leaves; /* the queues of the rank's last launch, when they were others */
    bool leads;          /* first of the flight's on its device: leaves for all of them there */
    int left;            /* how that went */
    uint32_t operations; /* so many it put on one queue, but for the last signal */
    struct cgm_flight_rank *before, *behind; /* in the rank's queues; runway.h */
};

/* A local operation's has room for one rank, however large its comm is: jobs may be in flight by
 * the ten thousand. */
struct cgm_flight {
    struct cgm_flight *next; /* in the comm's free list, or among those that it holds */
    struct cgm_plan *plan;
    struct cgm_gang *gang; /* whose it is; NULL: of no job */
    enum cgm_flight_kind kind;
    uint32_t chunk;                      /* COPY_IN */
    const struct cgm_recorded *recorded; /* [world] of a RUN to be enqueued from it; or NULL */
    uint64_t ahead;                      /* in how many epochs it will be again, with those */
    uint64_t ranks_mask;                 /* who takes part: cgm_flight_set_ranks */
    uint8_t place[CGM_COMM_SIZE_MAX];    /* of those ranks in `ranks` and `views` */
    uint32_t places;                     /* how many there are */
    uint64_t epoch;                      /* done flags reach it when a rank is through */
    bool held;                           /* by the runway */
    uint32_t room;                       /* in the queues of its ranks; 0: none (any more) */
    _Atomic uint32_t n_enqueued;         /* ranks whose part is in the queues */
    uint64_t next_look_ns;
    uint32_t n_waits;    /* ranks with a flight before it in their queues */
    uint64_t first_ns;   /* since when there are none, in the poller's time; 0: there are */
    uint64_t aborted_ns; /* when it had taken too long, in the poller's time; 0: it has not */
    struct cgm_grace grace;
    struct cgm_run run;
    struct cgm_launch launch;
    struct cgm_phase *phases; /* [CGM_PHASES_PER_JOB * n], made when first asked for */
    struct cgm_flight_rank *ranks;
    struct cgm_view (*views)[CGM_OPERAND_COUNT];
};

/* From the comm's pool, for so many ranks at most, or new, and without phases; NULL: out of memory.
 */
struct cgm_flight *cgm_flight_take(struct cgm_comm *comm, uint32_t n_ranks,
                                   struct cgm_spare *memory);
void cgm_flight_give(struct cgm_comm *comm, struct cgm_flight *flight);
void cgm_flight_free_all(struct cgm_comm *comm);

/* No more than there are places for. */
static inline void cgm_flight_set_ranks(struct cgm_flight *flight, uint64_t mask)
{
    uint8_t place = 0;
    flight->ranks_mask = mask;
    for (; mask; mask &= mask - 1)
        flight->place[__builtin_ctzll(mask)] = place++;
}

static inline uint64_t cgm_all_ranks(uint32_t size)
{
    return size == 64 ? UINT64_MAX : (1ull << size) - 1;
}

static inline struct cgm_flight_rank *cgm_flight_part(struct cgm_flight *flight, uint32_t rank)
{
    return &flight->ranks[flight->place[rank]];
}

static inline struct cgm_view *cgm_flight_views(struct cgm_flight *flight, uint32_t rank)
{
    return flight->views[flight->place[rank]];
}

/* Starts it: plan, kind, its ranks and their views are set. The plan stays until the flight is
 * done: a gang references it, and a plan that warms up cannot be removed. It may be held
 * (runway.h). */
void cgm_flight_start(struct cgm_flight *flight, uint64_t now_ns);
/* Of one that is held: it will poison its outputs instead. */
void cgm_flight_divert(struct cgm_flight *flight);
/* Hands the ranks' parts to the threads of their devices; runway.c. */
void cgm_flight_take_off(struct cgm_flight *flight, uint64_t now_ns);

/* True when every rank is through, and those before it in the queues were seen to be. The flight's
 * memory is the poller's again. */
bool cgm_flight_is_done(struct cgm_flight *flight);

/* Looks after a flight that is not done, every LOOK_NS: the backend's health, and the waits of a
 * run that failed. */
void cgm_flight_look(struct cgm_flight *flight, uint64_t now_ns);

/* Aborts what takes longer than job_timeout, from when nothing was before it in the queues of its
 * ranks; time in which the process was stopped does not count. Of what poisons, the poisoning is to
 * be given up (run.give_up). True: that was a while ago, and it did not end. The while begins with
 * the abort, however late that came, and again as long as threads that work on it get too little
 * processor time to come to an end. */
bool cgm_flight_is_stuck(struct cgm_flight *flight, uint64_t now_ns);

/* Makes room for the phases of a run; where memory is short they are only counted. */
void cgm_flight_want_phases(struct cgm_flight *flight);

#endif
