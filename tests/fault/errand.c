#include "tests/fault/errand.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "client/include/commgemm.h"
#include "tests/fault/product.h"
#include "tests/phases.h"
#include "tests/proc_entries.h"

#define WORLD PRODUCT_WORLD
#define WAIT_MS 20000
#define BYTES PRODUCT_BYTES_MAX

struct errand {
    const char *socket;
    uint64_t seed;
    commgemm_client *client;
    struct commgemm_buffer in[WORLD], out[WORLD];
    float *in_values[WORLD], *out_values[WORLD], *import_values;
    int import_fd;
    struct commgemm_operand import;
    uint64_t comm, tickets[WORLD];
    struct commgemm_plan plan;
    char detail[128]; /* of a job that has failed */
};

static int connect_(struct errand *e)
{
    struct commgemm_connect_options options;
    commgemm_connect_options_init(&options);
    options.socket = e->socket;
    options.name = "errand";
    if (e->client)
        return COMMGEMM_OK; /* only the executor was waited for */
    int status = commgemm_connect(&options, &e->client);
    return status == COMMGEMM_OK ? commgemm_wait_executor(e->client, WAIT_MS) : status;
}

/* A call of this program itself has failed, not one of the library. */
static _Noreturn void give_up(void)
{
    exit(ERRAND_OWN_FAILURE);
}

/* Of two that come one after the other, the one that is there is not made again. */
static int create(struct errand *e)
{
    void *memory;
    int status = COMMGEMM_OK;
    for (uint32_t i = 0; i < WORLD && status == COMMGEMM_OK; i++) {
        if (!e->in[i].id)
            status = commgemm_buffer_create(e->client, NULL, BYTES, -1, 0, 0, &e->in[i]);
        if (status == COMMGEMM_OK && !e->out[i].id)
            status =
                commgemm_buffer_create(e->client, i ? "errand" : NULL, BYTES, -1, 0, 0, &e->out[i]);
        if (status == COMMGEMM_OK && !e->in_values[i]) {
            status = commgemm_buffer_map(e->client, &e->in[i], &memory);
            e->in_values[i] = status == COMMGEMM_OK ? memory : NULL;
        }
        if (status == COMMGEMM_OK && !e->out_values[i]) {
            status = commgemm_buffer_map(e->client, &e->out[i], &memory);
            e->out_values[i] = status == COMMGEMM_OK ? memory : NULL;
        }
    }
    for (uint32_t i = 0; i < WORLD && status == COMMGEMM_OK; i++)
        product_lhs(COMMGEMM_OP_AG_GEMM, e->seed, i, e->in_values[i]);
    return status;
}

static int open_(struct errand *e)
{
    struct commgemm_buffer again;
    int status = commgemm_buffer_open(e->client, "errand", 0, 1, &again);
    return status == COMMGEMM_OK ? commgemm_buffer_close(e->client, again.id) : status;
}

/* The memory is the caller's, who gives both ranks' rhs in it. */
static int import(struct errand *e)
{
    struct commgemm_segment segment = {
        .kind = COMMGEMM_SEGMENT_FD, .fd = e->import_fd, .length = WORLD * BYTES};
    return commgemm_import(e->client, &segment, 1, -1, 1, &e->import.id, &e->import.generation);
}

static int join(struct errand *e)
{
    static const uint32_t ranks[WORLD] = {0, 1};
    struct commgemm_join_options options;
    commgemm_join_options_init(&options);
    options.name = "errand";
    options.size = WORLD;
    options.create = 1;
    options.ranks = ranks;
    options.n_ranks = WORLD;
    return commgemm_comm_join(e->client, &options, &e->comm);
}

static int plan(struct errand *e)
{
    struct commgemm_plan_options options;
    commgemm_plan_options_init(&options);
    options.comm = e->comm;
    options.op = COMMGEMM_OP_AG_GEMM;
    options.method = COMMGEMM_METHOD_AUTO;
    options.m = PRODUCT_M;
    options.n = PRODUCT_N;
    options.k = PRODUCT_K;
    return commgemm_plan_create(e->client, &options, &e->plan);
}

static int chunk(struct errand *e)
{
    struct commgemm_chunk chunk;
    return commgemm_plan_chunk(e->client, e->plan.id, 0, COMMGEMM_WHOLE_BUFFER, &chunk);
}

static int submit(struct errand *e, uint32_t rank)
{
    struct commgemm_job job;
    commgemm_job_init(&job);
    job.plan = e->plan.id;
    job.rank = rank;
    job.lhs = commgemm_operand_at(&e->in[rank], 0);
    job.rhs = e->import;
    job.rhs.offset_bytes = rank * BYTES;
    job.out = commgemm_operand_at(&e->out[rank], 0);
    job.want_phases = 1;
    return commgemm_submit(e->client, &job, &e->tickets[rank]);
}

static int reopen(struct errand *e, struct commgemm_buffer *buffer)
{
    return commgemm_buffer_open(e->client, NULL, buffer->id, 0, buffer);
}

static int wait_for(struct errand *e, uint32_t rank)
{
    struct commgemm_completion done = {0};
    int status = commgemm_wait(e->client, e->tickets[rank], WAIT_MS, &done);
    if (status == COMMGEMM_OK && done.status != COMMGEMM_OK) {
        status = done.status;
        snprintf(e->detail, sizeof(e->detail), "rank %u: %.100s", rank, done.detail);
    }
    if (status == COMMGEMM_OK && !phases_are_right(&done))
        status = COMMGEMM_INTERNAL;
    commgemm_completion_fini(&done);
    return status;
}

/* Both jobs are awaited, whatever becomes of the first. */
static int run(struct errand *e)
{
    int statuses[WORLD], status = COMMGEMM_OK;
    for (uint32_t i = 0; i < WORLD && status == COMMGEMM_OK; i++) {
        status = reopen(e, &e->in[i]);
        if (status == COMMGEMM_OK)
            status = reopen(e, &e->out[i]);
    }
    if (status != COMMGEMM_OK)
        return status;
    for (uint32_t i = 0; i < WORLD; i++)
        statuses[i] = submit(e, i);
    for (uint32_t i = 0; i < WORLD; i++) {
        if (statuses[i] != COMMGEMM_OK && i == 0)
            break; /* the other one waits for it in vain, and ends with the session */
        if (statuses[i] == COMMGEMM_OK && (i > 0 || statuses[1] == COMMGEMM_OK))
            statuses[i] = wait_for(e, i);
    }
    return statuses[0] != COMMGEMM_OK ? statuses[0] : statuses[1];
}

/* Twice: a call of the check may have failed, and only one does. */
static bool rank_is_right(struct errand *e, uint32_t rank)
{
    bool right = false;
    for (int i = 0; i < 2 && !right; i++)
        right = product_is_right(COMMGEMM_OP_AG_GEMM, e->seed, rank, e->out_values[rank]);
    return right;
}

/* Buffers without a name end with the session, and are zero from then on. */
static int check(struct errand *e)
{
    char *json = NULL;
    bool right = true;
    for (uint32_t i = 0; i < WORLD && right; i++)
        right = rank_is_right(e, i);
    if (right)
        return COMMGEMM_OK;
    int status = commgemm_query(e->client, "status", &json);
    free(json);
    return status == COMMGEMM_OK ? COMMGEMM_INTERNAL : status;
}

static int query(struct errand *e)
{
    static const char *const what[] = {"status", "sessions", "buffers", "plans", "jobs", "doctor"};
    int status = COMMGEMM_OK;
    for (size_t i = 0; i < sizeof(what) / sizeof(what[0]) && status == COMMGEMM_OK; i++) {
        char *json = NULL;
        status = commgemm_query(e->client, what[i], &json);
        free(json);
    }
    return status;
}

static int close_(struct errand *e)
{
    int status = commgemm_import_release(e->client, e->import.id);
    if (status == COMMGEMM_OK)
        status = commgemm_plan_destroy(e->client, e->plan.id);
    if (status == COMMGEMM_OK)
        status = commgemm_comm_leave(e->client, e->comm);
    return status;
}

static int destroy(struct errand *e)
{
    return commgemm_buffer_destroy(e->client, "errand");
}

static const struct {
    const char *name;
    int (*call)(struct errand *e);
} calls[] = {
    {"connect", connect_},  {"buffer_create", create},
    {"buffer_open", open_}, {"import", import},
    {"comm_join", join},    {"plan_create", plan},
    {"plan_chunk", chunk},  {"a job", run},
    {"the result", check},  {"query", query},
    {"the end", close_},    {"buffer_destroy", destroy},
};

static bool is_worth_repeating(struct errand *e, int *status)
{
    if ((*status != COMMGEMM_EXECUTOR_LOST && *status != COMMGEMM_NO_EXECUTOR) || !e->client)
        return false;
    int waited = commgemm_wait_executor(e->client, WAIT_MS);
    if (waited != COMMGEMM_OK)
        *status = waited;
    usleep(1000);
    return waited == COMMGEMM_OK;
}

static void do_calls(struct errand *e, struct errand_result *ret_result)
{
    for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
        int status;
        while (e->detail[0] = '\0', status = calls[i].call(e), is_worth_repeating(e, &status))
            continue;
        if (status == COMMGEMM_OK)
            continue;
        ret_result->status = status;
        snprintf(ret_result->call, sizeof(ret_result->call), "%s", calls[i].name);
        snprintf(ret_result->detail, sizeof(ret_result->detail), "%.120s",
                 e->detail[0] ? e->detail : commgemm_last_error());
        return;
    }
}

static unsigned count_fds(void)
{
    unsigned count = proc_entries(getpid(), "fd");
    if (count == 0)
        give_up();
    return count;
}

/* A named buffer outlives a session that could not end well. */
static void clean_up(struct errand *e, bool named)
{
    if (e->client && named &&
        commgemm_buffer_destroy(e->client, "errand") == COMMGEMM_DAEMON_LOST) {
        commgemm_disconnect(e->client);
        e->client = NULL;
        if (connect_(e) == COMMGEMM_OK)
            commgemm_buffer_destroy(e->client, "errand");
    }
    commgemm_disconnect(e->client);
    for (uint32_t i = 0; i < WORLD; i++) {
        if (e->in_values[i])
            commgemm_buffer_unmap(e->in_values[i], BYTES);
        if (e->out_values[i])
            commgemm_buffer_unmap(e->out_values[i], BYTES);
    }
}

void errand_run(const char *socket, uint64_t seed, struct errand_result *ret_result)
{
    struct errand e = {.socket = socket, .seed = seed};
    memset(ret_result, 0, sizeof(*ret_result));
    e.import_fd = memfd_create("errand", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (e.import_fd < 0 || ftruncate(e.import_fd, WORLD * BYTES) < 0 ||
        fcntl(e.import_fd, F_ADD_SEALS, F_SEAL_SHRINK) < 0)
        give_up();
    e.import_values = mmap(NULL, WORLD * BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, e.import_fd, 0);
    if (e.import_values == MAP_FAILED)
        give_up();
    for (uint32_t i = 0; i < WORLD; i++)
        product_rhs(COMMGEMM_OP_AG_GEMM, seed, i, e.import_values + i * BYTES / sizeof(float));
    unsigned before = count_fds();
    do_calls(&e, ret_result);
    clean_up(&e, ret_result->status != COMMGEMM_OK);
    int left = (int)(count_fds() - before);
    munmap(e.import_values, WORLD * BYTES);
    close(e.import_fd);
    if (left == 0)
        return;
    ret_result->status = COMMGEMM_INTERNAL;
    snprintf(ret_result->call, sizeof(ret_result->call), "leftovers");
    snprintf(ret_result->detail, sizeof(ret_result->detail), "the library left %d fds", left);
}
