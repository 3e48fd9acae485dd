#include <commgemm.h>
#include <stdio.h>
#include <stdlib.h>

static void check(int status)
{
    if (status == COMMGEMM_OK)
        return;
    fprintf(stderr, "%s: %s\n", commgemm_strerror(status), commgemm_last_error());
    exit(1);
}

static float *matrix(commgemm_client *client, int size, float value, struct commgemm_operand *ret)
{
    struct commgemm_buffer buffer;
    void *address;
    check(commgemm_buffer_create(client, NULL, size * sizeof(float), -1, 0, 0, &buffer));
    check(commgemm_buffer_map(client, &buffer, &address));
    for (int i = 0; i < size; i++)
        ((float *)address)[i] = value;
    *ret = commgemm_operand_at(&buffer, 0);
    return address;
}

int main(void)
{
    commgemm_client *client;
    struct commgemm_plan_options options;
    struct commgemm_plan plan;
    struct commgemm_job job;
    struct commgemm_completion done;
    uint64_t ticket;
    check(commgemm_connect(NULL, &client));
    commgemm_plan_options_init(&options);
    options.op = COMMGEMM_OP_GEMM;
    options.m = 64, options.n = 32, options.k = 48;
    check(commgemm_comm_join_simple(client, "hello", 1, 0, &options.comm));
    check(commgemm_plan_create(client, &options, &plan));
    commgemm_job_init(&job);
    job.plan = plan.id;
    matrix(client, 64 * 48, 0.5f, &job.lhs);
    matrix(client, 48 * 32, 2.0f, &job.rhs);
    const float *out = matrix(client, 64 * 32, 0.0f, &job.out);
    check(commgemm_submit(client, &job, &ticket));
    check(commgemm_wait(client, ticket, -1, &done));
    printf("%s %s; out[0][0] = %g\n", commgemm_strerror(done.status), done.detail, out[0]);
    commgemm_disconnect(client);
    return done.status != COMMGEMM_OK || out[0] != 48;
}
