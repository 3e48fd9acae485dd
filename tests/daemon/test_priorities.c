/* Plans of one comm with queues of several priorities: their jobs still run in the order in which
 * they were submitted, without anybody waiting between them. */
#include "tests/daemon/broker_fixture.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "commgemm.h"
#include "tests/daemon/enter.h"

#define RANKS 2
#define SIDE 8 /* of the square matrices */
#define CELLS (SIDE * SIDE)
#define JOBS 60  /* in flight at once */
#define COMMS 10 /* with four queues on a device that has both ranks */
#define ROUNDS 5

#ifndef CGM_TEST_EXECUTOR
#define CGM_TEST_EXECUTOR "commgemm-executor-cpu"
#define CGM_TEST_BACKEND_NAME "cpu"
#endif
#define EXECUTOR "executor=" CGM_BIN_DIR "/" CGM_TEST_EXECUTOR

static const struct {
    int gemm, comm;
} priorities[] = {{0, 0}, {-3, 0}, {0, -2}, {5, -5}};
#define PLANS (sizeof(priorities) / sizeof(priorities[0]))

struct scene {
    struct daemon daemon;
    commgemm_client *client;
    uint64_t comm, plans[PLANS];
    struct commgemm_buffer x[2][RANKS], turn; /* turn: half a permutation of columns */
    float expected[RANKS][CELLS];
};

static uint64_t make_plan_of(struct scene *scene, int op, size_t priority)
{
    struct commgemm_plan_options options;
    struct commgemm_plan plan;
    commgemm_plan_options_init(&options);
    options.comm = scene->comm;
    options.op = op;
    options.m = options.n = SIDE;
    options.k = op == COMMGEMM_OP_GEMM_AR ? SIDE * RANKS : SIDE;
    options.gemm_priority = priorities[priority].gemm;
    options.comm_priority = priorities[priority].comm;
    if (commgemm_plan_create(scene->client, &options, &plan))
        fail_msg("plan: %s", commgemm_last_error());
    return plan.id;
}

static uint64_t make_plan(struct scene *scene, size_t priority)
{
    return make_plan_of(scene, COMMGEMM_OP_GEMM_AR, priority);
}

static void join(struct scene *scene, const char *name)
{
    static const uint32_t ranks[RANKS] = {0, 1};
    struct commgemm_join_options options;
    commgemm_join_options_init(&options);
    options.name = name;
    options.size = options.n_ranks = RANKS;
    options.create = 1;
    options.ranks = ranks;
    if (commgemm_comm_join(scene->client, &options, &scene->comm))
        fail_msg("join: %s", commgemm_last_error());
}

static void write_buffer(struct scene *scene, const float *values,
                         struct commgemm_buffer *ret_buffer)
{
    if (commgemm_buffer_create(scene->client, NULL, sizeof(float) * CELLS, 0, 0, 0, ret_buffer) ||
        commgemm_buffer_write(scene->client, ret_buffer, 0, values, sizeof(float) * CELLS))
        fail_msg("buffer: %s", commgemm_last_error());
}

static void make_data(struct scene *scene)
{
    float turn[CELLS];
    for (int i = 0; i < CELLS; i++)
        turn[i] = i % SIDE == (i / SIDE + 3) % SIDE ? 0.5f : 0;
    write_buffer(scene, turn, &scene->turn);
    for (int rank = 0; rank < RANKS; rank++) {
        for (int i = 0; i < CELLS; i++)
            scene->expected[rank][i] = (float)(rand() % 100 - 50);
        for (int i = 0; i < 2; i++)
            write_buffer(scene, scene->expected[rank], &scene->x[i][rank]);
    }
}

static int scene_open(void **state)
{
    struct scene *scene = calloc(1, sizeof(*scene));
    unsigned seed = (unsigned)getpid();
    print_message("seed %u\n", seed);
    srand(seed);
    daemon_init(&scene->daemon);
    daemon_start(&scene->daemon, EXECUTOR, "backend=" CGM_TEST_BACKEND_NAME, "test_delay_us=200",
                 NULL);
    scene->client = enter(&scene->daemon);
    join(scene, "both");
    for (size_t i = 0; i < PLANS; i++)
        scene->plans[i] = make_plan(scene, i);
    make_data(scene);
    *state = scene;
    return 0;
}

static int scene_close(void **state)
{
    struct scene *scene = *state;
    commgemm_disconnect(scene->client);
    daemon_stop(&scene->daemon);
    free(scene);
    return 0;
}

static struct commgemm_operand all_of(const struct commgemm_buffer *buffer)
{
    return (struct commgemm_operand){.id = buffer->id, .generation = buffer->generation};
}

/* Every rank's x[now] to x[1 - now]. */
static void submit(struct scene *scene, uint64_t plan, int now, bool phases, uint64_t *ret_tickets)
{
    for (uint32_t rank = 0; rank < RANKS; rank++) {
        struct commgemm_job job;
        commgemm_job_init(&job);
        job.plan = plan;
        job.rank = rank;
        job.want_phases = phases;
        job.lhs = all_of(&scene->x[now][rank]);
        job.out = all_of(&scene->x[1 - now][rank]);
        job.rhs = all_of(&scene->turn);
        if (commgemm_submit(scene->client, &job, &ret_tickets[rank]))
            fail_msg("submit: %s", commgemm_last_error());
    }
}

/* The mean of all ranks' matrices, their columns moved on by three. */
static void expect_next(struct scene *scene)
{
    float mean[CELLS];
    for (int i = 0; i < CELLS; i++)
        mean[i] = (scene->expected[0][i] + scene->expected[1][i]) / 2;
    for (int i = 0; i < CELLS * RANKS; i++)
        scene->expected[i / CELLS][i % CELLS / SIDE * SIDE + (i % SIDE + 3) % SIDE] =
            mean[i % CELLS];
}

static void await(struct scene *scene, uint64_t ticket)
{
    struct commgemm_completion done;
    assert_int_equal(commgemm_wait(scene->client, ticket, WAIT_S * 1000, &done), COMMGEMM_OK);
    if (done.status)
        fail_msg("job %llu: %s", (unsigned long long)ticket, done.detail);
}

static void expect_result(struct scene *scene, int now)
{
    for (int rank = 0; rank < RANKS; rank++) {
        float got[CELLS];
        assert_int_equal(
            commgemm_buffer_read(scene->client, &scene->x[now][rank], 0, got, sizeof(got)),
            COMMGEMM_OK);
        for (int i = 0; i < CELLS; i++)
            assert_true(got[i] == scene->expected[rank][i]);
    }
}

static void test_order_is_kept(void **state)
{
    struct scene *scene = *state;
    uint64_t tickets[JOBS][RANKS];
    for (int i = 0; i < JOBS; i++) {
        submit(scene, scene->plans[(size_t)rand() % PLANS], i % 2, false, tickets[i]);
        expect_next(scene);
    }
    for (int i = 0; i < JOBS * RANKS; i++)
        await(scene, tickets[i / RANKS][i % RANKS]);
    expect_result(scene, JOBS % 2);
}

/* More queues than a GPU has streams: those of several comms share them. */
static void test_comms_share_streams(void **state)
{
    static struct scene scenes[COMMS];
    uint64_t tickets[COMMS * ROUNDS][RANKS];
    char name[16];
    for (int i = 0; i < COMMS; i++) {
        scenes[i] = *(struct scene *)*state;
        snprintf(name, sizeof(name), "comm-%d", i);
        join(&scenes[i], name);
        scenes[i].plans[0] = make_plan(&scenes[i], (size_t)i % PLANS % 2);
        make_data(&scenes[i]);
    }
    for (int i = 0; i < COMMS * ROUNDS; i++) {
        submit(&scenes[i % COMMS], scenes[i % COMMS].plans[0], i / COMMS % 2, false, tickets[i]);
        expect_next(&scenes[i % COMMS]);
    }
    for (int i = 0; i < COMMS * ROUNDS * RANKS; i++)
        await(&scenes[0], tickets[i / RANKS][i % RANKS]);
    for (int i = 0; i < COMMS; i++)
        expect_result(&scenes[i], ROUNDS % 2);
}

/* All on one device: half a set of queues more than a GPU has streams, so that those of one rank
 * share them with those of another. */
#define MANY 13u
#define PART_BYTES (sizeof(float) * MANY * SIDE) /* of a rank */

static uint64_t join_many(commgemm_client *client)
{
    uint32_t ranks[MANY];
    int32_t devices[MANY] = {0};
    uint64_t comm;
    struct commgemm_join_options options;
    commgemm_join_options_init(&options);
    options.name = "many";
    options.size = options.n_ranks = MANY;
    options.create = 1;
    options.ranks = ranks;
    options.devices = devices;
    for (uint32_t rank = 0; rank < MANY; rank++)
        ranks[rank] = rank;
    if (commgemm_comm_join(client, &options, &comm))
        fail_msg("join: %s", commgemm_last_error());
    return comm;
}

static uint64_t plan_of_many(commgemm_client *client, uint64_t comm, size_t priority)
{
    struct commgemm_plan_options options;
    struct commgemm_plan plan;
    commgemm_plan_options_init(&options);
    options.comm = comm;
    options.op = COMMGEMM_OP_AR;
    options.m = MANY;
    options.n = SIDE;
    options.gemm_priority = priorities[priority].gemm;
    options.comm_priority = priorities[priority].comm;
    if (commgemm_plan_create(client, &options, &plan))
        fail_msg("plan: %s", commgemm_last_error());
    return plan.id;
}

static void submit_many(commgemm_client *client, uint64_t plan, const struct commgemm_buffer *in,
                        const struct commgemm_buffer *out, uint64_t *ret_tickets)
{
    for (uint32_t rank = 0; rank < MANY; rank++) {
        struct commgemm_job job;
        commgemm_job_init(&job);
        job.plan = plan;
        job.rank = rank;
        job.lhs = commgemm_operand_at(in, rank * PART_BYTES);
        job.out = commgemm_operand_at(out, rank * PART_BYTES);
        if (commgemm_submit(client, &job, &ret_tickets[rank]))
            fail_msg("submit: %s", commgemm_last_error());
    }
}

static void expect_sums(commgemm_client *client, const float *values,
                        const struct commgemm_buffer *out)
{
    static float got[MANY][MANY * SIDE];
    assert_int_equal(commgemm_buffer_read(client, out, 0, got, sizeof(got)), COMMGEMM_OK);
    for (uint32_t i = 0; i < MANY * SIDE; i++) {
        float sum = 0;
        for (uint32_t rank = 0; rank < MANY; rank++)
            sum += values[rank * MANY * SIDE + i];
        for (uint32_t rank = 0; rank < MANY; rank++)
            assert_true(got[rank][i] == sum);
    }
}

static void test_sets_of_a_comm_share_streams(void **state)
{
    struct scene *scene = *state;
    static float values[MANY * MANY * SIDE];
    uint64_t comm = join_many(scene->client), plans[PLANS], tickets[2][MANY];
    struct commgemm_buffer in, out;
    for (size_t i = 0; i < PLANS; i++)
        plans[i] = plan_of_many(scene->client, comm, i);
    for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++)
        values[i] = (float)(rand() % 100 - 50);
    if (commgemm_buffer_create(scene->client, NULL, sizeof(values), 0, 0, 0, &in) ||
        commgemm_buffer_create(scene->client, NULL, sizeof(values), 0, 0, 0, &out) ||
        commgemm_buffer_write(scene->client, &in, 0, values, sizeof(values)))
        fail_msg("buffer: %s", commgemm_last_error());
    for (size_t from = 0; from < PLANS; from++)
        for (size_t to = 0; to < PLANS; to++) {
            submit_many(scene->client, plans[from], &in, &out, tickets[0]);
            submit_many(scene->client, plans[to], &in, &out, tickets[1]);
            for (uint32_t i = 0; i < 2 * MANY; i++)
                await(scene, tickets[i / MANY][i % MANY]);
            expect_sums(scene->client, values, &out);
        }
}

/* Its jobs are over, and queues that had nothing to do but to follow are not through yet. */
static void test_a_comm_ends_before_its_queues_are_through(void **state)
{
    enum { SETS = 2, TIMES = 40 };
    struct scene scene = {0};
    char name[16];
    (void)state;
    daemon_init(&scene.daemon);
    daemon_start(&scene.daemon, EXECUTOR, "backend=" CGM_TEST_BACKEND_NAME, "test_delay_us=5000",
                 NULL);
    scene.client = enter(&scene.daemon);
    make_data(&scene);
    for (int i = 0; i < TIMES; i++) {
        struct commgemm_job job;
        uint64_t unused;
        snprintf(name, sizeof(name), "brief-%d", i);
        join(&scene, name);
        for (size_t k = 0; k < SETS; k++)
            scene.plans[k] = make_plan_of(&scene, COMMGEMM_OP_GEMM, k);
        commgemm_job_init(&job);
        job.lhs = all_of(&scene.x[0][0]);
        job.out = all_of(&scene.x[1][0]);
        job.rhs = all_of(&scene.turn);
        job.detached = 1;
        for (size_t k = 0; k < SETS; k++) {
            job.plan = scene.plans[k];
            assert_int_equal(commgemm_submit(scene.client, &job, &unused), COMMGEMM_OK);
        }
        usleep((unsigned)rand() % 10000);
        assert_int_equal(commgemm_comm_leave(scene.client, scene.comm), COMMGEMM_OK);
    }
    assert_int_equal(daemon_status(&scene.daemon, "executor_deaths"), 0);
    commgemm_disconnect(scene.client);
    daemon_stop(&scene.daemon);
}

/* Each rank's product on its device, inside the job's time. */
static void test_phases_come_from_every_set_of_queues(void **state)
{
    struct scene *scene = *state;
    for (size_t p = 0; p < PLANS; p++) {
        struct commgemm_completion done;
        uint64_t tickets[RANKS];
        bool products[RANKS] = {false};
        submit(scene, scene->plans[p], 0, true, tickets);
        for (int rank = 0; rank < RANKS; rank++) {
            assert_int_equal(commgemm_wait(scene->client, tickets[rank], WAIT_S * 1000, &done),
                             COMMGEMM_OK);
            assert_int_equal(done.status, COMMGEMM_OK);
            assert_true(done.n_phases > 0);
            for (uint32_t i = 0; i < done.n_phases; i++) {
                const struct commgemm_phase *phase = &done.phases[i];
                assert_true(phase->begin_ns <= phase->end_ns && phase->rank < RANKS);
                assert_true(phase->end_ns <= done.running_ns + 1000000);
                if (strcmp(commgemm_phase_name(phase->kind), "gemm") == 0)
                    products[phase->rank] = true;
            }
            commgemm_completion_fini(&done);
        }
        assert_true(products[0] && products[1]);
    }
}

static void test_out_of_range_is_refused(void **state)
{
    struct scene *scene = *state;
    struct commgemm_plan_options options;
    struct commgemm_plan plan;
    commgemm_plan_options_init(&options);
    options.comm = scene->comm;
    options.op = COMMGEMM_OP_GEMM;
    options.m = options.n = options.k = SIDE;
    options.comm_priority = -6;
    assert_int_equal(commgemm_plan_create(scene->client, &options, &plan),
                     COMMGEMM_INVALID_ARGUMENT);
    assert_non_null(strstr(commgemm_last_error(), "comm_priority is -6; the limits are -5 and 5"));
}

/* A queue is a thread or a stream, and not of one plan. */
static void test_a_comm_has_few_pairs(void **state)
{
    struct scene *scene = *state;
    struct commgemm_plan_options options;
    struct commgemm_plan plan;
    commgemm_plan_options_init(&options);
    options.comm = scene->comm;
    options.op = COMMGEMM_OP_GEMM;
    options.m = options.n = options.k = SIDE;
    options.gemm_priority = -5;
    assert_int_equal(commgemm_plan_create(scene->client, &options, &plan), COMMGEMM_QUOTA);
    assert_non_null(strstr(commgemm_last_error(), "at most 4 pairs"));
    options.gemm_priority = -3; /* one that is there */
    assert_int_equal(commgemm_plan_create(scene->client, &options, &plan), COMMGEMM_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_order_is_kept, scene_open, scene_close),
        cmocka_unit_test_setup_teardown(test_comms_share_streams, scene_open, scene_close),
        cmocka_unit_test_setup_teardown(test_sets_of_a_comm_share_streams, scene_open, scene_close),
        cmocka_unit_test(test_a_comm_ends_before_its_queues_are_through),
        cmocka_unit_test_setup_teardown(test_phases_come_from_every_set_of_queues, scene_open,
                                        scene_close),
        cmocka_unit_test_setup_teardown(test_out_of_range_is_refused, scene_open, scene_close),
        cmocka_unit_test_setup_teardown(test_a_comm_has_few_pairs, scene_open, scene_close),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
