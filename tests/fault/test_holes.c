/* A client gives back pages of memory that it has imported. No page is made for it: the job that
 * misses one ends with STALE, and so does whatever comes after it until the memory is imported
 * again. Nobody else is concerned. */
#include "tests/daemon/broker_fixture.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "commgemm.h"
#include "tests/daemon/enter.h"
#include "tests/process_memory.h"
#include "tests/userfaultfd.h"

#define EXECUTOR REAL_EXECUTOR
#define SIDE 64u
#define BYTES (SIDE * SIDE * 4u) /* of a matrix; whole pages */
#define WAIT_MS (WAIT_S * 1000)

enum { LHS, RHS, OUT, MATRICES };

struct scene {
    struct daemon daemon;
    commgemm_client *client;
    int fds[MATRICES];
    float *matrix[MATRICES];
    uint64_t import[MATRICES];
    struct commgemm_job job;
};

static uint64_t bytes_there(int fd)
{
    struct stat info;
    assert_int_equal(fstat(fd, &info), 0);
    return (uint64_t)info.st_blocks * 512;
}

static void import(struct scene *scene, int which, int read_only)
{
    struct commgemm_operand *operands[] = {&scene->job.lhs, &scene->job.rhs, &scene->job.out};
    struct commgemm_segment segment = {
        .kind = COMMGEMM_SEGMENT_FD, .fd = scene->fds[which], .length = BYTES};
    uint32_t generation;
    if (commgemm_import(scene->client, &segment, 1, -1, read_only, &scene->import[which],
                        &generation))
        fail_msg("%s", commgemm_last_error());
    *operands[which] =
        (struct commgemm_operand){.id = scene->import[which], .generation = generation};
}

static void import_again(struct scene *scene, int which)
{
    assert_int_equal(commgemm_import_release(scene->client, scene->import[which]), COMMGEMM_OK);
    import(scene, which, 0);
}

static void matrix_open(struct scene *scene, int which)
{
    int fd = scene->fds[which] = memfd_create("matrix", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    assert_int_equal(ftruncate(fd, BYTES), 0);
    assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW), 0);
    import(scene, which, 0);
    assert_int_equal(bytes_there(fd), BYTES); /* made by the library, here */
    scene->matrix[which] = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    assert_true(scene->matrix[which] != MAP_FAILED);
}

static void fill(struct scene *scene)
{
    for (uint32_t i = 0; i < SIDE * SIDE; i++) {
        scene->matrix[LHS][i] = (float)(i % 251);
        scene->matrix[RHS][i] = i / SIDE == i % SIDE;
    }
}

static int set_up(void **state)
{
    struct commgemm_plan_options options;
    struct commgemm_plan plan = {0};
    struct scene *scene = calloc(1, sizeof(*scene));
    daemon_init(&scene->daemon);
    daemon_start(&scene->daemon, EXECUTOR, "backend=cpu", NULL);
    scene->client = enter(&scene->daemon);
    commgemm_plan_options_init(&options);
    assert_int_equal(commgemm_comm_join_simple(scene->client, "holes", 1, 0, &options.comm),
                     COMMGEMM_OK);
    options.op = COMMGEMM_OP_GEMM;
    options.m = options.n = options.k = SIDE;
    assert_int_equal(commgemm_plan_create(scene->client, &options, &plan), COMMGEMM_OK);
    commgemm_job_init(&scene->job);
    scene->job.plan = plan.id;
    for (int which = LHS; which < MATRICES; which++)
        matrix_open(scene, which);
    fill(scene);
    *state = scene;
    return 0;
}

static int tear_down(void **state)
{
    struct scene *scene = *state;
    commgemm_disconnect(scene->client);
    daemon_stop(&scene->daemon);
    for (int which = LHS; which < MATRICES; which++) {
        munmap(scene->matrix[which], BYTES);
        close(scene->fds[which]);
    }
    free(scene);
    return 0;
}

static void run(struct scene *scene, struct commgemm_completion *ret_done)
{
    uint64_t ticket;
    assert_int_equal(commgemm_submit(scene->client, &scene->job, &ticket), COMMGEMM_OK);
    assert_int_equal(commgemm_wait(scene->client, ticket, WAIT_MS, ret_done), COMMGEMM_OK);
}

static void run_right(struct scene *scene)
{
    struct commgemm_completion done;
    memset(scene->matrix[OUT], 0, BYTES);
    run(scene, &done);
    assert_string_equal(done.detail, "");
    assert_memory_equal(scene->matrix[OUT], scene->matrix[LHS], BYTES);
}

static void give_back(const struct scene *scene, int which)
{
    assert_int_equal(
        fallocate(scene->fds[which], FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, BYTES), 0);
    assert_int_equal(bytes_there(scene->fds[which]), 0);
}

/* It has missed pages of this operand, and nobody has made any. */
static void expect_stale(struct scene *scene, const char *rank, int which)
{
    static const char *const names[] = {"lhs", "rhs", "out"};
    struct commgemm_completion done;
    char words[64];
    run(scene, &done);
    assert_int_equal(done.status, COMMGEMM_STALE);
    snprintf(words, sizeof(words), "%s%s: import %llu has holes", rank, names[which],
             (unsigned long long)scene->import[which]);
    if (!strstr(done.detail, words))
        fail_msg("\"%s\" is not in \"%s\"", words, done.detail);
    assert_int_equal(bytes_there(scene->fds[which]), 0);
}

static void test_what_is_missed_is_named(void **state)
{
    struct scene *scene = *state;
    run_right(scene);
    for (int which = LHS; which < MATRICES; which++) {
        give_back(scene, which);
        expect_stale(scene, "rank 0: ", which);
        expect_stale(scene, "", which); /* refused, now that it is known */
        import_again(scene, which);
        assert_int_equal(bytes_there(scene->fds[which]), BYTES);
        fill(scene);
        run_right(scene);
    }
}

static void test_what_is_only_read_is_missed_too(void **state)
{
    struct scene *scene = *state;
    int writable = scene->fds[LHS];
    char path[32];
    snprintf(path, sizeof(path), "/proc/self/fd/%d", writable);
    scene->fds[LHS] = open(path, O_RDONLY | O_CLOEXEC);
    assert_true(scene->fds[LHS] >= 0);
    import(scene, LHS, 1);
    run_right(scene);
    scene->matrix[LHS][7] = 99; /* seen by the executor, whose mapping is private */
    run_right(scene);
    close(scene->fds[LHS]);
    scene->fds[LHS] = writable;
    give_back(scene, LHS);
    expect_stale(scene, "rank 0: ", LHS);
}

static uint64_t submit_copy(struct scene *scene, struct commgemm_operand from, uint64_t rows)
{
    struct commgemm_job job;
    uint64_t ticket;
    commgemm_job_init(&job);
    job.kind = COMMGEMM_JOB_COPY_IN;
    job.plan = scene->job.plan;
    job.lhs = from;
    job.rows = rows;
    assert_int_equal(commgemm_submit(scene->client, &job, &ticket), COMMGEMM_OK);
    return ticket;
}

static int end_of(struct scene *scene, uint64_t ticket)
{
    struct commgemm_completion done;
    assert_int_equal(commgemm_wait(scene->client, ticket, WAIT_MS, &done), COMMGEMM_OK);
    return done.status;
}

/* It ends before the one that misses something, and has fewer rows: those beyond are that one's. */
static void test_a_copy_behind_one_that_misses(void **state)
{
    struct scene *scene = *state;
    struct commgemm_chunk chunk;
    struct commgemm_completion done;
    const struct commgemm_operand lhs = scene->job.lhs, rhs = scene->job.rhs;
    assert_int_equal(
        commgemm_plan_chunk(scene->client, scene->job.plan, 0, COMMGEMM_WHOLE_BUFFER, &chunk),
        COMMGEMM_OK);
    assert_int_equal(end_of(scene, submit_copy(scene, lhs, 0)), COMMGEMM_OK);
    for (int i = 0; i < 20; i++) {
        give_back(scene, LHS);
        uint64_t all = submit_copy(scene, scene->job.lhs, 0), few = submit_copy(scene, rhs, 4);
        assert_int_equal(end_of(scene, all), COMMGEMM_STALE);
        assert_int_equal(end_of(scene, few), COMMGEMM_OK);
        scene->job.lhs =
            (struct commgemm_operand){.id = chunk.buffer, .generation = chunk.generation};
        run(scene, &done);
        assert_int_equal(done.status, COMMGEMM_TAINTED);
        import_again(scene, LHS);
        fill(scene);
    }
}

/* Of as many imports as there may be. */
static void test_many(void **state)
{
    enum { MANY = 300 };
    struct scene *scene = *state;
    uint64_t imports[MANY];
    for (int i = 0; i < MANY; i++) {
        import(scene, LHS, 0);
        imports[i] = scene->import[LHS];
    }
    run_right(scene);
    give_back(scene, LHS);
    expect_stale(scene, "rank 0: ", LHS);
    for (int i = 0; i < MANY; i++)
        assert_int_equal(commgemm_import_release(scene->client, imports[i]), COMMGEMM_OK);
    import(scene, LHS, 0);
    fill(scene);
    run_right(scene);
}

/* What the executor puts in place of missing pages it does not keep: of each import another part is
 * written by a copy, of which more are under way when it is missed. */
static void test_no_memory_is_kept_for_it(void **state)
{
    enum { IMPORTS = 12, PIECE = 8 << 20, COPIES = 3 };
    struct scene *scene = *state;
    struct commgemm_segment segment = {.kind = COMMGEMM_SEGMENT_FD, .length = PIECE};
    uint64_t executor = daemon_status(&scene->daemon, "executor_pid"), id, ticket;
    if (!CGM_MEMORY_IS_PLAIN)
        skip();
    uint64_t before = process_kib((pid_t)executor, "RssAnon:");
    struct commgemm_completion done;
    struct commgemm_buffer lhs;
    struct commgemm_job job;
    struct commgemm_plan plan = {0};
    struct commgemm_plan_options options;
    commgemm_plan_options_init(&options);
    assert_int_equal(commgemm_comm_join_simple(scene->client, "large", 1, 0, &options.comm),
                     COMMGEMM_OK);
    options.op = COMMGEMM_OP_AG;
    options.m = PIECE / 4096;
    options.n = 1024;
    assert_int_equal(commgemm_plan_create(scene->client, &options, &plan), COMMGEMM_OK);
    assert_int_equal(commgemm_buffer_create(scene->client, NULL, PIECE, -1, 0, 0, &lhs),
                     COMMGEMM_OK);
    for (int i = 0; i < IMPORTS; i++) {
        int fd = segment.fd = memfd_create("piece", MFD_CLOEXEC | MFD_ALLOW_SEALING);
        assert_int_equal(ftruncate(fd, PIECE), 0);
        assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK), 0);
        commgemm_job_init(&job);
        job.plan = plan.id;
        job.lhs = commgemm_operand_at(&lhs, 0);
        assert_int_equal(
            commgemm_import(scene->client, &segment, 1, -1, 0, &id, &job.out.generation),
            COMMGEMM_OK);
        job.out.id = id;
        assert_int_equal(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, PIECE), 0);
        for (int copy = 0; copy < COPIES; copy++)
            assert_int_equal(commgemm_submit(scene->client, &job, &ticket), COMMGEMM_OK);
        assert_int_equal(commgemm_wait(scene->client, ticket, WAIT_MS, &done), COMMGEMM_OK);
        assert_int_equal(done.status, COMMGEMM_STALE);
        close(fd);
    }
    for (int i = 0;
         i < 100 * WAIT_S && process_kib((pid_t)executor, "RssAnon:") > before + 2 * PIECE / 1024;
         i++)
        usleep(10000);
    assert_true(process_kib((pid_t)executor, "RssAnon:") <= before + 2 * PIECE / 1024);
}

/* Then pages are made, and the executor lives. */
static void test_no_room_in_their_place(void **state)
{
    static const struct rlimit little = {1 << 20, 1 << 20};
    struct scene *scene = *state;
    struct commgemm_completion done;
    pid_t executor = (pid_t)daemon_status(&scene->daemon, "executor_pid");
    if (!CGM_MEMORY_IS_PLAIN)
        skip();
    run_right(scene);
    give_back(scene, OUT);
    assert_int_equal(prlimit(executor, RLIMIT_DATA, &little, NULL), 0);
    run(scene, &done);
    assert_int_equal(done.status, COMMGEMM_STALE);
    assert_int_equal(daemon_status(&scene->daemon, "executor_deaths"), 0);
}

/* Nothing is made of what cannot be. */
static void test_more_than_the_node_has(void **state)
{
    struct scene *scene = *state;
    struct commgemm_segment segment = {.kind = COMMGEMM_SEGMENT_FD, .length = 1ull << 42};
    uint64_t id;
    uint32_t generation;
    segment.fd = memfd_create("large", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    assert_int_equal(ftruncate(segment.fd, 1ll << 42), 0);
    assert_int_equal(fcntl(segment.fd, F_ADD_SEALS, F_SEAL_SHRINK), 0);
    assert_int_equal(commgemm_import(scene->client, &segment, 1, -1, 0, &id, &generation),
                     COMMGEMM_NO_MEMORY);
    assert_non_null(strstr(commgemm_last_error(), "4398046511104 bytes of the memory"));
    assert_int_equal(bytes_there(segment.fd), 0);
    close(segment.fd);
    run_right(scene);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_what_is_missed_is_named, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_what_is_only_read_is_missed_too, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_a_copy_behind_one_that_misses, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_many, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_no_memory_is_kept_for_it, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_no_room_in_their_place, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_more_than_the_node_has, set_up, tear_down),
    };
    return userfaultfd_is_to_be_had() ? cmocka_run_group_tests(tests, NULL, NULL) : 0;
}
