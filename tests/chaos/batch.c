/* A batch of jobs as one client runs it: laid out, submitted, awaited, checked. */
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/chaos/client.h"
#include "tests/chaos/data.h"
#include "tests/phases.h"

#define TASKS (CHAOS_JOBS * CHAOS_WORLD)
#define PATIENCE_MS 200
#define RESCUE_NS 300000000ull
#define RESCUE_HUNG_NS 20000000000ull

/* One rank's part of a job. */
struct task {
    const struct chaos_job *job;
    uint32_t at, rank; /* at: of the job in its batch */
    struct chaos_data *data;
    bool owns_data;
    struct chaos_place place[CGM_MATRIX_COUNT];
    struct commgemm_operand lhs; /* in the plan's buffer; id 0: where `place` says */
    uint64_t ticket;             /* 0: not submitted */
    bool ended;
    struct commgemm_completion done;
};

struct batch {
    struct client *c;
    bool gave_up[CHAOS_COMMS]; /* a job was lost with its executor: nothing more goes to the comm */
    uint64_t rescue_ns;        /* when to cancel what is left; 0: not yet known to be necessary */
    uint32_t number, n_tasks;
    struct task task[TASKS];
};

static uint64_t below(struct client *c, uint64_t limit)
{
    return cgm_random_below(&c->random, limit);
}

/* ---- laying out -------------------------------------------------------------------------------
 */

static void store(struct task *task, enum cgm_matrix_name name)
{
    const struct cgm_matrix *matrix = chaos_data_matrix(task->data, name);
    void *shard = malloc(cgm_matrix_shard_bytes(matrix) + 1);
    if (!shard)
        abort();
    cgm_matrix_take(matrix, task->data->bench.whole[name], task->rank, shard);
    chaos_place_put(&task->place[name], matrix, shard);
    free(shard);
}

static void lay_out(struct batch *batch, struct task *task)
{
    struct client *c = batch->c;
    for (int i = 0; i < CGM_MATRIX_COUNT; i++) {
        enum cgm_matrix_name name = (enum cgm_matrix_name)i;
        const struct cgm_matrix *matrix = chaos_data_matrix(task->data, name);
        bool written = cgm_matrix_is_output(name);
        if (!matrix->present)
            continue;
        if (!chaos_arena_place(&c->arena[below(c, c->n_arenas)], matrix, written, &c->random,
                               &task->place[i]))
            client_fail(c, "an arena is too small for batch %u", batch->number);
        if (task->data->bench.whole[i])
            store(task, name);
    }
}

static void add_task(struct batch *batch, uint32_t at, uint32_t rank, struct chaos_data **shared)
{
    struct client *c = batch->c;
    const struct chaos_job *job = &c->script->job[batch->number][at];
    struct task *task = &batch->task[batch->n_tasks++];
    const struct cgm_bench_options *plan = &c->script->comm[job->comm].plan[job->plan];
    const char *reason = c->plan[job->comm][job->plan].reason;
    uint64_t seed = job->collective ? job->seed : job->seed + rank;
    memset(task, 0, sizeof(*task));
    task->job = job;
    task->at = at;
    task->rank = rank;
    task->owns_data = !job->collective || !*shared;
    task->data = task->owns_data ? chaos_data_new(plan, reason, job, seed) : *shared;
    if (!task->data)
        client_fail(c, "no memory for the numbers of a job");
    *shared = task->data;
    lay_out(batch, task);
}

static bool runs_here(const struct client *c, const struct chaos_job *job)
{
    const struct chaos_comm *comm = &c->script->comm[job->comm];
    return c->self->joined[job->comm] && !c->left[job->comm] && comm->shaped[job->plan] &&
           c->board->usable[job->comm][job->plan] &&
           c->self->plan_status[job->comm][job->plan] == COMMGEMM_OK;
}

static void make_tasks(struct batch *batch)
{
    struct client *c = batch->c;
    for (uint32_t i = 0; i < c->n_arenas; i++)
        chaos_arena_reset(&c->arena[i], &c->random);
    for (uint32_t at = 0; at < c->script->n_jobs[batch->number]; at++) {
        const struct chaos_job *job = &c->script->job[batch->number][at];
        const struct chaos_comm *comm = &c->script->comm[job->comm];
        struct chaos_data *shared = NULL;
        for (uint32_t rank = 0; runs_here(c, job) && rank < comm->world; rank++)
            if (comm->client[rank] == c->number)
                add_task(batch, at, rank, &shared);
    }
}

static void push(struct batch *batch)
{
    struct client *c = batch->c;
    int status;
    for (uint32_t i = 0; i < c->n_arenas; i++) {
        do {
            status = chaos_arena_push(&c->arena[i], c->session);
            if (status == COMMGEMM_STALE && client_may_lose_executor(c))
                status = chaos_arena_open(&c->arena[i], c->session) == COMMGEMM_OK
                             ? COMMGEMM_EXECUTOR_LOST
                             : status;
        } while (client_again(c, "filling an arena", status));
    }
}

/* ---- one job ----------------------------------------------------------------------------------
 */

static void describe(const struct batch *batch, const struct task *task,
                     struct commgemm_job *ret_job)
{
    const struct chaos_job *script = task->job;
    struct commgemm_operand operand[CGM_MATRIX_COUNT];
    for (int i = 0; i < CGM_MATRIX_COUNT; i++)
        operand[i] = chaos_place_operand(
            &task->place[i], chaos_data_matrix(task->data, (enum cgm_matrix_name)i)->dtype);
    commgemm_job_init(ret_job);
    ret_job->plan = batch->c->plan[script->comm][script->plan].id;
    ret_job->rank = task->rank;
    ret_job->rows = script->rows;
    ret_job->lhs = operand[CGM_MATRIX_LHS];
    ret_job->rhs = operand[CGM_MATRIX_RHS];
    ret_job->bias = operand[CGM_MATRIX_BIAS];
    ret_job->out = operand[CGM_MATRIX_OUT];
    ret_job->aux_in = operand[CGM_MATRIX_AUX_IN];
    ret_job->aux_out = operand[CGM_MATRIX_AUX];
    ret_job->gelu_input = operand[CGM_MATRIX_GELU_INPUT];
    ret_job->pre_gelu_out = operand[CGM_MATRIX_PRE_GELU];
    ret_job->bias_grad = operand[CGM_MATRIX_BIAS_GRAD];
    ret_job->want_phases = script->phases;
    ret_job->deadline_ms = script->deadline_ms;
    if (task->lhs.id)
        ret_job->lhs = task->lhs;
    if (script->mismatcher == task->rank)
        ret_job->rows = script->rows - batch->c->script->comm[script->comm].world;
    if (script->offender == task->rank)
        ret_job->out.offset_bytes = 1ull << 40;
}

static void note(struct batch *batch, const struct task *task, int status, const char *detail)
{
    struct chaos_result *result = &batch->c->board->result[batch->number][task->at][task->rank];
    snprintf(result->detail, sizeof(result->detail), "%s", detail);
    atomic_store(&result->status, status);
}

static void ended(struct batch *batch, struct task *task);
static void rescue(struct batch *batch);

/* Takes what has ended, to free places in the ring. */
static void reap_some(struct batch *batch);

/* In its stream, where the client has any; or with the submission, task NULL. */
static int submit_one(struct client *c, const struct commgemm_job *job, const struct task *task,
                      uint64_t *ret_ticket)
{
    uint32_t late_us = task && task->job->late_rank == task->rank ? task->job->late_us : 0;
    if (task && c->part->streams)
        return client_stream_submit(c, task->job->comm, job, late_us, ret_ticket);
    if (late_us)
        chaos_sleep_us(late_us);
    return commgemm_submit(c->session, job, ret_ticket);
}

static int submit_job(struct batch *batch, const struct commgemm_job *job, const struct task *task,
                      uint64_t *ret_ticket)
{
    struct client *c = batch->c;
    for (;;) {
        int status = submit_one(c, job, task, ret_ticket);
        if (status == COMMGEMM_OK || client_executor_is_lost(status)) {
            if (status != COMMGEMM_OK && !client_may_lose_executor(c))
                client_again(c, "commgemm_submit", status);
            return status;
        }
        if (status == COMMGEMM_RING_FULL)
            reap_some(batch); /* a stream may still look at the place of a job that has ended */
        else
            client_again(c, "commgemm_submit", status);
    }
}

/* lhs into rank's own chunk of the plan's buffer; nothing else of the plan is in flight. Where it
 * fails, lhs is taken from its arena. */
static void copy_in(struct batch *batch, struct task *task)
{
    struct client *c = batch->c;
    struct commgemm_chunk chunk;
    struct commgemm_completion done = {0};
    struct commgemm_job job;
    uint64_t ticket;
    describe(batch, task, &job);
    struct commgemm_operand lhs = job.lhs;
    uint64_t plan = job.plan, rows = job.rows;
    commgemm_job_init(&job);
    job.kind = COMMGEMM_JOB_COPY_IN;
    job.plan = plan;
    job.rank = job.chunk = task->rank;
    job.rows = rows;
    job.lhs = lhs;
    int status = commgemm_plan_chunk(c->session, plan, task->rank, task->rank, &chunk);
    if (status == COMMGEMM_PEER_LOST && client_misses_peer(c, task->job->comm))
        return;
    if (client_again(c, "commgemm_plan_chunk", status) || submit_job(batch, &job, NULL, &ticket))
        return;
    status = commgemm_wait(c->session, ticket, -1, &done);
    if (!client_again(c, "commgemm_wait", status) && done.status == COMMGEMM_OK)
        task->lhs = (struct commgemm_operand){
            .id = chunk.buffer, .generation = chunk.generation, .offset_bytes = chunk.offset_bytes};
    commgemm_completion_fini(&done);
}

/* Whether it has ended. */
static void look(struct batch *batch, struct task *task)
{
    struct client *c = batch->c;
    int status = commgemm_wait(c->session, task->ticket, 0, &task->done);
    if (status == COMMGEMM_TIMEOUT)
        return;
    client_again(c, "commgemm_wait", status);
    ended(batch, task);
}

/* A rank that lost jobs submits the same ones again before any other, or it would be out of step
 * with those that did not: here they all agree first, when the batch is over. */
static bool gave_up(struct batch *batch, uint32_t comm)
{
    struct client *c = batch->c;
    if (atomic_load(&c->board->kills) == c->board->settled && !c->board->hang)
        return false;
    for (uint32_t i = 0; i < batch->n_tasks && !batch->gave_up[comm]; i++) {
        struct task *task = &batch->task[i];
        if (task->job->comm != comm)
            continue;
        if (task->ticket && !task->ended)
            look(batch, task);
        batch->gave_up[comm] = client_executor_is_lost(task->done.status);
    }
    return batch->gave_up[comm];
}

static void submit(struct batch *batch, struct task *task)
{
    struct client *c = batch->c;
    struct commgemm_job job;
    if (gave_up(batch, task->job->comm)) {
        task->done.status = COMMGEMM_EXECUTOR_LOST;
        note(batch, task, COMMGEMM_EXECUTOR_LOST, "not submitted after a job that was lost");
        return;
    }
    client_point(c, "submitting job %u.%u, rank %u of comm %u", batch->number, task->at, task->rank,
                 task->job->comm);
    if (task->job->in_place && task->job->offender == CHAOS_NOBODY &&
        task->job->mismatcher == CHAOS_NOBODY)
        copy_in(batch, task);
    describe(batch, task, &job);
    int status = submit_job(batch, &job, task, &task->ticket);
    if (status != COMMGEMM_OK) {
        task->ticket = 0;
        task->done.status = status;
        note(batch, task, status, commgemm_last_error());
        return;
    }
    client_point(c, "submitted job %u.%u, rank %u", batch->number, task->at, task->rank);
    if (task->job->canceller != task->rank)
        return;
    if (below(c, 2))
        chaos_sleep_us(below(c, 500));
    status = commgemm_cancel(c->session, task->ticket);
    if (status != COMMGEMM_OK && !client_executor_is_lost(status))
        client_again(c, "commgemm_cancel", status);
}

/* ---- waiting ----------------------------------------------------------------------------------
 */

static void note_number(_Atomic uint64_t *high, uint64_t number)
{
    uint64_t before = atomic_load(high);
    while (number > before && !atomic_compare_exchange_weak(high, &before, number))
        ;
}

static void ended(struct batch *batch, struct task *task)
{
    struct client *c = batch->c;
    const struct commgemm_plan *plan = &c->plan[task->job->comm][task->job->plan];
    task->ended = true;
    note_number(&c->board->high[task->job->comm], task->done.comm_number);
    if (task->done.ticket != task->ticket)
        client_fail(c, "ticket %llu ended as %llu", (unsigned long long)task->ticket,
                    (unsigned long long)task->done.ticket);
    if (!phases_are_right(&task->done))
        client_fail(c, "job %u.%u has phases outside of the %llu ns that it ran", batch->number,
                    task->at, (unsigned long long)task->done.running_ns);
    if (task->done.status == COMMGEMM_OK && task->done.algorithm != plan->algorithm)
        client_fail(c, "job %u.%u ran with algorithm %d, its plan has %d", batch->number, task->at,
                    task->done.algorithm, plan->algorithm);
}

/* Where the executor died, a rank may wait on the new one for others that gave the job up with the
 * old one: it cancels what is left of the batch after a while, and they agree again later. */
static void rescue(struct batch *batch)
{
    struct client *c = batch->c;
    bool hang = c->board->hang;
    if (atomic_load(&c->board->kills) == c->board->settled && !hang)
        return;
    uint64_t now_ns = chaos_now_ns();
    if (!batch->rescue_ns)
        batch->rescue_ns = now_ns + (hang ? RESCUE_HUNG_NS : RESCUE_NS);
    for (uint32_t i = 0; now_ns >= batch->rescue_ns && i < batch->n_tasks; i++) {
        const struct task *task = &batch->task[i];
        int status =
            task->ticket && !task->ended ? commgemm_cancel(c->session, task->ticket) : COMMGEMM_OK;
        if (!client_executor_is_lost(status))
            client_again(c, "commgemm_cancel", status);
    }
}

static void await(struct batch *batch, struct task *task, int timeout_ms)
{
    struct client *c = batch->c;
    client_point(c, "awaiting job %u.%u, rank %u of comm %u", batch->number, task->at, task->rank,
                 task->job->comm);
    int status;
    while ((status = commgemm_wait(c->session, task->ticket, timeout_ms, &task->done)) ==
           COMMGEMM_TIMEOUT)
        rescue(batch);
    client_again(c, "commgemm_wait", status);
    ended(batch, task);
}

static void reap_some(struct batch *batch)
{
    struct client *c = batch->c;
    for (uint32_t i = 0; i < batch->n_tasks; i++) {
        struct task *task = &batch->task[i];
        if (!task->ticket || task->ended)
            continue;
        int status = commgemm_wait(c->session, task->ticket, 1, &task->done);
        if (status == COMMGEMM_TIMEOUT)
            continue;
        client_again(c, "commgemm_wait", status);
        ended(batch, task);
    }
    chaos_sleep_us(100);
    rescue(batch);
}

static uint32_t tasks_left(const struct batch *batch)
{
    uint32_t left = 0;
    for (uint32_t i = 0; i < batch->n_tasks; i++)
        left += batch->task[i].ticket && !batch->task[i].ended;
    return left;
}

/* The task whose completion this is; without one it is nobody's. */
static void take(struct batch *batch, const struct commgemm_completion *done)
{
    for (uint32_t i = 0; i < batch->n_tasks; i++) {
        struct task *task = &batch->task[i];
        if (task->ticket != done->ticket)
            continue;
        task->done = *done;
        ended(batch, task);
        return;
    }
    client_fail(batch->c, "ticket %llu was reaped, and never given out",
                (unsigned long long)done->ticket);
}

static void await_by_poll(struct batch *batch)
{
    struct client *c = batch->c;
    struct commgemm_completion done[4];
    struct pollfd poll_fd = {.events = POLLIN};
    uint32_t count;
    client_again(c, "commgemm_poll_fd", commgemm_poll_fd(c->session, &poll_fd.fd));
    while (tasks_left(batch)) {
        client_point(c, "polling for %u jobs of batch %u", tasks_left(batch), batch->number);
        if (poll(&poll_fd, 1, PATIENCE_MS) == 0)
            rescue(batch);
        do {
            int status = commgemm_reap(c->session, done, 4, &count);
            client_again(c, "commgemm_reap", status);
            for (uint32_t i = 0; i < count; i++)
                take(batch, &done[i]);
        } while (count);
    }
}

static void await_all(struct batch *batch)
{
    struct client *c = batch->c;
    uint64_t way = below(c, 4);
    if (way == 0)
        await_by_poll(batch);
    uint32_t first = batch->n_tasks ? (uint32_t)below(c, batch->n_tasks) : 0;
    for (uint32_t i = 0; i < batch->n_tasks; i++) {
        struct task *task = &batch->task[(first + i) % batch->n_tasks];
        if (task->ticket && !task->ended)
            await(batch, task, way == 1 ? 1 : PATIENCE_MS);
    }
}

/* ---- checking ---------------------------------------------------------------------------------
 */

/* Outputs of these are NaN: they failed before their launch, and their rank was ready. With streams
 * it may not have been. */
static bool is_poisoned(const struct client *c, const struct task *task)
{
    if (c->part->streams)
        return false;
    switch (task->done.status) {
    case COMMGEMM_CANCELLED:
    case COMMGEMM_JOIN_TIMEOUT:
    case COMMGEMM_PEER_LOST:
    case COMMGEMM_MISMATCH:
    case COMMGEMM_INVALID_ARGUMENT:
        return task->job->mismatcher != task->rank && task->job->offender != task->rank;
    default:
        return false;
    }
}

/* By a generation from before an executor's death the rank's own entry was refused, whatever its
 * number had failed with before. */
static bool was_refused_itself(struct client *c, const struct chaos_place *place)
{
    return client_may_lose_executor(c) && !chaos_arena_is_current(place->arena, c->session);
}

static void check_output(struct batch *batch, struct task *task, enum cgm_matrix_name name)
{
    struct client *c = batch->c;
    const struct cgm_matrix *matrix = chaos_data_matrix(task->data, name);
    char text[256] = "";
    double worst = 0;
    void *shard = malloc(cgm_matrix_shard_bytes(matrix) + 1);
    if (!shard)
        abort();
    chaos_place_get(&task->place[name], matrix, shard);
    if (task->done.status == COMMGEMM_OK)
        chaos_data_check(task->data, name, task->rank, shard, text, sizeof(text), &c->self->checked,
                         &worst);
    else if (is_poisoned(c, task) && !chaos_data_is_poison(matrix, shard) &&
             !was_refused_itself(c, &task->place[name]))
        snprintf(text, sizeof(text), "a failed job's output is not NaN");
    free(shard);
    if (text[0]) {
        char about[400];
        client_trust_memory(c);
        chaos_job_text(c->script, task->job, about, sizeof(about));
        client_fail(c, "job %u.%u, rank %u of comm %u, %s, %s: %s; \"%s\"; %s", batch->number,
                    task->at, task->rank, task->job->comm, cgm_matrix_text(name),
                    commgemm_status_name(task->done.status), text, task->done.detail, about);
    }
    if (worst > c->self->worst)
        c->self->worst = worst;
    chaos_arena_forgive(&task->place[name], matrix);
}

/* Reading an arena fails when it is tainted, or the executor is not there to read it with. */
static bool pull(struct batch *batch, struct chaos_arena *arena)
{
    struct client *c = batch->c;
    int status = chaos_arena_pull(arena, c->session);
    if (status == COMMGEMM_OK)
        return true;
    if (client_may_lose_executor(c) &&
        (client_executor_is_lost(status) || status == COMMGEMM_TAINTED || status == COMMGEMM_STALE))
        return false;
    client_again(c, "reading an arena", status);
    return false;
}

static void check(struct batch *batch)
{
    struct client *c = batch->c;
    bool there[CHAOS_ARENAS] = {false};
    for (uint32_t i = 0; i < c->n_arenas; i++)
        there[i] = pull(batch, &c->arena[i]);
    for (uint32_t i = 0; i < batch->n_tasks; i++) {
        struct task *task = &batch->task[i];
        for (int name = 0; name < CGM_MATRIX_COUNT; name++)
            if (cgm_matrix_is_output((enum cgm_matrix_name)name) && task->place[name].arena &&
                there[task->place[name].arena - c->arena])
                check_output(batch, task, (enum cgm_matrix_name)name);
    }
    for (uint32_t i = 0; i < c->n_arenas; i++) {
        uint64_t at = there[i] ? chaos_arena_damage(&c->arena[i]) : UINT64_MAX;
        if (at == UINT64_MAX)
            continue;
        client_trust_memory(c);
        client_fail(c, "batch %u: byte %llu of arena %u was written, and no job writes there",
                    batch->number, (unsigned long long)at, i);
    }
}

static void leave_comm(struct client *c, uint32_t comm)
{
    client_point(c, "leaving comm %u", comm);
    atomic_store(&c->self->left0, true);
    c->left[comm] = true;
    int status = commgemm_comm_leave(c->session, c->self->comm[comm]);
    while (client_again(c, "commgemm_comm_leave", status))
        status = commgemm_comm_leave(c->session, c->self->comm[comm]);
}

void client_batch(struct client *c, uint32_t number)
{
    struct batch *batch = calloc(1, sizeof(*batch));
    if (!batch)
        client_fail(c, "no memory for a batch");
    batch->c = c;
    batch->number = number;
    if (c->part->leave_at && c->part->leave_at == number && c->self->joined[0])
        leave_comm(c, 0);
    make_tasks(batch);
    push(batch);
    for (uint32_t i = 0; i < batch->n_tasks; i++)
        submit(batch, &batch->task[i]);
    await_all(batch);
    client_streams_await(c);
    client_point(c, "checking batch %u", number);
    check(batch);
    for (uint32_t i = 0; i < batch->n_tasks; i++) {
        struct task *task = &batch->task[i];
        if (task->ticket)
            note(batch, task, task->done.status, task->done.detail);
        commgemm_completion_fini(&task->done);
        if (task->owns_data)
            chaos_data_free(task->data);
    }
    free(batch);
}
