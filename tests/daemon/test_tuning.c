/* auto by measurement: plans are measured when they are made, others' jobs go on, and nothing is
 * left of it whoever dies meanwhile. */
#include "tests/daemon/broker_fixture.h"

#include <fcntl.h>
#include <grp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "commgemm.h"

#define RANKS 2
#define SIDE 64
#define GREEDY 21004u
#define GREEDY_CLIENTS 8u

#ifndef CGM_TEST_EXECUTOR
#define CGM_TEST_EXECUTOR "commgemm-executor-cpu"
#define CGM_TEST_BACKEND_NAME "cpu"
#endif
#define EXECUTOR "executor=" CGM_BIN_DIR "/" CGM_TEST_EXECUTOR
#define BACKEND "backend=" CGM_TEST_BACKEND_NAME
/* With it a launch takes milliseconds, and a plan is measured for as long as it may be. */
#define SLOWLY "test_delay_us=2000"

static commgemm_client *enter_at(const char *socket)
{
    commgemm_client *client;
    struct commgemm_connect_options options;
    commgemm_connect_options_init(&options);
    options.socket = socket;
    assert_int_equal(commgemm_connect(&options, &client), COMMGEMM_OK);
    assert_int_equal(commgemm_wait_executor(client, WAIT_S * 1000), COMMGEMM_OK);
    return client;
}

static commgemm_client *enter(const struct daemon *daemon)
{
    return enter_at(daemon->socket);
}

static uint64_t join(commgemm_client *client, const char *name)
{
    static const uint32_t ranks[RANKS] = {0, 1};
    struct commgemm_join_options options;
    uint64_t comm;
    commgemm_join_options_init(&options);
    options.name = name;
    options.size = options.n_ranks = RANKS;
    options.create = 1;
    options.ranks = ranks;
    if (commgemm_comm_join(client, &options, &comm))
        fail_msg("join: %s", commgemm_last_error());
    return comm;
}

/* num_splits 0: not given. */
static int make_split_plan(commgemm_client *client, uint64_t comm, int op, uint64_t side,
                           uint32_t num_splits, struct commgemm_plan *ret_plan)
{
    struct commgemm_plan_options options;
    commgemm_plan_options_init(&options);
    options.comm = comm;
    options.op = op;
    options.m = options.n = options.k = side;
    options.num_splits = num_splits;
    return commgemm_plan_create(client, &options, ret_plan);
}

static int make_plan(commgemm_client *client, uint64_t comm, int op, uint64_t side,
                     struct commgemm_plan *ret_plan)
{
    return make_split_plan(client, comm, op, side, 0, ret_plan);
}

static void assert_contains(const char *text, const char *part)
{
    if (!strstr(text, part))
        fail_msg("\"%s\" is not in \"%s\"", part, text);
}

static uint32_t count_products(const struct commgemm_completion *done)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < done->n_phases; i++)
        count += strcmp(commgemm_phase_name(done->phases[i].kind), "gemm") == 0;
    return count;
}

/* A job of the plan ends well; its operands are the same memory everywhere. Returns how many
 * products all ranks had. */
static uint32_t run_job(commgemm_client *client, const struct commgemm_plan *plan)
{
    uint32_t products = 0;
    struct commgemm_buffer buffers[3 * RANKS];
    struct commgemm_completion done;
    uint64_t tickets[RANKS];
    for (int i = 0; i < 3 * RANKS; i++)
        assert_int_equal(
            commgemm_buffer_create(client, NULL, SIDE * SIDE * sizeof(float), 0, 0, 0, &buffers[i]),
            COMMGEMM_OK);
    for (uint32_t rank = 0; rank < RANKS; rank++) {
        struct commgemm_job job;
        commgemm_job_init(&job);
        job.plan = plan->id;
        job.want_phases = 1;
        job.rank = rank;
        job.lhs = commgemm_operand_at(&buffers[3 * rank], 0);
        job.rhs = commgemm_operand_at(&buffers[3 * rank + 1], 0);
        job.out = commgemm_operand_at(&buffers[3 * rank + 2], 0);
        if (commgemm_submit(client, &job, &tickets[rank]))
            fail_msg("submit: %s", commgemm_last_error());
    }
    for (uint32_t rank = 0; rank < RANKS; rank++) {
        assert_int_equal(commgemm_wait(client, tickets[rank], WAIT_S * 1000, &done), COMMGEMM_OK);
        if (done.status != COMMGEMM_OK)
            fail_msg("job: %s: %s", commgemm_strerror(done.status), done.detail);
        assert_string_equal(done.reason, plan->reason);
        if (rank == 0) /* each has those of all devices */
            products = count_products(&done);
        commgemm_completion_fini(&done);
    }
    for (int i = 0; i < 3 * RANKS; i++)
        assert_int_equal(commgemm_buffer_close(client, buffers[i].id), COMMGEMM_OK);
    return products;
}

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

/* What it does as a child with another argument: as another user, one plan after the other, each of
 * other sizes, until it is killed. */
static int plan_for_ever(const char *socket, const char *comm_name, uint64_t first_side)
{
    struct commgemm_plan plan;
    if (setgroups(0, NULL) || setresgid(GREEDY, GREEDY, GREEDY) ||
        setresuid(GREEDY, GREEDY, GREEDY))
        return 3;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    commgemm_client *client = enter_at(socket);
    uint64_t comm = join(client, comm_name);
    for (uint64_t side = first_side;; side += 2 * GREEDY_CLIENTS)
        if (make_plan(client, comm, COMMGEMM_OP_GEMM_RS, side, &plan) ||
            commgemm_plan_destroy(client, plan.id))
            return 2;
}

/* What this program does as a child: it makes a plan on a comm of its own. */
static int plan_and_exit(const char *socket, const char *comm)
{
    struct commgemm_plan plan;
    commgemm_client *client = enter_at(socket);
    int status = make_plan(client, join(client, comm), COMMGEMM_OP_GEMM_RS, SIDE, &plan);
    commgemm_disconnect(client);
    return status == COMMGEMM_OK ? 0 : status == COMMGEMM_EXECUTOR_LOST ? 1 : 2;
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
    if (geteuid() != 0) {
        print_message("needs root to become another user\n");
        skip();
    }
    daemon_init(&daemon);
    assert_int_equal(chmod(daemon.folder, 0711), 0);
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
        kill(greedy[i], SIGKILL);
        assert_int_equal(outcome(greedy[i]), 1000 + SIGKILL);
    }
    assert_true(passed_over < 2);
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
        kill(children[i], SIGKILL);
        assert_int_equal(outcome(children[i]), 1000 + SIGKILL);
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
    kill((pid_t)status_number(&raw, "executor_pid"), SIGKILL);
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
    assert_int_not_equal(outcome(child), 0);
    client_close(&raw);
}

/* ---- what is kept -----------------------------------------------------------------------------
 */

struct kept {
    struct daemon daemon;
    char state[96], setting[120], file[128];
};

static void kept_init(struct kept *kept)
{
    daemon_init(&kept->daemon);
    snprintf(kept->state, sizeof(kept->state), "%s/state", kept->daemon.folder);
    snprintf(kept->setting, sizeof(kept->setting), "state_dir=%s", kept->state);
    snprintf(kept->file, sizeof(kept->file), "%s/timings", kept->state);
}

static void end_life(struct kept *kept)
{
    kill(kept->daemon.pid, SIGTERM);
    assert_int_equal(daemon_wait(&kept->daemon), 0);
}

/* One life of the daemon, with a plan of gemm_rs. */
static void live(struct kept *kept, const char *executor, struct commgemm_plan *ret_plan)
{
    daemon_start(&kept->daemon, executor, BACKEND, kept->setting, NULL);
    commgemm_client *client = enter(&kept->daemon);
    if (make_plan(client, join(client, "all"), COMMGEMM_OP_GEMM_RS, SIDE, ret_plan))
        fail_msg("plan: %s", commgemm_last_error());
    run_job(client, ret_plan);
    commgemm_disconnect(client);
    end_life(kept);
}

static bool is_kept(const struct commgemm_plan *plan)
{
    return strstr(plan->reason, "; kept since ") != NULL;
}

/* Also how many lines of the log have it. */
static int count_in_log(const struct kept *kept, const char *text)
{
    char path[128], line[1024];
    int count = 0;
    snprintf(path, sizeof(path), "%s/log", kept->daemon.folder);
    FILE *file = fopen(path, "re");
    while (file && fgets(line, sizeof(line), file))
        count += strstr(line, text) != NULL;
    if (file)
        fclose(file);
    return count;
}

static void test_survives_the_daemon(void **state)
{
    (void)state;
    struct kept kept;
    struct commgemm_plan first, second;
    struct stat info;
    kept_init(&kept);
    live(&kept, EXECUTOR, &first);
    assert_contains(first.reason, " measured ");
    assert_false(is_kept(&first));
    assert_int_equal(stat(kept.file, &info), 0);
    assert_int_equal(info.st_mode & 07777, 0600);
    for (int i = 0; i < 2; i++) {
        live(&kept, EXECUTOR, &second);
        assert_true(is_kept(&second));
        assert_int_equal(second.algorithm, first.algorithm);
        assert_memory_equal(second.reason, first.reason, strlen(first.reason));
    }
    assert_int_equal(count_in_log(&kept, "ignored"), 0);
    daemon_stop(&kept.daemon);
}

static void cut(const char *path)
{
    assert_int_equal(truncate(path, 100), 0);
}

static void empty(const char *path)
{
    assert_int_equal(truncate(path, 0), 0);
}

static void flip(const char *path)
{
    int fd = open(path, O_RDWR | O_CLOEXEC);
    char byte;
    assert_int_equal(pread(fd, &byte, 1, 60), 1);
    byte ^= 1;
    assert_int_equal(pwrite(fd, &byte, 1, 60), 1);
    close(fd);
}

static void grow(const char *path)
{
    assert_int_equal(truncate(path, 1 << 30), 0);
}

static void open_to_all(const char *path)
{
    assert_int_equal(chmod(path, 0666), 0);
}

static void make_link(const char *path)
{
    assert_int_equal(unlink(path), 0);
    assert_int_equal(symlink("/dev/zero", path), 0);
}

static void make_pipe(const char *path)
{
    assert_int_equal(unlink(path), 0);
    assert_int_equal(mkfifo(path, 0600), 0);
}

static void give_away(const char *path)
{
    if (geteuid() == 0)
        assert_int_equal(chown(path, 12345, 12345), 0);
    else
        open_to_all(path);
}

/* Ignored with a warning, and replaced by what is measured again. */
static void test_bad_files(void **state)
{
    static void (*const spoil[])(const char *path) = {cut,       empty,       flip,      grow,
                                                      make_link, open_to_all, make_pipe, give_away};
    (void)state;
    struct kept kept;
    struct commgemm_plan plan;
    kept_init(&kept);
    live(&kept, EXECUTOR, &plan);
    for (int i = 0; i < (int)(sizeof(spoil) / sizeof(spoil[0])); i++) {
        spoil[i](kept.file);
        live(&kept, EXECUTOR, &plan);
        assert_false(is_kept(&plan));
        assert_int_equal(count_in_log(&kept, "it is ignored"), i + 1);
        live(&kept, EXECUTOR, &plan);
        assert_true(is_kept(&plan));
    }
    daemon_stop(&kept.daemon);
}

static void make_file(const char *path)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    close(fd);
}

/* Where nothing can be kept, or others may write, the daemon says so and works without. */
static void test_bad_folders(void **state)
{
    (void)state;
    struct kept kept;
    struct commgemm_plan plan;
    kept_init(&kept);
    make_file(kept.state);
    live(&kept, EXECUTOR, &plan);
    assert_false(is_kept(&plan));
    assert_int_equal(unlink(kept.state), 0);
    assert_int_equal(mkdir(kept.state, 0700), 0);
    assert_int_equal(chmod(kept.state, 0777), 0);
    live(&kept, EXECUTOR, &plan);
    live(&kept, EXECUTOR, &plan);
    assert_false(is_kept(&plan));
    strcpy(kept.setting, "state_dir=/proc/1/no/such");
    live(&kept, EXECUTOR, &plan);
    assert_contains(plan.reason, " measured ");
    assert_int_equal(count_in_log(&kept, "is forgotten with the daemon"), 4);
    daemon_stop(&kept.daemon);
}

/* ---- variants ---------------------------------------------------------------------------------
 */

#define PACED "executor=" CGM_BIN_DIR "/paced_executor"

static void plan_splits(commgemm_client *client, uint64_t comm, uint32_t num_splits,
                        struct commgemm_plan *ret_plan)
{
    if (make_split_plan(client, comm, COMMGEMM_OP_GEMM_RS, SIDE, num_splits, ret_plan))
        fail_msg("plan: %s", commgemm_last_error());
}

static unsigned splits_in(const char *reason)
{
    const char *at = strstr(reason, "auto: split_pipelined_rs num_splits=");
    return at ? (unsigned)strtoul(at + strlen("auto: split_pipelined_rs num_splits="), NULL, 10)
              : 0;
}

/* The number of pieces that is fastest here is found, used and remembered. */
static void test_varies(void **state)
{
    (void)state;
    struct kept kept;
    struct commgemm_plan plan, again;
    char others[400];
    struct client raw;
    kept_init(&kept);
    daemon_start(&kept.daemon, PACED, BACKEND, kept.setting, "tune_ms=20000", NULL);
    commgemm_client *client = enter(&kept.daemon);
    uint64_t comm = join(client, "all");
    plan_splits(client, comm, 0, &plan);
    print_message("%s\n", plan.reason);
    unsigned splits = splits_in(plan.reason);
    assert_true(splits == 8 || splits == 16);
    assert_int_equal(run_job(client, &plan), RANKS * splits);
    client_open(&raw, &kept.daemon);
    query_value(&raw, CGM_QUERY_TUNE, NULL, NULL, "others", others, sizeof(others));
    client_close(&raw);
    assert_contains(others, "split_pipelined_rs rs_overlap_first_gemm=1 ");
    /* What is asked for is not varied, also where it is what the default would be. */
    plan_splits(client, comm, RANKS, &plan);
    print_message("%s\n", plan.reason);
    assert_null(strstr(plan.reason, "num_splits"));
    commgemm_disconnect(client);
    end_life(&kept);
    live(&kept, PACED, &again);
    assert_true(is_kept(&again));
    assert_int_equal(splits_in(again.reason), splits);
    daemon_stop(&kept.daemon);
}

int main(int argc, char **argv)
{
    if (argc == 3)
        return plan_and_exit(argv[1], argv[2]);
    if (argc == 4)
        return plan_for_ever(argv[1], argv[2], strtoull(argv[3], NULL, 10));
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_measures),       cmocka_unit_test(test_prepares),
        cmocka_unit_test(test_estimates),      cmocka_unit_test(test_no_memory),
        cmocka_unit_test(test_quota),          cmocka_unit_test(test_users_take_turns),
        cmocka_unit_test(test_clients_killed), cmocka_unit_test(test_executor_killed),
        cmocka_unit_test(test_daemon_ends),    cmocka_unit_test(test_survives_the_daemon),
        cmocka_unit_test(test_bad_files),      cmocka_unit_test(test_bad_folders),
        cmocka_unit_test(test_varies),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
