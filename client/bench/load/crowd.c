/* Many processes at once: each a session with ranks of several comms, which it shares with others.
 */
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "client/bench/barrier.h"
#include "client/bench/crew.h"
#include "client/bench/load/load.h"
#include "client/bench/stats.h"

#define SESSIONS 64u
#define RANKS 4u /* of a session, each in a comm of its own; and of a comm */
#define ROWS 8u
#define COLS 64u
#define BYTES (ROWS * COLS * sizeof(float))
#define WAIT_MS 60000
#define WARM_UP 10u
#define SUM 10.0f /* 1 + 2 + 3 + 4 */

/* Shared by all. */
struct crowd {
    struct cgm_load_server server;
    struct cgm_barrier barrier; /* of all sessions */
    uint64_t rounds;
    bool with_jobs;
    _Atomic uint64_t jobs, wrong;
    double *noop_ns; /* [session][round] */
};

struct member {
    struct crowd *crowd;
    uint32_t number;
    commgemm_client *client;
    uint64_t plan[RANKS];
    struct commgemm_buffer buffer;
    float *memory; /* in, out of each comm */
};

static void must(int status, const char *what)
{
    if (status == COMMGEMM_OK)
        return;
    cgm_load_fail(what);
    _exit(1);
}

/* Rank r of comm g is held by session g + r * SESSIONS / RANKS: comms span sessions. */
static uint32_t comm_of(uint32_t session, uint32_t rank)
{
    return (session + SESSIONS - rank * (SESSIONS / RANKS)) % SESSIONS;
}

/* Joins wait for each other: everybody goes through the comms in the same order. */
static void join_all(struct member *m)
{
    struct commgemm_plan_options options;
    struct commgemm_plan plan;
    char name[32];
    commgemm_plan_options_init(&options);
    options.op = COMMGEMM_OP_AR;
    options.m = ROWS;
    options.n = options.k = COLS;
    for (uint32_t comm = 0; comm < SESSIONS; comm++)
        for (uint32_t rank = 0; rank < RANKS; rank++) {
            if (comm_of(m->number, rank) != comm)
                continue;
            snprintf(name, sizeof(name), "crowd.%u", comm);
            must(commgemm_comm_join_simple(m->client, name, RANKS, rank, &options.comm), "join");
            must(commgemm_plan_create(m->client, &options, &plan), "plan");
            m->plan[rank] = plan.id;
        }
}

static void submit(struct member *m, int kind, uint32_t rank, uint64_t *ret_ticket)
{
    struct commgemm_job job;
    commgemm_job_init(&job);
    job.kind = kind;
    job.plan = kind == COMMGEMM_JOB_RUN ? m->plan[rank] : 0;
    job.rank = rank;
    if (kind == COMMGEMM_JOB_RUN) {
        job.lhs = commgemm_operand_at(&m->buffer, 2 * rank * BYTES);
        job.out = commgemm_operand_at(&m->buffer, (2 * rank + 1) * BYTES);
    }
    must(commgemm_submit(m->client, &job, ret_ticket), "submit");
}

static void await(struct member *m, uint64_t ticket)
{
    struct commgemm_completion done;
    must(commgemm_wait(m->client, ticket, WAIT_MS, &done), "wait");
    must(done.status, done.detail);
    atomic_fetch_add(&m->crowd->jobs, 1);
}

/* Every rank's summand is its number plus one in every element. */
static void check(struct member *m, uint32_t rank)
{
    const float *out = m->memory + (2 * rank + 1) * ROWS * COLS;
    for (uint32_t i = 0; i < ROWS * COLS; i++)
        if (out[i] != SUM) {
            atomic_fetch_add(&m->crowd->wrong, 1);
            return;
        }
}

static double run_round(struct member *m)
{
    uint64_t tickets[RANKS] = {0}, noop;
    for (uint32_t rank = 0; m->crowd->with_jobs && rank < RANKS; rank++) {
        memset(m->memory + (2 * rank + 1) * ROWS * COLS, 0xff, BYTES);
        submit(m, COMMGEMM_JOB_RUN, rank, &tickets[rank]);
    }
    uint64_t begin_ns = cgm_load_now_ns();
    submit(m, COMMGEMM_JOB_NOOP, 0, &noop);
    await(m, noop);
    double took_ns = (double)(cgm_load_now_ns() - begin_ns);
    for (uint32_t rank = 0; m->crowd->with_jobs && rank < RANKS; rank++) {
        await(m, tickets[rank]);
        check(m, rank);
    }
    return took_ns;
}

static void member_main(struct crowd *crowd, uint32_t number)
{
    struct member m = {.crowd = crowd, .number = number};
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (!cgm_load_connect(&crowd->server, 16, &m.client))
        _exit(1);
    must(commgemm_buffer_create(m.client, NULL, 2 * RANKS * BYTES, -1, 0, 0, &m.buffer), "buffer");
    must(commgemm_buffer_map(m.client, &m.buffer, (void **)&m.memory), "map");
    for (uint32_t rank = 0; rank < RANKS; rank++)
        for (uint32_t i = 0; i < ROWS * COLS; i++)
            m.memory[2 * rank * ROWS * COLS + i] = (float)(rank + 1);
    if (crowd->with_jobs)
        join_all(&m);
    for (uint32_t i = 0; i < WARM_UP; i++)
        run_round(&m);
    cgm_barrier_wait(&crowd->barrier);
    for (uint64_t i = 0; i < crowd->rounds; i++)
        crowd->noop_ns[number * crowd->rounds + i] = run_round(&m);
    cgm_barrier_wait(&crowd->barrier);
    commgemm_disconnect(m.client);
    _exit(0);
}

/* False when one of them failed; then the others are ended. */
static bool await_members(pid_t *pids)
{
    bool right = true;
    for (uint32_t left = SESSIONS; left > 0; left--) {
        int end;
        pid_t pid = wait(&end);
        bool fine = pid > 0 && WIFEXITED(end) && WEXITSTATUS(end) == 0;
        for (uint32_t i = 0; i < SESSIONS; i++)
            if (pids[i] == pid)
                pids[i] = 0;
        for (uint32_t i = 0; !fine && right && i < SESSIONS; i++)
            if (pids[i] > 0)
                kill(pids[i], SIGKILL);
        right = right && fine;
    }
    return right;
}

static void report(struct crowd *crowd, double seconds)
{
    struct cgm_stats stats = cgm_stats_of(crowd->noop_ns, SESSIONS * crowd->rounds);
    uint64_t expected = SESSIONS * (crowd->rounds + WARM_UP) * (crowd->with_jobs ? RANKS + 1 : 1);
    char text[96];
    const char *beside = crowd->with_jobs ? "beside all-reduces of 4 ranks" : "alone";
    printf("64 sessions at once, noops %s\n", beside);
    cgm_load_figure("  noop, p50", stats.median / 1e6, "ms", NULL);
    cgm_load_figure("  noop, p99", stats.p99 / 1e6, "ms", NULL);
    cgm_load_figure("  noop, longest", stats.max / 1e6, "ms", NULL);
    snprintf(text, sizeof(text), "of %llu", (unsigned long long)expected);
    cgm_load_figure("  jobs done", (double)atomic_load(&crowd->jobs), "", text);
    cgm_load_figure("  jobs wrong", (double)atomic_load(&crowd->wrong), "", NULL);
    cgm_load_figure("  jobs a second", (double)atomic_load(&crowd->jobs) / seconds, "1/s", NULL);
}

static bool run_crowd(struct crowd *crowd)
{
    pid_t pids[SESSIONS];
    struct cgm_usage before[2], after[2];
    atomic_store(&crowd->jobs, 0);
    cgm_barrier_init(&crowd->barrier, SESSIONS);
    before[0] = cgm_load_usage(crowd->server.daemon.pid);
    before[1] = cgm_load_usage(crowd->server.executor);
    uint64_t begin_ns = cgm_load_now_ns();
    fflush(NULL);
    for (uint32_t i = 0; i < SESSIONS; i++) {
        pids[i] = fork();
        if (pids[i] == 0)
            member_main(crowd, i);
    }
    if (!await_members(pids))
        return false;
    report(crowd, (double)(cgm_load_now_ns() - begin_ns) / 1e9);
    cgm_load_settle(&crowd->server, before, after);
    cgm_load_print_usage("it", before, after);
    return atomic_load(&crowd->wrong) == 0 && cgm_load_is_back(before, after);
}

bool cgm_load_crowd(uint64_t count)
{
    struct crowd *crowd = cgm_shared_alloc(sizeof(*crowd));
    if (!crowd || !(crowd->noop_ns = cgm_shared_alloc(SESSIONS * count * sizeof(double))))
        return cgm_load_fail("no memory");
    crowd->rounds = count;
    /* Not in shared memory: the process that becomes the daemon writes it too. */
    struct cgm_load_server server;
    bool right = cgm_load_start(&server, 2, NULL);
    crowd->server = server;
    right = right && run_crowd(crowd);
    crowd->with_jobs = true;
    right = right && run_crowd(crowd) && run_crowd(crowd); /* twice: what is kept must not grow */
    cgm_private_daemon_stop(&server.daemon);
    return right;
}
