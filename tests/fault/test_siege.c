/* An honest pair of ranks goes on working while hostile_client, another user, does its worst: every
 * product is right, nothing dies, commgemmctl gets its answer. How long the honest had to wait is
 * printed, beside a process that only takes its share of the processors, and where the processors'
 * time went.
 *
 * test_siege [-r ROUNDS] [-a ATTACK]... [-p PROCESSORS] [SECONDS [NICE]]: SECONDS of each attack,
 * default 1; of ATTACKs alone, default all. With -r there are ROUNDS of them, each attack comes
 * behind a time with nobody and one with a spinner of its own, these when daemon and executor have
 * come to rest, and a table of medians is the end. With -p attackers and spinner have the last
 * PROCESSORS to themselves, and the others have the rest. Without NICE all share the processors as
 * the threads of one program do. With it daemon, honest and hostile have a session each, as if they
 * were a service and two users, and the daemon's nice value (/proc/PID/autogroup) differs by that
 * from the others': 0 is a CPUWeight like theirs, and -10 one ten times theirs. */
#include "tests/daemon/broker_fixture.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "client/bench/stats.h"
#include "tests/backend.h"
#include "tests/fault/product.h"
#include "tests/fault/siege_report.h"
#include "tests/fault/spent.h"

#define STRANGER_TEXT "12345"
#define WORLD PRODUCT_WORLD
#define OPS 2
#define WAIT_MS (WAIT_S * 1000)
#define SAMPLES_MAX 200000
#define ANSWERS_MAX 4000 /* of one visit: as many processes stay until its end */

#define ATTACKS_MAX 16
#define ROUNDS_MAX 32

static const char *seconds = "1", *daemon_nice; /* NULL: nobody has a session of its own */
static const char *attacks[ATTACKS_MAX] = {
    "messages", "packets",  "fds",  "flood",    "half_open", "deaf",    "questions", "rings",
    "entries",  "scribble", "feed", "listings", "comms",     "buffers", "plans",     "imports"};
static unsigned rounds; /* 0: one, with one spinner */
static unsigned apart;  /* processors that attackers and spinner have, and nobody else */
static const int ops[OPS] = {COMMGEMM_OP_AG_GEMM, COMMGEMM_OP_GEMM_RS};

struct rank {
    commgemm_client *client;
    uint32_t rank;
    uint64_t comm;
    struct commgemm_plan plans[OPS];
    struct commgemm_buffer lhs, rhs, out;
    struct buffer_view lhs_view, rhs_view, out_view;
};

struct samples {
    double us[SAMPLES_MAX];
    size_t count;
};

struct siege {
    struct daemon daemon;
    struct rank ranks[WORLD];
    uint64_t seed;
    pid_t executor;
    double alone_us, spinner_us; /* p99 of a job */
    struct samples jobs, answers;
    pid_t asked[ANSWERS_MAX]; /* one for each answer */
    _Atomic bool over;
};

static double now_us(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e6 + (double)now.tv_nsec * 1e-3;
}

static void add_sample(struct samples *samples, double us)
{
    if (samples->count < SAMPLES_MAX)
        samples->us[samples->count++] = us;
}

/* ---- the honest -------------------------------------------------------------------------------
 */

static void get_buffer(struct rank *r, const char *what, struct commgemm_buffer *ret_buffer,
                       struct buffer_view *ret_view)
{
    char name[32];
    snprintf(name, sizeof(name), "honest.%s.%u", what, r->rank);
    assert_int_equal(
        commgemm_buffer_create(r->client, name, PRODUCT_BYTES_MAX, -1, 0, 0, ret_buffer),
        COMMGEMM_OK);
    assert_int_equal(buffer_view_open(r->client, ret_buffer, ret_view), COMMGEMM_OK);
}

static void *rank_begin(void *argument)
{
    struct rank *r = argument;
    assert_int_equal(commgemm_comm_join_simple(r->client, "honest", WORLD, r->rank, &r->comm),
                     COMMGEMM_OK);
    for (int i = 0; i < OPS; i++) {
        struct commgemm_plan_options options;
        commgemm_plan_options_init(&options);
        options.comm = r->comm;
        options.op = ops[i];
        options.method = COMMGEMM_METHOD_RING_EXCHANGE;
        options.m = PRODUCT_M;
        options.n = PRODUCT_N;
        options.k = PRODUCT_K;
        assert_int_equal(commgemm_plan_create(r->client, &options, &r->plans[i]), COMMGEMM_OK);
    }
    get_buffer(r, "lhs", &r->lhs, &r->lhs_view);
    get_buffer(r, "rhs", &r->rhs, &r->rhs_view);
    get_buffer(r, "out", &r->out, &r->out_view);
    return NULL;
}

static uint64_t rank_submit(struct rank *r, int which)
{
    struct commgemm_job job;
    uint64_t ticket;
    commgemm_job_init(&job);
    job.plan = r->plans[which].id;
    job.rank = r->rank;
    job.lhs = commgemm_operand_at(&r->lhs, 0);
    job.rhs = commgemm_operand_at(&r->rhs, 0);
    job.out = commgemm_operand_at(&r->out, 0);
    assert_int_equal(commgemm_submit(r->client, &job, &ticket), COMMGEMM_OK);
    return ticket;
}

static void rank_wait(struct rank *r, uint64_t ticket)
{
    struct commgemm_completion done;
    assert_int_equal(commgemm_wait(r->client, ticket, WAIT_MS, &done), COMMGEMM_OK);
    if (done.status != COMMGEMM_OK)
        print_message("%s\n", done.detail);
    assert_int_equal(done.status, COMMGEMM_OK);
    commgemm_completion_fini(&done);
}

/* One job of both ranks with numbers that nobody has seen before. */
static void work_once(struct siege *siege)
{
    int which = (int)(++siege->seed % OPS);
    uint64_t tickets[WORLD];
    for (uint32_t i = 0; i < WORLD; i++) {
        struct rank *r = &siege->ranks[i];
        product_lhs(ops[which], siege->seed, i, r->lhs_view.memory);
        product_rhs(ops[which], siege->seed, i, r->rhs_view.memory);
        assert_int_equal(buffer_view_push(r->client, &r->lhs, &r->lhs_view), COMMGEMM_OK);
        assert_int_equal(buffer_view_push(r->client, &r->rhs, &r->rhs_view), COMMGEMM_OK);
    }
    double begin_us = now_us();
    for (uint32_t i = 0; i < WORLD; i++)
        tickets[i] = rank_submit(&siege->ranks[i], which);
    for (uint32_t i = 0; i < WORLD; i++)
        rank_wait(&siege->ranks[i], tickets[i]);
    add_sample(&siege->jobs, now_us() - begin_us);
    for (uint32_t i = 0; i < WORLD; i++) {
        struct rank *r = &siege->ranks[i];
        assert_int_equal(buffer_view_pull(r->client, &r->out, &r->out_view), COMMGEMM_OK);
        assert_true(product_is_right(ops[which], siege->seed, i, r->out_view.memory));
    }
}

/* ---- who comes first --------------------------------------------------------------------------
 */

/* Of the session that the process is in. The kernel lets nobody change it often. */
static void set_session_nice(pid_t pid, int nice)
{
    char path[64], text[16];
    ssize_t n = -1;
    snprintf(path, sizeof(path), "/proc/%d/autogroup", (int)pid);
    snprintf(text, sizeof(text), "%d", nice);
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    for (int naps = 0; fd >= 0 && n < 0 && naps < 100; naps++) {
        n = write(fd, text, strlen(text));
        usleep(n < 0 ? 50000 : 0);
    }
    if (n < 0)
        fail_msg("%s: %s", path, strerror(errno));
    close(fd);
}

static int own_session_nice(void)
{
    int nice = 0;
    FILE *file = fopen("/proc/self/autogroup", "re");
    if (!file || fscanf(file, "/autogroup-%*u nice %d", &nice) != 1)
        fail_msg("this kernel has no /proc/self/autogroup");
    fclose(file);
    return nice;
}

/* ---- whose processors -------------------------------------------------------------------------
 */

static cpu_set_t ours, theirs;

static void split_processors(void)
{
    unsigned taken = 0;
    assert_int_equal(sched_getaffinity(0, sizeof(ours), &ours), 0);
    if (apart == 0)
        return;
    if (apart >= (unsigned)CPU_COUNT(&ours))
        fail_msg("there are %d processors", CPU_COUNT(&ours));
    for (int i = CPU_SETSIZE; i-- > 0 && taken < apart;)
        if (CPU_ISSET(i, &ours)) {
            CPU_CLR(i, &ours);
            CPU_SET(i, &theirs);
            taken++;
        }
}

/* Whoever is started next has these. */
static void take_processors(const cpu_set_t *set)
{
    if (apart > 0)
        assert_int_equal(sched_setaffinity(0, sizeof(*set), set), 0);
}

/* ---- those who look ---------------------------------------------------------------------------
 */

static pid_t start(char *const *arguments, bool silent, bool own_session)
{
    pid_t pid;
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    posix_spawn_file_actions_init(&actions);
    posix_spawnattr_init(&attributes);
    if (own_session)
        posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSID);
    if (silent)
        posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
    assert_int_equal(posix_spawn(&pid, arguments[0], &actions, &attributes, arguments, environ), 0);
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&actions);
    return pid;
}

static int wait_for_exit(pid_t pid)
{
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

/* Asks for the status again and again, as an operator would. Those that have answered stay until
 * nothing is measured any more: the system lets who takes their status wait for whoever looks at
 * them in /proc, which may be a process of no priority. */
static void *ask(void *argument)
{
    struct siege *siege = argument;
    char program[] = CGM_BIN_DIR "/commgemmctl", option[] = "--socket", verb[] = "status";
    char *arguments[] = {program, option, siege->daemon.socket, verb, NULL};
    siginfo_t info;
    while (!atomic_load(&siege->over) && siege->answers.count < ANSWERS_MAX) {
        double begin_us = now_us();
        pid_t pid = start(arguments, true, false);
        siege->asked[siege->answers.count] = pid;
        assert_int_equal(waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT), 0);
        add_sample(&siege->answers, now_us() - begin_us);
        usleep(20000);
    }
    return NULL;
}

/* ---- where the time goes ----------------------------------------------------------------------
 */

/* Of processors, since some time ago. */
struct shares {
    double at_us;
    uint64_t spent_ns[SIEGE_PARTIES], waited_ns; /* waited: executor and honest, for a processor */
};

/* other 0: there is nobody. */
static void shares_read(const struct siege *siege, pid_t other, struct shares *ret_shares)
{
    *ret_shares = (struct shares){
        .at_us = now_us(),
        .spent_ns = {[SIEGE_DAEMON] = spent_ns(siege->daemon.pid),
                     [SIEGE_EXECUTOR] = spent_ns(siege->executor),
                     [SIEGE_HONEST] = spent_ns(getpid()),
                     [SIEGE_OTHER] = other ? spent_ns(other) : 0},
        .waited_ns = waited_ns(siege->executor) + waited_ns(getpid()),
    };
}

static void shares_between(const struct shares *before, const struct shares *after,
                           struct siege_visit *visit)
{
    double took_ns = (after->at_us - before->at_us) * 1e3;
    for (int i = 0; i < SIEGE_PARTIES; i++)
        visit->processors[i] = (double)(after->spent_ns[i] - before->spent_ns[i]) / took_ns;
    visit->waited = (double)(after->waited_ns - before->waited_ns) / took_ns;
}

/* ---- the siege --------------------------------------------------------------------------------
 */

static void reap_those_asked(struct siege *siege)
{
    for (size_t i = 0; i < siege->answers.count; i++)
        assert_int_equal(wait_for_exit(siege->asked[i]), 0);
}

/* Works for the time of an attack, then waits for the end of the process, if there is one. The p99
 * of a job. */
static double work_beside(struct siege *siege, const char *name, pid_t pid)
{
    pthread_t thread;
    double end_us = now_us() + atof(seconds) * 1e6;
    int status = 0;
    struct shares before, after;
    shares_read(siege, pid, &before);
    siege->jobs.count = siege->answers.count = 0;
    atomic_store(&siege->over, false);
    assert_int_equal(pthread_create(&thread, NULL, ask, siege), 0);
    while (now_us() < end_us)
        work_once(siege);
    shares_read(siege, pid, &after);
    atomic_store(&siege->over, true);
    pthread_join(thread, NULL);
    reap_those_asked(siege);
    if (pid)
        assert_int_equal(waitpid(pid, &status, 0), pid);
    struct siege_visit visit = {.name = name,
                                .jobs_us = siege->jobs.us,
                                .jobs = siege->jobs.count,
                                .answers_us = siege->answers.us,
                                .answers = siege->answers.count,
                                .alone_us = siege->alone_us,
                                .spinner_us = siege->spinner_us};
    shares_between(&before, &after, &visit);
    double p99_us = siege_report_visit(&visit);
    assert_int_equal(status, 0);
    return p99_us;
}

/* Takes processor time and nothing else. */
static pid_t start_spinner(void)
{
    int nice = daemon_nice ? own_session_nice() : 0;
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid > 0)
        return pid;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    take_processors(&theirs);
    if (daemon_nice) {
        setsid();
        set_session_nice(getpid(), nice);
    }
    for (double end_us = now_us() + atof(seconds) * 1e6; now_us() < end_us;)
        ;
    _exit(0);
}

static pid_t start_attack(struct siege *siege, const char *attack)
{
    char program[] = CGM_BIN_DIR "/hostile_client";
    const char *arguments[] = {program, "--socket",    siege->daemon.socket,
                               "--as",  STRANGER_TEXT, "--seconds",
                               seconds, attack,        NULL};
    take_processors(&theirs);
    pid_t pid = start((char *const *)(uintptr_t)arguments, false, daemon_nice != NULL);
    take_processors(&ours);
    if (daemon_nice)
        set_session_nice(pid, own_session_nice());
    return pid;
}

static void siege_begin(struct siege *siege)
{
    struct commgemm_connect_options options;
    pthread_t threads[WORLD];
    struct client client;
    daemon_init(&siege->daemon);
    siege->daemon.own_session = daemon_nice != NULL;
    daemon_start(&siege->daemon, test_backend_setting(), test_executor_setting(),
                 test_devices_setting(), "socket_mode=0666", "log_level=warning", NULL);
    if (daemon_nice)
        set_session_nice(siege->daemon.pid, own_session_nice() + atoi(daemon_nice));
    commgemm_connect_options_init(&options);
    options.socket = siege->daemon.socket;
    for (uint32_t i = 0; i < WORLD; i++) {
        siege->ranks[i].rank = i;
        assert_int_equal(commgemm_connect(&options, &siege->ranks[i].client), COMMGEMM_OK);
        assert_int_equal(commgemm_wait_executor(siege->ranks[i].client, WAIT_MS), COMMGEMM_OK);
        assert_int_equal(pthread_create(&threads[i], NULL, rank_begin, &siege->ranks[i]), 0);
    }
    for (uint32_t i = 0; i < WORLD; i++)
        pthread_join(threads[i], NULL);
    client_open(&client, &siege->daemon);
    siege->executor = (pid_t)status_number(&client, "executor_pid");
    client_close(&client);
}

static void siege_end(struct siege *siege)
{
    struct client client;
    client_open(&client, &siege->daemon);
    assert_int_equal(status_number(&client, "executor_deaths"), 0);
    client_close(&client);
    for (uint32_t i = 0; i < WORLD; i++) {
        struct rank *r = &siege->ranks[i];
        commgemm_disconnect(r->client);
        buffer_view_close(&r->lhs_view);
        buffer_view_close(&r->rhs_view);
        buffer_view_close(&r->out_view);
    }
    daemon_stop(&siege->daemon);
}

/* Daemon and executor have nothing left to do for those who are gone. */
static void await_rest(const struct siege *siege)
{
    uint64_t before, now = spent_ns(siege->daemon.pid) + spent_ns(siege->executor);
    do {
        before = now;
        usleep(100000);
        now = spent_ns(siege->daemon.pid) + spent_ns(siege->executor);
    } while (now - before > 5000000);
}

/* What the next ones are compared with. */
static void measure_peace(struct siege *siege)
{
    siege->alone_us = siege->spinner_us = 0;
    siege->alone_us = work_beside(siege, "nobody", 0);
    siege->spinner_us = work_beside(siege, "a spinner", start_spinner());
}

static void one_round(struct siege *siege)
{
    if (rounds == 0)
        measure_peace(siege);
    for (size_t i = 0; i < ATTACKS_MAX && attacks[i]; i++) {
        if (rounds > 0) {
            await_rest(siege);
            measure_peace(siege);
        }
        work_beside(siege, attacks[i], start_attack(siege, attacks[i]));
    }
}

static void test_siege(void **state)
{
    static struct siege siege;
    (void)state;
    skip_unless_root();
    siege.seed = (uint64_t)time(NULL) << 20;
    print_message("seed %ju\n", (uintmax_t)siege.seed);
    split_processors();
    take_processors(&ours);
    siege_begin(&siege);
    for (unsigned i = 0; i < (rounds > 0 ? rounds : 1); i++)
        one_round(&siege);
    if (rounds > 0)
        siege_report_table();
    siege_end(&siege);
}

static int usage(void)
{
    fputs("usage: test_siege [-r ROUNDS] [-a ATTACK]... [-p PROCESSORS] [SECONDS [NICE]]\n",
          stderr);
    return 2;
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_siege)};
    size_t named = 0;
    int option;
    while ((option = getopt(argc, argv, "r:a:p:")) != -1) {
        if (option == 'r')
            rounds = (unsigned)atoi(optarg);
        else if (option == 'a' && named < ATTACKS_MAX)
            attacks[named++] = optarg;
        else if (option == 'p' && atoi(optarg) > 0)
            apart = (unsigned)atoi(optarg);
        else
            return usage();
    }
    if (rounds > ROUNDS_MAX)
        return usage();
    if (named > 0 && named < ATTACKS_MAX)
        memset(attacks + named, 0, sizeof(attacks[0]) * (ATTACKS_MAX - named));
    if (optind < argc)
        seconds = argv[optind];
    if (optind + 1 < argc)
        daemon_nice = argv[optind + 1];
    return cmocka_run_group_tests(tests, NULL, NULL);
}
