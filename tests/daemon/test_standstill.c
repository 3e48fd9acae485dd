/* Jobs that are under way while the executor is stopped for longer than they may take: its clocks
 * do not run then. */
#include "tests/daemon/steps_fixture.h"

#include <pthread.h>
#include <signal.h>
#include <time.h>

#include "commgemm.h"
#include "tests/daemon/enter.h"
#include "tests/send_signal.h"

#define LIMIT "job_timeout=2"
#define LIMIT_MS 2000
#define STOPPED_MS 2200

enum { WORLD = 2, M = 16, N = 16, K = 16 };

/* Of a client that has all ranks. */
struct ranks {
    commgemm_client *client;
    struct commgemm_plan plan;
    struct commgemm_buffer buffers[WORLD];
};

static void must(int status)
{
    if (status != COMMGEMM_OK)
        print_message("%s\n", commgemm_last_error());
    assert_int_equal(status, COMMGEMM_OK);
}

static void ranks_open(struct ranks *ranks, const struct daemon *daemon, int op)
{
    static const uint32_t all[WORLD] = {0, 1};
    struct commgemm_join_options join;
    struct commgemm_plan_options options;
    ranks->client = enter(daemon);
    commgemm_join_options_init(&join);
    join.name = "pair", join.create = 1, join.size = WORLD;
    join.ranks = all, join.n_ranks = WORLD;
    commgemm_plan_options_init(&options);
    options.op = op, options.m = M, options.n = N, options.k = op == COMMGEMM_OP_AR ? 0 : K;
    must(commgemm_comm_join(ranks->client, &join, &options.comm));
    must(commgemm_plan_create(ranks->client, &options, &ranks->plan));
    for (int rank = 0; rank < WORLD; rank++)
        must(commgemm_buffer_create(ranks->client, NULL, 2 * M * N * sizeof(float), rank, 0, 0,
                                    &ranks->buffers[rank]));
}

static void ranks_close(struct ranks *ranks)
{
    commgemm_disconnect(ranks->client);
}

static uint64_t submit(struct ranks *ranks, uint32_t rank)
{
    uint64_t ticket;
    struct commgemm_job job;
    commgemm_job_init(&job);
    job.plan = ranks->plan.id;
    job.rank = rank;
    job.deadline_ms = LIMIT_MS;
    job.lhs = commgemm_operand_at(&ranks->buffers[rank], 0);
    job.rhs = ranks->plan.op == COMMGEMM_OP_GEMM ? job.lhs : job.rhs;
    job.out = commgemm_operand_at(&ranks->buffers[rank], M * N * sizeof(float));
    must(commgemm_submit(ranks->client, &job, &ticket));
    return ticket;
}

static uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static void expect_done(struct ranks *ranks, uint64_t ticket)
{
    struct commgemm_completion done;
    must(commgemm_wait(ranks->client, ticket, -1, &done));
    if (done.status != COMMGEMM_OK)
        print_message("%s\n", done.detail);
    assert_int_equal(done.status, COMMGEMM_OK);
    commgemm_completion_fini(&done);
}

/* The executor, at the step that is armed; then it goes on. */
static void stand_still(struct scene *scene)
{
    pid_t executor = await_stop(scene);
    usleep(STOPPED_MS * 1000);
    assert_int_equal(send_signal(executor, SIGCONT), 0);
}

/* The other rank's process stood still, too. */
static void test_a_job_that_waits_for_a_rank(void **state)
{
    struct scene scene;
    struct ranks ranks;
    (void)state;
    scene_open(&scene, LIMIT, REAL_EXECUTOR);
    ranks_open(&ranks, &scene.daemon, COMMGEMM_OP_AR);
    arm(&scene, CGM_STEP_JOB, CGM_JOB_STEP_MATCH);
    uint64_t first = submit(&ranks, 0);
    stand_still(&scene);
    uint64_t second = submit(&ranks, 1);
    expect_done(&ranks, first);
    expect_done(&ranks, second);
    ranks_close(&ranks);
    scene_close(&scene);
}

static void test_a_job_that_runs(void **state)
{
    struct scene scene;
    struct ranks ranks;
    (void)state;
    scene_open(&scene, LIMIT, REAL_EXECUTOR);
    ranks_open(&ranks, &scene.daemon, COMMGEMM_OP_AR);
    arm(&scene, CGM_STEP_JOB, CGM_JOB_STEP_ENQUEUE);
    uint64_t first = submit(&ranks, 0), second = submit(&ranks, 1);
    stand_still(&scene);
    expect_done(&ranks, first);
    expect_done(&ranks, second);
    ranks_close(&ranks);
    scene_close(&scene);
}

/* It is stopped when it is about to take the job: what it knew of the time is old then. */
static void test_times_of_a_job_that_is_taken_late(void **state)
{
    struct scene scene;
    struct ranks ranks;
    struct commgemm_completion done;
    (void)state;
    scene_open(&scene, LIMIT, REAL_EXECUTOR);
    ranks_open(&ranks, &scene.daemon, COMMGEMM_OP_GEMM);
    arm(&scene, CGM_STEP_JOB, CGM_JOB_STEP_COPY);
    uint64_t begin_ns = now_ns(), ticket = submit(&ranks, 0);
    stand_still(&scene);
    must(commgemm_wait(ranks.client, ticket, -1, &done));
    uint64_t took_ns = now_ns() - begin_ns;
    assert_int_equal(done.status, COMMGEMM_OK);
    assert_true(done.queued_ns >= STOPPED_MS * 1000000ull);
    assert_true(done.running_ns < STOPPED_MS * 1000000ull);
    assert_true(done.queued_ns + done.waiting_ns + done.running_ns <= took_ns);
    ranks_close(&ranks);
    scene_close(&scene);
}

static void *go_on_later(void *executor)
{
    usleep(STOPPED_MS * 1000);
    send_signal(*(const pid_t *)executor, SIGCONT);
    return NULL;
}

/* Whether there is an executor is known, or waited for so long: it is not asked. */
static void test_a_wait_for_one_that_stands_still(void **state)
{
    struct daemon daemon;
    struct commgemm_connect_options options;
    struct timespec begin, end;
    commgemm_client *client;
    pthread_t later;
    (void)state;
    daemon_init(&daemon);
    daemon_start(&daemon, REAL_EXECUTOR, NULL);
    commgemm_connect_options_init(&options);
    options.socket = daemon.socket;
    options.no_ring = 1;
    must(commgemm_connect(&options, &client));
    must(commgemm_wait_executor(client, WAIT_S * 1000));
    pid_t executor = (pid_t)daemon_status(&daemon, "executor_pid");
    assert_int_equal(send_signal(executor, SIGSTOP), 0);
    assert_int_equal(pthread_create(&later, NULL, go_on_later, &executor), 0);
    clock_gettime(CLOCK_MONOTONIC, &begin);
    must(commgemm_wait_executor(client, 20));
    clock_gettime(CLOCK_MONOTONIC, &end);
    assert_in_range(end.tv_sec - begin.tv_sec, 0, STOPPED_MS / 1000 - 1);
    pthread_join(later, NULL);
    commgemm_disconnect(client);
    daemon_stop(&daemon);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_job_that_waits_for_a_rank),
        cmocka_unit_test(test_a_job_that_runs),
        cmocka_unit_test(test_times_of_a_job_that_is_taken_late),
        cmocka_unit_test(test_a_wait_for_one_that_stands_still),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
