/* Sizes at and beyond every limit, memory that changes under a job, and clients that stand still
 * while answers come: the daemon and its executor go on, and other clients' results are right. */
#include "tests/daemon/broker_fixture.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "commgemm.h"
#include "proto/types.h"
#include "tests/daemon/enter.h"
#include "tests/own_limit.h"
#include "tests/process_memory.h"
#include "tests/send_signal.h"

#define SIDE 32u
#define BYTES (SIDE * SIDE * 4u)
#define WAIT_MS (WAIT_S * 1000)

struct scene {
    struct daemon daemon;
    struct client witness;
    commgemm_client *honest;
    struct commgemm_plan plan;
    struct commgemm_buffer lhs, rhs, out;
    float *values, *result;
};

static void plan_new(commgemm_client *client, const char *name, struct commgemm_plan *ret_plan)
{
    struct commgemm_plan_options options;
    commgemm_plan_options_init(&options);
    assert_int_equal(commgemm_comm_join_simple(client, name, 1, 0, &options.comm), COMMGEMM_OK);
    options.op = COMMGEMM_OP_GEMM;
    options.m = options.n = options.k = SIDE;
    assert_int_equal(commgemm_plan_create(client, &options, ret_plan), COMMGEMM_OK);
}

static void buffer_new(commgemm_client *client, struct commgemm_buffer *ret_buffer,
                       float **ret_values)
{
    assert_int_equal(commgemm_buffer_create(client, NULL, BYTES, -1, 0, 0, ret_buffer),
                     COMMGEMM_OK);
    assert_int_equal(commgemm_buffer_map(client, ret_buffer, (void **)ret_values), COMMGEMM_OK);
}

/* A product with the unit matrix gives what went in. */
static int scene_set_up(void **state)
{
    struct scene *scene = calloc(1, sizeof(*scene));
    float *unit;
    daemon_init(&scene->daemon);
    daemon_start(&scene->daemon, REAL_EXECUTOR, "devices=2", "quota_bytes=67108864",
                 "log_level=warning", NULL);
    client_open(&scene->witness, &scene->daemon);
    scene->honest = enter(&scene->daemon);
    plan_new(scene->honest, "honest", &scene->plan);
    buffer_new(scene->honest, &scene->lhs, &scene->values);
    buffer_new(scene->honest, &scene->rhs, &unit);
    buffer_new(scene->honest, &scene->out, &scene->result);
    for (unsigned i = 0; i < SIDE; i++)
        unit[i * SIDE + i] = 1;
    commgemm_buffer_unmap(unit, BYTES);
    *state = scene;
    return 0;
}

static int scene_tear_down(void **state)
{
    struct scene *scene = *state;
    commgemm_disconnect(scene->honest);
    client_close(&scene->witness);
    daemon_stop(&scene->daemon);
    free(scene);
    return 0;
}

static int run(commgemm_client *client, const struct commgemm_job *job)
{
    struct commgemm_completion done;
    uint64_t ticket;
    assert_int_equal(commgemm_submit(client, job, &ticket), COMMGEMM_OK);
    assert_int_equal(commgemm_wait(client, ticket, WAIT_MS, &done), COMMGEMM_OK);
    commgemm_completion_fini(&done);
    return done.status;
}

static void work(struct scene *scene)
{
    struct commgemm_job job;
    for (unsigned i = 0; i < SIDE * SIDE; i++)
        scene->values[i] = (float)(rand() % 1000);
    commgemm_job_init(&job);
    job.plan = scene->plan.id;
    job.lhs = commgemm_operand_at(&scene->lhs, 0);
    job.rhs = commgemm_operand_at(&scene->rhs, 0);
    job.out = commgemm_operand_at(&scene->out, 0);
    assert_int_equal(run(scene->honest, &job), COMMGEMM_OK);
    assert_memory_equal(scene->values, scene->result, BYTES);
}

static void expect_alive(struct scene *scene)
{
    work(scene);
    assert_int_equal(status_number(&scene->witness, "executor_deaths"), 0);
}

/* ---- sizes -------------------------------------------------------------------------------------
 */

static const uint64_t sizes[] = {0,           1,
                                 2,           3,
                                 16,          (1u << 23) + 1,
                                 0x7fffffff,  0x80000000,
                                 0x80000001,  1ull << 32,
                                 0xffffffff,  1ull << 46,
                                 1ull << 62,  1ull << 63,
                                 UINT64_MAX,  UINT64_MAX / 3,
                                 0x100000001, 0x5555555555555556};
#define SIZES (sizeof(sizes) / sizeof(sizes[0]))
static const uint32_t words[] = {0, 1, 2, 3, 7, 64, 65, 4096, 0x7fffffff, 0x80000000, UINT32_MAX};
#define WORDS (sizeof(words) / sizeof(words[0]))

static uint64_t any_size(void)
{
    return sizes[(size_t)rand() % SIZES];
}

static uint32_t any_word(void)
{
    return words[(size_t)rand() % WORDS];
}

/* Made, or refused with a reason; and what is made is small, as the quota is. */
static void expect_answer(struct scene *scene, const Cgm__PlanCreate *create)
{
    struct client *client = &scene->witness;
    struct message *reply =
        client_reply(client, client_send(client, CGM_MSG_PLAN_CREATE, &create->base, NULL, 0));
    if (reply->type == CGM_MSG_ERROR) {
        const Cgm__Error *error = (const Cgm__Error *)reply->body;
        assert_true(error->detail[0] != '\0');
        assert_true(error->status == CGM_INVALID_ARGUMENT || error->status == CGM_NOT_SUPPORTED ||
                    error->status == CGM_QUOTA || error->status == CGM_NO_MEMORY);
    } else {
        Cgm__PlanDestroyAll all = CGM__PLAN_DESTROY_ALL__INIT;
        assert_int_equal(reply->type, CGM_MSG_PLAN_REPLY);
        assert_true(((const Cgm__PlanReply *)reply->body)->workspace_bytes <= 67108864);
        message_free(client_call(client, CGM_MSG_PLAN_DESTROY_ALL, &all.base, NULL, 0,
                                 CGM_MSG_PLAN_DESTROY_ALL_REPLY));
    }
    message_free(reply);
}

static void test_plans_of_every_size(void **state)
{
    struct scene *scene = *state;
    static const uint32_t worlds[] = {1, 2, 3, 64};
    for (size_t w = 0; w < sizeof(worlds) / sizeof(worlds[0]); w++) {
        char name[16];
        snprintf(name, sizeof(name), "world-%u", worlds[w]);
        uint64_t comm = comm_join_all(&scene->witness, name, worlds[w]);
        for (int i = 0; i < 1500; i++) {
            Cgm__PlanCreate create = CGM__PLAN_CREATE__INIT;
            uint64_t shape[2] = {any_size(), any_size()};
            create.comm = comm;
            create.op = (uint32_t)rand() % 13;
            create.method = rand() % 4 ? (uint32_t)rand() % 6 : any_word();
            create.comm_type = (uint32_t)rand() % 4;
            create.dtype = (uint32_t)rand() % 6;
            create.m = any_size();
            create.n = rand() % 3 ? worlds[w] : any_size();
            create.k = rand() % 3 ? worlds[w] : any_size();
            create.has_num_splits = rand() % 2;
            create.num_splits = any_word();
            create.has_tp_size = rand() % 4 == 0;
            create.tp_size = any_word();
            create.has_buffer_dtype = rand() % 4 == 0;
            create.buffer_dtype = (uint32_t)rand() % 6;
            create.n_buffer_shape = rand() % 3 ? 0 : 2;
            create.buffer_shape = shape;
            create.has_epilogue = rand() % 4 == 0;
            create.epilogue = (uint32_t)rand() % 16;
            expect_answer(scene, &create);
        }
        expect_alive(scene);
    }
}

/* How many rows go from whom to whom: sums that overflow. */
static void test_counts_of_every_size(void **state)
{
    struct scene *scene = *state;
    uint64_t comm = comm_join_all(&scene->witness, "counts", 3);
    for (int i = 0; i < 1500; i++) {
        Cgm__PlanCreate create = CGM__PLAN_CREATE__INIT;
        uint32_t counts[16];
        create.comm = comm;
        create.op = CGM_OP_A2AV;
        create.method = CGM_METHOD_AUTO;
        create.m = rand() % 2 ? 16 : any_size();
        create.n = rand() % 2 ? 4 : any_size();
        create.n_counts = rand() % 4 ? 9 : (size_t)rand() % 16;
        create.counts = counts;
        for (int k = 0; k < 16; k++)
            counts[k] = rand() % 3 ? (uint32_t)rand() % 4 : any_word();
        expect_answer(scene, &create);
    }
    expect_alive(scene);
}

/* ---- memory that changes -----------------------------------------------------------------------
 */

struct scribbler {
    uint32_t *words;
    int memfd;
    _Atomic bool over;
};

/* Numbers that are none, infinities, and holes. */
static void *scribble(void *argument)
{
    struct scribbler *scribbler = argument;
    for (uint32_t i = 0; !atomic_load(&scribbler->over); i++) {
        for (uint32_t k = 0; k < SIDE * SIDE; k++)
            scribbler->words[k] = i * 2654435761u ^ k << 22;
        if (i % 16 == 0)
            fallocate(scribbler->memfd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, BYTES);
    }
    return NULL;
}

static void import_all(commgemm_client *client, const struct commgemm_segment *segment,
                       struct commgemm_job *job)
{
    assert_int_equal(commgemm_import(client, segment, 1, -1, 0, &job->lhs.id, &job->lhs.generation),
                     COMMGEMM_OK);
    job->rhs = job->lhs;
}

static void test_memory_changes_under_jobs(void **state)
{
    struct scene *scene = *state;
    struct scribbler scribbler = {.memfd = memfd_create("scribble", MFD_ALLOW_SEALING)};
    struct commgemm_segment segment = {.kind = COMMGEMM_SEGMENT_FD, .length = BYTES};
    commgemm_client *client = enter(&scene->daemon);
    struct commgemm_plan plan;
    struct commgemm_job job;
    pthread_t thread;
    segment.fd = scribbler.memfd;
    assert_int_equal(ftruncate(scribbler.memfd, BYTES), 0);
    assert_int_equal(fcntl(scribbler.memfd, F_ADD_SEALS, F_SEAL_SHRINK), 0);
    scribbler.words = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, scribbler.memfd, 0);
    assert_true(scribbler.words != MAP_FAILED);
    plan_new(client, "scribbler", &plan);
    commgemm_job_init(&job);
    job.plan = plan.id;
    import_all(client, &segment, &job);
    struct commgemm_buffer out;
    assert_int_equal(commgemm_buffer_create(client, NULL, BYTES, -1, 0, 0, &out), COMMGEMM_OK);
    job.out = commgemm_operand_at(&out, 0);
    assert_int_equal(pthread_create(&thread, NULL, scribble, &scribbler), 0);
    for (int i = 0; i < 300; i++) {
        int status = run(client, &job);
        if (status == COMMGEMM_STALE) { /* it has met a hole */
            assert_int_equal(commgemm_import_release(client, job.lhs.id), COMMGEMM_OK);
            import_all(client, &segment, &job);
        } else { /* whatever it has computed */
            assert_int_equal(status, COMMGEMM_OK);
        }
        work(scene);
    }
    atomic_store(&scribbler.over, true);
    pthread_join(thread, NULL);
    commgemm_disconnect(client);
    munmap(scribbler.words, BYTES);
    close(scribbler.memfd);
    expect_alive(scene);
}

/* ---- clients that stand still ------------------------------------------------------------------
 */

/* Asks for as long as anybody listens, and stops in the middle of it: its answers wait. */
static pid_t start_asker(const struct scene *scene)
{
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid > 0)
        return pid;
    static uint8_t packet[CGM_PACKET_BYTES_MAX];
    Cgm__Query query = CGM__QUERY__INIT;
    struct client client;
    size_t size;
    client_open(&client, &scene->daemon);
    query.what = CGM_QUERY_ALGORITHMS;
    cgm_packet_pack(CGM_MSG_QUERY, 7, &query.base, 0, packet, &size);
    for (int i = 0; i < 2000; i++) {
        if (i == 100)
            raise(SIGSTOP);
        if (send(client.fd, packet, size, MSG_DONTWAIT | MSG_NOSIGNAL) < 0)
            usleep(1000);
    }
    raise(SIGSTOP);
    _exit(0);
}

static void test_stopped_clients_with_full_sockets(void **state)
{
    enum { ASKERS = 12 };
    struct scene *scene = *state;
    pid_t pids[ASKERS];
    int status;
    work(scene);
    uint64_t before = process_kib(scene->daemon.pid, "VmRSS:"), most = 0;
    for (int i = 0; i < ASKERS; i++)
        pids[i] = start_asker(scene);
    for (int round = 0; round < 2; round++)
        for (int i = 0; i < ASKERS; i++) {
            assert_int_equal(waitpid(pids[i], &status, WUNTRACED), pids[i]);
            assert_true(WIFSTOPPED(status));
            work(scene);
            assert_true(status_number(&scene->witness, "sessions") >= 1);
            uint64_t now = process_kib(scene->daemon.pid, "VmRSS:");
            most = now > most ? now : most;
            if (round == 0)
                send_signal(pids[i], SIGCONT);
        }
    print_message("%ju KiB at first, %ju at most\n", (uintmax_t)before, (uintmax_t)most);
    if (CGM_MEMORY_IS_PLAIN)
        assert_true(most - before < ASKERS * 2048);
    for (int i = 0; i < ASKERS; i++) {
        send_signal(pids[i], SIGKILL);
        assert_int_equal(waitpid(pids[i], &status, 0), pids[i]);
    }
    wait_for_status(&scene->witness, "sessions", 2);
    expect_alive(scene);
}

static void limit_files(pid_t pid, rlim_t bytes)
{
    struct rlimit limit = {bytes, RLIM_INFINITY};
    assert_int_equal(prlimit(pid, RLIMIT_FSIZE, &limit, NULL), 0);
}

/* Memory is a file, and who makes one too large for its process is sent a signal that ends it. */
static void test_files_of_limited_size(void **state)
{
    enum { LIMIT = 1u << 20 };
    struct scene *scene = *state;
    struct client client;
    Cgm__BufferCreate create = CGM__BUFFER_CREATE__INIT;
    Cgm__RingSetup setup = CGM__RING_SETUP__INIT;
    uint64_t life = status_number(&scene->witness, "executor_life");
    pid_t executor = (pid_t)status_number(&scene->witness, "executor_pid");
    limit_files(scene->daemon.pid, LIMIT);
    limit_files(executor, LIMIT);
    client_open(&client, &scene->daemon);
    setup.entries = CGM_RING_ENTRIES_MAX;
    client_error(&client, CGM_MSG_RING_SETUP, &setup.base, NULL, 0, CGM_NO_MEMORY, "");
    create.bytes = 8 * LIMIT;
    client_error(&client, CGM_MSG_BUFFER_CREATE, &create.base, NULL, 0, CGM_NO_MEMORY,
                 "could not be allocated");
    limit_files(scene->daemon.pid, RLIM_INFINITY);
    limit_files(executor, RLIM_INFINITY);
    client_close(&client);
    work(scene);
    assert_int_equal(status_number(&scene->witness, "executor_life"), life);
}

#define EXTREME(name) cmocka_unit_test_setup_teardown(name, scene_set_up, scene_tear_down)

/* ---- limits of the client's own process -------------------------------------------------------
 */

static void create_without_fds(const struct scene *scene, const char *name)
{
    struct commgemm_buffer buffer;
    rlim_t before = own_limit_fds(0);
    int status = commgemm_buffer_create(scene->honest, name, BYTES, -1, 0, 0, &buffer);
    own_limit_set(RLIMIT_NOFILE, before);
    assert_int_equal(status, COMMGEMM_NO_MEMORY);
    assert_non_null(strstr(commgemm_last_error(), "no file descriptor left"));
}

/* The call fails, and leaves nothing behind; the session, and what it has, goes on. */
static void test_no_room_for_the_fds_of_a_reply(void **state)
{
    struct scene *scene = *state;
    struct commgemm_buffer buffer;
    uint64_t used = status_number(&scene->witness, "buffers");
    create_without_fds(scene, NULL);
    create_without_fds(scene, "extreme");
    wait_for_status(&scene->witness, "buffers", used);
    assert_int_equal(commgemm_buffer_create(scene->honest, "extreme", BYTES, -1, 0, 0, &buffer),
                     COMMGEMM_OK);
    assert_int_equal(commgemm_buffer_destroy(scene->honest, "extreme"), COMMGEMM_OK);
    assert_int_equal(commgemm_buffer_close(scene->honest, buffer.id), COMMGEMM_OK);
}

static void write_beyond_limit(const struct scene *scene, const struct commgemm_buffer *buffer)
{
    static const char bytes[4096];
    rlim_t before = own_limit_set(RLIMIT_FSIZE, sizeof(bytes));
    int status = commgemm_buffer_write(scene->honest, buffer, sizeof(bytes), bytes, sizeof(bytes));
    own_limit_set(RLIMIT_FSIZE, before);
    assert_true(status < 0 && status != COMMGEMM_DAEMON_LOST);
}

/* An error, not the end of the program. */
static void test_a_limit_of_file_sizes(void **state)
{
    struct scene *scene = *state;
    struct commgemm_buffer buffer, remote;
    static const char bytes[16384];
    assert_int_equal(commgemm_buffer_create(scene->honest, NULL, sizeof(bytes), -1, 0, 0, &buffer),
                     COMMGEMM_OK);
    write_beyond_limit(scene, &buffer);
    remote = buffer;
    remote.fd = -1; /* as one that is copied to through memory of both */
    write_beyond_limit(scene, &remote);
    assert_int_equal(commgemm_buffer_write(scene->honest, &remote, 0, bytes, sizeof(bytes)),
                     COMMGEMM_OK);
    assert_int_equal(commgemm_buffer_write(scene->honest, &buffer, 0, bytes, sizeof(bytes)),
                     COMMGEMM_OK);
    assert_int_equal(commgemm_buffer_close(scene->honest, buffer.id), COMMGEMM_OK);
}

/* ---- jobs in flight ---------------------------------------------------------------------------
 */

enum { CROWDS = 6, CROWD = 4000, LONG_ONES = 4, LONG_SIDE = 1024 };

static void submit_product(commgemm_client *client, const struct commgemm_plan *plan,
                           const struct commgemm_buffer *buffer, uint64_t side)
{
    struct commgemm_job job;
    uint64_t ticket, bytes = side * side * 4;
    commgemm_job_init(&job);
    job.plan = plan->id;
    job.detached = 1;
    job.lhs = commgemm_operand_at(buffer, 0);
    job.rhs = commgemm_operand_at(buffer, bytes);
    job.out = commgemm_operand_at(buffer, 2 * bytes);
    assert_int_equal(commgemm_submit(client, &job, &ticket), COMMGEMM_OK);
}

/* Small ones behind those that take long, in one queue. */
static void run_crowd(commgemm_client *client, const struct commgemm_plan plans[2],
                      const struct commgemm_buffer *buffer, unsigned n)
{
    for (unsigned i = 0; i < LONG_ONES; i++)
        submit_product(client, &plans[0], buffer, LONG_SIDE);
    for (unsigned i = 0; i < n; i++)
        submit_product(client, &plans[1], buffer, SIDE);
    assert_int_equal(commgemm_wait_detached(client, 0, WAIT_MS), COMMGEMM_OK);
}

static void plans_new(commgemm_client *client, unsigned number, struct commgemm_plan ret_plans[2])
{
    struct commgemm_plan_options options;
    char name[32];
    snprintf(name, sizeof(name), "crowd%u", number);
    plan_new(client, name, &ret_plans[1]);
    commgemm_plan_options_init(&options);
    options.comm = ret_plans[1].comm;
    options.op = COMMGEMM_OP_GEMM;
    options.m = options.n = options.k = LONG_SIDE;
    assert_int_equal(commgemm_plan_create(client, &options, &ret_plans[0]), COMMGEMM_OK);
}

/* What a comm keeps counts in no quota: it is little, however many jobs there were at once. The
 * heap keeps as much as one of these crowds takes; all together took 200 MiB. */
static void test_jobs_in_flight_leave_nothing(void **state)
{
    const struct scene *scene = *state;
    struct commgemm_connect_options connect;
    struct commgemm_plan plans[CROWDS][2];
    struct commgemm_buffer buffer;
    commgemm_client *client;
    commgemm_connect_options_init(&connect);
    connect.socket = scene->daemon.socket;
    connect.ring_entries = 4096;
    assert_int_equal(commgemm_connect(&connect, &client), COMMGEMM_OK);
    for (unsigned i = 0; i < CROWDS; i++)
        plans_new(client, i, plans[i]);
    assert_int_equal(
        commgemm_buffer_create(client, NULL, 3ull * LONG_SIDE * LONG_SIDE * 4, -1, 0, 0, &buffer),
        COMMGEMM_OK);
    pid_t executor = (pid_t)daemon_status(&scene->daemon, "executor_pid");
    run_crowd(client, plans[0], &buffer, 16);
    uint64_t before = process_kib(executor, "RssAnon:");
    for (unsigned i = 0; i < CROWDS; i++)
        run_crowd(client, plans[i], &buffer, CROWD);
    uint64_t after = process_kib(executor, "RssAnon:");
    print_message("the executor had %ju KiB, and has %ju\n", (uintmax_t)before, (uintmax_t)after);
    if (CGM_MEMORY_IS_PLAIN)
        assert_true(after < before + 100 * 1024);
    commgemm_disconnect(client);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        EXTREME(test_plans_of_every_size),       EXTREME(test_counts_of_every_size),
        EXTREME(test_memory_changes_under_jobs), EXTREME(test_stopped_clients_with_full_sockets),
        EXTREME(test_files_of_limited_size),     EXTREME(test_no_room_for_the_fds_of_a_reply),
        EXTREME(test_a_limit_of_file_sizes),     EXTREME(test_jobs_in_flight_leave_nothing),
    };
    unsigned seed = (unsigned)getpid();
    print_message("seed %u\n", seed);
    srand(seed);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
