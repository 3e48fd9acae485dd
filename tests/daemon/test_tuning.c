/* auto by measurement: plans are measured when they are made, others' jobs go on, and nothing is
 * left of it whoever dies meanwhile. */
#include "tests/daemon/tuning_fixture.h"

#include <fcntl.h>
#include <grp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/send_signal.h"

#define GREEDY 21004u
#define GREEDY_CLIENTS 8u
#define JOBS_BEFORE 120
/* With it a launch takes milliseconds, and a plan is measured for as long as it may be. */
#define SLOWLY "test_delay_us=2000"

static void measure_everything(const char *executor)
{
    static const struct {
        int op;
        const char *other;
    } rows[] = {
        {COMMGEMM_OP_AG_GEMM, "_ag"},
        {COMMGEMM_OP_GEMM_RS, "_rs"},
        {COMMGEMM_OP_GEMM_AR, "_ar"},
        {COMMGEMM_OP_GEMM_AS, "_as"},
    };
    struct daemon daemon;
    struct commgemm_plan plan;
    daemon_init(&daemon);
    daemon_start(&daemon, executor, BACKEND, NULL);
    commgemm_client *client = enter(&daemon);
    uint64_t comm = join(client, "all");
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        if (make_plan(client, comm, rows[i].op, SIDE, &plan))
            fail_msg("plan: %s", commgemm_last_error());
        assert_contains(plan.reason, "auto: ");
        assert_contains(plan.reason, " measured ");
        assert_contains(plan.reason, "no_overlap");
        assert_contains(plan.reason, rows[i].other);
        run_job(client, &plan);
    }
    commgemm_disconnect(client);
    daemon_stop(&daemon);
}

static void test_measures(void **state)
{
    (void)state;
    measure_everything(EXECUTOR);
}

/* On a backend that ends when a product was not prepared. */
static void test_prepares(void **state)
{
    (void)state;
    measure_everything("executor=" CGM_BIN_DIR "/preparing_executor");
}

/* Without time, or for one rank, auto says what it goes by instead. */
static void test_estimates(void **state)
{
    (void)state;
    struct daemon daemon;
    struct commgemm_plan plan;
    struct commgemm_plan_options options;
    daemon_init(&daemon);
    daemon_start(&daemon, EXECUTOR, BACKEND, "tune_ms=0", NULL);
    commgemm_client *client = enter(&daemon);
    uint64_t comm = join(client, "all");
    assert_int_equal(make_plan(client, comm, COMMGEMM_OP_GEMM_RS, SIDE, &plan), COMMGEMM_OK);
    assert_contains(plan.reason, "estimated cheapest of no_overlap");
    assert_contains(plan.reason, "; not measured: tune_ms is 0");
    commgemm_plan_options_init(&options);
    options.comm = comm;
    options.op = COMMGEMM_OP_GEMM_RS;
    options.m = options.n = options.k = SIDE;
    options.method = COMMGEMM_METHOD_NONE;
    assert_int_equal(commgemm_plan_create(client, &options, &plan), COMMGEMM_OK);
    assert_string_equal(plan.reason, "no_overlap: method none of gemm_rs");
    commgemm_disconnect(client);
    daemon_stop(&daemon);
}

/* Operands that no machine has: the plan itself, whose user buffer is small, can be made. */
static void test_no_memory(void **state)
{
    (void)state;
    struct daemon daemon;
    struct commgemm_plan plan;
    struct commgemm_plan_options options;
    daemon_init(&daemon);
    daemon_start(&daemon, EXECUTOR, BACKEND, "quota_bytes=0", NULL);
    commgemm_client *client = enter(&daemon);
    commgemm_plan_options_init(&options);
    options.comm = join(client, "all");
    options.op = COMMGEMM_OP_AG_GEMM;
    options.m = options.n = 1u << 20;
    options.k = 16;
    if (commgemm_plan_create(client, &options, &plan))
        fail_msg("plan: %s", commgemm_last_error());
    assert_contains(plan.reason, "; not measured: it takes ");
    assert_contains(plan.reason, " MiB, half of ");
    commgemm_disconnect(client);
    daemon_stop(&daemon);
}

static uint64_t bytes_used(struct client *raw)
{
    char value[32];
    query_value(raw, CGM_QUERY_QUOTAS, "quota", "\"quota_bytes\"", "used", value, sizeof(value));
    return strtoull(value, NULL, 10);
}

/* What is measured on is its user's, as long as it lasts. */
static void test_quota(void **state)
{
    static const struct {
        const char *quota, *reason;
    } rows[] = {
        {"quota_bytes=31457280", "; not measured: there is no room for it in quota_bytes"},
        {"quota_bytes=134217728", " measured "},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct daemon daemon;
        struct commgemm_plan plan;
        struct client raw;
        daemon_init(&daemon);
        daemon_start(&daemon, EXECUTOR, BACKEND, rows[i].quota, NULL);
        commgemm_client *client = enter(&daemon);
        if (make_plan(client, join(client, "all"), COMMGEMM_OP_GEMM_RS, 1024, &plan))
            fail_msg("plan: %s", commgemm_last_error());
        assert_contains(plan.reason, rows[i].reason);
        client_open(&raw, &daemon);
        assert_int_equal(bytes_used(&raw), RANKS * plan.workspace_bytes);
        client_close(&raw);
        commgemm_disconnect(client);
        daemon_stop(&daemon);
    }
}

/* In a child, where no test can fail. */
static void must(int status)
{
    if (status == COMMGEMM_OK)
        return;
    fprintf(stderr, "pid %d: %s\n", (int)getpid(), commgemm_last_error());
    exit(status == COMMGEMM_EXECUTOR_LOST ? 1 : 2);
}

/* What it does as a child with another argument: as another user, one plan after the other, each of
 * other sizes, until it is killed. */
static int plan_for_ever(const char *socket, const char *comm_name, uint64_t first_side)
{
    struct commgemm_plan plan;
    commgemm_client *client;
    uint64_t comm;
    if (setgroups(0, NULL) || setresgid(GREEDY, GREEDY, GREEDY) ||
        setresuid(GREEDY, GREEDY, GREEDY))
        return 3;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    must(try_to_enter(socket, &client));
    must(try_to_join(client, comm_name, &comm));
    for (uint64_t side = first_side;; side += 2 * GREEDY_CLIENTS) {
        must(make_plan(client, comm, COMMGEMM_OP_GEMM_RS, side, &plan));
        must(commgemm_plan_destroy(client, plan.id));
    }
}

/* What this program does as a child: it makes a plan on a comm of its own. */
static int plan_and_exit(const char *socket, const char *comm_name)
{
    struct commgemm_plan plan;
    commgemm_client *client;
    uint64_t comm;
    must(try_to_enter(socket, &client));
    must(try_to_join(client, comm_name, &comm));
    int status = make_plan(client, comm, COMMGEMM_OP_GEMM_RS, SIDE, &plan);
    commgemm_disconnect(client);
    return status != COMMGEMM_OK;
}

/* The same behind so many jobs that the comm's queues have work for seconds. */
static int plan_behind_jobs(const char *socket)
{
    struct commgemm_plan_options options;
    struct commgemm_plan plan;
    struct commgemm_buffer buffer;
    struct commgemm_job job;
    commgemm_client *client;
    uint64_t ticket;
    must(try_to_enter(socket, &client));
    commgemm_plan_options_init(&options);
    must(try_to_join(client, "behind", &options.comm));
    options.op = COMMGEMM_OP_AG_GEMM;
    options.method = COMMGEMM_METHOD_NONE;
    options.m = options.n = options.k = SIDE;
    must(commgemm_plan_create(client, &options, &plan));
    must(commgemm_buffer_create(client, NULL, 3 * SIDE * SIDE * sizeof(float), 0, 0, 0, &buffer));
    commgemm_job_init(&job);
    job.plan = plan.id;
    job.lhs = job.rhs = commgemm_operand_at(&buffer, 0);
    for (int i = 0; i < JOBS_BEFORE * RANKS; i++) {
        job.rank = (uint32_t)i % RANKS;
        job.out = commgemm_operand_at(&buffer, (1 + job.rank) * SIDE * SIDE * sizeof(float));
        must(commgemm_submit(client, &job, &ticket));
    }
    must(make_plan(client, options.comm, COMMGEMM_OP_GEMM_RS, SIDE, &plan));
    return 0;
}

static pid_t start_planning_behind_jobs(const struct daemon *daemon)
{
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid > 0)
        return pid;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    execl("/proc/self/exe", "test_tuning", daemon->socket, (char *)NULL);
    _exit(99);
}

static pid_t start_planning(const struct daemon *daemon, const char *comm)
{
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid > 0)
        return pid;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    execl("/proc/self/exe", "test_tuning", daemon->socket, comm, (char *)NULL);
    _exit(99);
}

static pid_t start_greedy(const struct daemon *daemon, unsigned number)
{
    char name[16], side[16];
    snprintf(name, sizeof(name), "greedy%u", number);
    snprintf(side, sizeof(side), "%u", SIDE + 2 * number);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid > 0)
        return pid;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    execl("/proc/self/exe", "test_tuning", daemon->socket, name, side, (char *)NULL);
    _exit(99);
}

static int outcome(pid_t pid)
{
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

/* One user has so many plans measured that there is always one: the turn of another one comes. */
static void test_users_take_turns(void **state)
{
    (void)state;
    struct daemon daemon;
    pid_t greedy[GREEDY_CLIENTS];
    int passed_over = 0;
    skip_unless_root();
    daemon_init(&daemon);
    daemon_start(&daemon, EXECUTOR, BACKEND, SLOWLY, "socket_mode=0666", "tune_ms=1000", NULL);
    commgemm_client *client = enter(&daemon);
    uint64_t comm = join(client, "mine");
    for (unsigned i = 0; i < GREEDY_CLIENTS; i++)
        greedy[i] = start_greedy(&daemon, i);
    usleep(1500000); /* some have been measured, and others have been waiting */
    for (uint64_t i = 0; i < 4; i++) {
        struct commgemm_plan plan;
        assert_int_equal(make_plan(client, comm, COMMGEMM_OP_GEMM_AR, SIDE + 2 * i, &plan),
                         COMMGEMM_OK);
        print_message("%s\n", plan.reason);
        passed_over += strstr(plan.reason, "others were") != NULL;
    }
    for (unsigned i = 0; i < GREEDY_CLIENTS; i++) {
        send_signal(greedy[i], SIGKILL);
        assert_int_equal(outcome(greedy[i]), 1000 + SIGKILL);
    }
    assert_true(passed_over < 2);
    commgemm_disconnect(client);
    daemon_stop(&daemon);
}

/* A trial whose launch waits behind the jobs of its own comm keeps nobody else's waiting. */
static void test_jobs_before_a_trial_hold_up_no_other_one(void **state)
{
    (void)state;
    struct daemon daemon;
    struct commgemm_plan plan;
    struct client raw;
    daemon_init(&daemon);
    daemon_start(&daemon, EXECUTOR, BACKEND, "test_delay_us=20000", "tune_ms=1000", NULL);
    commgemm_client *client = enter(&daemon);
    uint64_t comm = join(client, "mine");
    pid_t child = start_planning_behind_jobs(&daemon);
    client_open(&raw, &daemon);
    wait_for_status(&raw, "plans", 2);
    usleep(100000);
    assert_int_equal(make_plan(client, comm, COMMGEMM_OP_GEMM_AR, SIDE, &plan), COMMGEMM_OK);
    print_message("%s\n", plan.reason);
    assert_null(strstr(plan.reason, "others were"));
    send_signal(child, SIGKILL);
    assert_int_equal(outcome(child), 1000 + SIGKILL);
    wait_for_status(&raw, "plans", 1);
    assert_int_equal(status_number(&raw, "executor_deaths"), 0);
    client_close(&raw);
    commgemm_disconnect(client);
    daemon_stop(&daemon);
}

/* Whoever creates plans while another is being measured gets one, and its jobs run; and of those
 * who die of impatience nothing is left. */
static void test_clients_killed(void **state)
{
    (void)state;
    struct daemon daemon;
    struct commgemm_plan plan;
    pid_t children[3];
    char name[16];
    daemon_init(&daemon);
    daemon_start(&daemon, EXECUTOR, BACKEND, SLOWLY, "tune_ms=1000", NULL);
    commgemm_client *client = enter(&daemon);
    uint64_t comm = join(client, "mine");
    for (int i = 0; i < 3; i++) {
        snprintf(name, sizeof(name), "child%d", i);
        children[i] = start_planning(&daemon, name);
    }
    struct client raw;
    client_open(&raw, &daemon);
    wait_for_status(&raw, "plans", 3);
    for (int i = 0; i < 2; i++) {
        usleep(100000);
        send_signal(children[i], SIGKILL);
        int ended = outcome(children[i]); /* on a busy machine it may have got its plan before */
        assert_true(ended == 1000 + SIGKILL || ended == 0);
    }
    assert_int_equal(make_plan(client, comm, COMMGEMM_OP_GEMM_AR, SIDE, &plan), COMMGEMM_OK);
    run_job(client, &plan);
    assert_int_equal(outcome(children[2]), 0);
    wait_for_status(&raw, "plans", 1);
    wait_for_status(&raw, "comms", 1);
    assert_int_equal(commgemm_plan_destroy(client, plan.id), COMMGEMM_OK);
    wait_for_status(&raw, "plans", 0);
    wait_for_status(&raw, "sessions", 2);
    assert_int_equal(status_number(&raw, "executor_deaths"), 0);
    client_close(&raw);
    commgemm_disconnect(client);
    daemon_stop(&daemon);
}

/* The executor dies while it measures: the client is told, and the next one measures again; a plan
 * that was measured before keeps its algorithm and its reason. */
static void test_executor_killed(void **state)
{
    (void)state;
    struct daemon daemon;
    struct commgemm_plan plan;
    struct client raw;
    char before[200], after[200];
    daemon_init(&daemon);
    daemon_start(&daemon, EXECUTOR, BACKEND, SLOWLY, "tune_ms=1000", NULL);
    commgemm_client *client = enter(&daemon);
    uint64_t comm = join(client, "mine");
    assert_int_equal(make_plan(client, comm, COMMGEMM_OP_GEMM_AR, SIDE, &plan), COMMGEMM_OK);
    client_open(&raw, &daemon);
    query_value(&raw, CGM_QUERY_PLANS, NULL, NULL, "algorithm", before, sizeof(before));
    pid_t child = start_planning(&daemon, "child");
    wait_for_status(&raw, "plans", 2);
    usleep(100000);
    send_signal((pid_t)status_number(&raw, "executor_pid"), SIGKILL);
    assert_int_equal(outcome(child), 1);
    wait_for_status(&raw, "executor_deaths", 1);
    wait_for_executor(&raw);
    query_value(&raw, CGM_QUERY_PLANS, NULL, NULL, "algorithm", after, sizeof(after));
    assert_string_equal(before, after);
    query_value(&raw, CGM_QUERY_PLANS, NULL, NULL, "reason", after, sizeof(after));
    assert_contains(after, " measured ");
    assert_contains(after, "; kept since ");
    child = start_planning(&daemon, "child");
    assert_int_equal(outcome(child), 0);
    client_close(&raw);
    commgemm_disconnect(client);
    daemon_stop(&daemon);
}

/* The daemon ends in the middle of it, in an orderly way. */
static void test_daemon_ends(void **state)
{
    (void)state;
    struct daemon daemon;
    struct client raw;
    daemon_init(&daemon);
    daemon_start(&daemon, EXECUTOR, BACKEND, SLOWLY, "tune_ms=60000", NULL);
    pid_t child = start_planning(&daemon, "child");
    client_open(&raw, &daemon);
    wait_for_status(&raw, "plans", 1);
    usleep(100000);
    daemon_stop(&daemon);
    assert_int_equal(outcome(child), 1);
    client_close(&raw);
}

int main(int argc, char **argv)
{
    if (argc == 2)
        return plan_behind_jobs(argv[1]);
    if (argc == 3)
        return plan_and_exit(argv[1], argv[2]);
    if (argc == 4)
        return plan_for_ever(argv[1], argv[2], strtoull(argv[3], NULL, 10));
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_measures),
        cmocka_unit_test(test_prepares),
        cmocka_unit_test(test_estimates),
        cmocka_unit_test(test_no_memory),
        cmocka_unit_test(test_quota),
        cmocka_unit_test(test_users_take_turns),
        cmocka_unit_test(test_clients_killed),
        cmocka_unit_test(test_executor_killed),
        cmocka_unit_test(test_daemon_ends),
        cmocka_unit_test(test_jobs_before_a_trial_hold_up_no_other_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
