#include "daemon/executor/flight.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/executor/comm.h"
#include "daemon/executor/endpoint.h"
#include "daemon/executor/executor.h"
#include "daemon/executor/gang.h"
#include "daemon/executor/plan.h"
#include "daemon/executor/recorded.h"
#include "daemon/executor/runway.h"
#include "proto/status.h"
#include "proto/step.h"

#define LOOK_NS 1000000ull
/* How long an aborted job may take to end: as long as it was allowed to run, within these. */
#define WATCHDOG_GRACE_MIN_NS 1000000000ull
#define WATCHDOG_GRACE_MAX_NS 10000000000ull

/* ---- the pool ---------------------------------------------------------------------------------
 */

/* Their places are powers of two. */
static uint32_t size_of(uint32_t n_ranks)
{
    uint32_t size = 0;
    while (1u << size < n_ranks)
        size++;
    return size;
}

_Static_assert(1u << (CGM_FLIGHT_SIZES - 1) == CGM_COMM_SIZE_MAX, "for every comm");

static void flight_free(struct cgm_flight *flight)
{
    free(flight->phases);
    free(flight->ranks);
    free(flight->views);
    free(flight);
}

static struct cgm_flight *flight_new(uint32_t places, struct cgm_spare *memory)
{
    struct cgm_flight *flight;
    size_t bytes = sizeof(*flight) + places * (sizeof(flight->ranks[0]) + sizeof(flight->views[0]));
    if (!cgm_spare_take(memory, bytes) || !(flight = calloc(1, sizeof(*flight))))
        return NULL;
    flight->places = places;
    flight->ranks = calloc(places, sizeof(*flight->ranks));
    flight->views = calloc(places, sizeof(*flight->views));
    if (flight->ranks && flight->views)
        return flight;
    flight_free(flight);
    return NULL;
}

struct cgm_flight *cgm_flight_take(struct cgm_comm *comm, uint32_t n_ranks,
                                   struct cgm_spare *memory)
{
    uint32_t size = size_of(n_ranks);
    struct cgm_flight *flight = comm->free_flights[size];
    if (flight) {
        comm->free_flights[size] = flight->next;
        comm->n_free_flights[size]--;
    } else {
        comm->poller->counters.allocations++;
        flight = flight_new(1u << size, memory);
    }
    if (!flight)
        return NULL;
    comm->n_flights++;
    flight->gang = NULL;
    flight->recorded = NULL;
    flight->run.begin_ns = 0;
    flight->run.phases = NULL;
    flight->run.phases_max = 0;
    return flight;
}

void cgm_flight_give(struct cgm_comm *comm, struct cgm_flight *flight)
{
    uint32_t size = size_of(flight->places);
    comm->n_flights--;
    if (comm->n_free_flights[size] == CGM_COMM_KEPT) {
        flight_free(flight);
        return;
    }
    flight->next = comm->free_flights[size];
    comm->free_flights[size] = flight;
    comm->n_free_flights[size]++;
}

void cgm_flight_free_all(struct cgm_comm *comm)
{
    for (uint32_t size = 0; size < CGM_FLIGHT_SIZES; size++)
        while (comm->free_flights[size]) {
            struct cgm_flight *flight = comm->free_flights[size];
            comm->free_flights[size] = flight->next;
            flight_free(flight);
        }
}

/* ---- what it does -----------------------------------------------------------------------------
 */

void cgm_flight_want_phases(struct cgm_flight *flight)
{
    static struct cgm_phase none; /* of which there is room for 0: they are counted */
    struct cgm_poller *poller = flight->plan->comm->poller;
    if (!flight->phases && cgm_spare_take(&poller->phase_memory, CGM_PHASES_BYTES)) {
        poller->counters.allocations++;
        flight->phases = malloc(CGM_PHASES_BYTES);
    }
    flight->run.phases = flight->phases ? flight->phases : &none;
    flight->run.phases_max = flight->phases ? CGM_PHASES_PER_JOB : 0;
}

static int poison_outputs(const struct cgm_launch *launch, uint32_t rank)
{
    const struct cgm_view *views = cgm_launch_views(launch, rank);
    int status = CGM_OK;
    for (int i = 0; i < CGM_OPERAND_COUNT && status == CGM_OK; i++)
        if (CGM_OPERANDS_WRITTEN >> i & 1 && views[i].mem)
            status = launch->ops->poison(launch->ranks[rank].compute, &views[i]);
    return status;
}

static int flight_enqueue(struct cgm_flight *flight, uint32_t rank)
{
    switch (flight->kind) {
    case CGM_FLIGHT_RUN:
        if (flight->recorded)
            return cgm_recorded_replay(&flight->recorded[rank], &flight->launch, rank);
        return cgm_launch_enqueue(flight->plan->algorithm, &flight->launch, rank);
    case CGM_FLIGHT_COPY_IN:
        return cgm_copy_in_enqueue(&flight->launch, rank, flight->chunk);
    case CGM_FLIGHT_POISON:
        return poison_outputs(&flight->launch, rank);
    }
    return CGM_INTERNAL;
}

/* Whatever else is launched keeps to the compute queues. */
static bool uses_both_queues(const struct cgm_flight *flight)
{
    return flight->kind == CGM_FLIGHT_RUN && cgm_op_is_collective(flight->plan->spec.op);
}

/* Parts of one flight are then, too. */
static bool in_any_order(const struct cgm_flight *flight)
{
    return flight->launch.ops->launches_in_any_order;
}

static uint32_t larger(uint32_t a, uint32_t b)
{
    return a > b ? a : b;
}

static void leave_for_all(const struct cgm_flight_rank *first)
{
    struct cgm_flight *flight = first->flight;
    const struct cgm_plan_rank *ranks = flight->plan->ranks;
    uint64_t mask = in_any_order(flight) ? 1ull << first->rank : flight->ranks_mask;
    for (; mask; mask &= mask - 1) {
        uint32_t rank = (uint32_t)__builtin_ctzll(mask);
        struct cgm_flight_rank *part = cgm_flight_part(flight, rank);
        if (part->leaves && ranks[rank].device == ranks[first->rank].device)
            part->left = cgm_queue_set_leave(flight->launch.ops, part->leaves, rank);
    }
}

static int follow(const struct cgm_flight_rank *part)
{
    const struct cgm_flight *flight = part->flight;
    return part->left != CGM_OK ? part->left
                                : cgm_queue_set_follow(flight->launch.ops, part->leaves,
                                                       flight->plan->queues, part->rank);
}

/* On the device's thread. After the last signal, which is counted as enqueued before it is, the
 * flight may be in other hands already. */
static void part_run(struct cgm_flight_rank *part)
{
    struct cgm_flight *flight = part->flight;
    struct cgm_plan *plan = flight->plan;
    const struct cgm_backend_ops *ops = flight->launch.ops;
    uint32_t rank = part->rank;
    uint64_t epoch = flight->epoch;
    struct cgm_poller *poller = plan->comm->poller;
    int expected = CGM_OK, status = CGM_OK;
    uint32_t on_compute = ops->queue_count(plan->ranks[rank].compute);
    uint32_t on_comm = ops->queue_count(plan->ranks[rank].comm);
    cgm_step(CGM_STEP_JOB, CGM_JOB_STEP_ENQUEUE);
    if (part->leads)
        leave_for_all(part);
    if (part->leaves)
        status = follow(part);
    else if (!flight->launch.quiet)
        status = cgm_queue_set_join(ops, plan->queues, rank);
    plan->queues->apart[rank] = uses_both_queues(flight);
    ops->set_run(plan->ranks[rank].compute, &flight->run);
    ops->set_run(plan->ranks[rank].comm, &flight->run);
    if (status == CGM_OK)
        status = flight_enqueue(flight, rank);
    if (status != CGM_OK)
        atomic_compare_exchange_strong(&flight->run.status, &expected, status);
    if (flight->recorded) /* not later: the plan may be gone after the signals */
        cgm_recorded_foresee(&flight->recorded[rank], &flight->launch, rank, flight->ahead);
    part->operations = larger(ops->queue_count(plan->ranks[rank].compute) - on_compute,
                              ops->queue_count(plan->ranks[rank].comm) - on_comm);
    atomic_fetch_add(&flight->n_enqueued, 1);
    /* Both queues: the waits of an aborted run give up, and one queue may be through long before
     * the other. */
    status = CGM_OK;
    if (uses_both_queues(flight))
        status = ops->signal(plan->ranks[rank].comm, plan->sent[rank], epoch);
    if (status == CGM_OK)
        status = ops->signal(plan->ranks[rank].compute, plan->done[rank], epoch);
    atomic_fetch_sub(&poller->enqueuing, 1);
    if (status != CGM_OK) {
        cgm_executor_log(3, "plan %016llx: rank %u cannot signal its end (%s): the executor ends",
                         (unsigned long long)plan->id, rank, cgm_status_text(status));
        abort();
    }
}

/* Whose share of threads it takes: of a job's, who submitted it, and of several ranks' the
 * first one; of what no job asked for, whose plan it is. */
static uint32_t user_of(const struct cgm_flight *flight)
{
    const struct cgm_gang *gang = flight->gang;
    for (uint64_t mask = flight->ranks_mask; gang && mask; mask &= mask - 1) {
        const struct cgm_job *job = gang->jobs[__builtin_ctzll(mask)];
        if (job)
            return job->endpoint->uid;
    }
    return flight->plan->uid;
}

void cgm_flight_start(struct cgm_flight *flight, uint64_t now_ns)
{
    struct cgm_plan *plan = flight->plan;
    struct cgm_executor *executor = plan->comm->poller->executor;
    flight->epoch = ++plan->epoch;
    atomic_store(&flight->n_enqueued, 0);
    flight->aborted_ns = 0;
    if (flight->kind != CGM_FLIGHT_POISON) {
        atomic_store(&flight->run.status, CGM_OK);
        atomic_store(&flight->run.n_phases, 0);
    }
    atomic_store(&flight->run.give_up, CGM_OK);
    atomic_store(&flight->run.given_up, false);
    flight->run.uid = user_of(flight);
    flight->launch.ops = executor->ops;
    flight->launch.spec = &plan->spec;
    flight->launch.ranks = plan->ranks;
    flight->launch.epoch = flight->epoch;
    flight->launch.operands = (const struct cgm_view(*)[CGM_OPERAND_COUNT])flight->views;
    flight->launch.place = flight->place;
    flight->launch.run = &flight->run;
    flight->launch.apart = true;
    cgm_runway_enter(flight, now_ns);
}

void cgm_flight_divert(struct cgm_flight *flight)
{
    flight->kind = CGM_FLIGHT_POISON;
    flight->recorded = NULL;
    flight->run.phases = NULL;
}

static void part_task(struct cgm_task *task)
{
    part_run((struct cgm_flight_rank *)task); /* its first member */
}

static void part_turn(struct cgm_turn *turn)
{
    part_run(
        (struct cgm_flight_rank *)(void *)((char *)turn - offsetof(struct cgm_flight_rank, turn)));
}

static void part_post(struct cgm_executor *executor, struct cgm_flight_rank *part)
{
    const struct cgm_plan *plan = part->flight->plan;
    uint32_t device = plan->ranks[part->rank].device;
    part->task.run = part_task;
    part->turn.done = part_turn;
    /* A comm's are in one line, whoever submitted them: its queues take them in this order. */
    if (executor->ops->launches_in_any_order)
        cgm_turns_add(&executor->launches[device], plan->comm->uid, &part->turn);
    else
        cgm_worker_post(&executor->devices[device], &part->task);
}

/* Not when the round began: its jobs may have come since. */
static void note_launch(struct cgm_flight *flight)
{
    flight->run.begin_ns = cgm_now_ns();
    if (!flight->gang)
        return;
    flight->gang->launch_ns = flight->run.begin_ns;
    if (flight->recorded)
        flight->plan->comm->poller->counters.replays++;
}

/* All of them before the first is posted: it may lead others. */
static void parts_init(struct cgm_flight *flight)
{
    struct cgm_plan *plan = flight->plan;
    uint64_t devices = 0; /* that have one */
    for (uint64_t mask = flight->ranks_mask; mask; mask &= mask - 1) {
        uint32_t rank = (uint32_t)__builtin_ctzll(mask);
        uint64_t device = 1ull << plan->ranks[rank].device;
        struct cgm_queue_set *before = plan->comm->current[rank];
        plan->comm->current[rank] = plan->queues;
        *cgm_flight_part(flight, rank) = (struct cgm_flight_rank){
            .flight = flight,
            .rank = rank,
            .leaves = before == plan->queues ? NULL : before,
            .leads = in_any_order(flight) || !(devices & device),
        };
        devices |= device;
    }
}

void cgm_flight_take_off(struct cgm_flight *flight, uint64_t now_ns)
{
    struct cgm_plan *plan = flight->plan;
    struct cgm_executor *executor = plan->comm->poller->executor;
    flight->next_look_ns = now_ns + LOOK_NS;
    if (flight->kind != CGM_FLIGHT_POISON)
        note_launch(flight);
    else if (!flight->run.begin_ns) /* no run was before it */
        flight->run.begin_ns = now_ns;
    atomic_fetch_add(&plan->comm->poller->enqueuing,
                     (uint32_t)__builtin_popcountll(flight->ranks_mask));
    parts_init(flight);
    for (uint64_t mask = flight->ranks_mask; mask; mask &= mask - 1)
        part_post(executor, cgm_flight_part(flight, (uint32_t)__builtin_ctzll(mask)));
}

bool cgm_flight_is_done(struct cgm_flight *flight)
{
    const struct cgm_plan *plan = flight->plan;
    bool both = uses_both_queues(flight);
    if (flight->held || flight->n_waits > 0)
        return false;
    for (uint64_t mask = flight->ranks_mask; mask; mask &= mask - 1) {
        int rank = __builtin_ctzll(mask);
        if (flight->launch.ops->flag_read(plan->done[rank]) < flight->epoch ||
            (both && flight->launch.ops->flag_read(plan->sent[rank]) < flight->epoch))
            return false;
    }
    cgm_runway_leave(flight);
    return true;
}

void cgm_flight_look(struct cgm_flight *flight, uint64_t now_ns)
{
    const struct cgm_backend_ops *ops = flight->launch.ops;
    struct cgm_poller *poller = flight->plan->comm->poller;
    struct cgm_backend *backend = poller->executor->backend;
    if (flight->held || now_ns < flight->next_look_ns)
        return;
    flight->next_look_ns = now_ns + LOOK_NS;
    if (ops->release_waits && atomic_load(&flight->run.status) != CGM_OK &&
        atomic_load(&flight->n_enqueued) == (uint32_t)__builtin_popcountll(flight->ranks_mask))
        poller->aborting |= ops->release_waits(backend, &flight->run);
}

static uint64_t watchdog_grace_ns(uint64_t limit_ns)
{
    if (limit_ns < WATCHDOG_GRACE_MIN_NS)
        return WATCHDOG_GRACE_MIN_NS;
    return limit_ns < WATCHDOG_GRACE_MAX_NS ? limit_ns : WATCHDOG_GRACE_MAX_NS;
}

static uint64_t worked_ns(const struct cgm_flight *flight)
{
    const struct cgm_backend_ops *ops = flight->launch.ops;
    uint64_t sum_ns = 0;
    for (uint64_t mask = flight->ranks_mask; ops->queue_worked_ns && mask; mask &= mask - 1) {
        const struct cgm_plan_rank *rank = &flight->plan->ranks[__builtin_ctzll(mask)];
        sum_ns += ops->queue_worked_ns(rank->compute) + ops->queue_worked_ns(rank->comm);
    }
    return sum_ns;
}

/* Threads that others leave little processor time are late, and not stuck: they are waited for
 * until they have had the time that was meant. */
static bool grace_is_over(struct cgm_flight *flight, uint64_t time_ns, uint64_t length_ns)
{
    struct cgm_grace *grace = &flight->grace;
    if (time_ns < grace->since_ns + length_ns)
        return false;
    uint64_t now_ns = worked_ns(flight);
    if (now_ns == grace->worked_ns || now_ns - grace->first_worked_ns >= length_ns)
        return true;
    grace->since_ns = time_ns;
    grace->worked_ns = now_ns;
    return false;
}

static void flight_abort(struct cgm_flight *flight, uint64_t time_ns)
{
    int running = CGM_OK;
    atomic_compare_exchange_strong(flight->kind == CGM_FLIGHT_POISON ? &flight->run.give_up
                                                                     : &flight->run.status,
                                   &running, CGM_WATCHDOG);
    flight->aborted_ns = flight->grace.since_ns = time_ns;
    flight->grace.worked_ns = flight->grace.first_worked_ns = worked_ns(flight);
}

bool cgm_flight_is_stuck(struct cgm_flight *flight, uint64_t now_ns)
{
    const struct cgm_poller *poller = flight->plan->comm->poller;
    uint64_t limit_ns = poller->executor->limits.job_timeout_ns;
    uint64_t time_ns = cgm_poller_time_ns(poller, now_ns);
    if (limit_ns == 0 || flight->held || flight->first_ns == 0)
        return false;
    if (flight->aborted_ns == 0 && time_ns >= flight->first_ns + limit_ns)
        flight_abort(flight, time_ns);
    return flight->aborted_ns != 0 && grace_is_over(flight, time_ns, watchdog_grace_ns(limit_ns));
}
