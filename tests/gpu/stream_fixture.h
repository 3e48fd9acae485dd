/* What the tests of client streams and client memory share: a daemon with one device, sessions, and
 * the ranks of an all-gather, each with a stream. */
#ifndef GPU_STREAM_FIXTURE_H
#define GPU_STREAM_FIXTURE_H

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
static inline void give_up(const char *text)
{
    if (pthread_equal(pthread_self(), main_thread))
        fail_msg("%s", text);
    fprintf(stderr, "%s\n", text);
    abort();
}

static inline void cuda_must(cudaError_t error, const char *call, int line)
{
    char text[512];
    if (error == cudaSuccess)
        return;
    snprintf(text, sizeof(text), "%d: %s: %s", line, call, cudaGetErrorString(error));
    give_up(text);
}

static inline void status_must(int status, int wanted, const char *call, int line)
{
    char text[1500];
    if (status == wanted)
        return;
    snprintf(text, sizeof(text), "%d: %s: %s: %s", line, call, commgemm_status_name(status),
             commgemm_last_error());
    give_up(text);
}

static inline uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000ull + (uint64_t)now.tv_nsec;
}

/* ---- a daemon, and ranks on its one device ----------------------------------------------------
 */

static inline int start_daemon(void **state)
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

static inline int stop_daemon(void **state)
{
    daemon_stop(*state);
    return 0;
}

static inline commgemm_client *client_new(const struct daemon *daemon)
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

static inline void rank_init(struct rank *r, commgemm_client *client, uint32_t rank, uint64_t comm)
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

static inline void rank_fini(struct rank *r)
{
    cuda_ok(cudaStreamDestroy(r->stream));
    cuda_ok(cudaFree(r->lhs));
    cuda_ok(cudaFree(r->out));
    cuda_ok(cudaFreeHost(r->host));
    cuda_ok(cudaFreeHost(r->gathered));
}

static inline void *rank_join(void *argument)
{
    struct rank *r = argument;
    uint64_t comm;
    cuda_ok(cudaSetDevice(0));
    ok(commgemm_comm_join_simple(r->client, r->name, WORLD, r->rank, &comm));
    rank_init(r, r->client, r->rank, comm);
    return NULL;
}

/* A session for each rank, all in this process. */
static inline void ranks_of_sessions(struct rank *ranks, const struct daemon *daemon,
                                     const char *name)
{
    for (uint32_t i = 0; i < WORLD; i++) {
        ranks[i] = (struct rank){.client = client_new(daemon), .rank = i, .name = name};
        assert_int_equal(pthread_create(&ranks[i].thread, NULL, rank_join, &ranks[i]), 0);
    }
    for (uint32_t i = 0; i < WORLD; i++)
        pthread_join(ranks[i].thread, NULL);
}

/* One session for all ranks. */
static inline void ranks_of_one(struct rank *ranks, const struct daemon *daemon, const char *name)
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

static inline float value_of(uint32_t rank, uint32_t round, uint32_t i)
{
    return (float)(rank * 1000003u + round * 4099u + i % 4001u);
}

static inline void CUDART_CB take_a_while(void *argument)
{
    usleep(*(useconds_t *)argument);
}

static useconds_t delays_us[8] = {0, 100, 2000, 500, 5000, 50, 0, 1000};

/* The stream is behind by a random time when the job is submitted. */
static inline void rank_prepare(struct rank *r, uint32_t round)
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

static inline void rank_fetch(struct rank *r)
{
    cuda_ok(cudaMemcpyAsync(r->gathered, r->out, WORLD * SHARD_FLOATS * 4, cudaMemcpyDeviceToHost,
                            r->stream));
}

static inline void rank_check(struct rank *r, uint64_t ticket, uint32_t round)
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

static inline void streams_init(void)
{
    /* Of streams that share one, the first that waits holds up the others; under MPS a process has
     * two. Here threads submit for four ranks, one by one. */
    setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
    srand((unsigned)time(NULL));
    main_thread = pthread_self();
}

static inline bool streams_have_device(void)
{
    int count = 0;
    if (cudaGetDeviceCount(&count) == cudaSuccess && count > 0)
        return true;
    print_message("skipped: no CUDA device\n");
    return false;
}

#endif
