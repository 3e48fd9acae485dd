#include "daemon/executor/runway.h"

#include "daemon/executor/flight.h"
#include "daemon/executor/gang_list.h"
#include "daemon/executor/plan.h"
#include "daemon/executor/poller.h"
#include "daemon/executor/quiet.h"

/* What a change of queues takes, and the last signal. */
#define EXTRA_OPERATIONS 8u
/* For each rank: a wait where others were before, a product of its chunk alone, and a copy of it
 * with a signal in place of a part of one collective. */
#define OPERATIONS_PER_RANK 3u

/* What a run takes is known from one with as many rows, but for what depends on its operands. Until
 * there was one, each has the queues for itself. */
static uint32_t room_of_run(const struct cgm_plan *plan, uint64_t rows)
{
    return plan->room.operations > 0 && rows <= plan->room.rows
               ? plan->room.operations + OPERATIONS_PER_RANK * plan->spec.world + EXTRA_OPERATIONS
               : CGM_QUEUE_ROOM;
}

static uint32_t room_of(const struct cgm_flight *flight)
{
    const struct cgm_plan *plan = flight->plan;
    switch (flight->kind) {
    case CGM_FLIGHT_RUN:
        return room_of_run(plan, flight->launch.rows);
    case CGM_FLIGHT_COPY_IN:
        return cgm_copy_in_copies(&plan->spec, flight->chunk) + EXTRA_OPERATIONS;
    case CGM_FLIGHT_POISON:
        return CGM_OPERAND_COUNT + EXTRA_OPERATIONS;
    }
    return CGM_QUEUE_ROOM;
}

static void note_room(struct cgm_flight *flight)
{
    struct cgm_queue_room *known = &flight->plan->room;
    if (flight->kind != CGM_FLIGHT_RUN)
        return;
    for (uint64_t mask = flight->ranks_mask; mask; mask &= mask - 1) {
        uint32_t operations = cgm_flight_part(flight, (uint32_t)__builtin_ctzll(mask))->operations;
        if (operations > known->operations)
            known->operations = operations;
    }
    if (flight->launch.rows > known->rows)
        known->rows = flight->launch.rows;
}

static bool fits(const struct cgm_runway *runway, uint64_t ranks_mask, uint32_t room)
{
    for (uint64_t mask = ranks_mask; mask; mask &= mask - 1) {
        uint32_t queued = runway->queued[__builtin_ctzll(mask)];
        if (queued > 0 && queued + room > CGM_QUEUE_ROOM)
            return false;
    }
    return true;
}

/* In the poller's time, which is not 0. */
static void come_first(struct cgm_flight *flight, uint64_t now_ns)
{
    flight->first_ns = cgm_poller_time_ns(flight->plan->comm->poller, now_ns);
}

/* A rank's queues run one flight after the other. */
static void line_up(struct cgm_runway *runway, struct cgm_flight *flight, uint64_t now_ns)
{
    flight->n_waits = 0;
    flight->first_ns = 0;
    for (uint64_t mask = flight->ranks_mask; mask; mask &= mask - 1) {
        uint32_t rank = (uint32_t)__builtin_ctzll(mask);
        struct cgm_flight_rank *part = cgm_flight_part(flight, rank), *last = runway->last[rank];
        part->before = last;
        part->behind = NULL;
        runway->last[rank] = part;
        if (!last)
            continue;
        last->behind = part;
        flight->n_waits++;
    }
    if (flight->n_waits == 0)
        come_first(flight, now_ns);
}

static void step_out(struct cgm_runway *runway, struct cgm_flight_rank *part)
{
    struct cgm_flight_rank *before = part->before, *behind = part->behind;
    if (before)
        before->behind = behind;
    if (behind)
        behind->before = before;
    else
        runway->last[part->rank] = before;
    if (behind && !before && --behind->flight->n_waits == 0)
        come_first(behind->flight, part->flight->plan->comm->poller->round_ns);
}

/* The process ends: what is not in the queues yet stays away from them. */
static bool comes_too_late(const struct cgm_flight *flight)
{
    return flight->plan->comm->poller->ends && flight->gang && flight->kind != CGM_FLIGHT_POISON;
}

static bool take_off(struct cgm_flight *flight, uint64_t now_ns)
{
    struct cgm_comm *comm = flight->plan->comm;
    uint32_t room = room_of(flight);
    if (comes_too_late(flight) || cgm_quiet_holds(comm->poller) ||
        !fits(&comm->runway, flight->ranks_mask, room))
        return false;
    flight->held = false;
    flight->room = room;
    for (uint64_t mask = flight->ranks_mask; mask; mask &= mask - 1)
        comm->runway.queued[__builtin_ctzll(mask)] += room;
    if (flight->gang)
        cgm_gang_list_move(flight->gang, true);
    cgm_flight_take_off(flight, now_ns);
    line_up(&comm->runway, flight, now_ns);
    return true;
}

void cgm_runway_enter(struct cgm_flight *flight, uint64_t now_ns)
{
    struct cgm_comm *comm = flight->plan->comm;
    struct cgm_runway *runway = &comm->runway;
    flight->room = 0;
    flight->held = false;
    if (!runway->held && take_off(flight, now_ns))
        return;
    if (!runway->held) {
        runway->end = &runway->held;
        runway->next = comm->poller->holding;
        comm->poller->holding = comm;
    }
    flight->held = true;
    flight->next = NULL;
    *runway->end = flight;
    runway->end = &flight->next;
}

void cgm_runway_leave(struct cgm_flight *flight)
{
    struct cgm_runway *runway = &flight->plan->comm->runway;
    if (flight->room == 0)
        return;
    for (uint64_t mask = flight->ranks_mask; mask; mask &= mask - 1) {
        uint32_t rank = (uint32_t)__builtin_ctzll(mask);
        runway->queued[rank] -= flight->room;
        step_out(runway, cgm_flight_part(flight, rank));
    }
    flight->room = 0;
    note_room(flight);
}

static bool step(struct cgm_runway *runway, uint64_t now_ns)
{
    struct cgm_flight *first = runway->held;
    while (runway->held) {
        struct cgm_flight *flight = runway->held, *next = flight->next;
        if (!take_off(flight, now_ns))
            break;
        runway->held = next;
    }
    return runway->held != first;
}

bool cgm_runway_step(struct cgm_poller *poller, uint64_t now_ns)
{
    bool busy = false;
    struct cgm_comm **link = &poller->holding;
    while (*link) {
        struct cgm_runway *runway = &(*link)->runway;
        busy |= step(runway, now_ns);
        if (runway->held)
            link = &runway->next;
        else
            *link = runway->next;
    }
    return busy;
}
