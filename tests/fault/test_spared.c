/* What a failed job leaves of its outputs, where other jobs, however many, have to do with the same
 * memory: what those are to find there stays, and all else becomes NaN. */
#include "tests/daemon/broker_fixture.h"

#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "commgemm.h"

#define WAIT_MS (WAIT_S * 1000)
#define PAGE 4096u
#define ENTRIES 4096u
#define SIDE 4u
#define TILE (SIDE * SIDE) /* floats of the matrices of most jobs */
#define DEPTH (PAGE / SIDE)
#define TILES (4u * ENTRIES) /* in the buffer */
#define BEFORE (-77.f)       /* what lies there before */

struct scene {
    struct daemon daemon;
    commgemm_client *client;
    uint64_t comm;
    struct commgemm_buffer buffer;
    float *matrix;
};

/* ---- one client ------------------------------------------------------------------------------ */

static void make_buffer(struct scene *scene)
{
    void *at;
    assert_int_equal(commgemm_buffer_create(scene->client, NULL,
                                            (uint64_t)TILES * TILE * sizeof(float), 0, 0, 0,
                                            &scene->buffer),
                     COMMGEMM_OK);
    assert_int_equal(commgemm_buffer_map(scene->client, &scene->buffer, &at), COMMGEMM_OK);
    scene->matrix = at;
    for (uint32_t i = 0; i < TILES * TILE; i++)
        scene->matrix[i] = BEFORE;
}

/* In a comm of its own, with a buffer of its own but where it is the other one's. */
static struct scene *scene_open_beside(const struct daemon *daemon, uint32_t size,
                                       const struct scene *other)
{
    static const uint32_t ranks[] = {0, 1, 2, 3};
    struct scene *scene = calloc(1, sizeof(*scene));
    struct commgemm_connect_options options;
    struct commgemm_join_options join;
    assert_non_null(scene);
    commgemm_connect_options_init(&options);
    options.socket = daemon->socket;
    options.ring_entries = ENTRIES;
    assert_int_equal(commgemm_connect(&options, &scene->client), COMMGEMM_OK);
    assert_int_equal(commgemm_wait_executor(scene->client, WAIT_MS), COMMGEMM_OK);
    commgemm_join_options_init(&join);
    join.name = other ? "beside" : "spared";
    join.create = 1;
    join.size = join.n_ranks = size;
    join.ranks = ranks;
    assert_int_equal(commgemm_comm_join(scene->client, &join, &scene->comm), COMMGEMM_OK);
    if (!other)
        make_buffer(scene);
    else
        assert_int_equal(
            commgemm_buffer_open(scene->client, NULL, other->buffer.id, 0, &scene->buffer),
            COMMGEMM_OK);
    return scene;
}

static struct scene *scene_open(const struct daemon *daemon, uint32_t size)
{
    return scene_open_beside(daemon, size, NULL);
}

static void scene_close(struct scene *scene)
{
    commgemm_disconnect(scene->client);
    free(scene);
}

static struct commgemm_operand tile(const struct scene *scene, uint32_t index)
{
    return commgemm_operand_at(&scene->buffer, (uint64_t)index * TILE * sizeof(float));
}

static void fill(struct scene *scene, uint32_t index, float value)
{
    for (uint32_t i = 0; i < TILE; i++)
        scene->matrix[index * TILE + i] = value;
}

static uint64_t plan_of(const struct scene *scene, int op, uint32_t k, uint32_t epilogue)
{
    struct commgemm_plan_options options;
    struct commgemm_plan plan;
    commgemm_plan_options_init(&options);
    options.comm = scene->comm;
    options.op = op;
    options.method = COMMGEMM_METHOD_NONE;
    options.m = options.n = SIDE;
    options.k = k;
    options.epilogue = epilogue;
    assert_int_equal(commgemm_plan_create(scene->client, &options, &plan), COMMGEMM_OK);
    return plan.id;
}

static uint64_t submit(const struct scene *scene, const struct commgemm_job *job)
{
    uint64_t ticket;
    if (commgemm_submit(scene->client, job, &ticket))
        fail_msg("%s", commgemm_last_error());
    return ticket;
}

static void wait_for(const struct scene *scene, uint64_t ticket, int status, const char *words)
{
    struct commgemm_completion completion;
    assert_int_equal(commgemm_wait(scene->client, ticket, WAIT_MS, &completion), COMMGEMM_OK);
    assert_int_equal(completion.status, status);
    if (!strstr(completion.detail, words))
        fail_msg("'%s' says nothing of '%s'", completion.detail, words);
}

static bool buffer_is_tainted(const struct scene *scene, uint64_t id)
{
    struct commgemm_buffer buffer;
    assert_int_equal(commgemm_buffer_open(scene->client, NULL, id, 0, &buffer), COMMGEMM_OK);
    return buffer.tainted;
}

static bool is_tainted(const struct scene *scene)
{
    return buffer_is_tainted(scene, scene->buffer.id);
}

static void check_nan(const struct scene *scene, uint32_t index)
{
    for (uint32_t i = 0; i < TILE; i++)
        if (!isnan(scene->matrix[index * TILE + i]))
            fail_msg("tile %u has %g", index, (double)scene->matrix[index * TILE + i]);
}

static void check_is(const struct scene *scene, uint32_t index, float value)
{
    for (uint32_t i = 0; i < TILE; i++)
        if (scene->matrix[index * TILE + i] != value)
            fail_msg("tile %u has %g, not %g", index, (double)scene->matrix[index * TILE + i],
                     (double)value);
}

/* ---- before its launch ----------------------------------------------------------------------- */

#define OUT(index) (3 * ENTRIES + (index))
#define BETWEEN(index) (ENTRIES - 10 + (index)) /* among what they read, but read by none */

/* A job that waits for rank 1, as those before it do. Each reads tiles of its own. */
static uint64_t submit_waiting(const struct scene *scene, uint64_t plan, uint32_t index,
                               uint32_t out, bool bias)
{
    struct commgemm_job job;
    commgemm_job_init(&job);
    job.plan = plan;
    job.lhs = tile(scene, index);
    job.rhs = tile(scene, ENTRIES + index);
    if (bias)
        job.bias = tile(scene, 2 * ENTRIES + index);
    job.out = tile(scene, out);
    job.deadline_ms = WAIT_MS;
    return submit(scene, &job);
}

/* Behind so many; out: the tile that its result was to lie in. */
static void cancel_behind(const struct scene *scene, uint32_t count, uint32_t out, bool bias,
                          const char *words)
{
    uint64_t plan = plan_of(scene, COMMGEMM_OP_GEMM_AR, SIDE, bias ? COMMGEMM_EPILOGUE_BIAS : 0);
    for (uint32_t i = 0; i < count; i++)
        submit_waiting(scene, plan, i, OUT(i), bias);
    uint64_t ticket = submit_waiting(scene, plan, count, out, bias);
    assert_int_equal(commgemm_cancel(scene->client, ticket), COMMGEMM_OK);
    wait_for(scene, ticket, COMMGEMM_CANCELLED, words);
}

static void test_behind_many(void **state)
{
    static const struct {
        uint32_t count, out;
    } cases[] = {{1, OUT(1)},     {300, OUT(300)},   {1500, OUT(1500)},  {4000, OUT(4000)},
                 {1, BETWEEN(1)}, {300, BETWEEN(1)}, {1500, BETWEEN(1)}, {3500, BETWEEN(1)}};
    for (uint32_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct scene *scene = scene_open(*state, 2);
        uint32_t out = cases[i].out;
        cancel_behind(scene, cases[i].count, out, false, "cancelled");
        check_nan(scene, out);
        check_is(scene, out - 1, BEFORE);
        check_is(scene, out + 1, BEFORE);
        assert_false(is_tainted(scene));
        scene_close(scene);
    }
}

/* What the last one before it is to read stays, though a thousand others have not to do with it. */
static void test_behind_a_reader(void **state)
{
    struct scene *scene = scene_open(*state, 2);
    cancel_behind(scene, 1000, 999, false, "cancelled");
    check_is(scene, 999, BEFORE);
    assert_false(is_tainted(scene));
    scene_close(scene);
}

/* So many read the object that it is not looked up whether one reads this tile. */
static void test_behind_too_many(void **state)
{
    struct scene *scene = scene_open(*state, 2);
    cancel_behind(scene, 4000, BETWEEN(1), true, "; outputs are not all NaN (too many jobs)");
    check_is(scene, BETWEEN(1), BEFORE);
    assert_true(is_tainted(scene));
    scene_close(scene);
}

/* To see that rows lie in each other's gaps takes longer than to see that nothing is near. */
static void test_between_many_rows(void **state)
{
    static const uint32_t counts[] = {300, 600};
    for (uint32_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
        struct scene *scene = scene_open(*state, 2);
        struct commgemm_job job;
        uint64_t ticket = 0;
        commgemm_job_init(&job);
        job.plan = plan_of(scene, COMMGEMM_OP_GEMM_AR, SIDE, 0);
        job.lhs = tile(scene, 0);
        job.lhs.row_stride_bytes = 5u * TILE * sizeof(float);
        job.rhs = tile(scene, OUT(0));
        job.out = tile(scene, OUT(1));
        job.deadline_ms = WAIT_MS;
        for (uint32_t n = 0; n < counts[i]; n++)
            submit(scene, &job);
        job.out = tile(scene, 1);
        job.out.row_stride_bytes = 6u * TILE * sizeof(float);
        ticket = submit(scene, &job);
        assert_int_equal(commgemm_cancel(scene->client, ticket), COMMGEMM_OK);
        wait_for(scene, ticket, COMMGEMM_CANCELLED, i ? "too many jobs" : "cancelled");
        assert_true(is_tainted(scene) == i);
        assert_true(i || isnan(scene->matrix[TILE]));
        check_is(scene, 0, BEFORE);
        scene_close(scene);
    }
}

/* What one rank has in its object takes nothing from what another one's output is to become. */
static void test_beside_a_rank_with_many(void **state)
{
    struct scene *scene = scene_open(*state, 4);
    struct commgemm_job crowded, other;
    struct commgemm_buffer buffer;
    void *at;
    assert_int_equal(commgemm_buffer_create(scene->client, NULL, PAGE, 0, 0, 0, &buffer),
                     COMMGEMM_OK);
    assert_int_equal(commgemm_buffer_map(scene->client, &buffer, &at), COMMGEMM_OK);
    commgemm_job_init(&crowded);
    crowded.plan = plan_of(scene, COMMGEMM_OP_GEMM_AR, SIDE, 0);
    crowded.deadline_ms = WAIT_MS;
    other = crowded;
    other.rank = 1;
    other.lhs = other.rhs = commgemm_operand_at(&buffer, 0);
    other.out = commgemm_operand_at(&buffer, PAGE / 2);
    crowded.lhs = tile(scene, 0);
    crowded.lhs.row_stride_bytes = 5u * TILE * sizeof(float);
    crowded.rhs = tile(scene, OUT(0));
    crowded.out = tile(scene, OUT(1));
    for (uint32_t n = 0; n < 600; n++) {
        submit(scene, &crowded);
        submit(scene, &other);
    }
    crowded.out = tile(scene, 1);
    crowded.out.row_stride_bytes = 6u * TILE * sizeof(float);
    uint64_t first = submit(scene, &crowded), second = submit(scene, &other);
    assert_int_equal(commgemm_cancel(scene->client, first), COMMGEMM_OK);
    wait_for(scene, second, COMMGEMM_CANCELLED, "too many jobs");
    assert_true(is_tainted(scene));
    assert_false(buffer_is_tainted(scene, buffer.id));
    assert_true(isnan(((float *)at)[PAGE / 2 / sizeof(float)]));
    scene_close(scene);
}

/* Those of another comm are not looked at. */
static void test_beside_another_comm(void **state)
{
    struct scene *scene = scene_open(*state, 2);
    struct scene *beside = scene_open_beside(*state, 2, scene);
    cancel_behind(beside, 4000, BETWEEN(1), true, "too many jobs");
    assert_int_equal(commgemm_buffer_rewritten(scene->client, &scene->buffer), COMMGEMM_OK);
    cancel_behind(scene, 1000, BETWEEN(2), true, "cancelled");
    check_nan(scene, BETWEEN(2));
    assert_false(is_tainted(scene));
    scene_close(beside);
    scene_close(scene);
}

/* ---- on a device ----------------------------------------------------------------------------- */

/* Its job misses a page of rhs, and is lost by that. */
struct loser {
    struct commgemm_job job;
    int fd;
};

static void loser_open(const struct scene *scene, uint32_t out, struct loser *ret_loser)
{
    struct commgemm_segment segment = {.kind = COMMGEMM_SEGMENT_FD, .length = 8u * PAGE};
    uint32_t generation;
    uint64_t id;
    int fd = memfd_create("loser", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    assert_int_equal(ftruncate(fd, 8u * PAGE), 0);
    assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW), 0);
    segment.fd = fd;
    assert_int_equal(commgemm_import(scene->client, &segment, 1, 0, 0, &id, &generation),
                     COMMGEMM_OK);
    assert_int_equal(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 7u * PAGE, PAGE), 0);
    commgemm_job_init(&ret_loser->job);
    ret_loser->fd = fd;
    ret_loser->job.plan = plan_of(scene, COMMGEMM_OP_GEMM, DEPTH, 0);
    ret_loser->job.lhs = (struct commgemm_operand){.id = id, .generation = generation};
    ret_loser->job.rhs = ret_loser->job.lhs;
    ret_loser->job.rhs.offset_bytes = 4u * PAGE;
    ret_loser->job.out = tile(scene, out);
}

/* Launched behind it, each into a tile of its own. */
static void test_before_many(void **state)
{
    static const uint32_t counts[] = {1, 300, 1500, 4000};
    for (uint32_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
        struct scene *scene = scene_open(*state, 1);
        uint64_t plan = plan_of(scene, COMMGEMM_OP_GEMM, SIDE, 0);
        struct commgemm_job job;
        struct loser loser;
        fill(scene, 0, 1);
        fill(scene, 1, 2);
        loser_open(scene, OUT(ENTRIES - 1), &loser);
        uint64_t ticket = submit(scene, &loser.job);
        for (uint32_t n = 0; n < counts[i]; n++) {
            commgemm_job_init(&job);
            job.plan = plan;
            job.lhs = tile(scene, 0);
            job.rhs = tile(scene, 1);
            job.out = tile(scene, OUT(n));
            job.detached = 1;
            submit(scene, &job);
        }
        wait_for(scene, ticket, COMMGEMM_STALE, "has holes");
        assert_int_equal(commgemm_wait_detached(scene->client, 0, WAIT_MS), COMMGEMM_OK);
        check_nan(scene, OUT(ENTRIES - 1));
        for (uint32_t n = 0; n < counts[i]; n++)
            check_is(scene, OUT(n), 2 * SIDE);
        assert_false(is_tainted(scene));
        close(loser.fd);
        scene_close(scene);
    }
}

/* Launched behind it, into rows that lie `stride` bytes apart around its tile, or over it. */
static void lose_between_rows(const struct daemon *daemon, uint32_t out, uint32_t stride,
                              bool meets)
{
    struct scene *scene = scene_open(daemon, 1);
    struct commgemm_job job;
    struct loser loser;
    fill(scene, OUT(0), 1);
    fill(scene, OUT(1), 2);
    loser_open(scene, out, &loser);
    commgemm_job_init(&job);
    job.plan = plan_of(scene, COMMGEMM_OP_GEMM, SIDE, 0);
    job.lhs = tile(scene, OUT(0));
    job.rhs = tile(scene, OUT(1));
    job.out = tile(scene, 0);
    job.out.row_stride_bytes = stride;
    uint64_t lost = submit(scene, &loser.job), right = submit(scene, &job);
    wait_for(scene, lost, COMMGEMM_STALE, "has holes");
    wait_for(scene, right, COMMGEMM_OK, "");
    for (uint32_t row = 0; row < SIDE; row++)
        for (uint32_t col = 0; col < SIDE; col++)
            assert_true(scene->matrix[row * stride / sizeof(float) + col] == 2 * SIDE);
    if (!meets)
        check_nan(scene, out);
    assert_false(is_tainted(scene));
    close(loser.fd);
    scene_close(scene);
}

static void test_between_rows(void **state)
{
    const uint32_t bytes = TILE * sizeof(float);
    lose_between_rows(*state, 1, 2 * bytes, false);
    lose_between_rows(*state, 1, 5 * bytes, false);
    lose_between_rows(*state, 3, 2 * bytes, false);
    lose_between_rows(*state, 2, 2 * bytes, true);
    lose_between_rows(*state, 1, bytes, true);
}

/* Not even operands of one job share bytes there. */
static void test_operands_between_rows(void **state)
{
    struct scene *scene = scene_open(*state, 1);
    const uint32_t bytes = TILE * sizeof(float);
    for (uint32_t i = 0; i < 2; i++) {
        struct commgemm_job job;
        uint64_t ticket;
        fill(scene, 1 + i, 1);
        fill(scene, OUT(0), 2);
        commgemm_job_init(&job);
        job.plan = plan_of(scene, COMMGEMM_OP_GEMM, SIDE, 0);
        job.lhs = tile(scene, 1 + i);
        job.rhs = tile(scene, OUT(0));
        job.out = tile(scene, 0);
        job.out.row_stride_bytes = 2ull * bytes;
        ticket = submit(scene, &job);
        if (i == 0)
            wait_for(scene, ticket, COMMGEMM_OK, "");
        else
            wait_for(scene, ticket, COMMGEMM_INVALID_ARGUMENT, "out: overlaps lhs");
    }
    assert_true(scene->matrix[0] == 2 * SIDE);
    scene_close(scene);
}

/* ---- */

static int set_up(void **state)
{
    struct daemon *daemon = calloc(1, sizeof(*daemon));
    daemon_init(daemon);
    daemon_start(daemon, REAL_EXECUTOR, "devices=2", "log_level=warning", NULL);
    *state = daemon;
    return 0;
}

static int tear_down(void **state)
{
    daemon_stop(*state);
    free(*state);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_behind_many),
        cmocka_unit_test(test_behind_a_reader),
        cmocka_unit_test(test_behind_too_many),
        cmocka_unit_test(test_between_many_rows),
        cmocka_unit_test(test_beside_a_rank_with_many),
        cmocka_unit_test(test_beside_another_comm),
        cmocka_unit_test(test_before_many),
        cmocka_unit_test(test_between_rows),
        cmocka_unit_test(test_operands_between_rows),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
