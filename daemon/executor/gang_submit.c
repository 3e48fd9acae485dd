/* How ranks come: the number of each submission, and the gang that it starts, joins or finds burnt.
 * gang.c has what becomes of it. */
#include "daemon/executor/gang.h"

#include <stdlib.h>
#include <string.h>

#include "daemon/executor/contents.h"
#include "daemon/executor/endpoint.h"
#include "daemon/executor/plan.h"
#include "daemon/executor/window.h"
#include "proto/status.h"
#include "proto/step.h"

typedef unsigned long long ull;

static const char no_memory[] = "the executor is out of host memory";

static struct cgm_gang *gang_new(struct cgm_comm *comm, uint64_t number, struct cgm_spare *memory)
{
    struct cgm_gang *gang = comm->free_gangs;
    size_t bytes = sizeof(*gang) + comm->size * sizeof(gang->jobs[0]);
    if (gang) {
        comm->free_gangs = gang->next_free;
        comm->n_free_gangs--;
    } else {
        comm->poller->counters.allocations++;
        gang = cgm_spare_take(memory, bytes) ? malloc(bytes) : NULL;
        if (!gang)
            return NULL;
    }
    memset(gang, 0, bytes);
    gang->comm = comm;
    gang->number = number;
    gang->stood_ns = comm->poller->stood_ns;
    gang->n_expected = number ? comm->size : 1;
    cgm_comm_ref(comm);
    cgm_gang_list_enter(gang);
    if (number)
        *cgm_window_slot(comm, number) = gang;
    return gang;
}

void cgm_gang_give(struct cgm_gang *gang)
{
    struct cgm_comm *comm = gang->comm;
    if (comm->n_free_gangs == CGM_COMM_KEPT) {
        free(gang);
        return;
    }
    gang->next_free = comm->free_gangs;
    comm->free_gangs = gang;
    comm->n_free_gangs++;
}

void cgm_gang_free_all(struct cgm_comm *comm)
{
    for (uint32_t i = 0; i < CGM_COMM_WINDOW; i++)
        if (comm->window[i]) /* few are */
            free(comm->window[i]);
    while (comm->free_gangs) {
        struct cgm_gang *gang = comm->free_gangs;
        comm->free_gangs = gang->next_free;
        free(gang);
    }
}

/* A rank comes for one number after the other, but what ended before it was lost with an executor,
 * together with others, it does not come for again. */
static bool may_come(struct cgm_comm *comm, uint32_t rank, uint64_t number)
{
    uint64_t last = comm->last_number[rank];
    int status;
    if (last == 0)
        last = number - 1;
    if (number <= last || number - last >= CGM_COMM_WINDOW)
        return false;
    while (last + 1 < number && cgm_window_has_ended(comm, last + 1))
        last++;
    if (last + 1 != number)
        return false;
    return cgm_window_status(comm, number, &status) ? status != CGM_OK : number > comm->retired;
}

int cgm_gang_check_number(struct cgm_comm *comm, uint32_t rank, uint64_t number, char *ret_detail,
                          size_t detail_bytes)
{
    uint64_t last = comm->last_number[rank];
    if (!may_come(comm, rank, number))
        return cgm_detail(ret_detail, detail_bytes, CGM_INVALID_ARGUMENT,
                          "comm_number: %llu; rank %u's next one in comm %llu is %llu", (ull)number,
                          rank, (ull)comm->id, (ull)(last ? last : comm->retired) + 1);
    return CGM_OK;
}

/* From here on the rank has come for this number, whatever becomes of it. */
static void number_take(struct cgm_comm *comm, uint32_t rank, uint64_t number)
{
    _Atomic uint64_t *high = &comm->poller->executor->journal->comm_high[comm->journal];
    comm->last_number[rank] = number;
    if (number > atomic_load_explicit(high, memory_order_relaxed))
        atomic_store_explicit(high, number, memory_order_relaxed);
}

static uint32_t slowest_rank(const struct cgm_comm *comm)
{
    uint32_t slowest = 0;
    for (uint32_t rank = 1; rank < comm->size; rank++)
        if (comm->last_number[rank] < comm->last_number[slowest])
            slowest = rank;
    return slowest;
}

/* What has ended is kept for who has not come for it: not without an end. */
static void give_up_when_left(struct cgm_comm *comm, uint32_t rank, uint64_t number)
{
    char detail[CGM_CQE_DETAIL];
    uint32_t slowest = slowest_rank(comm);
    if (comm->dead_status != CGM_OK || !cgm_window_is_left_by(comm, number))
        return;
    if (number - comm->last_number[slowest] >= CGM_COMM_WINDOW)
        cgm_detail(
            detail, sizeof(detail), 0,
            "rank %u of comm %llu is %u jobs behind rank %u: the comm is given up; leave it, "
            "then create it again",
            slowest, (ull)comm->id, CGM_COMM_WINDOW, rank);
    else
        cgm_detail(detail, sizeof(detail), 0,
                   "%u jobs of comm %llu came and failed while job %llu has not ended: the comm is "
                   "given up; leave it, then create it again",
                   CGM_COMM_WINDOW, (ull)comm->id, (ull)comm->retired + 1);
    cgm_comm_give_up(comm, detail);
}

/* A job may be of another plan, and end before the gang's outputs are poisoned. */
static void gang_take_plan(struct cgm_gang *gang, struct cgm_plan *plan)
{
    gang->plan = plan;
    cgm_plan_ref(plan);
}

/* There is not even memory for what makes its outputs NaN. */
static void complete_unpoisoned(struct cgm_job *job, int status, const char *detail)
{
    char text[CGM_CQE_DETAIL];
    bool touched = cgm_job_is_ready(job);
    if (touched)
        cgm_job_taint(job);
    cgm_detail(text, sizeof(text), 0, touched ? "%.150s; outputs are not NaN (no memory)" : "%s",
               detail);
    cgm_job_complete(job, &(struct cgm_outcome){.status = status, .detail = text});
}

void cgm_gang_fail_alone(struct cgm_job *job, int status, const char *detail)
{
    struct cgm_comm *comm = job->plan->comm;
    struct cgm_gang *gang = gang_new(comm, 0, &comm->poller->failed_memory);
    if (!gang) {
        complete_unpoisoned(job, status, detail);
        return;
    }
    gang_take_plan(gang, job->plan);
    gang->rows = job->rows;
    gang->jobs[job->rank] = job;
    job->gang = gang;
    cgm_gang_fail(gang, status, detail);
}

static const char *kind_name(uint32_t opcode)
{
    return opcode == CGM_OPCODE_BARRIER ? "barrier" : "run";
}

/* A plan that was destroyed while jobs of it were in flight, and created again, is another object
 * of the same request: jobs of both match, but for what lies in its user buffers. */
static bool is_of_other_buffers(const struct cgm_gang *gang, const struct cgm_job *job)
{
    return job->plan != gang->plan && cgm_contents_are_unnamed(job);
}

static bool job_matches(const struct cgm_gang *gang, const struct cgm_job *job, uint32_t first_rank,
                        char *detail, size_t bytes)
{
    if (job->plan->id != gang->plan->id)
        cgm_detail(detail, bytes, 0,
                   "job %llu of comm %llu: rank %u submitted plan %016llx, rank %u %016llx",
                   (ull)gang->number, (ull)gang->comm->id, job->rank, (ull)job->plan->id,
                   first_rank, (ull)gang->plan->id);
    else if (is_of_other_buffers(gang, job))
        cgm_detail(
            detail, bytes, 0,
            "job %llu of comm %llu: rank %u submitted plan %016llx as it was created again, and "
            "rank %u before it was destroyed: its user buffers are others",
            (ull)gang->number, (ull)gang->comm->id, job->rank, (ull)job->plan->id, first_rank);
    else if (job->opcode != gang->opcode)
        cgm_detail(detail, bytes, 0, "job %llu of comm %llu: rank %u submitted a %s, rank %u a %s",
                   (ull)gang->number, (ull)gang->comm->id, job->rank, kind_name(job->opcode),
                   first_rank, kind_name(gang->opcode));
    else if (job->rows != gang->rows)
        cgm_detail(detail, bytes, 0,
                   "job %llu of comm %llu: rank %u submitted rows %llu, rank %u %llu",
                   (ull)gang->number, (ull)gang->comm->id, job->rank, (ull)job->rows, first_rank,
                   (ull)gang->rows);
    else
        return true;
    return false;
}

/* Its device's thread will be needed as soon as all ranks have come. */
static void alert(const struct cgm_job *job)
{
    struct cgm_executor *executor = job->plan->comm->poller->executor;
    cgm_worker_alert(&executor->devices[job->plan->ranks[job->rank].device]);
}

static void gang_collected(struct cgm_gang *gang, uint64_t now_ns)
{
    struct cgm_poller *poller = gang->comm->poller;
    cgm_step(CGM_STEP_JOB, CGM_JOB_STEP_READY);
    gang->state = CGM_GANG_COLLECTED;
    gang->collected_ns = now_ns;
    if (gang->number)
        cgm_window_skip(gang->comm, gang->number);
    if (cgm_gang_may_launch(gang))
        cgm_gang_list_move(gang, true);
    else if (cgm_gang_awaits_stream(gang))
        poller->awaits_streams = poller->look_found_streams = true;
}

/* Each job's limit counts from when it came; the first that is reached fails the gang. */
static void note_deadline(struct cgm_gang *gang, const struct cgm_job *job)
{
    uint64_t from_ns = job->accept_ns - (gang->comm->poller->stood_ns - gang->stood_ns);
    uint64_t ms = from_ns / 1000000, end_ms = ms + job->deadline_ms;
    uint64_t earliest_ms = gang->deadline.from_ns / 1000000 + gang->deadline.limit_ms;
    if (job->deadline_ms == 0) {
        if (gang->default_ns == 0)
            gang->default_ns = from_ns;
    } else if (end_ms >= ms && (gang->deadline.limit_ms == 0 || end_ms < earliest_ms)) {
        gang->deadline.from_ns = from_ns;
        gang->deadline.limit_ms = job->deadline_ms;
    }
}

static void gang_join(struct cgm_gang *gang, struct cgm_job *job)
{
    char detail[CGM_CQE_DETAIL];
    bool matches = true;
    cgm_step(CGM_STEP_JOB, CGM_JOB_STEP_MATCH);
    if (gang->n_came == 0) {
        gang_take_plan(gang, job->plan);
        gang->opcode = job->opcode;
        gang->rows = job->rows;
    } else {
        matches = job_matches(gang, job, cgm_gang_first_rank(gang), detail, sizeof(detail));
    }
    gang->jobs[job->rank] = job;
    job->gang = gang;
    gang->n_came++;
    alert(job);
    note_deadline(gang, job);
    if (!matches) {
        cgm_gang_fail(gang, CGM_MISMATCH, detail);
        return;
    }
    if (gang->n_came == gang->n_expected)
        gang_collected(gang, job->accept_ns);
}

/* Of many burnt numbers the words are not kept. */
static void tomb_detail(const struct cgm_comm *comm, uint64_t number, uint32_t rank, int status,
                        char *ret_detail, size_t bytes)
{
    cgm_detail(ret_detail, bytes, 0,
               "job %llu of comm %llu had ended with %s before rank %u came for it", (ull)number,
               (ull)comm->id, cgm_status_name(status), rank);
}

/* The number has failed before: that is what the rank is told. False: it has not. */
static bool was_burnt(struct cgm_comm *comm, uint32_t rank, uint64_t number, int *status,
                      char *detail, size_t bytes)
{
    struct cgm_gang *gang = *cgm_window_slot(comm, number);
    if (cgm_window_status(comm, number, status)) {
        tomb_detail(comm, number, rank, *status, detail, bytes);
    } else if (gang && gang->state >= CGM_GANG_FAILING) {
        gang->n_came++;
        *status = gang->status;
        cgm_detail(detail, bytes, 0, "%s", gang->detail);
    } else {
        return false;
    }
    return true;
}

/* A dead comm fails every number: also for the next executor, where the rank comes for the one
 * behind it. */
static void burn_in_dead(struct cgm_comm *comm, uint64_t number)
{
    if (!cgm_window_has_ended(comm, number))
        cgm_window_note_end(comm, number, comm->dead_status);
}

/* The rank comes for its number. True: nothing will be done of that any more, and status and detail
 * say why. */
static bool come(struct cgm_comm *comm, uint32_t rank, uint64_t number, int *status, char *detail,
                 size_t bytes)
{
    number_take(comm, rank, number);
    give_up_when_left(comm, rank, number);
    if (comm->dead_status == CGM_OK)
        return was_burnt(comm, rank, number, status, detail, bytes);
    burn_in_dead(comm, number);
    *status = cgm_detail(detail, bytes, comm->dead_status, "%s", comm->dead_detail);
    return true;
}

/* The number fails for all ranks: one of them has come for it, and is not in its gang. */
static void burn(struct cgm_comm *comm, uint64_t number, int status, const char *detail)
{
    struct cgm_gang *gang = *cgm_window_slot(comm, number);
    cgm_comm_ref(comm);
    if (!gang)
        gang = gang_new(comm, number, &comm->poller->failed_memory);
    if (gang) {
        gang->n_came++;
        cgm_gang_fail(gang, status, detail);
    } else if (cgm_window_bury(comm, number, status) != CGM_OK) {
        cgm_comm_give_up(comm, no_memory);
    }
    cgm_window_advance(comm);
    cgm_comm_unref(comm);
}

static void submit_without_memory(struct cgm_job *job)
{
    char detail[CGM_CQE_DETAIL];
    cgm_detail(detail, sizeof(detail), 0, "rank %u: %s", job->rank, no_memory);
    burn(job->plan->comm, job->comm_number, CGM_NO_MEMORY, detail);
    cgm_gang_fail_alone(job, CGM_NO_MEMORY, no_memory);
}

static void end_at_once(struct cgm_job *job, int status, const char *detail)
{
    struct cgm_comm *comm = job->plan->comm;
    cgm_comm_ref(comm);
    cgm_gang_fail_alone(job, status, detail);
    cgm_window_advance(comm);
    cgm_comm_unref(comm);
}

void cgm_gang_submit(struct cgm_job *job)
{
    char detail[CGM_CQE_DETAIL];
    struct cgm_comm *comm = job->plan->comm;
    uint64_t number = job->comm_number;
    int status;
    if (come(comm, job->rank, number, &status, detail, sizeof(detail))) {
        end_at_once(job, status, detail);
        return;
    }
    struct cgm_gang *gang = *cgm_window_slot(comm, number);
    if (!gang && !(gang = gang_new(comm, number, &comm->poller->job_memory))) {
        submit_without_memory(job);
        return;
    }
    gang_join(gang, job);
}

void cgm_gang_submit_local(struct cgm_job *job)
{
    struct cgm_comm *comm = job->plan->comm;
    if (comm->lost_ranks >> job->rank & 1) {
        cgm_gang_fail_alone(job, comm->dead_status, comm->dead_detail);
        return;
    }
    struct cgm_gang *gang = gang_new(comm, 0, &comm->poller->job_memory);
    if (!gang) {
        cgm_gang_fail_alone(job, CGM_NO_MEMORY, no_memory);
        return;
    }
    gang_join(gang, job);
}

void cgm_gang_refuse(struct cgm_comm *comm, uint32_t rank, uint64_t number, int *status,
                     char *detail, size_t bytes)
{
    char text[CGM_CQE_DETAIL];
    if (come(comm, rank, number, status, detail, bytes)) {
        cgm_window_advance(comm);
        return;
    }
    cgm_detail(text, sizeof(text), 0, "rank %u: %s", rank, detail);
    burn(comm, number, *status, text);
}
