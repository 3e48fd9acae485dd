/* A client for the recovery script, with a context, a stream and a session of its own:
 *
 *     gpu_process spin SOCKET      a kernel of its own runs for a minute; to be killed meanwhile
 *     gpu_process fault SOCKET     a kernel of its own writes where nothing is, then it ends
 *     gpu_process slow SOCKET      a job that takes many seconds, which the daemon ends; says how
 *     gpu_process stay SOCKET      an empty job in its stream, again and again, until one fails or
 *                                  it is told to end (SIGTERM): says what became of them and of
 *                                  its context */
#include <cuda_runtime.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "commgemm.h"
#include "tests/gpu/process_kernels.h"

#define WAIT_MS 60000

static volatile sig_atomic_t told_to_end;

static void on_term(int number)
{
    (void)number;
    told_to_end = 1;
}

static void must(int failed, const char *what)
{
    if (failed == 0)
        return;
    fprintf(stderr, "%s: %d: %s\n", what, failed, commgemm_last_error());
    exit(1);
}

struct session {
    commgemm_client *client;
    cudaStream_t stream;
};

static struct session session_open(const char *socket, const char *name)
{
    struct session s;
    struct commgemm_connect_options options;
    commgemm_connect_options_init(&options);
    options.socket = socket;
    options.name = name;
    must(cudaSetDevice(0), "cudaSetDevice");
    must(cudaStreamCreateWithFlags(&s.stream, cudaStreamNonBlocking), "cudaStreamCreate");
    must(commgemm_connect(&options, &s.client), "connect");
    must(commgemm_wait_executor(s.client, WAIT_MS), "wait_executor");
    return s;
}

/* What the stream's next operation would say. */
static const char *own_context(void)
{
    return cudaGetErrorName(cudaDeviceSynchronize());
}

static void say(const char *what)
{
    printf("%d %s\n", (int)getpid(), what);
    fflush(stdout);
}

static int run_job(const struct session *s, struct commgemm_completion *ret_done)
{
    struct commgemm_job job;
    uint64_t ticket = 0;
    commgemm_job_init(&job);
    job.kind = COMMGEMM_JOB_NOOP;
    int status = commgemm_submit_on_stream(s->client, &job, s->stream, &ticket);
    if (status == COMMGEMM_OK)
        status = commgemm_wait(s->client, ticket, WAIT_MS, ret_done);
    return status == COMMGEMM_OK ? ret_done->status : status;
}

static int stay(const struct session *s)
{
    struct commgemm_completion done;
    unsigned long count = 0;
    memset(&done, 0, sizeof(done));
    say("stays");
    int status = COMMGEMM_OK;
    while (!told_to_end && (status = run_job(s, &done)) == COMMGEMM_OK) {
        count++;
        usleep(2000);
    }
    const char *why = done.status == COMMGEMM_OK ? commgemm_last_error() : done.detail;
    printf("%d after %lu jobs: %s%s%s; own context: %s\n", (int)getpid(), count,
           commgemm_status_name(status), status == COMMGEMM_OK ? "" : ": ",
           status == COMMGEMM_OK ? "" : why, own_context());
    fflush(stdout);
    return 0;
}

/* In strict fp32, so that it takes seconds, and nothing can end it. */
static const uint64_t slow_side = 16384, slow_depth = 327680;

static struct commgemm_operand device_memory(const struct session *s, uint64_t rows, uint64_t cols)
{
    struct commgemm_operand operand;
    void *data = NULL;
    must(cudaMalloc(&data, rows * cols * 4), "cudaMalloc");
    must(cudaMemset(data, 0, rows * cols * 4), "cudaMemset");
    must(cudaDeviceSynchronize(), "cudaMemset");
    must(commgemm_import_pointer(s->client, (uintptr_t)data, rows * cols * 4, &operand),
         "import_pointer");
    return operand;
}

static int slow(const struct session *s)
{
    struct commgemm_plan_options options;
    struct commgemm_plan plan;
    struct commgemm_job job;
    struct commgemm_completion done;
    uint64_t ticket;
    commgemm_plan_options_init(&options);
    must(commgemm_comm_join_simple(s->client, "slow", 1, 0, &options.comm), "join");
    options.op = COMMGEMM_OP_GEMM;
    options.m = options.n = slow_side;
    options.k = slow_depth;
    options.dtype = COMMGEMM_FP32;
    must(commgemm_plan_create(s->client, &options, &plan), "plan");
    commgemm_job_init(&job);
    job.plan = plan.id;
    job.lhs = device_memory(s, slow_side, slow_depth);
    job.rhs = device_memory(s, slow_depth, slow_side);
    job.out = device_memory(s, slow_side, slow_side);
    say("submits");
    must(commgemm_submit_on_stream(s->client, &job, s->stream, &ticket), "submit");
    memset(&done, 0, sizeof(done));
    must(commgemm_wait(s->client, ticket, WAIT_MS, &done), "wait");
    printf("%d the slow job: %s: %s; own context: %s\n", (int)getpid(),
           commgemm_status_name(done.status), done.detail, own_context());
    fflush(stdout);
    _exit(0);
}

int main(int argc, char **argv)
{
    if (argc != 3) {
        fprintf(stderr, "usage: %s spin|fault|slow|stay SOCKET\n", argv[0]);
        return 2;
    }
    signal(SIGTERM, on_term);
    struct session s = session_open(argv[2], argv[1]);
    struct commgemm_completion done;
    if (strcmp(argv[1], "stay") == 0)
        return stay(&s);
    if (strcmp(argv[1], "slow") == 0)
        return slow(&s);
    must(run_job(&s, &done), "an empty job");
    if (strcmp(argv[1], "spin") == 0) {
        must(gpu_process_spin(s.stream), "spin");
        say("runs a kernel");
        for (;;)
            pause();
    }
    must(gpu_process_write_nowhere(s.stream), "write_nowhere");
    say("faults");
    printf("%d own context: %s\n", (int)getpid(), own_context());
    fflush(stdout);
    _exit(0);
}
