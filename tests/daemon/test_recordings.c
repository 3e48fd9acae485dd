/* Jobs whose operands come again are enqueued from recordings: with graphs_from set every result is
 * as right as without, whatever comes and goes in between. */
#include "tests/daemon/broker_fixture.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "commgemm.h"
#include "tests/backend.h"
#include "tests/fault/product.h"
#include "tests/send_signal.h"

#define WORLD PRODUCT_WORLD
#define WAIT_MS (WAIT_S * 1000)
#define SETS 11 /* more than a plan keeps recordings of */

/* The operands of both ranks. */
struct set {
    struct commgemm_buffer lhs[WORLD], rhs[WORLD], out[WORLD];
    struct buffer_view lhs_view[WORLD], rhs_view[WORLD], out_view[WORLD];
};

struct scene {
    struct daemon daemon;
    commgemm_client *client; /* both ranks */
    uint64_t comm;
    struct client raw;
    struct set sets[SETS];
};

static uint64_t seed;

static void check(int status)
{
    if (status != COMMGEMM_OK)
        fail_msg("%s", commgemm_last_error());
}

static void get_buffer(struct scene *scene, uint32_t rank, struct commgemm_buffer *ret_buffer,
                       struct buffer_view *ret_view)
{
    check(commgemm_buffer_create(scene->client, NULL, PRODUCT_BYTES_MAX,
                                 (int32_t)(rank % test_devices()), 0, 0, ret_buffer));
    check(buffer_view_open(scene->client, ret_buffer, ret_view));
}

static void set_open(struct scene *scene, struct set *set)
{
    for (uint32_t rank = 0; rank < WORLD; rank++) {
        get_buffer(scene, rank, &set->lhs[rank], &set->lhs_view[rank]);
        get_buffer(scene, rank, &set->rhs[rank], &set->rhs_view[rank]);
        get_buffer(scene, rank, &set->out[rank], &set->out_view[rank]);
    }
}

static void set_close(struct scene *scene, struct set *set)
{
    for (uint32_t rank = 0; rank < WORLD; rank++) {
        buffer_view_close(&set->lhs_view[rank]);
        buffer_view_close(&set->rhs_view[rank]);
        buffer_view_close(&set->out_view[rank]);
        check(commgemm_buffer_close(scene->client, set->lhs[rank].id));
        check(commgemm_buffer_close(scene->client, set->rhs[rank].id));
        check(commgemm_buffer_close(scene->client, set->out[rank].id));
    }
}

static void scene_open(struct scene *scene, const char *setting)
{
    static const uint32_t ranks[WORLD] = {0, 1};
    struct commgemm_connect_options connect;
    struct commgemm_join_options join;
    daemon_init(&scene->daemon);
    daemon_start(&scene->daemon, test_backend_setting(), test_executor_setting(),
                 test_devices_setting(), setting, NULL);
    commgemm_connect_options_init(&connect);
    connect.socket = scene->daemon.socket;
    commgemm_join_options_init(&join);
    join.name = "recorded";
    join.size = join.n_ranks = WORLD;
    join.create = 1;
    join.ranks = ranks;
    check(commgemm_connect(&connect, &scene->client));
    check(commgemm_wait_executor(scene->client, test_backend_wait(WAIT_MS)));
    check(commgemm_comm_join(scene->client, &join, &scene->comm));
    client_open(&scene->raw, &scene->daemon);
    for (int i = 0; i < SETS; i++)
        set_open(scene, &scene->sets[i]);
}

static void scene_close(struct scene *scene)
{
    for (int i = 0; i < SETS; i++)
        set_close(scene, &scene->sets[i]);
    commgemm_disconnect(scene->client);
    client_close(&scene->raw);
    daemon_stop(&scene->daemon);
}

static uint64_t plan_of(struct scene *scene, int op, int method, int atomic)
{
    struct commgemm_plan_options options;
    struct commgemm_plan plan;
    commgemm_plan_options_init(&options);
    options.comm = scene->comm;
    options.op = op;
    options.method = method;
    options.atomic_gemm = atomic;
    options.m = PRODUCT_M;
    options.n = PRODUCT_N;
    options.k = PRODUCT_K;
    check(commgemm_plan_create(scene->client, &options, &plan));
    return plan.id;
}

static uint64_t submit(struct scene *scene, const struct set *set, uint64_t plan, uint32_t rank,
                       int want_phases)
{
    struct commgemm_job job;
    uint64_t ticket;
    commgemm_job_init(&job);
    job.plan = plan;
    job.rank = rank;
    job.want_phases = want_phases;
    job.lhs = commgemm_operand_at(&set->lhs[rank], 0);
    job.rhs = commgemm_operand_at(&set->rhs[rank], 0);
    job.out = commgemm_operand_at(&set->out[rank], 0);
    check(commgemm_submit(scene->client, &job, &ticket));
    return ticket;
}

static void fill(struct scene *scene, struct set *set, int op, uint32_t rank)
{
    product_lhs(op, seed, rank, set->lhs_view[rank].memory);
    product_rhs(op, seed, rank, set->rhs_view[rank].memory);
    check(buffer_view_push(scene->client, &set->lhs[rank], &set->lhs_view[rank]));
    check(buffer_view_push(scene->client, &set->rhs[rank], &set->rhs_view[rank]));
}

/* A job of both ranks on numbers that nobody has seen before. Its phases. */
static uint32_t run(struct scene *scene, struct set *set, uint64_t plan, int op, int want_phases)
{
    uint64_t tickets[WORLD];
    struct commgemm_completion done;
    uint32_t n_phases = 0;
    seed++;
    for (uint32_t rank = 0; rank < WORLD; rank++)
        fill(scene, set, op, rank);
    for (uint32_t rank = 0; rank < WORLD; rank++)
        tickets[rank] = submit(scene, set, plan, rank, want_phases);
    for (uint32_t rank = 0; rank < WORLD; rank++) {
        check(commgemm_wait(scene->client, tickets[rank], WAIT_MS, &done));
        if (done.status)
            fail_msg("%s", done.detail);
        n_phases += done.n_phases;
        commgemm_completion_fini(&done);
        check(buffer_view_pull(scene->client, &set->out[rank], &set->out_view[rank]));
        assert_true(product_is_right(op, seed, rank, set->out_view[rank].memory));
    }
    return n_phases;
}

static uint64_t replays(struct scene *scene)
{
    return status_number(&scene->raw, "replays");
}

static const struct {
    int op, method, atomic;
} kinds[] = {{COMMGEMM_OP_AG_GEMM, COMMGEMM_METHOD_NONE, 0},
             {COMMGEMM_OP_AG_GEMM, COMMGEMM_METHOD_RING_EXCHANGE, 0},
             {COMMGEMM_OP_AG_GEMM, COMMGEMM_METHOD_RING_EXCHANGE, 1},
             {COMMGEMM_OP_GEMM_RS, COMMGEMM_METHOD_NONE, 0},
             {COMMGEMM_OP_GEMM_RS, COMMGEMM_METHOD_RING_EXCHANGE, 0},
             {COMMGEMM_OP_GEMM_RS, COMMGEMM_METHOD_PIPELINE, 0}};
#define KINDS (sizeof(kinds) / sizeof(kinds[0]))

/* ---- tests ------------------------------------------------------------------------------------
 */

static void test_only_when_asked_for(void **state)
{
    struct scene scene = {0};
    (void)state;
    scene_open(&scene, "graphs_from=0");
    uint64_t plan = plan_of(&scene, COMMGEMM_OP_AG_GEMM, COMMGEMM_METHOD_RING_EXCHANGE, 0);
    for (int i = 0; i < 5; i++)
        run(&scene, &scene.sets[0], plan, COMMGEMM_OP_AG_GEMM, 0);
    assert_int_equal(replays(&scene), 0);
    scene_close(&scene);
}

static void test_from_the_third_launch_on(void **state)
{
    struct scene scene = {0};
    (void)state;
    scene_open(&scene, "graphs_from=3");
    uint64_t plan = plan_of(&scene, COMMGEMM_OP_GEMM_RS, COMMGEMM_METHOD_RING_EXCHANGE, 0);
    for (int i = 0; i < 10; i++)
        run(&scene, &scene.sets[0], plan, COMMGEMM_OP_GEMM_RS, 0);
    assert_int_equal(replays(&scene), 8);
    assert_true(run(&scene, &scene.sets[0], plan, COMMGEMM_OP_GEMM_RS, 1) > 0);
    assert_int_equal(replays(&scene), 8); /* phases are told step by step only */
    scene_close(&scene);
}

static void test_every_kind(void **state)
{
    struct scene scene = {0};
    (void)state;
    scene_open(&scene, "graphs_from=1");
    uint64_t plans[KINDS];
    for (size_t i = 0; i < KINDS; i++)
        plans[i] = plan_of(&scene, kinds[i].op, kinds[i].method, kinds[i].atomic);
    /* The longer one took to record, the later is the next; with CUDA collectives of a library and
     * flagged kernels are not kept. */
    for (int turn = 0; turn < 24 || (!test_backend_is_cuda() && replays(&scene) < KINDS * 15);
         turn++)
        for (size_t i = 0; i < KINDS; i++)
            run(&scene, &scene.sets[turn % 2], plans[i], kinds[i].op, 0);
    scene_close(&scene);
}

static void test_more_operands_than_room(void **state)
{
    struct scene scene = {0};
    (void)state;
    scene_open(&scene, "graphs_from=1");
    uint64_t plan = plan_of(&scene, COMMGEMM_OP_AG_GEMM, COMMGEMM_METHOD_RING_EXCHANGE, 0);
    for (int turn = 0; turn < 60; turn++)
        for (int i = 0; i < SETS; i++)
            run(&scene, &scene.sets[i], plan, COMMGEMM_OP_AG_GEMM, 0);
    assert_true(replays(&scene) > 60);
    scene_close(&scene);
}

/* The next buffers may well lie where the last ones did. */
static void test_operands_that_are_others(void **state)
{
    struct scene scene = {0};
    (void)state;
    scene_open(&scene, "graphs_from=1");
    uint64_t plan = plan_of(&scene, COMMGEMM_OP_GEMM_RS, COMMGEMM_METHOD_RING_EXCHANGE, 0);
    for (int turn = 0; turn < 20; turn++) {
        run(&scene, &scene.sets[0], plan, COMMGEMM_OP_GEMM_RS, 0);
        run(&scene, &scene.sets[0], plan, COMMGEMM_OP_GEMM_RS, 0);
        set_close(&scene, &scene.sets[0]);
        set_open(&scene, &scene.sets[0]);
    }
    assert_true(replays(&scene) > 0);
    scene_close(&scene);
}

/* Many at once: launches that are not quiet are recordings of their own. The longer a device takes
 * for one, the fewer are made in a turn. */
static void test_launches_behind_each_other(void **state)
{
    struct scene scene = {0};
    struct set *set = &scene.sets[0];
    uint64_t tickets[WORLD][32];
    struct commgemm_completion done;
    (void)state;
    scene_open(&scene, "graphs_from=1");
    uint64_t plan = plan_of(&scene, COMMGEMM_OP_AG_GEMM, COMMGEMM_METHOD_RING_EXCHANGE, 0);
    for (int turn = 0; turn < 10 || (replays(&scene) < 100 && turn < 100); turn++) {
        seed++;
        for (uint32_t rank = 0; rank < WORLD; rank++)
            fill(&scene, set, COMMGEMM_OP_AG_GEMM, rank);
        for (int i = 0; i < 32; i++)
            for (uint32_t rank = 0; rank < WORLD; rank++)
                tickets[rank][i] = submit(&scene, set, plan, rank, 0);
        for (int i = 0; i < 32; i++)
            for (uint32_t rank = 0; rank < WORLD; rank++) {
                check(commgemm_wait(scene.client, tickets[rank][i], WAIT_MS, &done));
                assert_int_equal(done.status, COMMGEMM_OK);
            }
        for (uint32_t rank = 0; rank < WORLD; rank++) {
            check(buffer_view_pull(scene.client, &set->out[rank], &set->out_view[rank]));
            assert_true(
                product_is_right(COMMGEMM_OP_AG_GEMM, seed, rank, set->out_view[rank].memory));
        }
    }
    assert_true(replays(&scene) >= 100);
    scene_close(&scene);
}

static void test_executor_that_dies(void **state)
{
    struct scene scene = {0};
    (void)state;
    scene_open(&scene, "graphs_from=1");
    uint64_t plan = plan_of(&scene, COMMGEMM_OP_AG_GEMM, COMMGEMM_METHOD_RING_EXCHANGE, 0);
    for (int i = 0; i < 3; i++)
        run(&scene, &scene.sets[0], plan, COMMGEMM_OP_AG_GEMM, 0);
    uint64_t life = status_number(&scene.raw, "executor_life");
    assert_int_equal(send_signal((pid_t)status_number(&scene.raw, "executor_pid"), SIGKILL), 0);
    wait_for_status(&scene.raw, "executor_life", life + 1);
    check(commgemm_wait_executor(scene.client, test_backend_wait(WAIT_MS)));
    for (int i = 0; i < 3; i++)
        run(&scene, &scene.sets[0], plan, COMMGEMM_OP_AG_GEMM, 0);
    assert_int_equal(replays(&scene), 2); /* the first one shows how much it takes */
    scene_close(&scene);
}

/* Of all plans of a user no more is kept than some. */
#define RANKS 64u
#define PLANS 3u
#define TURNS_MAX 1000u
#define MORE_TURNS 30u /* when much is kept */
#define OUTPUTS 8u
#define KEPT_MAX (256u << 10)

static void run_wide(struct scene *scene, uint64_t plan, const struct commgemm_buffer *memory,
                     uint32_t output)
{
    struct commgemm_completion done;
    uint64_t tickets[RANKS];
    struct commgemm_job job;
    commgemm_job_init(&job);
    job.plan = plan;
    job.lhs = commgemm_operand_at(memory, 4096 * (uint64_t)output);
    job.rhs = commgemm_operand_at(memory, 1 << 20);
    for (job.rank = 0; job.rank < RANKS; job.rank++) {
        job.out = commgemm_operand_at(memory, (2 + (uint64_t)job.rank) << 20);
        check(commgemm_submit(scene->client, &job, &tickets[job.rank]));
    }
    for (uint32_t rank = 0; rank < RANKS; rank++) {
        check(commgemm_wait(scene->client, tickets[rank], WAIT_MS, &done));
        assert_int_equal(done.status, COMMGEMM_OK);
    }
}

static uint64_t wide_comm(struct scene *scene)
{
    struct commgemm_join_options join;
    uint32_t ranks[RANKS];
    uint64_t comm;
    for (uint32_t rank = 0; rank < RANKS; rank++)
        ranks[rank] = rank;
    commgemm_join_options_init(&join);
    join.name = "wide";
    join.create = 1;
    join.size = join.n_ranks = RANKS;
    join.ranks = ranks;
    check(commgemm_comm_join(scene->client, &join, &comm));
    return comm;
}

static void test_no_user_has_all_memory(void **state)
{
    struct scene scene = {0};
    struct commgemm_buffer memory;
    struct commgemm_plan plans[PLANS] = {{0}};
    struct commgemm_plan_options options;
    uint64_t most = 0;
    (void)state;
    if (test_backend_is_cuda()) /* no device has so many queues */
        skip();
    scene_open(&scene, "graphs_from=1");
    check(commgemm_buffer_create(scene.client, NULL, (RANKS + 2) << 20, 0, 0, 0, &memory));
    commgemm_plan_options_init(&options);
    options.comm = wide_comm(&scene);
    options.op = COMMGEMM_OP_AG_GEMM;
    options.method = COMMGEMM_METHOD_RING_EXCHANGE;
    options.m = options.k = RANKS;
    for (uint32_t i = 0; i < PLANS; i++) {
        options.n = RANKS * (1 + i); /* another plan */
        check(commgemm_plan_create(scene.client, &options, &plans[i]));
    }
    for (uint32_t turn = 0, more = MORE_TURNS; more > 0; turn++) {
        for (uint32_t i = 0; i < PLANS * OUTPUTS; i++)
            run_wide(&scene, plans[i % PLANS].id, &memory, i / PLANS);
        uint64_t recorded = status_number(&scene.raw, "recorded");
        most = recorded > most ? recorded : most;
        more -= most > KEPT_MAX / 4 * 3;
        assert_true(recorded <= KEPT_MAX && turn < TURNS_MAX);
    }
    print_message("%llu operations at most\n", (unsigned long long)most);
    check(commgemm_buffer_close(scene.client, memory.id));
    scene_close(&scene);
}

int main(void)
{
    seed = (uint64_t)time(NULL) << 20;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_only_when_asked_for),
        cmocka_unit_test(test_from_the_third_launch_on),
        cmocka_unit_test(test_every_kind),
        cmocka_unit_test(test_more_operands_than_room),
        cmocka_unit_test(test_operands_that_are_others),
        cmocka_unit_test(test_launches_behind_each_other),
        cmocka_unit_test(test_executor_that_dies),
        cmocka_unit_test(test_no_user_has_all_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
