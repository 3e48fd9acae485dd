/* What becomes of a job, and of the buffers that it has written, when the executor dies while the
 * job ends: who is told that it is lost must not find its work done, as he does it again. And when
 * an operator ends its session, or the daemon. */
#include "tests/daemon/steps_fixture.h"

#include <pthread.h>
#include <signal.h>
#include <string.h>

#include "commgemm.h"
#include "tests/daemon/enter.h"
#include "tests/send_signal.h"

enum { WORLD = 2, OLD = 5, ADDED = 2 };

/* A client that has both ranks, and adds to a buffer of each. */
struct ranks {
    commgemm_client *client;
    struct commgemm_plan plan;
    uint32_t n; /* those that submit */
    struct commgemm_buffer in[WORLD], out[WORLD];
};

static const struct ending {
    int op;
    int no_ring;
    uint32_t step; /* at which the executor dies */
    int status, again;
} endings[] = {
    {COMMGEMM_OP_GEMM, 0, CGM_JOB_STEP_END, COMMGEMM_EXECUTOR_LOST, COMMGEMM_TAINTED},
    {COMMGEMM_OP_GEMM, 1, CGM_JOB_STEP_END, COMMGEMM_EXECUTOR_LOST, COMMGEMM_TAINTED},
    {COMMGEMM_OP_GEMM_RS, 0, CGM_JOB_STEP_END, COMMGEMM_EXECUTOR_LOST, COMMGEMM_TAINTED},
    {COMMGEMM_OP_GEMM_RS, 1, CGM_JOB_STEP_END, COMMGEMM_EXECUTOR_LOST, COMMGEMM_TAINTED},
    {COMMGEMM_OP_GEMM, 0, CGM_JOB_STEP_COMPLETE, COMMGEMM_OK, COMMGEMM_OK},
    {COMMGEMM_OP_GEMM_RS, 0, CGM_JOB_STEP_COMPLETE, COMMGEMM_OK, COMMGEMM_OK},
};

static void must(int status)
{
    if (status != COMMGEMM_OK)
        print_message("%s\n", commgemm_last_error());
    assert_int_equal(status, COMMGEMM_OK);
}

static void connect_to(struct ranks *ranks, const struct daemon *daemon, int no_ring)
{
    struct commgemm_connect_options options;
    commgemm_connect_options_init(&options);
    options.socket = daemon->socket;
    options.no_ring = no_ring;
    must(commgemm_connect(&options, &ranks->client));
    must(commgemm_wait_executor(ranks->client, WAIT_S * 1000));
}

static void make_plan(struct ranks *ranks, int op)
{
    static const uint32_t all[WORLD] = {0, 1};
    struct commgemm_join_options join;
    struct commgemm_plan_options options;
    commgemm_join_options_init(&join);
    join.name = "pair", join.create = 1, join.size = WORLD;
    join.ranks = all, join.n_ranks = WORLD;
    commgemm_plan_options_init(&options);
    options.op = op, options.m = WORLD, options.n = 1, options.k = WORLD;
    options.epilogue = COMMGEMM_EPILOGUE_ACCUMULATE;
    must(commgemm_comm_join(ranks->client, &join, &options.comm));
    must(commgemm_plan_create(ranks->client, &options, &ranks->plan));
    ranks->n = op == COMMGEMM_OP_GEMM ? 1 : WORLD;
}

static void make_buffer(struct ranks *ranks, uint32_t rank, float value,
                        struct commgemm_buffer *ret_buffer)
{
    const float values[] = {value, value, value, value};
    must(commgemm_buffer_create(ranks->client, NULL, sizeof(values), (int)rank, 0, 0, ret_buffer));
    must(commgemm_buffer_write(ranks->client, ret_buffer, 0, values, sizeof(values)));
}

static void submit(struct ranks *ranks, uint64_t ret_tickets[WORLD])
{
    for (uint32_t rank = 0; rank < ranks->n; rank++) {
        struct commgemm_job job;
        commgemm_job_init(&job);
        job.plan = ranks->plan.id;
        job.rank = rank;
        job.lhs = job.rhs = commgemm_operand_at(&ranks->in[rank], 0);
        job.out = commgemm_operand_at(&ranks->out[rank], 0);
        must(commgemm_submit(ranks->client, &job, &ret_tickets[rank]));
    }
}

static void expect(struct ranks *ranks, const uint64_t tickets[WORLD], int status)
{
    for (uint32_t rank = 0; rank < ranks->n; rank++) {
        struct commgemm_completion done;
        must(commgemm_wait(ranks->client, tickets[rank], WAIT_S * 1000, &done));
        if (done.status != status)
            print_message("rank %u: %s\n", rank, done.detail);
        assert_int_equal(done.status, status);
        commgemm_completion_fini(&done);
    }
}

static void run(struct ranks *ranks, int status)
{
    uint64_t tickets[WORLD];
    submit(ranks, tickets);
    expect(ranks, tickets, status);
}

/* As the new executor has it. */
static void reopen(struct ranks *ranks, int tainted)
{
    must(commgemm_wait_executor(ranks->client, WAIT_S * 1000));
    for (uint32_t rank = 0; rank < ranks->n; rank++) {
        uint64_t id = ranks->out[rank].id;
        must(commgemm_buffer_open(ranks->client, NULL, id, 0, &ranks->out[rank]));
        assert_int_equal(ranks->out[rank].tainted, tainted);
    }
}

/* Each did it once, or was told that nobody knows. */
static void check_sums(struct ranks *ranks, float sum)
{
    for (uint32_t rank = 0; rank < ranks->n; rank++) {
        float value;
        must(commgemm_buffer_read(ranks->client, &ranks->out[rank], 0, &value, sizeof(value)));
        assert_true(value == sum);
    }
}

static void end_so(const struct ending *ending)
{
    struct scene scene;
    struct ranks ranks;
    uint64_t tickets[WORLD];
    scene_open(&scene, "backend=cpu", REAL_EXECUTOR);
    connect_to(&ranks, &scene.daemon, ending->no_ring);
    make_plan(&ranks, ending->op);
    for (uint32_t rank = 0; rank < WORLD; rank++) {
        make_buffer(&ranks, rank, 1, &ranks.in[rank]);
        make_buffer(&ranks, rank, OLD, &ranks.out[rank]);
    }
    arm(&scene, CGM_STEP_JOB, ending->step);
    submit(&ranks, tickets);
    assert_int_equal(send_signal(await_stop(&scene), SIGKILL), 0);
    expect(&ranks, tickets, ending->status);
    check_sums(&ranks, OLD + ADDED);
    reopen(&ranks, ending->again != COMMGEMM_OK);
    run(&ranks, ending->again);
    if (ending->again == COMMGEMM_OK)
        check_sums(&ranks, OLD + 2 * ADDED);
    commgemm_disconnect(ranks.client);
    scene_close(&scene);
}

static void test_an_executor_dies_while_a_job_ends(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(endings) / sizeof(endings[0]); i++)
        end_so(&endings[i]);
}

struct killing {
    commgemm_client *operator;
    uint64_t session;
};

static void *kill_session(void *argument)
{
    const struct killing *killing = argument;
    struct commgemm_killed killed;
    commgemm_kill_session(killing->operator, killing->session, &killed);
    return NULL;
}

/* With much that has to be given back between its end and that of its memory. */
static void end_session(commgemm_client *operator, const struct daemon * daemon)
{
    enum { BUFFERS = 300 };
    struct ranks ranks;
    struct commgemm_info info;
    struct commgemm_job job;
    struct commgemm_buffer buffer;
    struct commgemm_completion done;
    uint64_t ticket;
    pthread_t thread;
    connect_to(&ranks, daemon, 0);
    make_plan(&ranks, COMMGEMM_OP_GEMM_RS);
    for (int i = 0; i < BUFFERS; i++)
        must(commgemm_buffer_create(ranks.client, NULL, 1, 0, 0, 0, &buffer));
    commgemm_job_init(&job);
    job.kind = COMMGEMM_JOB_BARRIER;
    job.plan = ranks.plan.id;
    must(commgemm_submit(ranks.client, &job, &ticket));
    must(commgemm_get_info(ranks.client, &info));
    struct killing killing = {operator, info.session };
    assert_int_equal(pthread_create(&thread, NULL, kill_session, &killing), 0);
    int status = commgemm_wait(ranks.client, ticket, WAIT_S * 1000, &done);
    pthread_join(thread, NULL);
    if (status == COMMGEMM_OK)
        print_message("%s: %s\n", commgemm_status_name(done.status), done.detail);
    assert_int_equal(status, COMMGEMM_DAEMON_LOST);
    commgemm_disconnect(ranks.client);
}

/* Its job waits for another rank; it is not told that a rank has gone, which is itself. */
static void test_an_operator_ends_a_session(void **state)
{
    struct daemon daemon;
    struct ranks operator;
    (void)state;
    daemon_init(&daemon);
    daemon_start(&daemon, "backend=cpu", REAL_EXECUTOR, NULL);
    connect_to(&operator, & daemon, 1);
    for (int i = 0; i < 20; i++)
        end_session(operator.client, &daemon);
    commgemm_disconnect(operator.client);
    daemon_stop(&daemon);
}

/* Its launched jobs finish, and who is told that it has gone has his memory to himself. */
static void end_daemon(int no_ring)
{
    struct scene scene;
    struct ranks ranks;
    struct commgemm_completion done;
    struct commgemm_job never;
    uint64_t tickets[WORLD] = {0}, ticket = 0;
    void *outs[WORLD];
    scene_open(&scene, "backend=cpu", REAL_EXECUTOR);
    connect_to(&ranks, &scene.daemon, no_ring);
    make_plan(&ranks, COMMGEMM_OP_GEMM_RS);
    for (uint32_t rank = 0; rank < WORLD; rank++) {
        make_buffer(&ranks, rank, 1, &ranks.in[rank]);
        make_buffer(&ranks, rank, OLD, &ranks.out[rank]);
        must(commgemm_buffer_map(ranks.client, &ranks.out[rank], &outs[rank]));
    }
    arm(&scene, CGM_STEP_JOB, CGM_JOB_STEP_ENQUEUE);
    submit(&ranks, tickets);
    pid_t executor = await_stop(&scene);
    commgemm_job_init(&never); /* the other rank does not come */
    never.kind = COMMGEMM_JOB_BARRIER;
    never.plan = ranks.plan.id;
    if (!no_ring)
        must(commgemm_submit(ranks.client, &never, &ticket));
    assert_int_equal(send_signal(scene.daemon.pid, SIGTERM), 0);
    assert_int_equal(commgemm_wait(ranks.client, tickets[0], 200, &done), COMMGEMM_TIMEOUT);
    assert_int_equal(commgemm_buffer_open(ranks.client, NULL, ranks.in[0].id, 0, &ranks.in[0]),
                     COMMGEMM_DAEMON_LOST);
    assert_non_null(strstr(commgemm_last_error(), "the daemon ends"));
    assert_int_equal(send_signal(executor, SIGCONT), 0);
    expect(&ranks, tickets, COMMGEMM_OK);
    if (!no_ring)
        assert_int_equal(commgemm_wait(ranks.client, ticket, WAIT_S * 1000, &done),
                         COMMGEMM_DAEMON_LOST);
    for (uint32_t rank = 0; rank < WORLD; rank++) {
        assert_true(*(float *)outs[rank] == OLD + ADDED);
        must(commgemm_buffer_unmap(outs[rank], ranks.out[rank].bytes));
    }
    commgemm_disconnect(ranks.client);
    scene_close(&scene);
}

static void test_the_daemon_ends_while_a_job_runs(void **state)
{
    (void)state;
    end_daemon(0);
    end_daemon(1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_an_operator_ends_a_session),
        cmocka_unit_test(test_an_executor_dies_while_a_job_ends),
        cmocka_unit_test(test_the_daemon_ends_while_a_job_runs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
