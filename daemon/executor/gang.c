#include "daemon/executor/gang.h"

#include <stdio.h>
#include <string.h>

#include "daemon/executor/contents.h"
#include "daemon/executor/endpoint.h"
#include "daemon/executor/entry.h"
#include "daemon/executor/plan.h"
#include "daemon/executor/poison.h"
#include "daemon/executor/preparation.h"
#include "daemon/executor/recordings.h"
#include "daemon/executor/quiet.h"
#include "daemon/executor/window.h"
#include "daemon/executor/warmth.h"
#include "proto/messages.h"
#include "proto/ranks.h"
#include "proto/status.h"
#include "proto/step.h"

typedef unsigned long long ull;

/* In a round of the poller's: failing one takes it some microseconds. */
#define FAILED_AT_ONCE 4u
#define SEEN_AT_ONCE 128u

const char *cgm_gang_state_name(enum cgm_gang_state state)
{
    static const char *const names[] = {
        [CGM_GANG_COLLECTING] = "collecting", [CGM_GANG_COLLECTED] = "waiting",
        [CGM_GANG_RUNNING] = "running",       [CGM_GANG_FAILING] = "failing",
        [CGM_GANG_ENDED] = "ended",
    };
    return names[state];
}

/* ---- what is awaited ------------------------------------------------------------------------ */

/* The first rank whose stream has not come; comm size when all have. */
static uint32_t first_not_ready(const struct cgm_gang *gang)
{
    uint32_t rank = 0;
    while (rank < gang->comm->size && (!gang->jobs[rank] || cgm_job_is_ready(gang->jobs[rank])))
        rank++;
    return rank;
}

static bool is_next(const struct cgm_gang *gang)
{
    return gang->number == 0 || gang->comm->launched + 1 == gang->number;
}

bool cgm_gang_may_launch(const struct cgm_gang *gang)
{
    return gang->state == CGM_GANG_COLLECTED && is_next(gang) &&
           first_not_ready(gang) == gang->comm->size;
}

/* ---- ending --------------------------------------------------------------------------------- */

#define NAME_BYTES 80

/* For texts: its number, or what it is where it has none. */
static const char *name_of(const struct cgm_gang *gang, char ret_name[NAME_BYTES])
{
    uint32_t rank = cgm_gang_first_rank(gang);
    if (gang->number != 0)
        snprintf(ret_name, NAME_BYTES, "job %llu of comm %llu", (ull)gang->number,
                 (ull)gang->comm->id);
    else
        snprintf(ret_name, NAME_BYTES, "the %s of rank %u of comm %llu",
                 cgm_job_name(gang->jobs[rank]), rank, (ull)gang->comm->id);
    return ret_name;
}

static uint64_t span(uint64_t from_ns, uint64_t to_ns)
{
    return from_ns && to_ns > from_ns ? to_ns - from_ns : 0;
}

static void job_end(struct cgm_gang *gang, uint32_t rank, uint64_t now_ns)
{
    struct cgm_job *job = gang->jobs[rank];
    struct cgm_flight *flight = gang->flight;
    struct cgm_outcome outcome = {.status = gang->status, .detail = gang->detail};
    gang->jobs[rank] = NULL;
    outcome.algorithm = (uint16_t)(gang->launch ? gang->plan : job->plan)->algorithm->number;
    outcome.queued_ns = span(job->submit_ns, gang->collected_ns ? gang->collected_ns : now_ns);
    outcome.waiting_ns = span(gang->collected_ns, gang->launch_ns ? gang->launch_ns : now_ns);
    outcome.running_ns = span(gang->launch_ns, now_ns);
    outcome.begin_ns = gang->launch_ns;
    if (flight && gang->launch_ns && job->flags & CGM_ENTRY_WANT_PHASES) {
        outcome.phases = flight->phases;
        outcome.n_phases = atomic_load(&flight->run.n_phases);
        outcome.phases_stored =
            outcome.n_phases < flight->run.phases_max ? outcome.n_phases : flight->run.phases_max;
    }
    cgm_job_complete(job, &outcome);
}

static void each_job(struct cgm_gang *gang, void (*visit)(struct cgm_job *job))
{
    for (uint32_t rank = 0; rank < gang->comm->size; rank++)
        if (gang->jobs[rank])
            visit(gang->jobs[rank]);
}

/* What ended well ends so for all ranks, also when this process ends between two of them: a rank
 * that did it again would wait for the others in vain. */
static void gang_end_jobs(struct cgm_gang *gang, uint64_t now_ns)
{
    struct cgm_journal *journal = gang->comm->poller->executor->journal;
    bool well = gang->number != 0 && gang->launch != 0 && gang->status == CGM_OK;
    cgm_step(CGM_STEP_JOB, CGM_JOB_STEP_END);
    if (gang->number != 0 && !well)
        cgm_window_note_end(gang->comm, gang->number, gang->status);
    if (well) {
        atomic_store_explicit(&journal->ending_comm, gang->comm->id, memory_order_relaxed);
        atomic_store_explicit(&journal->ending_number, gang->number, memory_order_release);
        each_job(gang, cgm_job_end_writes);
    }
    for (uint32_t rank = 0; rank < gang->comm->size; rank++)
        if (gang->jobs[rank])
            job_end(gang, rank, now_ns);
    if (well) {
        cgm_window_note_end(gang->comm, gang->number, CGM_OK);
        atomic_store_explicit(&journal->ending_number, 0, memory_order_release);
    }
}

static void gang_end(struct cgm_gang *gang, uint64_t now_ns)
{
    struct cgm_comm *comm = gang->comm;
    gang_end_jobs(gang, now_ns);
    if (gang->flight)
        cgm_flight_give(comm, gang->flight);
    if (gang->plan)
        cgm_plan_unref(gang->plan);
    gang->flight = NULL;
    gang->plan = NULL;
    gang->state = CGM_GANG_ENDED;
    cgm_gang_list_leave(gang);
    if (gang->number) {
        if (gang->n_came < gang->n_expected)
            cgm_window_keep_burnt(gang);
        cgm_window_advance(comm);
    } else {
        cgm_gang_give(gang);
    }
    cgm_comm_unref(comm);
}

/* ---- flights -------------------------------------------------------------------------------- */

static void each_written(struct cgm_gang *gang, void (*visit)(struct cgm_executor *executor,
                                                              struct cgm_job *job, int operand))
{
    struct cgm_executor *executor = gang->comm->poller->executor;
    for (uint32_t rank = 0; rank < gang->comm->size; rank++)
        for (int i = 0; gang->jobs[rank] && i < CGM_OPERAND_COUNT; i++)
            if (CGM_OPERANDS_WRITTEN >> i & 1 && gang->jobs[rank]->memory[i])
                visit(executor, gang->jobs[rank], i);
}

/* A complete, dense rewrite gives a tainted object sound contents again. */
static void restore(struct cgm_executor *executor, struct cgm_job *job, int operand)
{
    const struct cgm_view *view = &job->view[operand];
    struct cgm_memory *memory = job->memory[operand];
    uint64_t bytes = view->rows * view->cols * cgm_dtype_bytes(view->dtype);
    if (memory->tainted && view->offset_bytes == 0 && view->stride == view->cols &&
        bytes >= memory->bytes)
        cgm_memory_restored(executor, memory);
}

static uint64_t ranks_of(const struct cgm_gang *gang)
{
    uint64_t mask = 0;
    for (uint32_t rank = 0; rank < gang->comm->size; rank++)
        mask |= (uint64_t)(gang->jobs[rank] != NULL) << rank;
    return mask;
}

static struct cgm_flight *flight_for(const struct cgm_gang *gang, struct cgm_spare *memory)
{
    return cgm_flight_take(gang->comm, (uint32_t)__builtin_popcountll(ranks_of(gang)), memory);
}

/* Behind what is there, or behind as much of it as leaves room. */
static void say_behind(struct cgm_gang *gang, const char *words)
{
    size_t used = strlen(gang->detail), most = sizeof(gang->detail) - strlen(words) - 1;
    cgm_detail(gang->detail + (used < most ? used : most), strlen(words) + 1, 0, "%s", words);
}

static void gang_fly(struct cgm_gang *gang, enum cgm_flight_kind kind,
                     const struct cgm_recorded *recorded, uint64_t now_ns)
{
    struct cgm_flight *flight = gang->flight;
    flight->plan = gang->plan;
    flight->gang = gang;
    flight->kind = kind;
    flight->recorded = recorded;
    flight->ahead = 1;
    cgm_flight_set_ranks(flight, ranks_of(gang));
    flight->launch.rows = gang->rows;
    flight->launch.quiet = gang->comm->n_flights == 1;
    flight->launch.accumulate = gang->plan->spec.epilogue & CGM_EPILOGUE_ACCUMULATE;
    for (uint32_t rank = 0; rank < gang->comm->size; rank++) {
        struct cgm_job *job = gang->jobs[rank];
        if (!job)
            continue;
        flight->chunk = job->chunk;
        memcpy(cgm_flight_views(flight, rank), job->view, sizeof(job->view));
        if (job->flags & CGM_ENTRY_WANT_PHASES && kind != CGM_FLIGHT_POISON)
            cgm_flight_want_phases(flight);
    }
    if (kind == CGM_FLIGHT_POISON && !cgm_poison_spare(gang))
        say_behind(gang, "; outputs are not all NaN (too many jobs)");
    cgm_flight_start(flight, now_ns);
    cgm_gang_list_move(gang, !flight->held);
    if (flight->held) /* until it takes off the recording may be given up for another one */
        flight->recorded = NULL;
}

static void gang_start(struct cgm_gang *gang)
{
    gang->state = CGM_GANG_RUNNING;
    gang->launch = ++gang->comm->poller->last_launch;
    each_job(gang, cgm_uses_begin);
    cgm_journal_count(&gang->comm->poller->executor->journal->jobs_launched, gang->n_expected);
}

/* It may have become so since the job's entry was taken. */
static int check_tainted(const struct cgm_gang *gang, char *ret_detail, size_t bytes)
{
    for (uint32_t rank = 0; rank < gang->comm->size; rank++)
        for (int i = 0; gang->jobs[rank] && i < CGM_OPERAND_COUNT; i++) {
            const struct cgm_memory *memory = gang->jobs[rank]->memory[i];
            if (memory && memory->tainted && cgm_job_reads(gang->jobs[rank], i))
                return cgm_detail(ret_detail, bytes, CGM_TAINTED,
                                  "rank %u: %s: object %llu is tainted", rank, cgm_operand_name(i),
                                  (ull)memory->id);
        }
    return CGM_OK;
}

static void gang_launch(struct cgm_gang *gang, const struct cgm_recorded *recorded, uint64_t now_ns)
{
    char detail[CGM_CQE_DETAIL];
    if (gang->opcode == CGM_OPCODE_BARRIER) {
        gang_start(gang);
        gang->launch_ns = cgm_now_ns();
        gang_end(gang, gang->launch_ns);
        return;
    }
    int status = cgm_contents_check(gang, detail, sizeof(detail));
    if (status == CGM_OK)
        status = check_tainted(gang, detail, sizeof(detail));
    if (status != CGM_OK) {
        cgm_gang_fail(gang, status, detail);
        return;
    }
    cgm_step(CGM_STEP_JOB, CGM_JOB_STEP_LAUNCH);
    gang->flight = flight_for(gang, &gang->comm->poller->job_memory);
    if (!gang->flight) {
        cgm_gang_fail(gang, CGM_NO_MEMORY, "the executor is out of host memory");
        return;
    }
    gang_start(gang);
    cgm_contents_on_launch(gang);
    each_job(gang, cgm_job_begin_writes);
    gang_fly(gang, gang->opcode == CGM_OPCODE_COPY_IN ? CGM_FLIGHT_COPY_IN : CGM_FLIGHT_RUN,
             recorded, now_ns);
    cgm_window_advance(gang->comm);
}

/* Outputs of a failed job are NaN; of those whose stream has not come nothing may be touched. */
static void gang_poison(struct cgm_gang *gang, uint64_t now_ns)
{
    uint32_t left = 0;
    gang->state = CGM_GANG_FAILING;
    each_job(gang, cgm_uses_end);
    for (uint32_t rank = 0; rank < gang->comm->size; rank++) {
        struct cgm_job *job = gang->jobs[rank];
        if (job && !gang->launch && !cgm_job_is_ready(job))
            job_end(gang, rank, now_ns);
        left += gang->jobs[rank] != NULL;
    }
    if (left > 0 && !gang->flight)
        gang->flight = flight_for(gang, &gang->comm->poller->failed_memory);
    if (left > 0 && !gang->flight) {
        each_job(gang, cgm_job_taint);
        say_behind(gang, "; outputs are not NaN (no memory)");
    }
    if (left == 0 || !gang->flight) {
        gang_end(gang, now_ns);
        return;
    }
    if (!gang->launch)
        each_job(gang, cgm_job_begin_writes);
    gang_fly(gang, CGM_FLIGHT_POISON, NULL, now_ns);
}

/* It is on no device yet, and need not run there. */
static bool is_held(const struct cgm_gang *gang)
{
    return gang->state == CGM_GANG_RUNNING && gang->flight && gang->flight->held;
}

void cgm_gang_fail(struct cgm_gang *gang, int status, const char *detail)
{
    struct cgm_comm *comm = gang->comm;
    bool held = is_held(gang);
    if (gang->state >= CGM_GANG_RUNNING && !held)
        return;
    gang->status = status;
    cgm_detail(gang->detail, sizeof(gang->detail), 0, "%s", detail);
    if (gang->number != 0)
        cgm_window_note_end(comm, gang->number, status);
    if (held) {
        gang->state = CGM_GANG_FAILING;
        each_job(gang, cgm_uses_end);
        cgm_flight_divert(gang->flight);
        return;
    }
    cgm_comm_ref(comm);
    gang_poison(gang, cgm_now_ns());
    cgm_window_advance(comm);
    cgm_comm_unref(comm);
}

uint32_t cgm_gang_first_rank(const struct cgm_gang *gang)
{
    uint32_t rank = 0;
    while (!gang->jobs[rank])
        rank++;
    return rank;
}

/* It will be failed, and is not to be launched. */
static bool is_lost(const struct cgm_gang *gang)
{
    const struct cgm_comm *comm = gang->comm;
    if (comm->dead_status == CGM_OK || (gang->state >= CGM_GANG_RUNNING && !is_held(gang)))
        return false;
    return gang->number != 0 || comm->lost_ranks >> cgm_gang_first_rank(gang) & 1;
}

bool cgm_gang_fail_lost(struct cgm_comm *comm)
{
    uint32_t failed = 0;
    for (uint32_t seen = 0; comm->failing && seen < SEEN_AT_ONCE && failed < FAILED_AT_ONCE &&
                            !cgm_poller_is_tired(comm->poller);
         seen++) {
        struct cgm_gang *gang = comm->failing;
        comm->failing = gang->links[CGM_GANGS_OF_COMM].next;
        if (!is_lost(gang))
            continue;
        cgm_gang_fail(gang, comm->dead_status, comm->dead_detail);
        failed++;
    }
    return comm->failing != NULL;
}

void cgm_gang_cancel(const struct cgm_job *job, const char *detail)
{
    if (job->gang)
        cgm_gang_fail(job->gang, CGM_CANCELLED, detail);
}

/* ---- stepping ------------------------------------------------------------------------------- */

bool cgm_gang_awaits_stream(const struct cgm_gang *gang)
{
    return gang->state == CGM_GANG_COLLECTED && first_not_ready(gang) < gang->comm->size;
}

static bool is_late(const struct cgm_gang *gang, uint64_t from_ns, uint64_t limit_ms,
                    uint64_t now_ns)
{
    from_ns += gang->comm->poller->stood_ns - gang->stood_ns;
    return limit_ms != 0 && now_ns > from_ns && (now_ns - from_ns) / 1000000 >= limit_ms;
}

/* The limit that is reached: one that a job asked for, or the one of those that did not, which
 * counts from default_ns (0: there is none). 0: none is. */
static uint64_t late_by(const struct cgm_gang *gang, uint64_t default_ns, uint64_t default_ms,
                        uint64_t now_ns)
{
    if (is_late(gang, gang->deadline.from_ns, gang->deadline.limit_ms, now_ns))
        return gang->deadline.limit_ms;
    return default_ns && is_late(gang, default_ns, default_ms, now_ns) ? default_ms : 0;
}

static bool step_collecting(struct cgm_gang *gang, uint64_t now_ns)
{
    char detail[CGM_CQE_DETAIL], missing[80];
    uint64_t limit_ms = late_by(gang, gang->default_ns, gang->comm->join_timeout_ms, now_ns);
    if (limit_ms == 0)
        return false;
    uint64_t all = UINT64_MAX >> (CGM_COMM_SIZE_MAX - gang->comm->size);
    unsigned count = cgm_ranks_text(all & ~ranks_of(gang), missing, sizeof(missing));
    cgm_detail(
        detail, sizeof(detail), 0, "rank%s %s of comm %llu did not submit job %llu within %llu ms",
        count == 1 ? "" : "s", missing, (ull)gang->comm->id, (ull)gang->number, (ull)limit_ms);
    cgm_gang_fail(gang, CGM_JOIN_TIMEOUT, detail);
    return true;
}

static bool step_late_stream(struct cgm_gang *gang, uint32_t rank, uint64_t now_ns)
{
    char detail[CGM_CQE_DETAIL], name[NAME_BYTES];
    uint64_t ready_ms = gang->comm->poller->executor->limits.ready_timeout_ns / 1000000;
    uint64_t limit_ms = late_by(gang, gang->default_ns ? gang->collected_ns : 0, ready_ms, now_ns);
    if (limit_ms == 0)
        return false;
    cgm_detail(detail, sizeof(detail), 0, "the stream of rank %u did not reach %s within %llu ms",
               rank, name_of(gang, name), (ull)limit_ms);
    cgm_gang_fail(gang, CGM_READY_TIMEOUT, detail);
    return true;
}

/* What it waits for has limits of its own: only the client's counts here. */
static bool step_late_contents(struct cgm_gang *gang, uint64_t now_ns)
{
    char detail[CGM_CQE_DETAIL], name[NAME_BYTES];
    uint64_t limit_ms = late_by(gang, 0, 0, now_ns);
    if (limit_ms == 0)
        return false;
    cgm_detail(detail, sizeof(detail), 0,
               "%s waited for what its ranks submitted before it for %llu ms", name_of(gang, name),
               (ull)limit_ms);
    cgm_gang_fail(gang, CGM_READY_TIMEOUT, detail);
    return true;
}

static bool step_collected(struct cgm_gang *gang, uint64_t now_ns, bool look_at_deadlines)
{
    uint32_t rank = first_not_ready(gang);
    if (rank == gang->comm->size && is_next(gang)) {
        const struct cgm_recorded *recorded;
        if (cgm_contents_are_awaited(gang)) {
            cgm_gang_list_move(gang, false); /* until what it waits for moves it on (contents.c) */
            return look_at_deadlines && step_late_contents(gang, now_ns);
        }
        if (gang->comm->poller->ends || !cgm_preparation_is_done(gang) ||
            cgm_quiet_holds(gang->comm->poller) || !cgm_recordings_find(gang, &recorded))
            return false;
        gang_launch(gang, recorded, now_ns);
        return true;
    }
    if (rank == gang->comm->size)
        return look_at_deadlines && step_late_contents(gang, now_ns);
    cgm_warmth_keep(gang, now_ns);
    return look_at_deadlines && step_late_stream(gang, rank, now_ns);
}

/* Outputs are tainted as soon as their poisoning is to be given up: whoever comes behind it in the
 * queues would read what is there. */
static void watch(struct cgm_gang *gang, uint64_t now_ns)
{
    char why[96 + NAME_BYTES], name[NAME_BYTES];
    bool aborted = gang->flight->aborted_ns != 0;
    bool stuck = cgm_flight_is_stuck(gang->flight, now_ns);
    if (gang->state == CGM_GANG_FAILING && !aborted && gang->flight->aborted_ns != 0)
        each_job(gang, cgm_job_taint);
    if (!stuck)
        return;
    snprintf(why, sizeof(why), "%s does not end after its %s", name_of(gang, name),
             gang->state == CGM_GANG_FAILING ? "failure" : "abort");
    cgm_executor_end(gang->comm->poller->executor, CGM_TROUBLE_STUCK, why);
}

/* True: into detail, for an operand with holes. */
static bool say_holes(const struct cgm_gang *gang, char *ret_detail, size_t bytes)
{
    const struct cgm_backend_ops *ops = gang->comm->poller->executor->ops;
    char operand[48];
    for (uint32_t rank = 0; rank < gang->comm->size; rank++)
        for (int i = 0; gang->jobs[rank] && i < CGM_OPERAND_COUNT; i++) {
            const struct cgm_memory *memory = gang->jobs[rank]->memory[i];
            if (!memory || !cgm_memory_has_holes(memory, ops))
                continue;
            snprintf(operand, sizeof(operand), "rank %u: %s", rank, cgm_operand_name(i));
            cgm_memory_holes_detail(memory, operand, ret_detail, bytes);
            return true;
        }
    return false;
}

static void say_why(struct cgm_gang *gang, uint64_t now_ns)
{
    char name[NAME_BYTES];
    if (gang->status == CGM_STALE && say_holes(gang, gang->detail, sizeof(gang->detail)))
        return;
    cgm_detail(gang->detail, sizeof(gang->detail), 0, "%s: %s after %llu ms", name_of(gang, name),
               cgm_status_text(gang->status), (ull)(now_ns - gang->launch_ns) / 1000000);
}

/* Once, when nothing adds to them any more: what made the outputs NaN is among them. */
static void finish_phases(struct cgm_gang *gang)
{
    const struct cgm_backend_ops *ops = gang->flight->launch.ops;
    if (ops->finish_phases && gang->flight->run.phases)
        ops->finish_phases(gang->comm->poller->executor->backend, &gang->flight->run);
}

static bool step_running(struct cgm_gang *gang, uint64_t now_ns, bool look_at_deadlines)
{
    if (is_held(gang) && look_at_deadlines && step_late_contents(gang, now_ns))
        return true;
    if (!cgm_flight_is_done(gang->flight)) {
        cgm_flight_look(gang->flight, now_ns);
        if (look_at_deadlines)
            watch(gang, now_ns);
        return false;
    }
    cgm_step(CGM_STEP_JOB, CGM_JOB_STEP_DONE);
    now_ns = cgm_now_ns(); /* it may have begun after the round did */
    gang->status = atomic_load(&gang->flight->run.status);
    if (gang->status == CGM_OK && say_holes(gang, gang->detail, sizeof(gang->detail)))
        gang->status = CGM_STALE;
    if (gang->status == CGM_OK)
        gang->status = check_tainted(gang, gang->detail, sizeof(gang->detail));
    else
        say_why(gang, now_ns);
    if (gang->status != CGM_OK) {
        gang_poison(gang, now_ns);
        return true;
    }
    each_written(gang, restore);
    finish_phases(gang);
    gang_end(gang, now_ns);
    return true;
}

static bool step_failing(struct cgm_gang *gang, uint64_t now_ns, bool look_at_deadlines)
{
    if (!cgm_flight_is_done(gang->flight)) {
        cgm_flight_look(gang->flight, now_ns);
        if (look_at_deadlines)
            watch(gang, now_ns);
        return false;
    }
    if (atomic_load(&gang->flight->run.given_up))
        say_behind(gang, "; outputs are not all NaN (job_timeout)");
    finish_phases(gang);
    gang_end(gang, cgm_now_ns());
    return true;
}

bool cgm_gang_step(struct cgm_gang *gang, uint64_t now_ns, bool look_at_deadlines)
{
    if (is_lost(gang))
        return false;
    switch (gang->state) {
    case CGM_GANG_COLLECTING:
        return look_at_deadlines && step_collecting(gang, now_ns);
    case CGM_GANG_COLLECTED:
        return step_collected(gang, now_ns, look_at_deadlines);
    case CGM_GANG_RUNNING:
        return step_running(gang, now_ns, look_at_deadlines);
    case CGM_GANG_FAILING:
        return step_failing(gang, now_ns, look_at_deadlines);
    case CGM_GANG_ENDED:
        break;
    }
    return false;
}
