#include "tests/fault/life.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/backend.h"
#include "tests/fault/product.h"
#include "tests/proc_entries.h"
#include "tests/send_signal.h"

#define EXECUTOR_WAIT_MS test_backend_wait(20000)
#define JOB_WAIT_MS test_backend_wait(40000)

const char *const gate_names[GATE_COUNT] = {
#define X(NAME, text) [GATE_##NAME] = (text),
    LIFE_GATES(X)
#undef X
};

/* One rank, as its stages see it. */
struct person {
    const struct life_options *options;
    int fd; /* to the test */
    commgemm_client *client;
    struct commgemm_buffer in, out, scratch;
    struct buffer_view in_view, out_view;
    float *import_values;
    int import_fd;
    struct commgemm_operand import;
    uint64_t comm;
    struct commgemm_plan plan;
    uint64_t ticket;
    int fds_before;
    const char *call; /* that was made last */
    char detail[192]; /* where it is not the library's last error */
};

void life_buffer_name(const char *tag, uint32_t rank, bool output, char *ret_name, size_t size)
{
    snprintf(ret_name, size, "%s.%s.%u", output ? "out" : "in", tag, rank);
}

/* ---- doing things again ------------------------------------------------------------------------
 */

/* True when an executor is there again. When none comes, that is how it ends. */
static bool is_worth_repeating(struct person *p, int *status)
{
    if (*status != COMMGEMM_EXECUTOR_LOST && *status != COMMGEMM_NO_EXECUTOR)
        return false;
    int waited = commgemm_wait_executor(p->client, EXECUTOR_WAIT_MS);
    if (waited != COMMGEMM_OK)
        *status = waited;
    return waited == COMMGEMM_OK;
}

static int persist(struct person *p, const char *name, int (*call)(struct person *p))
{
    int status;
    p->call = name;
    while (status = call(p), is_worth_repeating(p, &status))
        usleep(1000);
    return status;
}

/* ---- calls ------------------------------------------------------------------------------------
 */

static int create_in(struct person *p)
{
    char name[64];
    life_buffer_name(p->options->tag, p->options->rank, false, name, sizeof(name));
    return commgemm_buffer_create(p->client, name, PRODUCT_BYTES_MAX, -1, 0, 0, &p->in);
}

static int create_out(struct person *p)
{
    char name[64];
    life_buffer_name(p->options->tag, p->options->rank, true, name, sizeof(name));
    return commgemm_buffer_create(p->client, name, PRODUCT_BYTES_MAX, -1, 0, 0, &p->out);
}

static int create_scratch(struct person *p)
{
    return commgemm_buffer_create(p->client, NULL, 4096, -1, 0, 0, &p->scratch);
}

static int open_scratch(struct person *p)
{
    return commgemm_buffer_open(p->client, NULL, p->scratch.id, 1, &p->scratch);
}

static int reopen_in(struct person *p)
{
    return commgemm_buffer_open(p->client, NULL, p->in.id, 0, &p->in);
}

static int reopen_out(struct person *p)
{
    return commgemm_buffer_open(p->client, NULL, p->out.id, 0, &p->out);
}

/* A copy that was lost with an executor leaves the buffer with a new generation. */
static int fill_in(struct person *p)
{
    int status = p->in_view.is_copy ? reopen_in(p) : COMMGEMM_OK;
    return status == COMMGEMM_OK ? buffer_view_push(p->client, &p->in, &p->in_view) : status;
}

static int read_out(struct person *p)
{
    return buffer_view_pull(p->client, &p->out, &p->out_view);
}

static int import(struct person *p)
{
    struct commgemm_segment segment = {
        .kind = COMMGEMM_SEGMENT_FD, .fd = p->import_fd, .length = PRODUCT_BYTES_MAX};
    return commgemm_import(p->client, &segment, 1, -1, 1, &p->import.id, &p->import.generation);
}

static int join(struct person *p)
{
    struct commgemm_join_options options;
    commgemm_join_options_init(&options);
    options.name = p->options->tag;
    options.size = PRODUCT_WORLD;
    options.create = 1;
    options.ranks = &p->options->rank;
    options.n_ranks = 1;
    options.timeout_ms = p->options->join_timeout_ms;
    return commgemm_comm_join(p->client, &options, &p->comm);
}

static int plan(struct person *p)
{
    struct commgemm_plan_options options;
    commgemm_plan_options_init(&options);
    options.comm = p->comm;
    options.op = p->options->op;
    options.algorithm = p->options->algorithm;
    options.m = PRODUCT_M;
    options.n = PRODUCT_N;
    options.k = PRODUCT_K;
    return commgemm_plan_create(p->client, &options, &p->plan);
}

static int chunk(struct person *p)
{
    struct commgemm_chunk chunk;
    return commgemm_plan_chunk(p->client, p->plan.id, p->options->rank, COMMGEMM_WHOLE_BUFFER,
                               &chunk);
}

static int query(struct person *p)
{
    char *json = NULL;
    int status = commgemm_query(p->client, "jobs", &json);
    free(json);
    return status;
}

static int submit(struct person *p)
{
    struct commgemm_job job;
    float scratch[PRODUCT_BYTES_MAX / sizeof(float)];
    commgemm_job_init(&job);
    job.plan = p->plan.id;
    job.rank = p->options->rank;
    job.lhs = commgemm_operand_at(&p->in, 0);
    if (product_rhs(p->options->op, p->options->seed, p->options->rank, scratch))
        job.rhs = p->import;
    job.out = commgemm_operand_at(&p->out, 0);
    job.deadline_ms = p->options->deadline_ms;
    return commgemm_submit(p->client, &job, &p->ticket);
}

static int cancel(struct person *p)
{
    return commgemm_cancel(p->client, p->ticket);
}

/* ---- stages ------------------------------------------------------------------------------------
 */

static int stage_connect(struct person *p)
{
    struct commgemm_connect_options options;
    commgemm_connect_options_init(&options);
    options.socket = p->options->socket;
    options.no_ring = p->options->no_ring;
    options.name = "life";
    p->call = "commgemm_connect";
    p->fds_before = (int)proc_entries(getpid(), "fd");
    int status = commgemm_connect(&options, &p->client);
    p->call = "commgemm_wait_executor";
    return status == COMMGEMM_OK ? commgemm_wait_executor(p->client, EXECUTOR_WAIT_MS) : status;
}

static int stage_buffers(struct person *p)
{
    int status = persist(p, "commgemm_buffer_create (in)", create_in);
    if (status == COMMGEMM_OK)
        status = persist(p, "commgemm_buffer_create (out)", create_out);
    if (status == COMMGEMM_OK)
        status = persist(p, "commgemm_buffer_create (scratch)", create_scratch);
    if (status == COMMGEMM_OK)
        status = persist(p, "commgemm_buffer_open (scratch)", open_scratch);
    if (status == COMMGEMM_OK)
        status = buffer_view_open(p->client, &p->in, &p->in_view);
    if (status == COMMGEMM_OK)
        status = buffer_view_open(p->client, &p->out, &p->out_view);
    if (status != COMMGEMM_OK)
        return status;
    product_lhs(p->options->op, p->options->seed, p->options->rank, p->in_view.memory);
    return persist(p, "commgemm_buffer_write (in)", fill_in);
}

static int stage_import(struct person *p)
{
    p->import_fd = memfd_create("life", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (p->import_fd < 0 || ftruncate(p->import_fd, PRODUCT_BYTES_MAX) < 0 ||
        fcntl(p->import_fd, F_ADD_SEALS, F_SEAL_SHRINK) < 0)
        return COMMGEMM_IO;
    p->import_values =
        mmap(NULL, PRODUCT_BYTES_MAX, PROT_READ | PROT_WRITE, MAP_SHARED, p->import_fd, 0);
    if (p->import_values == MAP_FAILED)
        return COMMGEMM_IO;
    product_rhs(p->options->op, p->options->seed, p->options->rank, p->import_values);
    return persist(p, "commgemm_import", import);
}

static int stage_join(struct person *p)
{
    return persist(p, "commgemm_comm_join", join);
}

static int stage_plan(struct person *p)
{
    int status = persist(p, "commgemm_plan_create", plan);
    if (status == COMMGEMM_OK && p->options->op != COMMGEMM_OP_AG)
        status = persist(p, "commgemm_plan_chunk", chunk);
    if (status == COMMGEMM_NOT_SUPPORTED && strcmp(p->call, "commgemm_plan_chunk") == 0)
        status = COMMGEMM_OK; /* not every operation has a buffer of the user */
    return status == COMMGEMM_OK ? persist(p, "commgemm_query", query) : status;
}

static int stage_submit(struct person *p)
{
    return persist(p, "commgemm_submit", submit);
}

/* The job's own status. */
static int wait_once(struct person *p)
{
    struct commgemm_completion done = {0};
    p->call = "commgemm_wait";
    int status = commgemm_wait(p->client, p->ticket, JOB_WAIT_MS, &done);
    if (status == COMMGEMM_OK && done.status != COMMGEMM_OK) {
        p->call = "the job";
        status = done.status;
        snprintf(p->detail, sizeof(p->detail), "%s", done.detail);
    }
    commgemm_completion_fini(&done);
    return status;
}

/* What the executor was writing has a new generation then. */
static int submit_again(struct person *p)
{
    int status = persist(p, "commgemm_buffer_open (in)", reopen_in);
    if (status == COMMGEMM_OK)
        status = persist(p, "commgemm_buffer_open (out)", reopen_out);
    return status == COMMGEMM_OK ? persist(p, "commgemm_submit", submit) : status;
}

static int stage_wait(struct person *p)
{
    int status;
    while (status = wait_once(p), is_worth_repeating(p, &status))
        if ((status = submit_again(p)) != COMMGEMM_OK)
            return status;
    p->detail[0] = status == COMMGEMM_OK ? '\0' : p->detail[0];
    if (status == COMMGEMM_OK)
        status = persist(p, "commgemm_buffer_read (out)", read_out);
    if (status != COMMGEMM_OK)
        return status;
    p->call = "the result";
    if (!product_is_right(p->options->op, p->options->seed, p->options->rank, p->out_view.memory))
        return COMMGEMM_INTERNAL;
    return COMMGEMM_OK;
}

static int release(struct person *p)
{
    return commgemm_import_release(p->client, p->import.id);
}

static int destroy_plan(struct person *p)
{
    return commgemm_plan_destroy(p->client, p->plan.id);
}

static int leave_comm(struct person *p)
{
    return commgemm_comm_leave(p->client, p->comm);
}

static int close_scratch(struct person *p)
{
    return commgemm_buffer_close(p->client, p->scratch.id);
}

static int destroy_buffer(struct person *p, bool output)
{
    char name[64];
    life_buffer_name(p->options->tag, p->options->rank, output, name, sizeof(name));
    return commgemm_buffer_destroy(p->client, name);
}

static int destroy_in(struct person *p)
{
    return destroy_buffer(p, false);
}

static int destroy_out(struct person *p)
{
    return destroy_buffer(p, true);
}

/* All but cancel are possible without an executor: they are not repeated. */
static int stage_close(struct person *p)
{
    static const struct {
        const char *name;
        int (*call)(struct person *p);
    } calls[] = {
        {"commgemm_import_release", release},
        {"commgemm_plan_destroy", destroy_plan},
        {"commgemm_comm_leave", leave_comm},
        {"commgemm_buffer_close", close_scratch},
        {"commgemm_buffer_destroy (in)", destroy_in},
        {"commgemm_buffer_destroy (out)", destroy_out},
    };
    int status = persist(p, "commgemm_cancel", cancel); /* of what has ended: nothing happens */
    for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]) && status == COMMGEMM_OK; i++) {
        p->call = calls[i].name;
        status = calls[i].call(p);
    }
    return status;
}

static int (*const stages[GATE_END])(struct person *p) = {
    [GATE_CONNECT] = stage_connect, [GATE_BUFFERS] = stage_buffers, [GATE_IMPORT] = stage_import,
    [GATE_JOIN] = stage_join,       [GATE_PLAN] = stage_plan,       [GATE_SUBMIT] = stage_submit,
    [GATE_WAIT] = stage_wait,       [GATE_CLOSE] = stage_close,
};

/* ---- the process -------------------------------------------------------------------------------
 */

static void report(struct person *p, int gate, int status)
{
    struct life_report report = {.gate = gate, .status = status};
    char byte;
    if (status != COMMGEMM_OK)
        snprintf(report.detail, sizeof(report.detail), "%s: %.120s", p->call,
                 p->detail[0] ? p->detail : commgemm_last_error());
    if (send(p->fd, &report, sizeof(report), MSG_NOSIGNAL) != sizeof(report) ||
        recv(p->fd, &byte, 1, 0) != 1)
        _exit(3);
}

/* Whatever became of it, it leaves nothing in its own process. */
static int leave(struct person *p, int status)
{
    commgemm_disconnect(p->client);
    buffer_view_close(&p->in_view);
    buffer_view_close(&p->out_view);
    if (p->import_values && p->import_values != MAP_FAILED)
        munmap(p->import_values, PRODUCT_BYTES_MAX);
    if (p->import_fd >= 0)
        close(p->import_fd);
    int left = (int)proc_entries(getpid(), "fd") - p->fds_before;
    if (p->fds_before == 0 || left == 0)
        return status;
    p->call = "commgemm_disconnect";
    snprintf(p->detail, sizeof(p->detail), "the library left %d fds", left);
    return COMMGEMM_INTERNAL;
}

static void live(const struct life_options *options, int fd)
{
    struct person p = {.options = options, .fd = fd, .import_fd = -1, .call = ""};
    int status = COMMGEMM_OK;
    for (int gate = 0; gate < GATE_END && status == COMMGEMM_OK; gate++) {
        report(&p, gate, COMMGEMM_OK);
        status = stages[gate](&p);
    }
    if (status != COMMGEMM_OK && !p.detail[0])
        snprintf(p.detail, sizeof(p.detail), "%s", commgemm_last_error());
    status = leave(&p, status);
    report(&p, GATE_END, status);
}

void life_begin(struct life *life, const struct life_options *options)
{
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0) {
        perror("socketpair");
        exit(2);
    }
    *life = (struct life){.fd = pair[0], .rank = options->rank};
    life->pid = fork();
    if (life->pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        close(pair[0]);
        live(options, pair[1]);
        exit(0);
    }
    close(pair[1]);
}

bool life_await(struct life *life, int timeout_ms)
{
    struct pollfd poll_fd = {.fd = life->fd, .events = POLLIN};
    if (!life->pid || life->waits)
        return life->waits;
    if (poll(&poll_fd, 1, timeout_ms) <= 0)
        return false;
    if (recv(life->fd, &life->report, sizeof(life->report), 0) == sizeof(life->report)) {
        life->waits = true;
        return true;
    }
    life_end(life);
    return false;
}

void life_let_on(struct life *life)
{
    if (life->waits)
        (void)!send(life->fd, "", 1, MSG_NOSIGNAL);
    life->waits = false;
}

void life_end(struct life *life)
{
    if (!life->pid)
        return;
    send_signal(life->pid, SIGKILL);
    waitpid(life->pid, NULL, 0);
    close(life->fd);
    life->pid = 0;
    life->waits = false;
}
