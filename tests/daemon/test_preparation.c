/* Preparing products: rows that a plan has not seen hold up other jobs only when something has to
 * be loaded for them, and the choice for a new plan lets other jobs through in between. */
#include "tests/daemon/broker_fixture.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "commgemm.h"

#define M 64
#define SIDE 16
#define RANKS 2

struct user {
    commgemm_client *client;
    uint64_t comm, plan;
    struct commgemm_buffer buffer;
};

static void user_open(struct user *user, const struct daemon *daemon, const char *name)
{
    static const uint32_t ranks[RANKS] = {0, 1};
    struct commgemm_connect_options connect;
    struct commgemm_join_options join;
    commgemm_connect_options_init(&connect);
    connect.socket = daemon->socket;
    commgemm_join_options_init(&join);
    join.name = name;
    join.size = join.n_ranks = RANKS;
    join.create = 1;
    join.ranks = ranks;
    if (commgemm_connect(&connect, &user->client) ||
        commgemm_wait_executor(user->client, WAIT_S * 1000) ||
        commgemm_comm_join(user->client, &join, &user->comm) ||
        commgemm_buffer_create(user->client, NULL, 3 * M * SIDE * 4, 0, 0, 0, &user->buffer))
        fail_msg("%s", commgemm_last_error());
}

static void user_plan(struct user *user, uint64_t n)
{
    struct commgemm_plan_options options;
    struct commgemm_plan plan;
    commgemm_plan_options_init(&options);
    options.comm = user->comm;
    options.op = COMMGEMM_OP_GEMM;
    options.m = M;
    options.n = n;
    options.k = SIDE;
    if (commgemm_plan_create(user->client, &options, &plan))
        fail_msg("%s", commgemm_last_error());
    user->plan = plan.id;
}

static void user_run(struct user *user, uint64_t rows)
{
    struct commgemm_operand all = {.id = user->buffer.id, .generation = user->buffer.generation};
    struct commgemm_job job;
    struct commgemm_completion done = {0};
    uint64_t ticket;
    commgemm_job_init(&job);
    job.plan = user->plan;
    job.rows = rows;
    job.lhs = job.rhs = job.out = all;
    job.rhs.offset_bytes = M * SIDE * 4;
    job.out.offset_bytes = 2 * M * SIDE * 4;
    if (commgemm_submit(user->client, &job, &ticket) ||
        commgemm_wait(user->client, ticket, WAIT_S * 1000, &done))
        fail_msg("%s", commgemm_last_error());
    if (done.status)
        fail_msg("%llu rows: %s", (unsigned long long)rows, done.detail);
}

static void expect_counts(struct user *user, const char *expected)
{
    char *json = NULL;
    assert_int_equal(commgemm_query(user->client, "doctor", &json), COMMGEMM_OK);
    if (!strstr(json, expected))
        fail_msg("\"%s\" is not in %s", expected, json);
    free(json);
}

static void set_up(struct daemon *daemon)
{
    daemon_init(daemon);
    daemon_start(daemon, "executor=" CGM_BIN_DIR "/preparing_executor", NULL);
}

static void test_only_what_is_missing_is_loaded(void **state)
{
    struct daemon daemon;
    struct user user;
    (void)state;
    set_up(&daemon);
    user_open(&user, &daemon, "one");
    user_plan(&user, SIDE);
    user_run(&user, M);
    user_run(&user, 32);
    user_run(&user, 32);
    user_run(&user, 33);
    user_run(&user, 33);
    user_run(&user, 34);
    expect_counts(&user, "known 2, loaded 1, tried 2");
    commgemm_disconnect(user.client);
    daemon_stop(&daemon);
}

/* ---- beside others --------------------------------------------------------------------------- */

struct runner {
    struct user user;
    atomic_bool stop;
    atomic_uint jobs;
};

static void *runner_main(void *argument)
{
    struct runner *runner = argument;
    while (!atomic_load(&runner->stop)) {
        user_run(&runner->user, M);
        atomic_fetch_add(&runner->jobs, 1);
    }
    return NULL;
}

static void test_others_go_on(void **state)
{
    struct daemon daemon;
    struct runner runner = {0};
    struct user user;
    pthread_t thread;
    unsigned between = 0;
    (void)state;
    set_up(&daemon);
    user_open(&runner.user, &daemon, "runs");
    user_plan(&runner.user, SIDE);
    user_open(&user, &daemon, "plans");
    assert_int_equal(pthread_create(&thread, NULL, runner_main, &runner), 0);
    for (uint64_t n = 1; n <= SIDE; n++) {
        unsigned before = atomic_load(&runner.jobs);
        user_plan(&user, n);
        between += atomic_load(&runner.jobs) - before;
        user_run(&user, 2 * n);
        user_run(&user, 2 * n + 1);
    }
    atomic_store(&runner.stop, true);
    pthread_join(thread, NULL);
    print_message("%u jobs while %u plans were made\n", between, SIDE);
    assert_true(between > SIDE);
    commgemm_disconnect(user.client);
    commgemm_disconnect(runner.user.client);
    daemon_stop(&daemon);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_only_what_is_missing_is_loaded),
        cmocka_unit_test(test_others_go_on),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
