/* What the executor needs of its own for a user's ranks and jobs, which no quota of bytes counts.
 */
#include <stdio.h>
#include <unistd.h>

#include "tests/daemon/broker_fixture.h"

#include "commgemm.h"
#include "tests/daemon/enter.h"
#include "tests/process_memory.h"

#define RANKS 64u
#define PANELS_KIB (3u * 768 * 768 * 4 / 1024) /* where products are not of fp32 */
#define SEATS 32u
#define SIDE 768u
#define JOBS 4000u
#define JOB_KIB 10u /* of one that waits for room in the queues, at most */
#define SOME_KIB (64u * 1024)

struct user {
    struct daemon daemon;
    commgemm_client *client;
    uint64_t comm;
    struct commgemm_buffer in, out;
};

static void user_open(struct user *user, const char *delay)
{
    uint32_t ranks[RANKS];
    struct commgemm_connect_options options;
    struct commgemm_join_options join;
    daemon_init(&user->daemon);
    daemon_start(&user->daemon, REAL_EXECUTOR, "backend=cpu", delay, NULL);
    commgemm_connect_options_init(&options);
    options.socket = user->daemon.socket;
    options.ring_entries = 4096;
    commgemm_join_options_init(&join);
    join.name = "many";
    join.size = join.n_ranks = RANKS;
    join.create = 1;
    join.ranks = ranks;
    for (uint32_t rank = 0; rank < RANKS; rank++)
        ranks[rank] = rank;
    if (commgemm_connect(&options, &user->client) ||
        commgemm_wait_executor(user->client, WAIT_S * 1000) ||
        commgemm_comm_join(user->client, &join, &user->comm) ||
        commgemm_buffer_create(user->client, NULL, 2 * SIDE * SIDE, 0, 0, 0, &user->in) ||
        commgemm_buffer_create(user->client, NULL, 2 * SIDE * SIDE, 0, 0, 0, &user->out))
        fail_msg("%s", commgemm_last_error());
}

static void user_close(struct user *user)
{
    commgemm_disconnect(user->client);
    daemon_stop(&user->daemon);
}

static uint64_t memory_kib(struct user *user)
{
    return process_kib((pid_t)daemon_status(&user->daemon, "executor_pid"), "RssAnon:");
}

static uint64_t make_plan(struct user *user, const uint32_t size[3], int dtype)
{
    struct commgemm_plan_options options;
    struct commgemm_plan plan;
    commgemm_plan_options_init(&options);
    options.comm = user->comm;
    options.op = COMMGEMM_OP_GEMM;
    options.m = size[0];
    options.n = size[1];
    options.k = size[2];
    options.dtype = dtype;
    if (commgemm_plan_create(user->client, &options, &plan))
        fail_msg("plan: %s", commgemm_last_error());
    return plan.id;
}

static uint64_t submit(struct user *user, uint64_t plan, uint32_t rank)
{
    struct commgemm_job job;
    uint64_t ticket;
    commgemm_job_init(&job);
    job.plan = plan;
    job.rank = rank;
    job.lhs = job.rhs = commgemm_operand_at(&user->in, 0);
    job.out = commgemm_operand_at(&user->out, 0);
    if (commgemm_submit(user->client, &job, &ticket))
        fail_msg("submit: %s", commgemm_last_error());
    return ticket;
}

/* Each touches one of the three panels, whole: a queue for every rank, and as many panels as
 * threads that compute. */
static void test_panels_are_few(void **state)
{
    static const uint32_t sizes[][3] = {{SIDE, 1, SIDE}, {1, SIDE, SIDE}, {SIDE, SIDE, 1}};
    static struct user user;
    (void)state;
    user_open(&user, "spin_us=0");
    uint64_t before = memory_kib(&user);
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        uint64_t plan = make_plan(&user, sizes[i], COMMGEMM_BF16);
        for (uint32_t rank = 0; rank < RANKS; rank++)
            assert_int_equal(
                commgemm_wait(user.client, submit(&user, plan, rank), WAIT_S * 1000, NULL),
                COMMGEMM_OK);
    }
    uint64_t more = memory_kib(&user) - before;
    print_message("%u queues that have multiplied take %llu KiB more\n", RANKS,
                  (unsigned long long)more);
    assert_true(RANKS * PANELS_KIB > SEATS * PANELS_KIB + SOME_KIB);
    if (CGM_MEMORY_IS_PLAIN)
        assert_in_range(more, 0, SEATS * PANELS_KIB + SOME_KIB);
    user_close(&user);
}

/* A job of one rank takes no more in a large comm than in a small one. */
static void test_a_local_job_is_small(void **state)
{
    static const uint32_t size[] = {8, 8, 8};
    static struct user user;
    (void)state;
    user_open(&user, "test_delay_us=100000");
    uint64_t plan = make_plan(&user, size, COMMGEMM_FP32);
    uint64_t before = memory_kib(&user);
    uint64_t launched = daemon_status(&user.daemon, "jobs_launched") + JOBS - 1;
    for (uint32_t i = 0; i < JOBS; i++)
        submit(&user, plan, 0);
    for (int i = 0; daemon_status(&user.daemon, "jobs_launched") < launched; i++) {
        assert_true(i < 100 * WAIT_S);
        usleep(10000);
    }
    uint64_t more = memory_kib(&user) - before;
    print_message("%u jobs in flight take %llu KiB\n", JOBS, (unsigned long long)more);
    if (CGM_MEMORY_IS_PLAIN)
        assert_in_range(more, 0, JOBS * JOB_KIB);
    user_close(&user);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_panels_are_few),
        cmocka_unit_test(test_a_local_job_is_small),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
