/* job_timeout: what takes longer is aborted; what only waits its turn is not, and what is made of
 * the outputs of a failed job may be given up. */
#include <fcntl.h>
#include <string.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/daemon/enter.h"
#include "tests/send_signal.h"
#include "tests/userfaultfd.h"

#define EXECUTOR REAL_EXECUTOR
#define WORLD_MAX 64
#define WAIT_MS (WAIT_S * 1000)

struct scene {
    struct daemon daemon;
    commgemm_client *client;
};

static void scene_open(struct scene *scene, const char *setting)
{
    daemon_init(&scene->daemon);
    daemon_start(&scene->daemon, EXECUTOR, "backend=cpu", "job_timeout=2", "graphs_from=0",
                 "tune_ms=0", setting, NULL);
    scene->client = enter(&scene->daemon);
}

static void scene_close(struct scene *scene)
{
    assert_int_equal(daemon_status(&scene->daemon, "executor_deaths"), 0);
    commgemm_disconnect(scene->client);
    daemon_stop(&scene->daemon);
}

/* All ranks of a new comm are this session's. */
static uint64_t plan_of(const struct scene *scene, const char *name, uint32_t world,
                        const struct commgemm_plan_options *product)
{
    uint32_t ranks[WORLD_MAX];
    struct commgemm_join_options join;
    struct commgemm_plan_options options;
    struct commgemm_plan plan;
    commgemm_join_options_init(&join);
    for (uint32_t rank = 0; rank < world; rank++)
        ranks[rank] = rank;
    join.name = name;
    join.size = join.n_ranks = world;
    join.create = 1;
    join.ranks = ranks;
    commgemm_plan_options_init(&options);
    assert_int_equal(commgemm_comm_join(scene->client, &join, &options.comm), COMMGEMM_OK);
    options.dtype = product->dtype;
    options.op = product->op;
    options.m = product->m;
    options.n = product->n;
    options.k = product->k;
    if (commgemm_plan_create(scene->client, &options, &plan))
        fail_msg("%s", commgemm_last_error());
    return plan.id;
}

static struct commgemm_operand buffer_of(const struct scene *scene, uint64_t bytes)
{
    struct commgemm_buffer buffer;
    assert_int_equal(commgemm_buffer_create(scene->client, NULL, bytes, -1, 0, 0, &buffer),
                     COMMGEMM_OK);
    return commgemm_operand_at(&buffer, 0);
}

static uint64_t submit(const struct scene *scene, const struct commgemm_job *job)
{
    uint64_t ticket;
    assert_int_equal(commgemm_submit(scene->client, job, &ticket), COMMGEMM_OK);
    return ticket;
}

static struct commgemm_completion wait_for(const struct scene *scene, uint64_t ticket)
{
    struct commgemm_completion done;
    assert_int_equal(commgemm_wait(scene->client, ticket, WAIT_MS, &done), COMMGEMM_OK);
    return done;
}

/* Each takes less than 0.4 s, and all together several. */
static void test_those_before_it_do_not_count(void **state)
{
    static const struct commgemm_plan_options small = {
        .op = COMMGEMM_OP_GEMM, .dtype = COMMGEMM_FP16, .m = 64, .n = 1, .k = 1};
    enum { JOBS = 20 };
    uint64_t tickets[JOBS];
    struct commgemm_job job;
    struct scene scene;
    (void)state;
    scene_open(&scene, "test_delay_us=200000");
    commgemm_job_init(&job);
    job.plan = plan_of(&scene, "short", 1, &small);
    job.lhs = job.rhs = buffer_of(&scene, 4096);
    job.out = buffer_of(&scene, 4096);
    for (int i = 0; i < JOBS; i++)
        tickets[i] = submit(&scene, &job);
    for (int i = 0; i < JOBS; i++)
        assert_string_equal(wait_for(&scene, tickets[i]).detail, "");
    scene_close(&scene);
}

static void burner_start(pid_t *ret_pid)
{
    if ((*ret_pid = fork()) != 0)
        return;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (volatile unsigned turns = 0;; turns++)
        ;
}

/* Where others have the processors its thread does not come to look in time: it is late, and the
 * executor, which all have, is not to end for that. */
static void test_late_is_not_stuck(void **state)
{
    enum { SIDE = 4096, BYTES = SIDE * SIDE * 4, BURNERS_MAX = 128 };
    static const struct commgemm_plan_options large = {
        .op = COMMGEMM_OP_GEMM, .dtype = COMMGEMM_FP32, .m = SIDE, .n = SIDE, .k = SIDE};
    long burners = 4 * sysconf(_SC_NPROCESSORS_ONLN);
    pid_t pids[BURNERS_MAX];
    struct commgemm_job job;
    struct scene scene;
    (void)state;
    scene_open(&scene, "job_timeout=1");
    commgemm_job_init(&job);
    job.plan = plan_of(&scene, "large", 1, &large);
    job.lhs = job.rhs = buffer_of(&scene, BYTES);
    job.out = buffer_of(&scene, BYTES);
    burners = burners > BURNERS_MAX ? BURNERS_MAX : burners;
    for (long i = 0; i < burners; i++)
        burner_start(&pids[i]);
    struct commgemm_completion done = wait_for(&scene, submit(&scene, &job));
    for (long i = 0; i < burners; i++) {
        send_signal(pids[i], SIGKILL);
        assert_int_equal(waitpid(pids[i], NULL, 0), pids[i]);
    }
    print_message("aborted and ended after %.2f s\n", (double)done.running_ns / 1e9);
    assert_int_equal(done.status, COMMGEMM_WATCHDOG);
    scene_close(&scene);
}

#define SEGMENTS 64u
#define SEGMENT_BYTES (1u << 20)

static int memory_new(void)
{
    int fd = memfd_create("hole", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    assert_int_equal(ftruncate(fd, SEGMENT_BYTES), 0);
    assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK), 0);
    return fd;
}

/* The same memory again and again. */
static struct commgemm_operand import_of(const struct scene *scene, int fd)
{
    struct commgemm_segment segments[SEGMENTS];
    struct commgemm_operand operand = {0};
    for (unsigned i = 0; i < SEGMENTS; i++)
        segments[i] = (struct commgemm_segment){
            .kind = COMMGEMM_SEGMENT_FD, .fd = fd, .length = SEGMENT_BYTES};
    if (commgemm_import(scene->client, segments, SEGMENTS, -1, 0, &operand.id, &operand.generation))
        fail_msg("%s", commgemm_last_error());
    return operand;
}

/* A gathering of two ranks: the first one reads a buffer, the second one has not come yet. */
struct reader {
    struct commgemm_job job;
    uint64_t ticket;
};

static void reader_begin(const struct scene *scene, struct reader *reader,
                         const struct commgemm_operand *read)
{
    static const struct commgemm_plan_options gathering = {
        .op = COMMGEMM_OP_AG, .dtype = COMMGEMM_FP16, .m = 64, .n = 64};
    commgemm_job_init(&reader->job);
    reader->job.plan = plan_of(scene, "reader", 2, &gathering);
    reader->job.lhs = *read;
    reader->job.lhs.row_stride_bytes = 0;
    reader->job.out = buffer_of(scene, 64 * 64 * 2);
    reader->ticket = submit(scene, &reader->job);
}

static void reader_end(const struct scene *scene, struct reader *reader, int status)
{
    reader->job.rank = 1;
    reader->job.lhs = buffer_of(scene, 64 * 64 * 2);
    reader->job.out = buffer_of(scene, 64 * 64 * 2);
    submit(scene, &reader->job);
    assert_int_equal(wait_for(scene, reader->ticket).status, status);
}

/* All ranks write the same memory, which this sanitizer rightly reports. */
#if defined(__SANITIZE_THREAD__)
#define WRITES_ARE_WATCHED 1
#else
#define WRITES_ARE_WATCHED 0
#endif

/* Elements that lie apart: it takes the longer. Many processors may be through in time. */
static void test_outputs_of_failed_jobs_that_take_long(void **state)
{
    enum { WORLD = WORLD_MAX, ROWS = SEGMENTS * SEGMENT_BYTES / 2, STRIDE = 4 };
    static const struct commgemm_plan_options large = {
        .op = COMMGEMM_OP_GEMM, .dtype = COMMGEMM_FP16, .m = ROWS, .n = 1, .k = 1};
    struct commgemm_operand lhs[WORLD];
    uint64_t tickets[WORLD];
    struct reader reader;
    unsigned given_up = 0;
    struct commgemm_job job;
    struct scene scene;
    int fd = memory_new();
    (void)state;
    if (!userfaultfd_is_to_be_had() || WRITES_ARE_WATCHED)
        skip();
    scene_open(&scene, NULL);
    commgemm_job_init(&job);
    job.plan = plan_of(&scene, "long", WORLD, &large);
    job.rhs = buffer_of(&scene, 4096);
    job.out = buffer_of(&scene, ROWS * (uint64_t)STRIDE);
    job.out.row_stride_bytes = STRIDE;
    for (int i = 0; i < WORLD; i++)
        lhs[i] = import_of(&scene, fd);
    assert_int_equal(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, SEGMENT_BYTES),
                     0);
    reader_begin(&scene, &reader, &job.out);
    for (job.rank = 0; job.rank < WORLD; job.rank++) {
        job.lhs = lhs[job.rank];
        tickets[job.rank] = submit(&scene, &job);
    }
    usleep(500000); /* most poison by now, and this one comes behind the first */
    struct commgemm_job behind = job;
    behind.rank = 0;
    behind.lhs = job.out;
    behind.out = buffer_of(&scene, ROWS * 2ull);
    uint64_t ticket = submit(&scene, &behind);
    for (int i = 0; i < WORLD; i++) {
        struct commgemm_completion done = wait_for(&scene, tickets[i]);
        assert_true(done.status == COMMGEMM_STALE || done.status == COMMGEMM_WATCHDOG);
        given_up += strstr(done.detail, "outputs are not all NaN") != NULL;
    }
    print_message("%u of %d were not all NaN in time\n", given_up, WORLD);
    struct commgemm_completion done = wait_for(&scene, ticket);
    if (given_up > 0 && done.running_ns > 1000000000)
        assert_int_not_equal(done.status, COMMGEMM_OK); /* a slow one is aborted, too */
    reader_end(&scene, &reader, given_up > 0 ? COMMGEMM_TAINTED : COMMGEMM_OK);
    if (given_up > 0) {
        assert_int_equal(wait_for(&scene, submit(&scene, &behind)).status, COMMGEMM_TAINTED);
        const struct commgemm_buffer out = {.id = job.out.id, .generation = job.out.generation};
        assert_int_equal(commgemm_buffer_rewritten(scene.client, &out), COMMGEMM_OK);
        assert_int_not_equal(wait_for(&scene, submit(&scene, &behind)).status, COMMGEMM_TAINTED);
    }
    scene_close(&scene);
    close(fd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_those_before_it_do_not_count),
        cmocka_unit_test(test_late_is_not_stuck),
        cmocka_unit_test(test_outputs_of_failed_jobs_that_take_long),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
