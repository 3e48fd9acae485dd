#include <commgemm.h>
#include <stdio.h>

enum { M = 64, N = 32, K = 48, FLOATS = M * K + K * N + M * N };

int main(void)
{
    commgemm_client *client;
    struct commgemm_plan_options options;
    struct commgemm_plan plan;
    struct commgemm_buffer buffer;
    struct commgemm_job job;
    struct commgemm_completion done;
    uint64_t ticket;
    void *memory;

    commgemm_plan_options_init(&options);
    options.op = COMMGEMM_OP_GEMM, options.m = M, options.n = N, options.k = K;
    if (commgemm_connect(NULL, &client) ||
        commgemm_comm_join_simple(client, "hello", 1, 0, &options.comm) ||
        commgemm_plan_create(client, &options, &plan) ||
        commgemm_buffer_create(client, NULL, FLOATS * sizeof(float), -1, 0, 0, &buffer) ||
        commgemm_buffer_map(client, &buffer, &memory))
        return fprintf(stderr, "%s\n", commgemm_last_error()), 1;

    float *lhs = memory, *rhs = lhs + M * K, *out = rhs + K * N;
    for (int i = 0; i < M * K + K * N; i++)
        lhs[i] = 0.5f;
    commgemm_job_init(&job);
    job.plan = plan.id;
    job.lhs = commgemm_operand_at(&buffer, 0);
    job.rhs = commgemm_operand_at(&buffer, M * K * sizeof(float));
    job.out = commgemm_operand_at(&buffer, (M * K + K * N) * sizeof(float));
    if (commgemm_submit(client, &job, &ticket) || commgemm_wait(client, ticket, -1, &done))
        return fprintf(stderr, "%s\n", commgemm_last_error()), 1;
    printf("out[0][0] = %g: %s %s\n", out[0], commgemm_strerror(done.status), done.detail);
    int right = done.status == COMMGEMM_OK && out[0] == 12;
    commgemm_disconnect(client); /* the buffer, which has no name, ends with the session */
    return !right;
}
