#include "tests/lines/crew.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/unit/fake_cuda.h"

#define WAIT_MS 60000
#define STRANGER 12345u /* the first of the users that the ranks are of */
#define IMPORT_BYTES 8192u
#define FAR_OUTSIDE (1u << 20)
#define CELL_BYTES (LINES_CELL * sizeof(float))

static bool wrong(uint32_t rank, const char *what, int status)
{
    if (status != COMMGEMM_OK)
        printf("lines: rank %u: %s: %s: %s\n", rank, what, commgemm_status_name(status),
               commgemm_last_error());
    return status != COMMGEMM_OK;
}

/* ---- sessions -------------------------------------------------------------------------------- */

static int connect_as(struct crew *crew, uint32_t rank)
{
    struct commgemm_connect_options options;
    bool other = crew->script->users && rank > 0 && geteuid() == 0;
    commgemm_connect_options_init(&options);
    options.socket = crew->socket;
    options.name = "lines";
    if (other && seteuid(STRANGER + rank % 2) < 0)
        return COMMGEMM_PERMISSION;
    int status = commgemm_connect(&options, &crew->rank[rank].client);
    if (other && seteuid(0) < 0)
        return COMMGEMM_PERMISSION;
    return status;
}

static bool open_rank(struct crew *crew, uint32_t rank)
{
    struct lines_rank *r = &crew->rank[rank];
    if (wrong(rank, "commgemm_connect", connect_as(crew, rank)) ||
        wrong(rank, "commgemm_wait_executor", commgemm_wait_executor(r->client, WAIT_MS)) ||
        wrong(rank, "commgemm_buffer_create",
              commgemm_buffer_create(r->client, NULL, LINES_CELLS * CELL_BYTES, (int)rank % 2, 0, 0,
                                     &r->buffer)) ||
        wrong(rank, "commgemm_buffer_map",
              commgemm_buffer_map(r->client, &r->buffer, (void **)&r->cells)))
        return false;
    for (uint32_t lane = 0; crew->script->streams && lane < LINES_LANES; lane++)
        r->stream[lane] = fake_stream_new(fake_context(rank % 2), 0);
    return true;
}

struct joiner {
    struct crew *crew;
    uint32_t comm, rank;
    bool joined;
    pthread_t thread;
};

static void *join_one(void *arg)
{
    struct joiner *joiner = arg;
    struct commgemm_join_options options;
    uint64_t comm;
    commgemm_join_options_init(&options);
    options.comm = joiner->crew->comm[joiner->comm];
    options.ranks = &joiner->rank;
    options.n_ranks = 1;
    joiner->joined =
        !wrong(joiner->rank, "commgemm_comm_join",
               commgemm_comm_join(joiner->crew->rank[joiner->rank].client, &options, &comm));
    return NULL;
}

/* Each rank waits for all others. */
static bool join(struct crew *crew, uint32_t comm)
{
    struct joiner joiners[LINES_WORLD];
    uint32_t w = crew->script->world;
    bool joined = true;
    if (wrong(0, "commgemm_comm_create",
              commgemm_comm_create(crew->rank[0].client, NULL, w, 0666, &crew->comm[comm])))
        return false;
    for (uint32_t rank = 0; rank < w; rank++) {
        joiners[rank] = (struct joiner){.crew = crew, .comm = comm, .rank = rank};
        if (pthread_create(&joiners[rank].thread, NULL, join_one, &joiners[rank]))
            return false;
    }
    for (uint32_t rank = 0; rank < w; rank++) {
        pthread_join(joiners[rank].thread, NULL);
        joined = joined && joiners[rank].joined;
    }
    return joined;
}

static bool ask_user_buffer(struct crew *crew, uint32_t plan, uint32_t rank)
{
    commgemm_client *client = crew->rank[rank].client;
    struct lines_user_buffer *user = &crew->user[plan][rank];
    struct commgemm_chunk whole, chunk;
    if (wrong(rank, "commgemm_plan_chunk",
              commgemm_plan_chunk(client, crew->plan[plan].id, rank, COMMGEMM_WHOLE_BUFFER,
                                  &whole)) ||
        wrong(rank, "commgemm_plan_chunk",
              commgemm_plan_chunk(client, crew->plan[plan].id, rank, 0, &chunk)) ||
        wrong(rank, "commgemm_buffer_open",
              commgemm_buffer_open(client, NULL, whole.buffer, 0, &user->buffer)) ||
        wrong(rank, "commgemm_buffer_map",
              commgemm_buffer_map(client, &user->buffer, (void **)&user->values)))
        return false;
    user->size = (uint32_t)(whole.rows * whole.cols);
    user->n_chunks = user->size / (uint32_t)(chunk.rows * chunk.cols);
    return true;
}

static int create_plan(struct crew *crew, uint32_t plan, uint32_t rank)
{
    const struct script *script = crew->script;
    const struct sizes *sizes = &script->sizes[plan];
    struct commgemm_plan_options options;
    commgemm_plan_options_init(&options);
    options.comm = crew->comm[script->comm[plan]];
    options.op = operations[script->operation[plan]].op;
    options.m = sizes->m;
    options.n = sizes->n;
    options.k = sizes->k;
    options.mode = 0666;
    if (options.op == COMMGEMM_OP_BULK_AG || options.op == COMMGEMM_OP_BULK_RS) {
        options.buffer_shape[0] = sizes->m;
        options.buffer_shape[1] = sizes->k;
    }
    options.algorithm = script->algorithm[plan];
    int status = commgemm_plan_create(crew->rank[rank].client, &options, &crew->plan[plan]);
    if (status != COMMGEMM_NOT_SUPPORTED && status != COMMGEMM_INVALID_ARGUMENT)
        return status;
    options.algorithm = 0; /* there is none of that number that can do it */
    return commgemm_plan_create(crew->rank[rank].client, &options, &crew->plan[plan]);
}

static bool open_plan(struct crew *crew, uint32_t plan)
{
    bool lines = operations[crew->script->operation[plan]].lines;
    for (uint32_t rank = 0; rank < crew->script->world; rank++)
        if (wrong(rank, "commgemm_plan_create", create_plan(crew, plan, rank)))
            return false;
    for (uint32_t rank = 0; rank < crew->script->world; rank++)
        if (lines && !ask_user_buffer(crew, plan, rank))
            return false;
    return true;
}

static uint64_t life_of(const struct lines_rank *r)
{
    struct commgemm_info info = {0};
    commgemm_get_info(r->client, &info);
    return info.executor_life;
}

bool crew_open(struct crew *crew, const struct script *script, const char *socket)
{
    *crew = (struct crew){.script = script, .socket = socket};
    for (uint32_t rank = 0; rank < script->world; rank++)
        if (!open_rank(crew, rank))
            return false;
    for (uint32_t comm = 0; comm < script->n_comms; comm++)
        if (!join(crew, comm))
            return false;
    for (uint32_t plan = 0; plan < script->n_plans; plan++)
        if (!open_plan(crew, plan))
            return false;
    for (uint32_t rank = 0; rank < script->world; rank++)
        crew->rank[rank].life = life_of(&crew->rank[rank]);
    return true;
}

static void close_user_buffers(struct crew *crew, uint32_t plan)
{
    for (uint32_t rank = 0; rank < crew->script->world; rank++) {
        struct lines_user_buffer *user = &crew->user[plan][rank];
        if (user->values)
            commgemm_buffer_unmap(user->values, user->buffer.bytes);
        if (user->buffer.id)
            commgemm_buffer_close(crew->rank[rank].client, user->buffer.id);
        *user = (struct lines_user_buffer){0};
    }
}

void crew_close(struct crew *crew)
{
    for (uint32_t plan = 0; plan < crew->script->n_plans; plan++)
        close_user_buffers(crew, plan);
    for (uint32_t rank = 0; rank < crew->script->world; rank++) {
        struct lines_rank *r = &crew->rank[rank];
        commgemm_disconnect(r->client);
        for (uint32_t lane = 0; lane < LINES_LANES; lane++) {
            crew_release(crew, rank, lane);
            if (r->stream[lane])
                fake_stream_free(r->stream[lane]);
        }
        if (r->cells)
            commgemm_buffer_unmap(r->cells, r->buffer.bytes);
    }
}

bool crew_renew(struct crew *crew, uint32_t plan, struct cgm_random *random)
{
    uint32_t w = crew->script->world, first = (uint32_t)cgm_random_below(random, w);
    close_user_buffers(crew, plan);
    for (uint32_t i = 0; i < w; i++) {
        uint32_t rank = (first + i) % w;
        if (wrong(rank, "commgemm_plan_destroy",
                  commgemm_plan_destroy(crew->rank[rank].client, crew->plan[plan].id)))
            return false;
    }
    return open_plan(crew, plan);
}

/* ---- another executor ------------------------------------------------------------------------ */

/* Whoever has lost no job may ask before the daemon has noticed the death. */
static bool await_next_executor(struct lines_rank *r)
{
    for (uint32_t looks = 0; life_of(r) <= r->life && looks < WAIT_MS; looks++)
        usleep(1000);
    r->life = life_of(r);
    return r->life > 0;
}

static bool reopen(struct crew *crew, uint32_t rank)
{
    struct lines_rank *r = &crew->rank[rank];
    uint64_t id = r->buffer.id;
    return await_next_executor(r) &&
           !wrong(rank, "commgemm_wait_executor", commgemm_wait_executor(r->client, WAIT_MS)) &&
           !wrong(rank, "commgemm_buffer_open",
                  commgemm_buffer_open(r->client, NULL, id, 0, &r->buffer)) &&
           !(r->buffer.tainted && wrong(rank, "commgemm_buffer_rewritten",
                                        commgemm_buffer_rewritten(r->client, &r->buffer)));
}

static bool submit_barrier(struct crew *crew, uint32_t plan, uint32_t rank, uint64_t *ret_ticket)
{
    struct commgemm_job job;
    commgemm_job_init(&job);
    job.kind = COMMGEMM_JOB_BARRIER;
    job.plan = crew->plan[plan].id;
    job.rank = rank;
    return !wrong(rank, "commgemm_submit",
                  commgemm_submit(crew->rank[rank].client, &job, ret_ticket));
}

/* Who was behind gets what became of the others' jobs, and who lost some does not do them again:
 * until all have come behind every number that any of them had come to. */
static bool fall_into_step(struct crew *crew, uint32_t plan)
{
    uint64_t ticket[LINES_WORLD];
    uint32_t w = crew->script->world, in_step = 0;
    for (uint32_t rank = 0; rank < w; rank++)
        if (!submit_barrier(crew, plan, rank, &ticket[rank]))
            return false;
    for (uint32_t looks = 0; in_step != (1u << w) - 1 && looks < WAIT_MS; looks++)
        for (uint32_t rank = 0; rank < w; rank++) {
            struct commgemm_completion done = {0};
            if (in_step >> rank & 1 ||
                commgemm_wait(crew->rank[rank].client, ticket[rank], 1, &done) == COMMGEMM_TIMEOUT)
                continue;
            if (done.status == COMMGEMM_OK &&
                done.comm_number >= crew->high[crew->script->comm[plan]])
                in_step |= 1u << rank;
            else if (!submit_barrier(crew, plan, rank, &ticket[rank]))
                return false;
        }
    return in_step == (1u << w) - 1;
}

bool crew_recover(struct crew *crew)
{
    uint32_t done = 0;
    for (uint32_t rank = 0; rank < crew->script->world; rank++)
        if (!reopen(crew, rank))
            return false;
    for (uint32_t plan = 0; plan < crew->script->n_plans; plan++) {
        uint32_t comm = 1u << crew->script->comm[plan];
        if (!(done & comm) && !fall_into_step(crew, plan))
            return false;
        done |= comm;
        close_user_buffers(crew, plan);
        if (operations[crew->script->operation[plan]].lines)
            for (uint32_t rank = 0; rank < crew->script->world; rank++)
                if (!ask_user_buffer(crew, plan, rank))
                    return false;
    }
    return true;
}

pid_t crew_executor(struct crew *crew)
{
    static const char key[] = "\"executor_pid\":";
    char *json = NULL;
    if (wrong(0, "commgemm_query", commgemm_query(crew->rank[0].client, "status", &json)))
        return 0;
    const char *at = strstr(json, key);
    pid_t pid = at ? (pid_t)strtol(at + sizeof(key) - 1, NULL, 10) : 0;
    free(json);
    return pid;
}

/* ---- streams --------------------------------------------------------------------------------- */

void crew_hold(struct crew *crew, uint32_t rank, uint32_t lane)
{
    if (!crew->rank[rank].held[lane])
        fake_stream_hold(crew->rank[rank].stream[lane]);
    crew->rank[rank].held[lane] = true;
}

void crew_release(struct crew *crew, uint32_t rank, uint32_t lane)
{
    if (crew->rank[rank].held[lane])
        fake_stream_release(crew->rank[rank].stream[lane]);
    crew->rank[rank].held[lane] = false;
}

bool crew_streams_are_done(struct crew *crew)
{
    for (uint32_t rank = 0; rank < crew->script->world; rank++)
        for (uint32_t lane = 0; crew->script->streams && lane < LINES_LANES; lane++)
            if (!fake_stream_is_done(crew->rank[rank].stream[lane], WAIT_MS)) {
                printf("lines: rank %u: stream %u is not released\n", rank, lane);
                return false;
            }
    if (fake_cuda_complaint()[0])
        printf("lines: the driver was used wrongly: %s\n", fake_cuda_complaint());
    return !fake_cuda_complaint()[0];
}

/* ---- jobs ------------------------------------------------------------------------------------ */

static struct commgemm_operand operand_at(struct crew *crew, const struct step *step, uint32_t rank,
                                          enum operand operand)
{
    const struct place *place = &step->place[rank][operand];
    const struct lines_user_buffer *user = &crew->user[step->plan][rank];
    switch (place->kind) {
    case CELL:
        return commgemm_operand_at(&crew->rank[rank].buffer, place->cell * CELL_BYTES);
    case CHUNK:
        return commgemm_operand_at(&user->buffer,
                                   user->size / user->n_chunks * rank * sizeof(float));
    case WHOLE:
        return commgemm_operand_at(&user->buffer, 0);
    default:
        return (struct commgemm_operand){0};
    }
}

/* Memory of which nothing is there any more. */
static bool import_hole(struct crew *crew, uint32_t rank, struct commgemm_operand *ret_operand)
{
    int fd = memfd_create("lines", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    struct commgemm_segment segment = {
        .kind = COMMGEMM_SEGMENT_FD, .fd = fd, .length = IMPORT_BYTES};
    *ret_operand = (struct commgemm_operand){0};
    bool made = fd >= 0 && ftruncate(fd, IMPORT_BYTES) == 0 &&
                fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK) == 0 &&
                !wrong(rank, "commgemm_import",
                       commgemm_import(crew->rank[rank].client, &segment, 1, -1, 1,
                                       &ret_operand->id, &ret_operand->generation)) &&
                fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, IMPORT_BYTES) == 0;
    if (fd >= 0)
        close(fd);
    return made;
}

static bool spoil(struct crew *crew, uint32_t rank, const struct step *step,
                  struct commgemm_job *job)
{
    struct commgemm_operand *const operands[OPERANDS] = {&job->lhs, &job->rhs, &job->aux_in,
                                                         &job->out, &job->aux_out};
    struct commgemm_operand *bad = operands[step->bad];
    switch (step->fault) {
    case FAULT_OUTSIDE:
        bad->offset_bytes += FAR_OUTSIDE;
        return true;
    case FAULT_STALE:
        bad->generation += 1;
        return true;
    case FAULT_ROWS: /* of another job than the others' */
        job->rows = job->rows == 0 && crew->script->sizes[step->plan].m > crew->script->world
                        ? crew->script->world
                        : 0;
        job->kind = job->rows ? job->kind : COMMGEMM_JOB_BARRIER;
        return true;
    case FAULT_HOLE:
        return import_hole(crew, rank, &job->lhs);
    case FAULT_DEADLINE:
        job->deadline_ms = step->deadline_ms;
        return true;
    default:
        return true;
    }
}

static const int job_kinds[] = {[STEP_COPY_IN] = COMMGEMM_JOB_COPY_IN,
                                [STEP_RUN] = COMMGEMM_JOB_RUN,
                                [STEP_BARRIER] = COMMGEMM_JOB_BARRIER};

bool crew_submit(struct crew *crew, uint32_t rank, const struct step *step,
                 struct lines_job *ret_job)
{
    struct commgemm_job job;
    void *stream = crew->rank[rank].stream[step->lane[rank]];
    commgemm_job_init(&job);
    job.kind = job_kinds[step->kind];
    job.plan = crew->plan[step->plan].id;
    job.rank = rank;
    job.chunk = step->chunk;
    job.rows = step->rows;
    job.lhs = operand_at(crew, step, rank, LHS);
    job.rhs = operand_at(crew, step, rank, RHS);
    job.aux_in = operand_at(crew, step, rank, AUX_IN);
    job.out = operand_at(crew, step, rank, OUT);
    job.aux_out = operand_at(crew, step, rank, AUX_OUT);
    *ret_job = (struct lines_job){0};
    if (step->offender == rank && !spoil(crew, rank, step, &job))
        return false;
    commgemm_client *client = crew->rank[rank].client;
    return !wrong(rank, "commgemm_submit",
                  stream ? commgemm_submit_on_stream(client, &job, stream, &ret_job->ticket)
                         : commgemm_submit(client, &job, &ret_job->ticket));
}

bool crew_cancel(struct crew *crew, uint32_t rank, const struct lines_job *job)
{
    return !wrong(rank, "commgemm_cancel", commgemm_cancel(crew->rank[rank].client, job->ticket));
}

bool crew_vouch(struct crew *crew, uint32_t plan, uint32_t rank)
{
    return !wrong(
        rank, "commgemm_buffer_rewritten",
        commgemm_buffer_rewritten(crew->rank[rank].client, &crew->user[plan][rank].buffer));
}

bool crew_await(struct crew *crew, uint32_t rank, uint32_t comm, struct lines_job *job)
{
    struct commgemm_completion done = {0};
    if (wrong(rank, "commgemm_wait",
              commgemm_wait(crew->rank[rank].client, job->ticket, WAIT_MS, &done)))
        return false;
    if (done.comm_number > crew->high[comm])
        crew->high[comm] = done.comm_number;
    job->status = done.status;
    snprintf(job->detail, sizeof(job->detail), "%s", done.detail);
    commgemm_completion_fini(&done);
    return true;
}
