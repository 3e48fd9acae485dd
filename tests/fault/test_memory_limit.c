/* A daemon whose memory has a limit, as a service or a container has: who asks for more is refused,
 * and nothing is killed. Needs root, and control groups of memory. */
#include "tests/daemon/broker_fixture.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include "commgemm.h"
#include "proto/cgroup.h"
#include "proto/types.h"

#define MIB (1ull << 20)
#define LIMIT (512 * MIB) /* that a sanitizer's executor fits in, too */
#define LIMIT_TEXT "536870912"
#define SESSIONS 400u
#define OUT_BYTES 256u /* 8 x 8 of fp32 */
#define JOBS 2000u
#define SMALL_LEAST 160u
#define QUESTIONS 40 /* whose answers are more than a session's queue takes */

/* A sanitizer does, which the limit has no room for. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define KEEPS_WHAT_IS_FREED 1
#else
#define KEEPS_WHAT_IS_FREED 0
#endif

struct scene {
    struct daemon daemon;
    struct client client;
    uint64_t executor_pid;
};

static char group[CGM_CGROUP_PATH + 64]; /* "": there is none */

static bool group_write(const char *file, const char *text)
{
    char path[3 * CGM_CGROUP_PATH];
    snprintf(path, sizeof(path), "%s/%s", group, file);
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    bool written = fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text);
    if (fd >= 0)
        close(fd);
    return written;
}

static bool group_limit(void)
{
    return group_write("memory.max", LIMIT_TEXT) ||
           group_write("memory.limit_in_bytes", LIMIT_TEXT);
}

static void group_remove(void)
{
    struct timespec begin;
    clock_gettime(CLOCK_MONOTONIC, &begin);
    while (group[0] && rmdir(group) != 0 && !is_over(&begin)) /* the last process may be ending */
        nap();
    group[0] = '\0';
}

/* At the top: no process may be in a group of v2 that has others below it. */
static bool group_make(void)
{
    struct cgm_cgroup_tree tree;
    if (geteuid() != 0 || cgm_cgroup_find("", &tree) != CGM_OK || !tree.version)
        return false;
    snprintf(group, sizeof(group), "%s/commgemm-test-%d", tree.point, (int)getpid());
    if (mkdir(group, 0700) != 0) {
        group[0] = '\0';
        return false;
    }
    if (group_limit())
        return true;
    group_remove();
    return false;
}

static void enter_group(void)
{
    if (!group_write("cgroup.procs", "0"))
        _exit(97);
}

/* The scene, or the end of the test. */
static struct scene *scene_of(void **state)
{
    if (!*state) {
        print_message("skipped: this test makes a control group with a limit of memory\n");
        skip();
        abort(); /* it does not return */
    }
    return *state;
}

static int set_up(void **state)
{
    static struct scene scene;
    if (!group_make())
        return 0;
    daemon_init(&scene.daemon);
    scene.daemon.bequeath = enter_group;
    daemon_start(&scene.daemon, REAL_EXECUTOR, "socket_mode=0666", "backend=cpu", NULL);
    client_open(&scene.client, &scene.daemon);
    wait_for_executor(&scene.client);
    scene.executor_pid = status_number(&scene.client, "executor_pid");
    *state = &scene;
    return 0;
}

static pid_t eater; /* a process in the group; 0: there is none */

static void kill_eater(void)
{
    if (eater)
        kill(eater, SIGKILL);
    if (eater)
        waitpid(eater, NULL, 0);
    eater = 0;
}

static int tear_down(void **state)
{
    struct scene *scene = *state;
    kill_eater();
    if (scene) {
        client_close(&scene->client);
        daemon_stop(&scene->daemon);
    }
    group_remove();
    return 0;
}

static void expect_same_executor(struct scene *scene)
{
    assert_int_equal(status_number(&scene->client, "executor_deaths"), 0);
    assert_int_equal(status_number(&scene->client, "executor_pid"), scene->executor_pid);
}

/* False: it was refused, with words about the limit. */
static bool create(struct client *client, uint64_t bytes)
{
    Cgm__BufferCreate buffer = CGM__BUFFER_CREATE__INIT;
    buffer.bytes = bytes;
    struct message *reply =
        client_reply(client, client_send(client, CGM_MSG_BUFFER_CREATE, &buffer.base, NULL, 0));
    if (reply->type == CGM_MSG_ERROR) {
        expect_error(reply, CGM_NO_MEMORY,
                     "bytes are left of " LIMIT_TEXT ", the limit of control "
                     "group ");
        return false;
    }
    message_free(reply);
    return true;
}

static void test_more_than_the_limit_is_refused(void **state)
{
    struct scene *scene = scene_of(state);
    for (int i = 0; i < 8; i++)
        assert_false(create(&scene->client, LIMIT + MIB));
    expect_same_executor(scene);
}

/* Of a plan, which is made of more than its buffers. */
static void test_memory_of_plans_counts(void **state)
{
    struct scene *scene = scene_of(state);
    Cgm__PlanCreate plan = CGM__PLAN_CREATE__INIT;
    plan.comm = comm_join_all(&scene->client, "limited", 4);
    plan.op = CGM_OP_AG_GEMM;
    plan.method = CGM_METHOD_AUTO;
    plan.comm_type = CGM_COMM_TYPE_AG;
    plan.m = plan.n = plan.k = 8192;
    client_error(&scene->client, CGM_MSG_PLAN_CREATE, &plan.base, NULL, 0, CGM_NO_MEMORY,
                 "the limit of control group ");
    plan.op = CGM_OP_GEMM; /* rhs has 4 GiB, out 1 */
    plan.comm_type = CGM_COMM_TYPE_NONE;
    plan.m = 1;
    plan.n = 1u << 28;
    plan.k = 4;
    client_error(&scene->client, CGM_MSG_PLAN_CREATE, &plan.base, NULL, 0, CGM_NO_MEMORY,
                 "it takes 53687");
    expect_same_executor(scene);
}

static void open_sessions(const struct daemon *daemon, struct client *clients, unsigned n)
{
    for (unsigned i = 0; i < n; i++) {
        client_open_as(STRANGER, &clients[i], daemon);
        message_free(client_ring_set_up(&clients[i], 64));
    }
}

/* Some small ones in any case: a list of all is long then. */
static void fill(struct client *client)
{
    unsigned large = 0, small = 0;
    while (small < SMALL_LEAST && create(client, 16384))
        small++;
    while (create(client, 4 * MIB))
        large++;
    while (create(client, 16384))
        small++;
    print_message("%u large and %u small buffers\n", large, small);
    assert_true(large > 0);
}

/* Who fills all of it with buffers, and then opens sessions, for which the broker needs memory. */
static void test_one_user_takes_all(void **state)
{
    static struct client clients[SESSIONS];
    struct scene *scene = scene_of(state);
    buffer_create(&scene->client, "keep", MIB, 0, NULL);
    client_open_as(STRANGER, &clients[0], &scene->daemon);
    fill(&clients[0]);
    open_sessions(&scene->daemon, clients + 1, SESSIONS - 1);
    assert_false(create(&clients[0], 4 * MIB));
    expect_same_executor(scene);
    for (unsigned i = 0; i < SESSIONS; i++)
        client_close(&clients[i]);
    Cgm__BufferOpen open = CGM__BUFFER_OPEN__INIT;
    open.name = (char *)(uintptr_t) "keep";
    message_free(client_call(&scene->client, CGM_MSG_BUFFER_OPEN, &open.base, NULL, 0,
                             CGM_MSG_BUFFER_REPLY));
}

/* More than the daemon's socket takes is never waited for. */
static void ask_for_buffers(const struct client *client)
{
    uint8_t packet[64];
    size_t size;
    Cgm__Query query = CGM__QUERY__INIT;
    query.what = CGM_QUERY_BUFFERS;
    assert_int_equal(cgm_packet_pack(CGM_MSG_QUERY, 7, &query.base, 0, packet, &size), CGM_OK);
    for (int i = 0; i < QUESTIONS; i++)
        (void)cgm_packet_send_bytes(client->fd, packet, size, NULL, 0);
}

/* What the broker keeps for those who do not read would be more than the limit leaves. */
static void test_who_reads_nothing_is_ended(void **state)
{
    static struct client deaf[SESSIONS];
    struct scene *scene = scene_of(state);
    struct timespec begin;
    if (KEEPS_WHAT_IS_FREED)
        skip();
    fill(&scene->client);
    for (unsigned i = 0; i < SESSIONS; i++) {
        client_open(&deaf[i], &scene->daemon);
        ask_for_buffers(&deaf[i]);
    }
    clock_gettime(CLOCK_MONOTONIC, &begin);
    while (!daemon_log_has(&scene->daemon, "info", "no memory for its messages")) {
        assert_false(is_over(&begin));
        nap();
    }
    expect_same_executor(scene);
    for (unsigned i = 0; i < SESSIONS; i++)
        client_close(&deaf[i]);
    wait_for_status(&scene->client, "sessions", 1);
}

/* What its buffers had is there again for others, as soon as it is given back. */
static void test_what_is_freed_may_be_used(void **state)
{
    struct scene *scene = scene_of(state);
    for (int round = 0; round < 4; round++) {
        struct timespec begin;
        struct client client;
        unsigned n = 0;
        client_open(&client, &scene->daemon);
        clock_gettime(CLOCK_MONOTONIC, &begin);
        for (; n < 8 && !is_over(&begin); n += create(&client, 16 * MIB))
            nap();
        assert_int_equal(n, 8);
        client_close(&client);
    }
    expect_same_executor(scene);
}

struct user {
    commgemm_client *client;
    struct commgemm_plan plan;
    struct commgemm_buffer in, out;
};

static void user_open(struct user *user, const struct daemon *daemon, uint32_t world)
{
    static const uint32_t ranks[] = {0, 1};
    struct commgemm_connect_options options;
    struct commgemm_join_options join;
    struct commgemm_plan_options plan;
    commgemm_connect_options_init(&options);
    options.socket = daemon->socket;
    options.ring_entries = 4096;
    commgemm_join_options_init(&join);
    join.name = "numbers";
    join.size = join.n_ranks = world;
    join.create = 1;
    join.ranks = ranks;
    commgemm_plan_options_init(&plan);
    plan.op = world > 1 ? COMMGEMM_OP_AG_GEMM : COMMGEMM_OP_GEMM;
    plan.m = plan.k = 8;
    plan.n = 8 * world; /* sharded, as out is */
    plan.dtype = COMMGEMM_FP32;
    if (commgemm_connect(&options, &user->client) ||
        commgemm_comm_join(user->client, &join, &plan.comm) ||
        commgemm_plan_create(user->client, &plan, &user->plan) ||
        commgemm_buffer_create(user->client, NULL, 4096, 0, 0, 0, &user->in) ||
        commgemm_buffer_create(user->client, NULL, 2 * JOBS * OUT_BYTES, 0, 0, 0, &user->out))
        fail_msg("%s", commgemm_last_error());
}

static uint64_t user_submit(struct user *user, uint32_t rank, uint32_t out, int want_phases)
{
    struct commgemm_job job;
    uint64_t ticket;
    commgemm_job_init(&job);
    job.plan = user->plan.id;
    job.rank = rank;
    job.lhs = job.rhs = commgemm_operand_at(&user->in, 0);
    job.out = commgemm_operand_at(&user->out, out * OUT_BYTES);
    job.want_phases = want_phases;
    if (commgemm_submit(user->client, &job, &ticket))
        fail_msg("%s", commgemm_last_error());
    return ticket;
}

/* How many phases the job of a product has, and lost. */
static uint32_t user_multiply(struct user *user, uint32_t *ret_lost)
{
    struct commgemm_completion completion = {0};
    uint64_t ticket = user_submit(user, 0, 0, 1);
    if (commgemm_wait(user->client, ticket, WAIT_S * 1000, &completion))
        fail_msg("%s", commgemm_last_error());
    uint32_t n = completion.n_phases;
    *ret_lost = completion.phases_lost;
    commgemm_completion_fini(&completion);
    return n;
}

/* They are not worth what is kept: the job goes without. */
static void test_phases_take_nothing_that_is_kept(void **state)
{
    struct scene *scene = scene_of(state);
    struct client other;
    struct user user;
    uint32_t lost;
    if (KEEPS_WHAT_IS_FREED)
        skip();
    user_open(&user, &scene->daemon, 1);
    client_open(&other, &scene->daemon);
    fill(&other);
    assert_int_equal(user_multiply(&user, &lost), 0);
    assert_true(lost > 0);
    client_close(&other);
    for (int i = 0; user_multiply(&user, &lost) == 0; i++) {
        assert_true(i < 100 * WAIT_S);
        nap();
    }
    assert_int_equal(lost, 0);
    commgemm_disconnect(user.client);
    expect_same_executor(scene);
}

static uint64_t group_left(void)
{
    static const char *const files[] = {"memory.current", "memory.usage_in_bytes"};
    for (int i = 0; i < 2; i++) {
        char path[3 * CGM_CGROUP_PATH], text[32] = "";
        snprintf(path, sizeof(path), "%s/%s", group, files[i]);
        int fd = open(path, O_RDONLY | O_CLOEXEC);
        bool there = fd >= 0 && read(fd, text, sizeof(text) - 1) > 0;
        if (fd >= 0)
            close(fd);
        if (there)
            return LIMIT - strtoull(text, NULL, 10);
    }
    return 0;
}

/* A process in the group that has all of it but so much. */
static void eat(uint64_t left)
{
    int ready[2];
    char byte;
    assert_int_equal(pipe(ready), 0);
    eater = fork();
    if (eater == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        enter_group();
        while (group_left() > left)
            memset(mmap(NULL, MIB / 4, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0),
                   1, MIB / 4);
        (void)!write(ready[1], "", 1);
        for (;;)
            pause();
    }
    assert_int_equal(read(ready[0], &byte, 1), 1);
    close(ready[0]);
    close(ready[1]);
}

struct refused {
    uint32_t all;
    uint32_t nan, left; /* ranks' outputs that were made NaN, or said to be left as they are */
};

enum end { RIGHT, REFUSED, LEFT };

static enum end end_of(const struct commgemm_completion *c)
{
    if (c->status == COMMGEMM_OK)
        return RIGHT;
    return strstr(c->detail, "outputs are not NaN (no memory)") ? LEFT : REFUSED;
}

/* Whoever fails in a crowd spares outputs that others may have yet to read (poison.h). */
static bool is_nan(const float *out, enum end end)
{
    uint32_t nans = 0, n = OUT_BYTES / sizeof(float);
    for (uint32_t i = 0; i < n; i++)
        nans += isnan(out[i]) ? 1 : 0;
    assert_true(nans == 0 || (nans == n && end != RIGHT));
    return nans == n;
}

/* It ends alike for both ranks, and in time. */
static void collect(struct user *user, const uint64_t tickets[2], enum end ret_ends[2],
                    struct refused *refused)
{
    struct commgemm_completion c[2] = {{0}, {0}};
    for (int rank = 0; rank < 2; rank++)
        if (commgemm_wait(user->client, tickets[rank], WAIT_S * 1000, &c[rank]))
            fail_msg("%s", commgemm_last_error());
    if (c[0].status != c[1].status ||
        (c[0].status != COMMGEMM_OK && c[0].status != COMMGEMM_NO_MEMORY))
        fail_msg("%s: %s, %s: %s", commgemm_status_name(c[0].status), c[0].detail,
                 commgemm_status_name(c[1].status), c[1].detail);
    refused->all += c[0].status != COMMGEMM_OK;
    for (int rank = 0; rank < 2; rank++) {
        ret_ends[rank] = end_of(&c[rank]);
        refused->left += ret_ends[rank] == LEFT;
    }
}

/* More than are kept for the next ones. The first rank is ahead: what it is refused the other one
 * must not wait for. */
static struct refused run_many(struct user *user, uint64_t left)
{
    static uint64_t tickets[JOBS][2];
    static float out[2 * JOBS][OUT_BYTES / sizeof(float)];
    static enum end ends[JOBS][2];
    struct refused refused = {0};
    eat(left);
    for (uint32_t rank = 0; rank < 2; rank++)
        for (uint32_t i = 0; i < JOBS; i++)
            tickets[i][rank] = user_submit(user, rank, 2 * i + rank, 0);
    for (uint32_t i = 0; i < JOBS; i++)
        collect(user, tickets[i], ends[i], &refused);
    if (commgemm_buffer_read(user->client, &user->out, 0, out, sizeof(out)))
        fail_msg("%s", commgemm_last_error());
    for (uint32_t i = 0; i < 2 * JOBS; i++)
        refused.nan += is_nan(out[i], ends[i / 2][i % 2]);
    kill_eater();
    print_message("%u of %u are refused; outputs of ranks: %u are NaN, %u are left\n", refused.all,
                  JOBS, refused.nan, refused.left);
    return refused;
}

static void test_jobs_are_refused_on_all_ranks(void **state)
{
    struct scene *scene = scene_of(state);
    struct user user;
    if (KEEPS_WHAT_IS_FREED)
        skip();
    user_open(&user, &scene->daemon, 2);
    struct refused refused = run_many(&user, 60 * MIB);
    assert_true(refused.nan > 0);
    assert_int_equal(refused.left, 0);
    refused = run_many(&user, 30 * MIB);
    assert_true(refused.left > 0);
    assert_int_equal(run_many(&user, LIMIT).all, 0);
    commgemm_disconnect(user.client);
    expect_same_executor(scene);
}

/* Page tables of imports are the executor's memory. */
static void test_imports_are_bound_by_it(void **state)
{
    struct scene *scene = scene_of(state);
    char allowed[32], expected[32];
    query_value(&scene->client, CGM_QUERY_QUOTAS, "quota", "\"quota_import_bytes\"", "allowed",
                allowed, sizeof(allowed));
    snprintf(expected, sizeof(expected), "%ju", (uintmax_t)(4 * LIMIT));
    assert_string_equal(allowed, expected);
}

static bool is_on_tmpfs(const char *folder)
{
    struct statfs info;
    return statfs(folder, &info) != 0 || info.f_type == TMPFS_MAGIC;
}

/* Pages of a file, written by a process in the group, which count there. */
static int fill_cache(const char *folder, unsigned mib)
{
    static char part[MIB];
    char path[128];
    enter_group();
    snprintf(path, sizeof(path), "%s/cache", folder);
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    for (unsigned i = 0; i < mib; i++)
        if (write(fd, part, sizeof(part)) != (ssize_t)sizeof(part))
            return 1;
    return fsync(fd);
}

static void test_a_cache_takes_no_room(void **state)
{
    struct scene *scene = scene_of(state);
    char path[128];
    int status = 1;
    if (is_on_tmpfs(scene->daemon.folder)) {
        print_message("skipped: there is no cache of files of a tmpfs\n");
        skip();
    }
    pid_t pid = fork();
    if (pid == 0)
        _exit(fill_cache(scene->daemon.folder, 256));
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    assert_true(create(&scene->client, 100 * MIB));
    expect_same_executor(scene);
    snprintf(path, sizeof(path), "%s/cache", scene->daemon.folder);
    unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
        CASE(test_more_than_the_limit_is_refused),
        CASE(test_memory_of_plans_counts),
        CASE(test_one_user_takes_all),
        CASE(test_who_reads_nothing_is_ended),
        CASE(test_what_is_freed_may_be_used),
        CASE(test_a_cache_takes_no_room),
        CASE(test_phases_take_nothing_that_is_kept),
        CASE(test_jobs_are_refused_on_all_ranks),
        CASE(test_imports_are_bound_by_it),
#undef CASE
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
