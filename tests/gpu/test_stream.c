/* Client streams and client memory on a real device, through daemon, executor and library: the
 * order of streams, four ranks on one GPU, addresses that are used again, memory that cannot be
 * exported, deaths, and how long an empty job takes from client stream to client stream. */
#include "tests/daemon/broker_fixture.h"

#include <cuda.h>
#include <cuda_runtime.h>
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "commgemm.h"

#define WORLD 4u
#define ROWS 64u /* of a rank */
#define COLS 256u
#define SHARD_FLOATS (ROWS * COLS)
#define WAIT_MS (WAIT_S * 1000)
#define DEADLINE_MS 20000

#define cuda_ok(call) cuda_must((call), #call, __LINE__)
#define ok(call) status_must((call), COMMGEMM_OK, #call, __LINE__)
#define refused(call, status, text)                                                                \
    do {                                                                                           \
        status_must((call), (status), #call, __LINE__);                                            \
        print_message("%s\n", commgemm_last_error());                                              \
        assert_non_null(strstr(commgemm_last_error(), (text)));                                    \
    } while (0)

static pthread_t main_thread;

/* cmocka can only leave a test from its own thread. */
static void give_up(const char *text)
{
    if (pthread_equal(pthread_self(), main_thread))
        fail_msg("%s", text);
    fprintf(stderr, "%s\n", text);
    abort();
}

static void cuda_must(cudaError_t error, const char *call, int line)
{
    char text[512];
    if (error == cudaSuccess)
        return;
    snprintf(text, sizeof(text), "%d: %s: %s", line, call, cudaGetErrorString(error));
    give_up(text);
}

static void status_must(int status, int wanted, const char *call, int line)
{
    char text[1500];
    if (status == wanted)
        return;
    snprintf(text, sizeof(text), "%d: %s: %s: %s", line, call, commgemm_status_name(status),
             commgemm_last_error());
    give_up(text);
}

static uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000ull + (uint64_t)now.tv_nsec;
}

/* ---- a daemon, and ranks on its one device ----------------------------------------------------
 */

static int start_daemon(void **state)
{
    static struct daemon daemon;
    static char executor[4200] = "executor=";
    if (!realpath(CGM_BIN_DIR "/commgemm-executor-cuda", executor + strlen(executor)))
        return -1;
    daemon_init(&daemon);
    daemon_start(&daemon, "backend=cuda", executor, "devices=1", NULL);
    *state = &daemon;
    return 0;
}

static int stop_daemon(void **state)
{
    daemon_stop(*state);
    return 0;
}

static commgemm_client *client_new(const struct daemon *daemon)
{
    struct commgemm_connect_options options;
    commgemm_client *client;
    commgemm_connect_options_init(&options);
    options.socket = daemon->socket;
    ok(commgemm_connect(&options, &client));
    ok(commgemm_wait_executor(client, WAIT_MS));
    return client;
}

/* A rank's part of an all-gather: lhs ROWS x COLS, out WORLD * ROWS x COLS. */
struct rank {
    commgemm_client *client;
    struct commgemm_plan plan;
    uint32_t rank;
    cudaStream_t stream;
    float *lhs, *out;       /* on the device */
    float *host, *gathered; /* pinned */
    struct commgemm_job job;
    pthread_t thread;
    const char *name;
};

static void rank_init(struct rank *r, commgemm_client *client, uint32_t rank, uint64_t comm)
{
    struct commgemm_plan_options options;
    commgemm_plan_options_init(&options);
    options.comm = comm;
    options.op = COMMGEMM_OP_AG;
    options.m = WORLD * ROWS;
    options.n = options.k = COLS;
    options.dtype = COMMGEMM_FP32;
    r->client = client;
    r->rank = rank;
    ok(commgemm_plan_create(client, &options, &r->plan));
    cuda_ok(cudaStreamCreateWithFlags(&r->stream, cudaStreamNonBlocking));
    cuda_ok(cudaMalloc((void **)&r->lhs, SHARD_FLOATS * 4));
    cuda_ok(cudaMalloc((void **)&r->out, WORLD * SHARD_FLOATS * 4));
    cuda_ok(cudaMallocHost((void **)&r->host, SHARD_FLOATS * 4));
    cuda_ok(cudaMallocHost((void **)&r->gathered, WORLD * SHARD_FLOATS * 4));
}

static void rank_fini(struct rank *r)
{
    cuda_ok(cudaStreamDestroy(r->stream));
    cuda_ok(cudaFree(r->lhs));
    cuda_ok(cudaFree(r->out));
    cuda_ok(cudaFreeHost(r->host));
    cuda_ok(cudaFreeHost(r->gathered));
}

static void *rank_join(void *argument)
{
    struct rank *r = argument;
    uint64_t comm;
    cuda_ok(cudaSetDevice(0));
    ok(commgemm_comm_join_simple(r->client, r->name, WORLD, r->rank, &comm));
    rank_init(r, r->client, r->rank, comm);
    return NULL;
}

/* A session for each rank, all in this process. */
static void ranks_of_sessions(struct rank *ranks, const struct daemon *daemon, const char *name)
{
    for (uint32_t i = 0; i < WORLD; i++) {
        ranks[i] = (struct rank){.client = client_new(daemon), .rank = i, .name = name};
        assert_int_equal(pthread_create(&ranks[i].thread, NULL, rank_join, &ranks[i]), 0);
    }
    for (uint32_t i = 0; i < WORLD; i++)
        pthread_join(ranks[i].thread, NULL);
}

/* One session for all ranks. */
static void ranks_of_one(struct rank *ranks, const struct daemon *daemon, const char *name)
{
    static const uint32_t all[WORLD] = {0, 1, 2, 3};
    struct commgemm_join_options join;
    commgemm_client *client = client_new(daemon);
    uint64_t comm;
    commgemm_join_options_init(&join);
    join.name = name;
    join.create = 1;
    join.size = join.n_ranks = WORLD;
    join.ranks = all;
    ok(commgemm_comm_join(client, &join, &comm));
    for (uint32_t i = 0; i < WORLD; i++)
        rank_init(&ranks[i], client, i, comm);
}

static float value_of(uint32_t rank, uint32_t round, uint32_t i)
{
    return (float)(rank * 1000003u + round * 4099u + i % 4001u);
}

static void CUDART_CB take_a_while(void *argument)
{
    usleep(*(useconds_t *)argument);
}

static useconds_t delays_us[8] = {0, 100, 2000, 500, 5000, 50, 0, 1000};

/* The stream is behind by a random time when the job is submitted. */
static void rank_prepare(struct rank *r, uint32_t round)
{
    cuda_ok(cudaStreamSynchronize(r->stream));
    for (uint32_t i = 0; i < SHARD_FLOATS; i++)
        r->host[i] = value_of(r->rank, round, i);
    cuda_ok(cudaLaunchHostFunc(r->stream, take_a_while, &delays_us[rand() % 8]));
    cuda_ok(cudaMemcpyAsync(r->lhs, r->host, SHARD_FLOATS * 4, cudaMemcpyHostToDevice, r->stream));
    cuda_ok(cudaMemsetAsync(r->out, 0xff, WORLD * SHARD_FLOATS * 4, r->stream));
    commgemm_job_init(&r->job);
    r->job.plan = r->plan.id;
    r->job.rank = r->rank;
    r->job.deadline_ms = DEADLINE_MS;
    ok(commgemm_import_pointer(r->client, (uintptr_t)r->lhs, SHARD_FLOATS * 4, &r->job.lhs));
    ok(commgemm_import_pointer(r->client, (uintptr_t)r->out, WORLD * SHARD_FLOATS * 4,
                               &r->job.out));
}

static void rank_fetch(struct rank *r)
{
    cuda_ok(cudaMemcpyAsync(r->gathered, r->out, WORLD * SHARD_FLOATS * 4, cudaMemcpyDeviceToHost,
                            r->stream));
}

static void rank_check(struct rank *r, uint64_t ticket, uint32_t round)
{
    struct commgemm_completion done;
    char text[512];
    cuda_ok(cudaStreamSynchronize(r->stream));
    ok(commgemm_wait(r->client, ticket, WAIT_MS, &done));
    snprintf(text, sizeof(text), "rank %u, round %u: %s: %s", r->rank, round,
             commgemm_status_name(done.status), done.detail);
    if (done.status != COMMGEMM_OK)
        give_up(text);
    for (uint32_t i = 0; i < WORLD * SHARD_FLOATS; i++) {
        if (r->gathered[i] == value_of(i / SHARD_FLOATS, round, i % SHARD_FLOATS))
            continue;
        snprintf(text, sizeof(text), "rank %u, round %u, element %u: %g", r->rank, round, i,
                 (double)r->gathered[i]);
        give_up(text);
    }
}

/* ---- the round trip ---------------------------------------------------------------------------
 */

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

#define TRIPS 2000

static void test_an_empty_job_from_stream_to_stream(void **state)
{
    static double host_us[TRIPS], device_us[TRIPS];
    commgemm_client *client = client_new(*state);
    struct commgemm_job job;
    cudaStream_t stream;
    cudaEvent_t begin, end;
    commgemm_job_init(&job);
    job.kind = COMMGEMM_JOB_NOOP;
    cuda_ok(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    cuda_ok(cudaEventCreate(&begin));
    cuda_ok(cudaEventCreate(&end));
    for (int i = -200; i < TRIPS; i++) {
        uint64_t ticket, start = now_ns();
        float ms;
        cuda_ok(cudaEventRecord(begin, stream));
        ok(commgemm_submit_on_stream(client, &job, stream, &ticket));
        cuda_ok(cudaEventRecord(end, stream));
        cuda_ok(cudaStreamSynchronize(stream));
        uint64_t stop = now_ns();
        cuda_ok(cudaEventElapsedTime(&ms, begin, end));
        ok(commgemm_wait(client, ticket, WAIT_MS, NULL));
        if (i >= 0) {
            host_us[i] = (double)(stop - start) / 1e3;
            device_us[i] = (double)ms * 1e3;
        }
    }
    qsort(host_us, TRIPS, sizeof(double), by_value);
    qsort(device_us, TRIPS, sizeof(double), by_value);
    print_message("empty job, client stream to client stream, queue not prefilled, one rank: "
                  "median %.1f us between the events, %.1f us for the calling thread; 90%%: %.1f "
                  "and %.1f\n",
                  device_us[TRIPS / 2], host_us[TRIPS / 2], device_us[TRIPS * 9 / 10],
                  host_us[TRIPS * 9 / 10]);
    cuda_ok(cudaEventDestroy(begin));
    cuda_ok(cudaEventDestroy(end));
    commgemm_disconnect(client);
    cuda_ok(cudaStreamDestroy(stream));
}

/* ---- ranks ------------------------------------------------------------------------------------
 */

#define ROUNDS 40u

static void *rank_run(void *argument)
{
    struct rank *r = argument;
    uint64_t ticket;
    cuda_ok(cudaSetDevice(0));
    for (uint32_t round = 0; round < ROUNDS; round++) {
        rank_prepare(r, round);
        ok(commgemm_submit_on_stream(r->client, &r->job, r->stream, &ticket));
        rank_fetch(r);
        rank_check(r, ticket, round);
    }
    return NULL;
}

static void test_four_sessions_on_one_gpu(void **state)
{
    struct rank ranks[WORLD];
    ranks_of_sessions(ranks, *state, "sessions");
    for (uint32_t i = 0; i < WORLD; i++)
        assert_int_equal(pthread_create(&ranks[i].thread, NULL, rank_run, &ranks[i]), 0);
    for (uint32_t i = 0; i < WORLD; i++)
        pthread_join(ranks[i].thread, NULL);
    for (uint32_t i = 0; i < WORLD; i++) {
        commgemm_disconnect(ranks[i].client);
        rank_fini(&ranks[i]);
    }
}

/* One thread; `together` or one by one. */
static void run_rounds(struct rank *ranks, int together)
{
    struct commgemm_stream_job jobs[WORLD];
    for (uint32_t round = 0; round < ROUNDS; round++) {
        for (uint32_t i = 0; i < WORLD; i++) {
            rank_prepare(&ranks[i], round);
            jobs[i] =
                (struct commgemm_stream_job){ranks[i].client, &ranks[i].job, ranks[i].stream, 0};
        }
        if (together)
            ok(commgemm_submit_on_streams(jobs, WORLD));
        for (uint32_t i = 0; i < WORLD; i++) {
            if (!together)
                ok(commgemm_submit_on_stream(jobs[i].client, jobs[i].job, jobs[i].stream,
                                             &jobs[i].ticket));
            rank_fetch(&ranks[i]);
        }
        for (uint32_t i = 0; i < WORLD; i++)
            rank_check(&ranks[i], jobs[i].ticket, round);
    }
}

static void test_one_process_and_thread_with_all_ranks(void **state)
{
    struct rank ranks[WORLD];
    ranks_of_one(ranks, *state, "one-session");
    run_rounds(ranks, 1);
    run_rounds(ranks, 0);
    commgemm_disconnect(ranks[0].client);
    for (uint32_t i = 0; i < WORLD; i++)
        rank_fini(&ranks[i]);
    ranks_of_sessions(ranks, *state, "its-sessions");
    run_rounds(ranks, 0); /* the others' rings are registered while the first stream waits */
    run_rounds(ranks, 1);
    for (uint32_t i = 0; i < WORLD; i++) {
        commgemm_disconnect(ranks[i].client);
        rank_fini(&ranks[i]);
    }
}

/* In a process of its own: the driver reads the variable when it starts. */
static int with_one_connection(const char *socket)
{
    struct daemon daemon = {.pid = 0};
    struct rank ranks[WORLD];
    snprintf(daemon.socket, sizeof(daemon.socket), "%s", socket);
    ranks_of_one(ranks, &daemon, "one-connection");
    run_rounds(ranks, 1);
    commgemm_disconnect(ranks[0].client);
    ranks_of_sessions(ranks, &daemon, "sessions-with-one-connection");
    run_rounds(ranks, 1);
    for (uint32_t i = 0; i < WORLD; i++)
        commgemm_disconnect(ranks[i].client);
    return 0;
}

static void test_streams_of_one_connection(void **state)
{
    const struct daemon *daemon = *state;
    int status;
    pid_t pid = fork();
    if (pid == 0) {
        setenv("CUDA_DEVICE_MAX_CONNECTIONS", "1", 1);
        execl("/proc/self/exe", "test_gpu_stream", "--one-connection", daemon->socket, NULL);
        _exit(127);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
}

/* ---- a rank that does not come ----------------------------------------------------------------
 */

static void test_a_failed_job_leaves_nan_and_releases_the_stream(void **state)
{
    struct rank ranks[WORLD];
    struct commgemm_completion first;
    uint64_t ticket, count;
    ranks_of_one(ranks, *state, "missing");
    struct rank *r = &ranks[1];
    rank_prepare(r, 0);
    r->job.deadline_ms = 300;
    r->job.detached = 1;
    cuda_ok(cudaMemsetAsync(r->out, 0, WORLD * SHARD_FLOATS * 4, r->stream));
    ok(commgemm_submit_on_stream(r->client, &r->job, r->stream, &ticket));
    rank_fetch(r);
    cuda_ok(cudaStreamSynchronize(r->stream));
    for (uint32_t i = 0; i < WORLD * SHARD_FLOATS; i++)
        assert_true(isnan(r->gathered[i]));
    ok(commgemm_wait_detached(r->client, 0, WAIT_MS));
    ok(commgemm_detached_failures(r->client, &first, &count));
    assert_int_equal(count, 1);
    assert_int_equal(first.status, COMMGEMM_JOIN_TIMEOUT);
    print_message("%s\n", first.detail);
    commgemm_disconnect(ranks[0].client);
    for (uint32_t i = 0; i < WORLD; i++)
        rank_fini(&ranks[i]);
}

/* ---- addresses --------------------------------------------------------------------------------
 */

/* Frees out and allocates at the same address until the driver gives it again. */
static void test_an_address_that_is_used_again(void **state)
{
    struct rank ranks[WORLD];
    unsigned reused = 0;
    ranks_of_one(ranks, *state, "reuse");
    for (uint32_t round = 0; round < 20; round++) {
        struct commgemm_stream_job jobs[WORLD];
        for (uint32_t i = 0; i < WORLD; i++) {
            void *before = ranks[i].out;
            cuda_ok(cudaFree(ranks[i].out));
            cuda_ok(cudaMalloc((void **)&ranks[i].out, WORLD * SHARD_FLOATS * 4 + 4096 * round));
            reused += ranks[i].out == before;
        }
        for (uint32_t i = 0; i < WORLD; i++) {
            rank_prepare(&ranks[i], round);
            jobs[i] =
                (struct commgemm_stream_job){ranks[i].client, &ranks[i].job, ranks[i].stream, 0};
        }
        ok(commgemm_submit_on_streams(jobs, WORLD));
        for (uint32_t i = 0; i < WORLD; i++)
            rank_fetch(&ranks[i]);
        for (uint32_t i = 0; i < WORLD; i++)
            rank_check(&ranks[i], jobs[i].ticket, round);
    }
    print_message("%u of 80 allocations had the address of the one before\n", reused);
    commgemm_disconnect(ranks[0].client);
    for (uint32_t i = 0; i < WORLD; i++)
        rank_fini(&ranks[i]);
}

struct driver {
    CUresult (*reserve)(CUdeviceptr *, size_t, size_t, CUdeviceptr, unsigned long long);
    CUresult (*create)(CUmemGenericAllocationHandle *, size_t, const CUmemAllocationProp *,
                       unsigned long long);
    CUresult (*map)(CUdeviceptr, size_t, size_t, CUmemGenericAllocationHandle, unsigned long long);
    CUresult (*unmap)(CUdeviceptr, size_t);
    CUresult (*access)(CUdeviceptr, size_t, const CUmemAccessDesc *, size_t);
    CUresult (*release)(CUmemGenericAllocationHandle);
};

static void *entry(const char *name)
{
    void *function = NULL;
    enum cudaDriverEntryPointQueryResult found;
    cuda_ok(cudaGetDriverEntryPointByVersion(name, &function, 12000, cudaEnableDefault, &found));
    assert_non_null(function);
    return function;
}

static void driver_find(struct driver *d)
{
    *(void **)&d->reserve = entry("cuMemAddressReserve");
    *(void **)&d->create = entry("cuMemCreate");
    *(void **)&d->map = entry("cuMemMap");
    *(void **)&d->unmap = entry("cuMemUnmap");
    *(void **)&d->access = entry("cuMemSetAccess");
    *(void **)&d->release = entry("cuMemRelease");
}

#define UNIT (2ull << 20)

static void vmm_map(const struct driver *d, CUdeviceptr at, CUmemAllocationHandleType type)
{
    CUmemGenericAllocationHandle handle;
    CUmemAllocationProp properties = {
        .type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .requestedHandleTypes = type,
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0},
    };
    CUmemAccessDesc access = {.location = properties.location,
                              .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    assert_int_equal(d->create(&handle, UNIT, &properties, 0), CUDA_SUCCESS);
    assert_int_equal(d->map(at, UNIT, 0, handle, 0), CUDA_SUCCESS);
    assert_int_equal(d->release(handle), CUDA_SUCCESS);
    assert_int_equal(d->access(at, UNIT, &access, 1), CUDA_SUCCESS);
}

/* As PyTorch's expandable segments: several mappings in one range, one of them replaced. */
static void test_virtual_memory(void **state)
{
    commgemm_client *client = client_new(*state);
    struct commgemm_operand first, again, after;
    struct driver d;
    CUdeviceptr base = 0, plain = 0;
    cuda_ok(cudaFree(NULL));
    driver_find(&d);
    assert_int_equal(d.reserve(&base, 4 * UNIT, 0, 0, 0), CUDA_SUCCESS);
    for (unsigned i = 0; i < 3; i++)
        vmm_map(&d, base + i * UNIT, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    ok(commgemm_import_pointer(client, base + UNIT + 4096, UNIT, &first));
    assert_int_equal(first.offset_bytes, 4096);
    ok(commgemm_import_pointer(client, base + 2 * UNIT, UNIT, &again));
    assert_int_equal(again.id, first.id);
    assert_int_equal(d.unmap(base + 2 * UNIT, UNIT), CUDA_SUCCESS);
    refused(commgemm_import_pointer(client, base + UNIT + 4096, UNIT, &after),
            COMMGEMM_INVALID_ARGUMENT, "are mapped");
    vmm_map(&d, base + 2 * UNIT, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    ok(commgemm_import_pointer(client, base + UNIT + 4096, UNIT, &after));
    assert_int_not_equal(after.id, first.id);
    assert_int_equal(d.reserve(&plain, UNIT, 0, 0, 0), CUDA_SUCCESS);
    vmm_map(&d, plain, CU_MEM_HANDLE_TYPE_NONE);
    refused(commgemm_import_pointer(client, plain, 4096, &first), COMMGEMM_NOT_SUPPORTED,
            "expandable_segments:False");
    commgemm_disconnect(client);
}

static void test_memory_that_cannot_be_exported(void **state)
{
    commgemm_client *client = client_new(*state);
    struct commgemm_operand operand;
    void *managed, *pinned, *pooled, *plain;
    float local = 0;
    cuda_ok(cudaMallocManaged(&managed, 4096, cudaMemAttachGlobal));
    cuda_ok(cudaMallocHost(&pinned, 4096));
    cuda_ok(cudaMallocAsync(&pooled, 4096, NULL));
    cuda_ok(cudaStreamSynchronize(NULL));
    cuda_ok(cudaMalloc(&plain, 64 << 20));
    refused(commgemm_import_pointer(client, (uintptr_t)managed, 64, &operand),
            COMMGEMM_NOT_SUPPORTED, "cudaMallocManaged");
    refused(commgemm_import_pointer(client, (uintptr_t)pinned, 64, &operand),
            COMMGEMM_NOT_SUPPORTED, "host memory");
    refused(commgemm_import_pointer(client, (uintptr_t)pooled, 64, &operand),
            COMMGEMM_NOT_SUPPORTED, "cudaMallocAsync");
    refused(commgemm_import_pointer(client, (uintptr_t)&local, 4, &operand),
            COMMGEMM_INVALID_ARGUMENT, "not known");
    refused(commgemm_import_pointer(client, (uintptr_t)plain + 4096, 64 << 20, &operand),
            COMMGEMM_INVALID_ARGUMENT, "of the allocation");
    ok(commgemm_import_pointer(client, (uintptr_t)plain, 64 << 20, &operand));
    cuda_ok(cudaFree(plain));
    refused(commgemm_import_pointer(client, (uintptr_t)plain, 64, &operand),
            COMMGEMM_INVALID_ARGUMENT, "not known");
    cuda_ok(cudaFree(managed));
    cuda_ok(cudaFreeHost(pinned));
    cuda_ok(cudaFreeAsync(pooled, NULL));
    commgemm_disconnect(client);
}

/* ---- deaths -----------------------------------------------------------------------------------
 */

static uint64_t submit_noop(commgemm_client *client, cudaStream_t stream)
{
    struct commgemm_job job;
    uint64_t ticket;
    commgemm_job_init(&job);
    job.kind = COMMGEMM_JOB_NOOP;
    ok(commgemm_submit_on_stream(client, &job, stream, &ticket));
    return ticket;
}

static pid_t executor_of(commgemm_client *client)
{
    char *json;
    ok(commgemm_query(client, "status", &json));
    const char *at = strstr(json, "\"executor_pid\":");
    pid_t pid = at ? (pid_t)atoi(at + strlen("\"executor_pid\":")) : 0;
    free(json);
    assert_true(pid > 1);
    return pid;
}

/* A job that never starts, for its other ranks do not come; then nobody is left to say so. */
static void test_the_dead_release_streams(void **state)
{
    struct daemon *daemon = *state;
    struct rank ranks[WORLD];
    struct commgemm_completion done;
    uint64_t ticket;
    ranks_of_one(ranks, daemon, "deaths");
    for (int round = 0; round < 2; round++) {
        struct rank *r = &ranks[0];
        rank_prepare(r, 0);
        r->job.deadline_ms = 0;
        ok(commgemm_submit_on_stream(r->client, &r->job, r->stream, &ticket));
        usleep(50000);
        assert_int_equal(cudaStreamQuery(r->stream), cudaErrorNotReady);
        uint64_t before = now_ns();
        kill(round ? daemon->pid : executor_of(r->client), SIGKILL);
        cuda_ok(cudaStreamSynchronize(r->stream));
        print_message("%s killed: the stream was released after %.1f ms\n",
                      round ? "daemon" : "executor", (double)(now_ns() - before) / 1e6);
        int status = commgemm_wait(r->client, ticket, WAIT_MS, &done);
        assert_int_equal(status, round ? COMMGEMM_DAEMON_LOST : COMMGEMM_OK);
        assert_int_equal(done.status, round ? COMMGEMM_DAEMON_LOST : COMMGEMM_EXECUTOR_LOST);
        if (round)
            break;
        ok(commgemm_wait_executor(r->client, WAIT_MS));
        ok(commgemm_wait(r->client, submit_noop(r->client, r->stream), WAIT_MS, &done));
        assert_int_equal(done.status, COMMGEMM_OK);
        cuda_ok(cudaStreamSynchronize(r->stream));
    }
    commgemm_disconnect(ranks[0].client);
    assert_int_equal(daemon_wait(daemon), 1000 + SIGKILL);
    unlink(daemon->socket);
    for (uint32_t i = 0; i < WORLD; i++)
        rank_fini(&ranks[i]);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_an_empty_job_from_stream_to_stream),
        cmocka_unit_test(test_four_sessions_on_one_gpu),
        cmocka_unit_test(test_one_process_and_thread_with_all_ranks),
        cmocka_unit_test(test_streams_of_one_connection),
        cmocka_unit_test(test_a_failed_job_leaves_nan_and_releases_the_stream),
        cmocka_unit_test(test_an_address_that_is_used_again),
        cmocka_unit_test(test_virtual_memory),
        cmocka_unit_test(test_memory_that_cannot_be_exported),
        cmocka_unit_test(test_the_dead_release_streams),
    };
    int count = 0;
    /* Of streams that share one, the first that waits holds up the others; under MPS a process has
     * two. Here threads submit for four ranks, one by one. */
    setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
    srand((unsigned)time(NULL));
    main_thread = pthread_self();
    if (argc > 2 && strcmp(argv[1], "--one-connection") == 0)
        return with_one_connection(argv[2]);
    if (cudaGetDeviceCount(&count) != cudaSuccess || count == 0) {
        print_message("skipped: no CUDA device\n");
        return 77;
    }
    return cmocka_run_group_tests(tests, start_daemon, stop_daemon);
}
