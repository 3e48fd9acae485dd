/* At every step of the protocol, of a job's life and of every algorithm (cases.h), a client, the
 * executor or the daemon is killed or stopped. Afterwards: right results or the named error on
 * every rank that is left, in bounded time; nothing of the lost one is left in the daemon; named
 * buffers have their bytes; the next job is right.
 *
 *   test_steps [-l] [-v] [-t SECONDS] [PART]...    PART: of the names of the cases
 *
 *   -l: lists the cases; -v: names each one, and how far it is; -t: as many of them as there is
 *   time for, others each time, with some of the algorithms
 *
 * $CGM_FAULT_WORKERS says how many daemons work at the same time, tests/backend.h which backend
 * they have. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "daemon/executor/algorithm.h"
#include "kernels/random.h"
#include "proto/status.h"
#include "proto/types.h"
#include "tests/backend.h"
#include "tests/fault/case_list.h"
#include "tests/fault/node.h"
#include "tests/fault/product.h"
#include "tests/send_signal.h"

#define WORKERS_DEFAULT 10
#define WORKERS_MAX 64
#define PAIRS_MAX 64
#define REACH_S test_backend_wait(60) /* until a step is reached */
#define END_S test_backend_wait(60)   /* until everybody knows how it ended */
#define SETTLED_NAPS test_backend_wait(3)
#define SOON_S 8 /* what is told when it takes longer */
#define SHORT_MS 2500
#define LONG_MS 30000
#define SPARE_MAPS 16 /* arenas and stacks that the C library keeps */
#define SPARE_KIB 8192
#define SPARE_OF_DRIVER 8 /* fds and threads that CUDA's libraries make when they need them */
#define JOB_US 200000     /* a job has ended then, or little of it is missed */
#define PAIRS_ONE_IN 3    /* where time is short */

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define MEMORY_IS_OURS 0 /* the sanitizer keeps what is freed */
#define ONE_CASE_IN 4
#else
#define MEMORY_IS_OURS 1
#define ONE_CASE_IN 1
#endif

struct pair {
    int algorithm, op;
};

static struct case_list list;
static struct pair pairs[PAIRS_MAX];
static unsigned n_pairs;

static struct {
    _Atomic unsigned next, run, failed;
} * shared;          /* by all workers */
static double end_s; /* no case begins after that; 0: all do */
static bool verbose;

struct worker {
    struct node node;
    struct life lives[PRODUCT_WORLD];
    struct node_load broker_load, executor_load; /* idle, after a first life */
    unsigned serial;
    uint64_t seed;
    char tag[32];
    char why[512];
};

#define FAIL(worker, ...) (snprintf((worker)->why, sizeof((worker)->why), __VA_ARGS__), false)

static double now_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

/* How far a case is, for whoever looks at one that does not end. */
static void note(const struct fault_case *c, const char *reached)
{
    if (verbose)
        printf("  %s: %s\n", c->name, reached);
}

static bool time_is_up(void)
{
    return end_s > 0 && now_s() >= end_s;
}

/* ---- two lives ---------------------------------------------------------------------------------
 */

static void begin_lives(struct worker *w, const struct fault_case *c, const char *kind)
{
    bool is_short = c->victim == VICTIM_CLIENT && kind[0] == 'c';
    snprintf(w->tag, sizeof(w->tag), "%s%u", kind, ++w->serial);
    for (uint32_t rank = 0; rank < PRODUCT_WORLD; rank++) {
        struct life_options options = {
            .socket = w->node.socket,
            .tag = w->tag,
            .rank = rank,
            .algorithm = c->algorithm,
            .op = c->op,
            .seed = w->seed + w->serial,
            .join_timeout_ms = is_short ? SHORT_MS : LONG_MS,
            .deadline_ms = is_short ? SHORT_MS : 0,
            .no_ring = c->step.flags & MESSAGES,
        };
        life_begin(&w->lives[rank], &options);
    }
}

static void end_lives(struct worker *w)
{
    for (uint32_t rank = 0; rank < PRODUCT_WORLD; rank++)
        life_end(&w->lives[rank]);
}

static bool has_ended(const struct life *life)
{
    return !life->pid || (life->waits && life->report.gate == GATE_END);
}

/* Lets a life on, as far as to the gate; true when it stands there, or has ended. */
static bool follow(struct life *life, enum gate gate)
{
    life_await(life, 0);
    if (life->waits && life->report.gate < (int)gate)
        life_let_on(life);
    return has_ended(life) || (life->waits && life->report.gate >= (int)gate);
}

static bool follow_both(struct worker *w, enum gate gate)
{
    bool first = follow(&w->lives[0], gate);
    return follow(&w->lives[1], gate) && first;
}

/* Nothing is struck before. */
static bool bring_to_gate(struct worker *w, enum gate gate)
{
    if (!NODE_AWAIT(END_S, follow_both(w, gate)))
        return FAIL(w, "the ranks do not come to the gate '%s'", gate_names[gate]);
    for (uint32_t rank = 0; rank < PRODUCT_WORLD; rank++)
        if (w->lives[rank].report.gate != (int)gate || !w->lives[rank].pid)
            return FAIL(w, "rank %u ended before the gate '%s': %s: %s", rank, gate_names[gate],
                        cgm_status_name(w->lives[rank].report.status),
                        w->lives[rank].report.detail);
    return true;
}

/* ---- the blow ----------------------------------------------------------------------------------
 */

static bool is_reached(const struct worker *w)
{
    pid_t pid = atomic_load(&w->node.steps->pid);
    return pid != 0 && process_is_stopped(pid);
}

/* Rank 1 is let on first, so that what is struck is at work for the one that may be struck. */
static bool reach_step(struct worker *w, const struct fault_case *c)
{
    struct cgm_step_page *steps = w->node.steps;
    pid_t executor = 0;
    if (!c->step.place && !(c->step.flags & RESTART))
        return true;
    if (c->step.flags & RESTART && !NODE_AWAIT(REACH_S, (executor = node_executor(&w->node)) != 0))
        return FAIL(w, "there is no executor to be restarted");
    atomic_store(&steps->pid, 0);
    atomic_store(&steps->skip, 0);
    atomic_store(&steps->armed, (uint32_t)c->step.place << 16 | c->step.value);
    if (c->step.flags & RESTART) {
        send_signal(executor, SIGKILL);
    } else {
        life_let_on(&w->lives[1]);
        for (int naps = 0; naps < 10 && !is_reached(w); naps++)
            usleep(2000);
        life_let_on(&w->lives[0]);
    }
    if (NODE_AWAIT(REACH_S, is_reached(w)))
        return true;
    atomic_store(&steps->armed, 0);
    return FAIL(w, "the step is never reached");
}

static pid_t pid_of(const struct worker *w, enum victim victim)
{
    switch (victim) {
    case VICTIM_CLIENT:
        return w->lives[1].pid;
    case VICTIM_EXECUTOR:
        return node_executor(&w->node);
    default:
        return w->node.broker;
    }
}

/* The step's process goes on unless it is the one that was struck. */
static void strike(struct worker *w, const struct fault_case *c, pid_t victim)
{
    pid_t at_step = c->step.place ? atomic_load(&w->node.steps->pid) : 0;
    if (victim != 0)
        send_signal(victim, c->blow == BLOW_KILL ? SIGKILL : SIGSTOP);
    if (c->blow == BLOW_STOP && victim != 0)
        NODE_AWAIT(END_S, process_is_stopped(victim) || process_is_gone(victim));
    if (at_step != 0 && (at_step != victim || c->blow == BLOW_KILL))
        send_signal(at_step, SIGCONT);
}

/* Jobs that the daemon has nothing to do with end while it stands still; results of device memory
 * are read with its help. */
static bool goes_on_alone(const struct fault_case *c)
{
    bool is_job = c->step.place == CGM_STEP_JOB || c->step.place == CGM_STEP_PHASE ||
                  (!c->step.place && (c->step.gate == GATE_SUBMIT || c->step.gate == GATE_WAIT));
    return is_job && !(c->step.flags & (MESSAGES | RESTART)) && !test_backend_is_cuda();
}

static bool await_ends(struct worker *w, const struct fault_case *c, pid_t victim)
{
    bool ended;
    if (c->victim == VICTIM_CLIENT) {
        ended = NODE_AWAIT(END_S, follow(&w->lives[0], GATE_END));
        if (!ended)
            return FAIL(w, "rank 0 does not end");
        if (c->blow == BLOW_STOP && w->serial % 2) {
            send_signal(victim, SIGCONT);
            ended = NODE_AWAIT(END_S, follow(&w->lives[1], GATE_END));
        }
        return ended || FAIL(w, "rank 1 does not end after it went on");
    }
    if (c->victim == VICTIM_BROKER && c->blow == BLOW_STOP) {
        if (goes_on_alone(c) && !NODE_AWAIT(END_S, follow_both(w, GATE_CLOSE)))
            return FAIL(w, "the job does not end while the daemon stands still");
        usleep(20000);
        send_signal(victim, SIGCONT);
    }
    ended = NODE_AWAIT(END_S, follow_both(w, GATE_END));
    return ended || FAIL(w, "a rank does not end: gates %d and %d", w->lives[0].report.gate,
                         w->lives[1].report.gate);
}

/* ---- what came of it ---------------------------------------------------------------------------
 */

static bool names_rank(const char *detail, unsigned rank)
{
    char text[32];
    snprintf(text, sizeof(text), "rank %u", rank);
    return strstr(detail, text) != NULL;
}

/* The statuses that a rank may end with; OK is one always. */
static bool is_allowed(const struct fault_case *c, uint32_t rank, const struct life_report *report)
{
    bool peer = (report->status == CGM_PEER_LOST || report->status == CGM_JOIN_TIMEOUT ||
                 report->status == CGM_READY_TIMEOUT) &&
                names_rank(report->detail, 1 - rank);
    bool gone = report->status == CGM_DAEMON_LOST || report->status == CGM_NOT_RUNNING;
    if (report->status == CGM_OK)
        return true;
    switch (c->victim) {
    case VICTIM_CLIENT: /* a rank that slept through its own job is named to itself, too */
        return peer || (rank == 1 && names_rank(report->detail, 1));
    case VICTIM_EXECUTOR:
        return peer && c->step.flags & HALVED;
    default:
        return c->blow == BLOW_KILL ? gone : false;
    }
}

static bool check_reports(struct worker *w, const struct fault_case *c)
{
    for (uint32_t rank = 0; rank < PRODUCT_WORLD; rank++) {
        const struct life *life = &w->lives[rank];
        bool struck = c->victim == VICTIM_CLIENT && rank == 1;
        if (!life->waits && struck)
            continue;
        if (!life->waits)
            return FAIL(w, "rank %u died", rank);
        if (!is_allowed(c, rank, &life->report))
            return FAIL(w, "rank %u: %s: %s", rank, cgm_status_name(life->report.status),
                        life->report.detail);
    }
    return true;
}

/* spare: what it is allowed to have more. */
static bool is_within(const struct node_load *now, const struct node_load *before, long spare)
{
    bool exact = spare == 0;
    if (now->fds > before->fds + spare || now->threads > before->threads + spare)
        return false;
    if (exact && (now->fds != before->fds || now->threads != before->threads))
        return false;
    return !exact || !MEMORY_IS_OURS ||
           (now->maps <= before->maps + SPARE_MAPS &&
            now->resident_kib <= before->resident_kib + SPARE_KIB);
}

/* What a driver closes may take it until after the daemon, whose fds are counted, was measured. */
static void forget_closed(const struct node_load *now, struct node_load *before, long spare)
{
    if (test_backend_is_cuda() && spare == 0 && now->fds < before->fds)
        before->fds = now->fds;
}

static bool is_as_before(pid_t pid, struct node_load *now, struct node_load *before, long spare)
{
    *now = process_load(pid);
    forget_closed(now, before, spare);
    return is_within(now, before, spare);
}

static bool check_load(struct worker *w, const char *who, pid_t pid, struct node_load *before,
                       long spare)
{
    struct node_load now;
    if (NODE_AWAIT(SOON_S, is_as_before(pid, &now, before, spare)))
        return true;
    if (verbose) {
        printf("  %s, process %d: %ld fds (before: %ld), %ld threads (%ld), %ld maps (%ld)\n", who,
               (int)pid, now.fds, before->fds, now.threads, before->threads, now.maps,
               before->maps);
        process_show_fds(pid);
    }
    if (NODE_AWAIT(REACH_S, is_as_before(pid, &now, before, spare)))
        return true;
    process_show_fds(pid);
    return FAIL(w, "%s: %ld fds (before: %ld), %ld threads (%ld), %ld maps (%ld), %ld KiB (%ld)",
                who, now.fds, before->fds, now.threads, before->threads, now.maps, before->maps,
                now.resident_kib, before->resident_kib);
}

static bool check_node(struct worker *w)
{
    char left[256];
    if (!NODE_AWAIT(5, node_is_clean(&w->node, w->tag, left, sizeof(left))))
        return FAIL(w, "left in the daemon: %s", left);
    return true;
}

static bool check_next_job(struct worker *w, const struct fault_case *c)
{
    begin_lives(w, c, "n");
    if (!NODE_AWAIT(END_S, follow_both(w, GATE_END)))
        return FAIL(w, "the next job does not end");
    for (uint32_t rank = 0; rank < PRODUCT_WORLD; rank++)
        if (!w->lives[rank].waits || w->lives[rank].report.status != CGM_OK)
            return FAIL(w, "the next job: rank %u: %s: %s", rank,
                        cgm_status_name(w->lives[rank].report.status),
                        w->lives[rank].report.detail);
    end_lives(w);
    return check_node(w);
}

/* ---- one case ----------------------------------------------------------------------------------
 */

static bool raise_daemon(struct worker *w, const struct fault_case *c, pid_t executor)
{
    if (c->victim != VICTIM_BROKER || c->blow != BLOW_KILL)
        return true;
    if (!node_reap(&w->node, executor))
        return FAIL(w, "the executor outlives its daemon");
    return node_start(&w->node) || FAIL(w, "the daemon does not start again");
}

/* Each executor that ends at once makes the next one come later: the daemon is made anew, too. */
static bool forget_deaths(struct worker *w, pid_t executor)
{
    if (node_executor(&w->node) == executor)
        return true;
    return (node_stop(&w->node) || FAIL(w, "the daemon does not end well")) &&
           (node_start(&w->node) || FAIL(w, "the daemon does not start again"));
}

static bool run_case(struct worker *w, const struct fault_case *c)
{
    pid_t first = node_executor(&w->node);
    long spare = test_backend_is_cuda() ? SPARE_OF_DRIVER : 0;
    begin_lives(w, c, "c");
    if (!bring_to_gate(w, c->step.gate) || !reach_step(w, c))
        return false;
    pid_t executor = node_executor(&w->node), victim = pid_of(w, c->victim);
    strike(w, c, victim);
    note(c, "struck");
    if (!await_ends(w, c, victim) || !check_reports(w, c))
        return false;
    end_lives(w);
    note(c, "the ranks have ended");
    if (!raise_daemon(w, c, executor) || !check_node(w) || !check_next_job(w, c))
        return false;
    note(c, "the next job is right");
    return check_load(w, "daemon", w->node.broker, &w->broker_load, 0) &&
           check_load(w, "executor", node_executor(&w->node), &w->executor_load, spare) &&
           forget_deaths(w, first);
}

/* What the last client left goes without anybody waiting for it, and a driver may take its time. */
static struct node_load settled_load(pid_t pid)
{
    struct node_load load = process_load(pid), later;
    for (int same = 0; same < SETTLED_NAPS; load = later) {
        usleep(100000);
        later = process_load(pid);
        same = later.fds == load.fds && later.threads == load.threads ? same + 1 : 0;
    }
    return load;
}

/* A first life, so that what is made once is there. */
static bool worker_start(struct worker *w)
{
    struct fault_case first = {
        .algorithm = pairs[0].algorithm, .op = pairs[0].op, .victim = VICTIM_BROKER};
    if (!node_start(&w->node))
        return FAIL(w, "the daemon does not start");
    for (int i = 0; i < 2; i++)
        if (!check_next_job(w, &first))
            return false;
    w->broker_load = settled_load(w->node.broker);
    w->executor_load = settled_load(node_executor(&w->node));
    return true;
}

static bool worker_open(struct worker *w, uint64_t seed)
{
    *w = (struct worker){.seed = seed};
    return (node_init(&w->node) || FAIL(w, "no room for a daemon")) && worker_start(w);
}

static void worker_close(struct worker *w)
{
    end_lives(w);
    if (w->node.broker)
        send_signal(w->node.broker, SIGCONT);
    node_fini(&w->node);
}

/* ---- all cases ---------------------------------------------------------------------------------
 */

/* Which kinds of operations a job of this algorithm has is found by running one. */
static void phases_add(struct worker *w, const struct pair *pair)
{
    struct fault_case c = {.algorithm = pair->algorithm, .op = pair->op, .victim = VICTIM_BROKER};
    begin_lives(w, &c, "p");
    if (!bring_to_gate(w, GATE_SUBMIT)) {
        printf("not here: %s: %s\n", cgm_type_name(CGM_TABLE_ALGO, pair->algorithm), w->why);
        end_lives(w);
        n_pairs--;
        return;
    }
    atomic_store(&w->node.steps->phases, 0);
    /* Reading device memory is a copy, too. */
    NODE_AWAIT(END_S, follow_both(w, test_backend_is_cuda() ? GATE_WAIT : GATE_END));
    usleep(test_backend_is_cuda() ? JOB_US : 0);
    uint32_t phases = atomic_load(&w->node.steps->phases);
    NODE_AWAIT(END_S, follow_both(w, GATE_END));
    end_lives(w);
    check_node(w);
    for (unsigned kind = 0; kind < 32; kind++) {
        struct step_row step = {GATE_SUBMIT, CGM_STEP_PHASE, kind, 0};
        if (phases >> kind & 1)
            case_list_add(&list, &step, pair->algorithm, pair->op);
    }
}

static void find_pairs(struct worker *w, uint64_t seed)
{
    for (size_t i = 0; i < cgm_algorithm_count; i++)
        for (int op = 0; op < 32; op++) {
            struct pair pair = {(int)cgm_algorithms[i]->number, op};
            if (!(cgm_algorithms[i]->ops >> op & 1) || !product_knows(op) || n_pairs == PAIRS_MAX)
                continue;
            if (w && end_s > 0 && seed++ % PAIRS_ONE_IN != 0)
                continue;
            pairs[n_pairs++] = pair;
            if (w)
                phases_add(w, &pair);
        }
}

static bool make_cases(uint64_t seed)
{
    struct worker w;
    find_pairs(NULL, seed);
    bool ready = worker_open(&w, seed);
    if (ready) {
        n_pairs = 0;
        find_pairs(&w, seed);
        for (size_t i = 0; n_pairs > 0 && i < STEP_ROWS; i++)
            case_list_add(&list, &step_rows[i], pairs[i % n_pairs].algorithm,
                          pairs[i % n_pairs].op);
    } else {
        fprintf(stderr, "test_steps: %s\n", w.why);
        node_show_log(&w.node, true);
    }
    worker_close(&w);
    return ready;
}

/* After a failure everything is made anew. */
static bool work(uint64_t seed)
{
    struct worker w;
    unsigned index;
    bool ready = worker_open(&w, seed);
    for (unsigned done = 0; ready && (done == 0 || !time_is_up()); done++) {
        if ((index = atomic_fetch_add(&shared->next, 1)) >= list.count)
            break;
        const struct fault_case *c = &list.cases[index];
        double begin = now_s();
        if (verbose)
            printf("begins %s\n", c->name);
        bool passed = run_case(&w, c);
        atomic_fetch_add(&shared->run, 1);
        if (verbose)
            printf("%s %s, %.2f s\n", passed ? "passed" : "FAILED", c->name, now_s() - begin);
        fflush(stdout);
        node_show_log(&w.node, !passed);
        if (passed)
            continue;
        fprintf(stderr, "FAILED %s\n       %s\n", c->name, w.why);
        atomic_fetch_add(&shared->failed, 1);
        worker_close(&w);
        ready = worker_open(&w, seed + index);
    }
    if (ready && !node_stop(&w.node))
        ready = FAIL(&w, "the daemon does not end well");
    if (!ready) {
        fprintf(stderr, "test_steps: %s\n", w.why);
        node_show_log(&w.node, true);
    }
    worker_close(&w);
    return ready;
}

static int run_workers(uint64_t seed)
{
    const char *text = getenv("CGM_FAULT_WORKERS");
    int workers = text ? atoi(text) : WORKERS_DEFAULT, status, failed = 0;
    for (int i = 0; i < workers && i < WORKERS_MAX; i++)
        if (fork() == 0)
            exit(!work(seed + (uint64_t)i * 1000003));
    while (wait(&status) > 0)
        failed += status != 0;
    return failed;
}

int main(int argc, char **argv)
{
    bool only_list = false;
    double seconds = 0;
    int option;
    uint64_t seed = cgm_random_seed();
    while ((option = getopt(argc, argv, "lvt:")) != -1) {
        only_list |= option == 'l';
        verbose |= option == 'v';
        if (option == 't')
            end_s = now_s() + (seconds = atof(optarg));
    }
    setvbuf(stdout, NULL, _IOLBF, 0);
    printf("seed 0x%llx\n", (unsigned long long)seed);
    shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED || !make_cases(seed))
        return 1;
    /* Where processes are slow, a part of them, another one each time. */
    case_list_select(&list, argv + optind, ONE_CASE_IN, seed);
    if (end_s > 0) {
        case_list_shuffle(&list, seed);
        end_s = now_s() + seconds; /* of cases; to find them took some, too */
    }
    for (unsigned i = 0; only_list && i < list.count; i++)
        printf("%s\n", list.cases[i].name);
    int failed = only_list ? 0 : run_workers(seed);
    printf("%u cases of %zu steps and %u pairs of algorithm and operation, %u run, %u failed\n",
           list.count, STEP_ROWS, n_pairs, atomic_load(&shared->run), atomic_load(&shared->failed));
    bool all =
        atomic_load(&shared->run) == list.count || (end_s > 0 && atomic_load(&shared->run) > 0);
    return failed > 0 || atomic_load(&shared->failed) > 0 || (!only_list && !all);
}
