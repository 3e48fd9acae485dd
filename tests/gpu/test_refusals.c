/* Bad input on a real GPU, through library, daemon and executor: each a status and a sentence that
 * names the cause, and the daemon serves on. */
#include "tests/daemon/broker_fixture.h"

#include <cuda_runtime_api.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "commgemm.h"
#include "tests/phases.h"

#define MIB (1ull << 20)
#define SIDE 64u
#define SQUARE (SIDE * SIDE * 4u) /* bytes */

struct scene {
    struct daemon daemon;
    commgemm_client *client;
    uint64_t comm, plan;
    int devices;
};

/* The status may be another one of the same kind: 0 in `status` means any failure. */
static void refused_at(int line, int got, int status, const char *text, const char *words)
{
    print_message("%d: %s: %s\n", line, commgemm_status_name(got), text);
    if (got == COMMGEMM_OK || (status && got != status) || !strstr(text, words))
        fail_msg("%d: %s: %s; expected %s with \"%s\"", line, commgemm_status_name(got), text,
                 commgemm_status_name(status), words);
}
#define refused(call, status, words)                                                               \
    do {                                                                                           \
        int got_ = (call);                                                                         \
        refused_at(__LINE__, got_, status, commgemm_last_error(), words);                          \
    } while (0)

static void ok_at(int line, int status)
{
    if (status)
        fail_msg("%d: %s: %s", line, commgemm_status_name(status), commgemm_last_error());
}
#define ok(call) ok_at(__LINE__, call)

static void small_plan(struct commgemm_plan_options *ret_options, const struct scene *scene)
{
    commgemm_plan_options_init(ret_options);
    ret_options->comm = scene->comm;
    ret_options->op = COMMGEMM_OP_GEMM;
    ret_options->m = ret_options->n = ret_options->k = SIDE;
}

static void scene_start(struct scene *scene, const char *setting)
{
    char executor[4200] = "executor=";
    struct commgemm_connect_options options;
    assert_non_null(realpath(CGM_BIN_DIR "/commgemm-executor-cuda", executor + strlen(executor)));
    daemon_init(&scene->daemon);
    daemon_start(&scene->daemon, "backend=cuda", executor, setting, NULL);
    commgemm_connect_options_init(&options);
    options.socket = scene->daemon.socket;
    ok(commgemm_connect(&options, &scene->client));
    ok(commgemm_wait_executor(scene->client, WAIT_S * 1000));
    ok(commgemm_comm_join_simple(scene->client, "alone", 1, 0, &scene->comm));
}

static void scene_stop(struct scene *scene)
{
    commgemm_disconnect(scene->client);
    daemon_stop(&scene->daemon);
}

static int scene_open(void **state)
{
    struct scene *scene = calloc(1, sizeof(*scene));
    struct commgemm_plan_options plan_options;
    struct commgemm_plan plan;
    scene_start(scene, NULL);
    small_plan(&plan_options, scene);
    ok(commgemm_plan_create(scene->client, &plan_options, &plan));
    scene->plan = plan.id;
    assert_int_equal(cudaGetDeviceCount(&scene->devices), cudaSuccess);
    *state = scene;
    return 0;
}

static int scene_close(void **state)
{
    struct scene *scene = *state;
    scene_stop(scene);
    free(scene);
    return 0;
}

static struct commgemm_completion run(const struct scene *scene, struct commgemm_operand lhs,
                                      struct commgemm_operand out)
{
    struct commgemm_completion done;
    struct commgemm_job job;
    uint64_t ticket;
    commgemm_job_init(&job);
    job.plan = scene->plan;
    job.lhs = job.rhs = lhs;
    job.out = out;
    ok(commgemm_submit(scene->client, &job, &ticket));
    ok(commgemm_wait(scene->client, ticket, WAIT_S * 1000, &done));
    return done;
}

static void serves_on(const struct scene *scene)
{
    struct commgemm_buffer buffer;
    ok(commgemm_buffer_create(scene->client, NULL, 2 * SQUARE, 0, 0, 0, &buffer));
    struct commgemm_operand lhs = {.id = buffer.id, .generation = buffer.generation}, out = lhs;
    out.offset_bytes = SQUARE;
    struct commgemm_completion done = run(scene, lhs, out);
    if (done.status)
        fail_msg("a good job: %s", done.detail);
    ok(commgemm_buffer_close(scene->client, buffer.id));
}

static void test_more_memory_than_there_is(void **state)
{
    const struct scene *scene = *state;
    struct commgemm_buffer buffer;
    struct commgemm_plan_options options;
    struct commgemm_plan plan;
    size_t free_bytes, total_bytes;
    assert_int_equal(cudaMemGetInfo(&free_bytes, &total_bytes), cudaSuccess);
    for (uint32_t flags = 0; flags < 2; flags++)
        refused(commgemm_buffer_create(scene->client, NULL, total_bytes + (1 << 30), 0, 0, flags,
                                       &buffer),
                COMMGEMM_NO_MEMORY, "are free");
    small_plan(&options, scene);
    options.m = 1 << 19; /* within what a user may have */
    options.k = 1 << 18;
    refused(commgemm_plan_create(scene->client, &options, &plan), COMMGEMM_NO_MEMORY, "are free");
    serves_on(scene);
}

static void test_margins_and_priorities_beyond_the_device(void **state)
{
    const struct scene *scene = *state;
    struct commgemm_plan_options options;
    struct commgemm_plan plan;
    small_plan(&options, scene);
    options.num_comm_sm = 250;
    options.set_sm_margin = 1;
    refused(commgemm_plan_create(scene->client, &options, &plan), COMMGEMM_INVALID_ARGUMENT,
            "num_comm_sm is 250 with set_sm_margin; device 0 has ");
    options.set_sm_margin = 0;
    options.comm_priority = -6;
    refused(commgemm_plan_create(scene->client, &options, &plan), COMMGEMM_INVALID_ARGUMENT,
            "comm_priority is -6; the limits are -5 and 5");
    options.comm_priority = -5; /* what the device does not have becomes what it has */
    ok(commgemm_plan_create(scene->client, &options, &plan));
    ok(commgemm_plan_destroy(scene->client, plan.id));
}

static int import(const struct scene *scene, const struct commgemm_segment *segment, int device,
                  struct commgemm_operand *ret_operand)
{
    *ret_operand = (struct commgemm_operand){0};
    return commgemm_import(scene->client, segment, 1, device, 0, &ret_operand->id,
                           &ret_operand->generation);
}

/* ---- cudaIpc handles ------------------------------------------------------------------------- */

static struct commgemm_segment handle_of(void *memory, uint64_t bytes)
{
    struct commgemm_segment segment = {.kind = COMMGEMM_SEGMENT_CUDA_IPC, .length = bytes};
    cudaIpcMemHandle_t handle;
    assert_int_equal(cudaIpcGetMemHandle(&handle, memory), cudaSuccess);
    memcpy(segment.handle, &handle, sizeof(handle));
    return segment;
}

static void test_handles(void **state)
{
    const struct scene *scene = *state;
    struct commgemm_operand operand;
    struct commgemm_segment forged = {.kind = COMMGEMM_SEGMENT_CUDA_IPC, .length = SQUARE};
    void *memory;
    for (int i = 0; i < 4; i++) {
        for (size_t j = 0; j < sizeof(forged.handle); j++)
            forged.handle[j] = i ? (unsigned char)rand() : 0;
        refused(import(scene, &forged, 0, &operand), 0, "cudaIpc handle cannot be opened");
    }
    assert_int_equal(cudaMalloc(&memory, 4 * MIB), cudaSuccess);
    struct commgemm_segment segment = handle_of(memory, 4 * MIB);
    segment.length = 64 * MIB;
    refused(import(scene, &segment, 0, &operand), COMMGEMM_INVALID_ARGUMENT, "reach beyond the");
    segment.length = MIB;
    segment.offset = 1 << 30;
    refused(import(scene, &segment, 0, &operand), COMMGEMM_INVALID_ARGUMENT, "reach beyond the");
    segment.offset = 0;
    refused(import(scene, &segment, 99, &operand), COMMGEMM_INVALID_ARGUMENT, "device");
    ok(import(scene, &segment, 0, &operand));
    ok(commgemm_import_release(scene->client, operand.id));
    assert_int_equal(cudaFree(memory), cudaSuccess);
    refused(import(scene, &segment, 0, &operand), 0, "its memory was freed");
    serves_on(scene);
}

/* A handle of device 0's memory that is said to be device 1's. Where the driver does not tell whose
 * memory it is, jobs with it are right all the same. */
static void test_the_handle_of_another_device(void **state)
{
    const struct scene *scene = *state;
    struct commgemm_operand lhs = {0};
    void *memory;
    if (scene->devices < 2) {
        print_message("needs two GPUs\n");
        skip();
    }
    assert_int_equal(cudaMalloc(&memory, 4 * MIB), cudaSuccess);
    struct commgemm_segment segment = handle_of(memory, 2 * SQUARE);
    int status = import(scene, &segment, 1, &lhs);
    if (status == COMMGEMM_OK) {
        struct commgemm_operand out = lhs;
        out.offset_bytes = SQUARE;
        struct commgemm_completion done = run(scene, lhs, out);
        print_message("the driver does not tell; the job: %s\n", commgemm_status_name(done.status));
        assert_int_equal(done.status, COMMGEMM_OK);
        ok(commgemm_import_release(scene->client, lhs.id));
    } else {
        refused_at(__LINE__, status, COMMGEMM_INVALID_ARGUMENT, commgemm_last_error(),
                   "its memory is on device 0, and the import is for device 1");
    }
    ok(import(scene, &segment, 0, &lhs));
    ok(commgemm_import_release(scene->client, lhs.id));
    assert_int_equal(cudaFree(memory), cudaSuccess);
    serves_on(scene);
}

/* Its child: prints a handle and ends. */
static int export_and_end(void)
{
    cudaIpcMemHandle_t handle;
    void *memory;
    if (cudaMalloc(&memory, 4 * MIB) || cudaIpcGetMemHandle(&handle, memory))
        return 1;
    return write(1, &handle, sizeof(handle)) != sizeof(handle);
}

static void test_the_handle_of_a_dead_process(void **state)
{
    const struct scene *scene = *state;
    struct commgemm_segment segment = {.kind = COMMGEMM_SEGMENT_CUDA_IPC, .length = MIB};
    struct commgemm_operand operand;
    int pipes[2], status;
    assert_int_equal(pipe(pipes), 0);
    pid_t pid = fork();
    if (pid == 0) {
        dup2(pipes[1], 1);
        execl("/proc/self/exe", "test_gpu_refusals", "--export", (char *)NULL);
        _exit(127);
    }
    assert_int_equal(read(pipes[0], segment.handle, sizeof(segment.handle)),
                     sizeof(segment.handle));
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    refused(import(scene, &segment, 0, &operand), 0, "its process ended");
    close(pipes[0]);
    close(pipes[1]);
    serves_on(scene);
}

/* ---- file descriptors ------------------------------------------------------------------------ */

static void test_file_descriptors(void **state)
{
    const struct scene *scene = *state;
    struct commgemm_operand operand;
    struct commgemm_buffer buffer;
    int plain = memfd_create("plain", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    assert_int_equal(ftruncate(plain, (off_t)MIB), 0);
    struct commgemm_segment segment = {.kind = COMMGEMM_SEGMENT_FD, .fd = plain, .length = MIB};
    refused(import(scene, &segment, 0, &operand), 0, "sealed against shrinking");
    assert_int_equal(fcntl(plain, F_ADD_SEALS, F_SEAL_SHRINK), 0);
    segment.length = 2 * MIB;
    refused(import(scene, &segment, 0, &operand), 0, "its memory has");
    if (scene->devices > 1) {
        ok(commgemm_buffer_create(scene->client, NULL, 2 * MIB, 1, 0, 0, &buffer));
        segment = (struct commgemm_segment){
            .kind = COMMGEMM_SEGMENT_FD, .fd = buffer.fd, .length = 2 * MIB};
        refused(import(scene, &segment, 0, &operand), COMMGEMM_INVALID_ARGUMENT,
                "its memory is on device 1, and the import is for device 0");
        ok(import(scene, &segment, 1, &operand));
        ok(commgemm_import_release(scene->client, operand.id));
        ok(commgemm_buffer_close(scene->client, buffer.id));
    }
    close(plain);
    serves_on(scene);
}

/* Such an fd could hold up who closes it: the session that sends one is ended. */
static void test_a_pipe(void **state)
{
    const struct scene *scene = *state;
    struct scene other = *scene;
    struct commgemm_connect_options options;
    struct commgemm_operand operand;
    int pipes[2];
    assert_int_equal(pipe(pipes), 0);
    commgemm_connect_options_init(&options);
    options.socket = scene->daemon.socket;
    ok(commgemm_connect(&options, &other.client));
    struct commgemm_segment segment = {.kind = COMMGEMM_SEGMENT_FD, .fd = pipes[0], .length = MIB};
    refused(import(&other, &segment, 0, &operand), COMMGEMM_INVALID_ARGUMENT, "fd");
    commgemm_disconnect(other.client);
    close(pipes[0]);
    close(pipes[1]);
    serves_on(scene);
}

/* ---- operands -------------------------------------------------------------------------------- */

static void test_operands(void **state)
{
    const struct scene *scene = *state;
    struct commgemm_operand lhs, out;
    struct commgemm_completion done;
    void *memory;
    assert_int_equal(cudaMalloc(&memory, 4 * MIB), cudaSuccess);
    struct commgemm_segment segment = handle_of(memory, 2 * SQUARE);
    ok(import(scene, &segment, 0, &lhs));
    out = lhs;
    out.offset_bytes = SQUARE + 4;
    done = run(scene, lhs, out);
    refused_at(__LINE__, done.status, COMMGEMM_INVALID_ARGUMENT, done.detail, "out");
    out.offset_bytes = UINT64_MAX - 3;
    done = run(scene, lhs, out);
    refused_at(__LINE__, done.status, COMMGEMM_INVALID_ARGUMENT, done.detail, "out");
    out.offset_bytes = SQUARE;
    out.generation++;
    done = run(scene, lhs, out);
    refused_at(__LINE__, done.status, 0, done.detail, "out");
    out.generation--;
    done = run(scene, lhs, out);
    assert_int_equal(done.status, COMMGEMM_OK);
    ok(commgemm_import_release(scene->client, lhs.id));
    done = run(scene, lhs, out);
    refused_at(__LINE__, done.status, 0, done.detail, "lhs");
    assert_int_equal(cudaFree(memory), cudaSuccess);
    serves_on(scene);
}

/* ---- what takes too long ----------------------------------------------------------------------
 */

#define LARGE 32768u /* an FP32 product takes two to four seconds */

/* Phases are read when its outputs are NaN, and the events that they are read of are given back. */
static void test_phases_of_a_job_that_takes_too_long(void **state)
{
    struct scene scene;
    struct commgemm_plan_options options;
    struct commgemm_plan plan;
    struct commgemm_buffer in, out;
    struct commgemm_completion done;
    struct commgemm_job job;
    uint64_t ticket, side = LARGE;
    (void)state;
    scene_start(&scene, "job_timeout=2");
    small_plan(&options, &scene);
    options.m = options.n = side;
    options.k = 2 * side;
    ok(commgemm_plan_create(scene.client, &options, &plan));
    ok(commgemm_buffer_create(scene.client, NULL, 8 * side * side, 0, 0, 0, &in));
    ok(commgemm_buffer_create(scene.client, NULL, 4 * side * side, 0, 0, 0, &out));
    commgemm_job_init(&job);
    job.plan = plan.id;
    job.lhs = job.rhs = commgemm_operand_at(&in, 0);
    job.out = commgemm_operand_at(&out, 0);
    job.want_phases = 1;
    ok(commgemm_submit(scene.client, &job, &ticket));
    ok(commgemm_wait(scene.client, ticket, WAIT_S * 1000, &done));
    refused_at(__LINE__, done.status, COMMGEMM_WATCHDOG, done.detail, "");
    for (uint32_t i = 0; i < done.n_phases; i++)
        print_message("%s from %.3f to %.3f s of %.3f s\n",
                      commgemm_phase_name(done.phases[i].kind),
                      (double)done.phases[i].begin_ns / 1e9, (double)done.phases[i].end_ns / 1e9,
                      (double)done.running_ns / 1e9);
    assert_int_equal(done.n_phases, 2);
    assert_true(phases_are_right(&done));
    commgemm_completion_fini(&done);
    scene_stop(&scene);
}

/* ---- machines that lack something ------------------------------------------------------------ */

static void expect_words(struct client *client, const char *key, const char *words)
{
    char value[2048];
    query_value(client, CGM_QUERY_STATUS, NULL, NULL, key, value, sizeof(value));
    if (!strstr(value, words))
        fail_msg("%s: %s lacks: %s", key, value, words);
}

/* A driver that shows no device: the CPU backend serves, and says why. */
static void test_no_gpu(void **state)
{
    (void)state;
    struct daemon daemon;
    struct client client;
    char path[4096];
    char *visible = getenv("CUDA_VISIBLE_DEVICES");
    visible = visible ? strdup(visible) : NULL;
    assert_non_null(realpath(CGM_BIN_DIR, path));
    setenv("COMMGEMM_LIBEXEC", path, 1);
    setenv("CUDA_VISIBLE_DEVICES", "", 1);
    daemon_init(&daemon);
    daemon_start(&daemon, "executor=", "backend=auto", NULL);
    unsetenv("COMMGEMM_LIBEXEC");
    unsetenv("CUDA_VISIBLE_DEVICES");
    if (visible)
        setenv("CUDA_VISIBLE_DEVICES", visible, 1);
    free(visible);
    client_open(&client, &daemon);
    wait_for_executor(&client);
    expect_words(&client, "backend", "cpu");
    expect_words(&client, "warnings", "shows no device");
    client_close(&client);
    daemon_stop(&daemon);
}

/* Without peer access: comms with ranks on two devices are refused, on one they work. */
static void test_no_peer_access(void **state)
{
    const struct scene *scene = *state;
    static const uint32_t ranks[] = {0, 1};
    struct scene parted;
    struct commgemm_join_options join;
    uint64_t comm;
    if (scene->devices < 2) {
        print_message("needs two GPUs\n");
        skip();
    }
    setenv("COMMGEMM_TEST_NO_PEERS", "1", 1);
    scene_start(&parted, NULL);
    unsetenv("COMMGEMM_TEST_NO_PEERS");
    commgemm_join_options_init(&join);
    join.name = "parted";
    join.size = join.n_ranks = 2;
    join.ranks = ranks;
    join.create = 1;
    refused(commgemm_comm_join(parted.client, &join, &comm), COMMGEMM_NOT_SUPPORTED,
            "device 0 of rank 0 cannot access the memory of device 1 of rank 1");
    scene_stop(&parted);
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "--export") == 0)
        return export_and_end();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_more_memory_than_there_is),
        cmocka_unit_test(test_margins_and_priorities_beyond_the_device),
        cmocka_unit_test(test_handles),
        cmocka_unit_test(test_the_handle_of_another_device),
        cmocka_unit_test(test_the_handle_of_a_dead_process),
        cmocka_unit_test(test_file_descriptors),
        cmocka_unit_test(test_a_pipe),
        cmocka_unit_test(test_operands),
        cmocka_unit_test(test_phases_of_a_job_that_takes_too_long),
        cmocka_unit_test(test_no_gpu),
        cmocka_unit_test(test_no_peer_access),
    };
    return cmocka_run_group_tests(tests, scene_open, scene_close);
}
