/* What the daemon adds, from client stream to client stream, in events of the client's stream:
 *
 *     test_gpu_time_stream SOCKET [ranks]
 *
 * A barrier over 1, 2, ... ranks, a process each, submitted to idle streams; and products beside
 * the same product by cuBLASLt alone with the fastest of its candidates, in this process, in turn,
 * on the same random numbers, also for streams that come later than what is enqueued, and with
 * operands that came by cudaIpc instead of fds. Figures are medians; nothing is checked here. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "commgemm.h"
#include "daemon/executor/cuda/cuda.h"
#include "daemon/executor/cuda/queue.h"
#include "kernels/device_kernels.h"
#include "kernels/number_format.h"
#include "kernels/random.h"

#define RANKS_MAX 8u
#define TRIPS 2000u
#define WARM_UP 200u
#define WAIT_MS 60000
#define BLOCK (8u << 20) /* elements */

static void must(int failed, const char *what)
{
    if (!failed)
        return;
    fprintf(stderr, "%s: %d: %s\n", what, failed, commgemm_last_error());
    exit(1);
}

static int by_value(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

static float middle(float *values, uint32_t count)
{
    qsort(values, count, sizeof(*values), by_value);
    return values[count / 2];
}

/* ---- a client and its stream ------------------------------------------------------------------
 */

struct rank {
    commgemm_client *client;
    uint64_t comm;
    cudaStream_t stream;
    cudaEvent_t begin, end;
};

static void rank_open(struct rank *r, const char *socket, const char *name, uint32_t world,
                      uint32_t rank)
{
    struct commgemm_connect_options options;
    commgemm_connect_options_init(&options);
    options.socket = socket;
    must(cudaSetDevice((int)rank), "cudaSetDevice");
    must(commgemm_connect(&options, &r->client), "connect");
    must(commgemm_wait_executor(r->client, WAIT_MS), "executor");
    must(commgemm_comm_join_simple(r->client, name, world, rank, &r->comm), "join");
    must(cudaStreamCreateWithFlags(&r->stream, cudaStreamNonBlocking), "stream");
    must(cudaEventCreate(&r->begin), "event");
    must(cudaEventCreate(&r->end), "event");
}

static float rank_time(struct rank *r, const struct commgemm_job *job, uint64_t *ret_running_ns)
{
    struct commgemm_completion done;
    uint64_t ticket;
    float ms = 0;
    must(cudaEventRecord(r->begin, r->stream), "begin");
    must(commgemm_submit_on_stream(r->client, job, r->stream, &ticket), "submit");
    must(cudaEventRecord(r->end, r->stream), "end");
    must(cudaStreamSynchronize(r->stream), "stream");
    must(cudaEventElapsedTime(&ms, r->begin, r->end), "elapsed");
    must(commgemm_wait(r->client, ticket, WAIT_MS, &done), "wait");
    must(done.status, done.detail);
    if (ret_running_ns)
        *ret_running_ns = done.running_ns;
    return ms * 1e3f;
}

/* ---- barriers ---------------------------------------------------------------------------------
 */

/* Shared by the processes of the ranks. */
struct board {
    _Atomic uint32_t arrived[TRIPS + WARM_UP];
    float us[RANKS_MAX][TRIPS + WARM_UP];
};

static void run_rank(struct board *board, const char *socket, const char *name, uint32_t world,
                     uint32_t rank)
{
    struct commgemm_plan_options options;
    struct commgemm_plan plan;
    struct commgemm_job job;
    struct rank r;
    rank_open(&r, socket, name, world, rank);
    commgemm_plan_options_init(&options);
    options.comm = r.comm;
    options.op = COMMGEMM_OP_AG;
    options.m = options.n = options.k = 64ull * world;
    must(commgemm_plan_create(r.client, &options, &plan), "plan");
    commgemm_job_init(&job);
    job.kind = COMMGEMM_JOB_BARRIER;
    job.plan = plan.id;
    job.rank = rank;
    for (uint32_t i = 0; i < TRIPS + WARM_UP; i++) {
        atomic_fetch_add(&board->arrived[i], 1);
        while (atomic_load(&board->arrived[i]) < world)
            ;
        board->us[rank][i] = rank_time(&r, &job, NULL);
    }
    commgemm_disconnect(r.client);
}

/* The rank that came last waited for nobody: its time is what the daemon costs. */
static void report_barrier(const struct board *board, uint32_t world)
{
    static float last[TRIPS], slowest[TRIPS];
    for (uint32_t i = 0; i < TRIPS; i++) {
        last[i] = slowest[i] = board->us[0][WARM_UP + i];
        for (uint32_t rank = 1; rank < world; rank++) {
            float us = board->us[rank][WARM_UP + i];
            last[i] = us < last[i] ? us : last[i];
            slowest[i] = us > slowest[i] ? us : slowest[i];
        }
    }
    printf("barrier of %u ranks, stream to stream: %.1f us for the rank that comes last, %.1f us "
           "for the first\n",
           world, (double)middle(last, TRIPS), (double)middle(slowest, TRIPS));
    fflush(stdout);
}

static void time_barrier(const char *socket, uint32_t world)
{
    char name[64];
    struct board *board =
        mmap(NULL, sizeof(*board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    must(board == MAP_FAILED, "mmap");
    snprintf(name, sizeof(name), "time-%d-%u", (int)getpid(), world);
    for (uint32_t rank = 0; rank < world; rank++) {
        if (fork() != 0)
            continue;
        run_rank(board, socket, name, world, rank);
        exit(0);
    }
    int status, failed = 0;
    while (wait(&status) > 0)
        failed |= status;
    must(failed, "a rank's process");
    report_barrier(board, world);
    munmap(board, sizeof(*board));
}

/* ---- products ---------------------------------------------------------------------------------
 */

#define PRODUCTS 5u
#define ROWS_MAX 8192u
#define COLUMNS_MAX 14336u
#define DEPTH_MAX 8192u
#define TURNS 40u

static const struct {
    uint64_t m, n, k;
} products[PRODUCTS] = {{8192, 14336, 8192},
                        {2048, 14336, 8192},
                        {512, 14336, 8192},
                        {8192, 2560, 8192},
                        {2048, 8192, 7168}};

struct alone {
    struct cgm_backend *backend;
    struct cgm_queue *queue;
    struct cgm_gemm gemm;
    struct twins { /* the same numbers in memory of cudaMalloc */
        void *a, *b, *out;
    } twins;
};

static struct cgm_mem *random_memory(struct cgm_backend *backend, uint64_t elements)
{
    static uint16_t numbers[BLOCK];
    static float values[BLOCK];
    struct cgm_random rng;
    struct cgm_mem *mem;
    must(cgm_backend_cuda.mem_alloc(backend, 0, elements * 2, 0, &mem), "memory");
    cgm_random_init(&rng, cgm_random_seed());
    cgm_random_fill(&rng, CGM_FILL_NORMAL, values, BLOCK);
    cgm_format_store(CGM_DTYPE_BF16, values, BLOCK, numbers);
    for (uint64_t at = 0; at < elements; at += BLOCK) {
        uint64_t count = elements - at < BLOCK ? elements - at : BLOCK;
        must(cudaMemcpy(mem->at[0] + at * 2, numbers, count * 2, cudaMemcpyDefault), "fill");
    }
    return mem;
}

static struct cgm_view view_of(struct cgm_mem *mem, uint64_t n_rows, uint64_t n_columns)
{
    return (struct cgm_view){mem, 0, n_rows, n_columns, n_columns, CGM_DTYPE_BF16};
}

static void *twin_of(const struct cgm_view *view)
{
    void *twin;
    size_t bytes = view->rows * view->cols * 2;
    must(cudaMalloc(&twin, bytes), "memory");
    must(cudaMemcpy(twin, view->mem->at[0], bytes, cudaMemcpyDefault), "fill");
    return twin;
}

static void alone_open(struct alone *alone)
{
    struct cgm_backend_options options = {.devices = 1, .log_level = 4};
    char detail[256];
    must(cgm_backend_cuda.open(&options, detail, sizeof(detail), &alone->backend), detail);
    must(cgm_backend_cuda.queue_new(alone->backend, 0, 0, 0, &alone->queue), "queue");
    alone->gemm = (struct cgm_gemm){
        .a = view_of(random_memory(alone->backend, ROWS_MAX * DEPTH_MAX), ROWS_MAX, DEPTH_MAX),
        .b =
            view_of(random_memory(alone->backend, DEPTH_MAX * COLUMNS_MAX), DEPTH_MAX, COLUMNS_MAX),
        .out =
            view_of(random_memory(alone->backend, ROWS_MAX * COLUMNS_MAX), ROWS_MAX, COLUMNS_MAX)};
    alone->twins =
        (struct twins){twin_of(&alone->gemm.a), twin_of(&alone->gemm.b), twin_of(&alone->gemm.out)};
}

static float alone_time(const struct alone *alone, struct rank *r)
{
    cudaStream_t stream = alone->queue->stream->handle;
    float ms = 0;
    must(cudaEventRecord(r->begin, stream), "begin");
    must(cgm_backend_cuda.gemm(alone->queue, &alone->gemm), "gemm");
    must(cudaEventRecord(r->end, stream), "end");
    must(cudaStreamSynchronize(stream), "stream");
    must(cudaEventElapsedTime(&ms, r->begin, r->end), "elapsed");
    return ms * 1e3f;
}

static struct commgemm_operand operand_of(struct rank *r, void *memory, const struct cgm_view *view)
{
    struct commgemm_operand operand;
    must(commgemm_import_pointer(r->client, (uintptr_t)memory, view->rows * view->cols * 2,
                                 &operand),
         "import");
    return operand;
}

/* By fds, and by cudaIpc. */
static void set_operands(struct rank *r, const struct alone *alone, struct commgemm_job *ret_job,
                         struct commgemm_job *ret_ipc_job)
{
    const struct cgm_gemm *gemm = &alone->gemm;
    ret_job->lhs = operand_of(r, gemm->a.mem->at[0], &gemm->a);
    ret_job->rhs = operand_of(r, gemm->b.mem->at[0], &gemm->b);
    ret_job->out = operand_of(r, gemm->out.mem->at[0], &gemm->out);
    *ret_ipc_job = *ret_job;
    ret_ipc_job->lhs = operand_of(r, alone->twins.a, &gemm->a);
    ret_ipc_job->rhs = operand_of(r, alone->twins.b, &gemm->b);
    ret_ipc_job->out = operand_of(r, alone->twins.out, &gemm->out);
}

/* What the executor's own events say about the product. */
static float phase_time(struct rank *r, struct commgemm_job *job)
{
    struct commgemm_completion done;
    uint64_t ticket;
    float us = 0;
    job->want_phases = 1;
    must(commgemm_submit_on_stream(r->client, job, r->stream, &ticket), "submit");
    must(commgemm_wait(r->client, ticket, WAIT_MS, &done), "wait");
    for (uint32_t i = 0; i < done.n_phases; i++)
        if (done.phases[i].kind == COMMGEMM_PHASE_GEMM)
            us = (float)(done.phases[i].end_ns - done.phases[i].begin_ns) / 1e3f;
    job->want_phases = 0;
    commgemm_completion_fini(&done);
    return us;
}

static void reshape(struct cgm_view *view, uint64_t n_rows, uint64_t n_columns)
{
    *view = view_of(view->mem, n_rows, n_columns);
}

/* The stream comes this much later than the job, as it does where a client works ahead of its
 * device: what the daemon's threads need has had time to leave the caches. */
static float late_time(struct rank *r, const struct alone *alone, const struct commgemm_job *job,
                       uint64_t after_us)
{
    struct commgemm_completion done;
    uint64_t ticket = 0;
    float ms = 0;
    cudaStream_t stream = job ? r->stream : alone->queue->stream->handle;
    must(cgm_kernel_delay_launch(after_us * 1000, stream), "delay");
    must(cudaEventRecord(r->begin, stream), "begin");
    if (job)
        must(commgemm_submit_on_stream(r->client, job, stream, &ticket), "submit");
    else
        must(cgm_backend_cuda.gemm(alone->queue, &alone->gemm), "gemm");
    must(cudaEventRecord(r->end, stream), "end");
    must(cudaStreamSynchronize(stream), "stream");
    must(cudaEventElapsedTime(&ms, r->begin, r->end), "elapsed");
    if (job) {
        must(commgemm_wait(r->client, ticket, WAIT_MS, &done), "wait");
        must(done.status, done.detail);
    }
    return ms * 1e3f;
}

static void time_late(struct rank *r, const struct alone *alone, const struct commgemm_job *job,
                      const struct commgemm_job *ipc_job)
{
    static const uint64_t after_us[] = {200, 1000, 5000};
    for (size_t i = 0; i < sizeof(after_us) / sizeof(after_us[0]); i++) {
        float ours[TURNS], theirs[TURNS], by_ipc[TURNS];
        for (uint32_t turn = 0; turn < TURNS; turn++) {
            theirs[turn] = late_time(r, alone, NULL, after_us[i]);
            ours[turn] = late_time(r, alone, job, after_us[i]);
            by_ipc[turn] = late_time(r, alone, ipc_job, after_us[i]);
        }
        float a = middle(theirs, TURNS), b = middle(ours, TURNS);
        printf("    enqueued %.1f ms ahead: %.1f us alone, %.1f us through the daemon, %.1f us "
               "more; %.1f us by cudaIpc\n",
               (double)after_us[i] / 1e3, (double)a, (double)b, (double)(b - a),
               (double)middle(by_ipc, TURNS));
    }
}

static void time_product(struct rank *r, struct alone *alone, uint64_t m, uint64_t n, uint64_t k)
{
    float ours[TURNS], theirs[TURNS], inside[TURNS], phase[TURNS], by_ipc[TURNS];
    struct commgemm_plan_options options;
    struct commgemm_plan plan;
    struct commgemm_job job, ipc_job;
    reshape(&alone->gemm.a, m, k);
    reshape(&alone->gemm.b, k, n);
    reshape(&alone->gemm.out, m, n);
    must(cgm_backend_cuda.prepare_gemm(alone->queue, &alone->gemm, CGM_PREPARE_TRIALS), "prepare");
    commgemm_plan_options_init(&options);
    options.comm = r->comm;
    options.op = COMMGEMM_OP_GEMM;
    options.m = m;
    options.n = n;
    options.k = k;
    options.dtype = COMMGEMM_BF16;
    must(commgemm_plan_create(r->client, &options, &plan), "plan");
    commgemm_job_init(&job);
    job.plan = plan.id;
    set_operands(r, alone, &job, &ipc_job);
    for (uint32_t i = 0; i < TURNS + 5; i++) {
        uint64_t running_ns = 0;
        float alone_us = alone_time(alone, r), ours_us = rank_time(r, &job, &running_ns);
        float phase_us = phase_time(r, &job), ipc_us = rank_time(r, &ipc_job, NULL);
        if (i < 5)
            continue;
        theirs[i - 5] = alone_us;
        ours[i - 5] = ours_us;
        inside[i - 5] = (float)running_ns / 1e3f;
        phase[i - 5] = phase_us;
        by_ipc[i - 5] = ipc_us;
    }
    float a = middle(theirs, TURNS), b = middle(ours, TURNS);
    printf("gemm %llu x %llu x %llu bf16: %.1f us by cuBLASLt alone, %.1f us through the daemon, "
           "%.1f us more, ratio %.3f; %.1f us from launch to end, %.1f us the product there; "
           "%.1f us with operands by cudaIpc\n",
           (unsigned long long)m, (unsigned long long)n, (unsigned long long)k, (double)a,
           (double)b, (double)(b - a), (double)(a / b), (double)middle(inside, TURNS),
           (double)middle(phase, TURNS), (double)middle(by_ipc, TURNS));
    time_late(r, alone, &job, &ipc_job);
    fflush(stdout);
}

static void time_products(const char *socket)
{
    struct rank r;
    struct alone alone;
    char name[64];
    snprintf(name, sizeof(name), "products-%d", (int)getpid());
    alone_open(&alone);
    rank_open(&r, socket, name, 1, 0);
    for (uint32_t i = 0; i < PRODUCTS; i++)
        time_product(&r, &alone, products[i].m, products[i].n, products[i].k);
    commgemm_disconnect(r.client);
}

int main(int argc, char **argv)
{
    uint32_t ranks = argc > 2 ? (uint32_t)atoi(argv[2]) : 1;
    if (argc < 2 || ranks < 1 || ranks > RANKS_MAX) {
        fprintf(stderr, "usage: %s SOCKET [ranks, 1 to %u]\n", argv[0], RANKS_MAX);
        return 2;
    }
    for (uint32_t world = 1; world <= ranks; world *= 2)
        time_barrier(argv[1], world);
    time_products(argv[1]);
    return 0;
}
