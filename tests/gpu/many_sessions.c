/* many_sessions COUNT: sessions one after the other, each with a comm, an imported memfd, a plan
 * and one right job on it. The daemon is the one of $COMMGEMM_SOCKET. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "commgemm.h"

enum { M = 32, N = 32, K = 32, BYTES = 1 << 16, RHS_AT = 1 << 14, OUT_AT = 1 << 15 };

static int die(const char *what)
{
    fprintf(stderr, "many_sessions: %s: %s\n", what, commgemm_last_error());
    return 1;
}

static int import(commgemm_client *client, float *memory, int fd, struct commgemm_operand *ret_all)
{
    struct commgemm_segment segment = {.kind = COMMGEMM_SEGMENT_FD, .fd = fd, .length = BYTES};
    for (int i = 0; i < BYTES / 4; i++)
        memory[i] = (float)(rand() % 7 - 3);
    *ret_all = (struct commgemm_operand){0};
    return commgemm_import(client, &segment, 1, 0, 0, &ret_all->id, &ret_all->generation);
}

static int product_is_right(const float *memory)
{
    const float *lhs = memory, *rhs = memory + RHS_AT / 4, *out = memory + OUT_AT / 4;
    for (int i = 0; i < M; i++)
        for (int j = 0; j < N; j++) {
            float sum = 0;
            for (int k = 0; k < K; k++)
                sum += lhs[i * K + k] * rhs[k * N + j];
            if (out[i * N + j] != sum)
                return 0;
        }
    return 1;
}

static int run_job(commgemm_client *client, uint64_t plan, const struct commgemm_operand *all)
{
    struct commgemm_job job;
    struct commgemm_completion done;
    uint64_t ticket;
    commgemm_job_init(&job);
    job.plan = plan;
    job.lhs = job.rhs = job.out = *all;
    job.rhs.offset_bytes = RHS_AT;
    job.out.offset_bytes = OUT_AT;
    if (commgemm_submit(client, &job, &ticket) || commgemm_wait(client, ticket, 60000, &done))
        return die("job");
    if (done.status)
        fprintf(stderr, "many_sessions: job: %s: %s\n", commgemm_strerror(done.status),
                done.detail);
    return done.status != COMMGEMM_OK;
}

static int session(float *memory, int fd)
{
    commgemm_client *client;
    struct commgemm_plan_options options;
    struct commgemm_plan plan;
    struct commgemm_operand all;
    commgemm_plan_options_init(&options);
    options.op = COMMGEMM_OP_GEMM;
    options.m = M;
    options.n = N;
    options.k = K;
    if (commgemm_connect(NULL, &client))
        return die("connect");
    if (import(client, memory, fd, &all))
        return die("import");
    if (commgemm_comm_join_simple(client, "alone", 1, 0, &options.comm) ||
        commgemm_plan_create(client, &options, &plan))
        return die("plan");
    if (run_job(client, plan.id, &all))
        return 1;
    commgemm_disconnect(client);
    if (product_is_right(memory))
        return 0;
    fprintf(stderr, "many_sessions: the product is wrong\n");
    return 1;
}

int main(int argc, char **argv)
{
    int count = argc > 1 ? atoi(argv[1]) : 10;
    int fd = memfd_create("sessions", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (ftruncate(fd, BYTES) || fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK))
        return perror("memfd"), 1;
    float *memory = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    for (int i = 0; i < count; i++)
        if (session(memory, fd))
            return 1;
    printf("%d sessions\n", count);
    return 0;
}
