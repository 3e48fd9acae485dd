#include "tests/fault/pair.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void pair_rank_connect(struct rank *r, const struct daemon *daemon, uint32_t rank)
{
    struct commgemm_connect_options options;
    memset(r, 0, sizeof(*r));
    r->rank = rank;
    commgemm_connect_options_init(&options);
    options.socket = daemon->socket;
    assert_int_equal(commgemm_connect(&options, &r->client), COMMGEMM_OK);
}

int pair_rank_try_plan(struct rank *r)
{
    struct commgemm_plan_options options;
    commgemm_plan_options_init(&options);
    options.comm = r->comm;
    options.op = COMMGEMM_OP_AG_GEMM;
    options.method = COMMGEMM_METHOD_RING_EXCHANGE;
    options.m = M;
    options.n = N;
    options.k = K;
    return commgemm_plan_create(r->client, &options, &r->plan);
}

void pair_rank_plan(struct rank *r)
{
    assert_int_equal(pair_rank_try_plan(r), COMMGEMM_OK);
}

void pair_rank_buffers(struct rank *r)
{
    char name[32];
    snprintf(name, sizeof(name), "in.%u", r->rank);
    assert_int_equal(
        commgemm_buffer_create(r->client, name, (LHS_FLOATS + RHS_FLOATS) * 4, -1, 0, 0, &r->in),
        COMMGEMM_OK);
    snprintf(name, sizeof(name), "out.%u", r->rank);
    assert_int_equal(commgemm_buffer_create(r->client, name, OUT_FLOATS * 4, -1, 0, 0, &r->out),
                     COMMGEMM_OK);
    assert_int_equal(buffer_view_open(r->client, &r->in, &r->in_view), COMMGEMM_OK);
    assert_int_equal(buffer_view_open(r->client, &r->out, &r->out_view), COMMGEMM_OK);
    r->inputs = r->in_view.memory;
    r->product = r->out_view.memory;
    for (uint32_t i = 0; i < LHS_FLOATS + RHS_FLOATS; i++)
        r->inputs[i] = (float)(rand() % 7 - 3);
    assert_int_equal(buffer_view_push(r->client, &r->in, &r->in_view), COMMGEMM_OK);
}

int pair_rank_submit(struct rank *r, uint64_t deadline_ms, uint64_t *ret_ticket)
{
    struct commgemm_job job;
    commgemm_job_init(&job);
    job.plan = r->plan.id;
    job.rank = r->rank;
    job.lhs = commgemm_operand_at(&r->in, 0);
    job.rhs = commgemm_operand_at(&r->in, LHS_FLOATS * 4);
    job.out = commgemm_operand_at(&r->out, 0);
    job.deadline_ms = deadline_ms;
    return commgemm_submit(r->client, &job, ret_ticket);
}

int pair_rank_wait(struct rank *r, uint64_t ticket, char *ret_detail, size_t size)
{
    struct commgemm_completion done;
    memset(&done, 0, sizeof(done));
    int status = commgemm_wait(r->client, ticket, WAIT_MS, &done);
    assert_true(status == COMMGEMM_OK || status == COMMGEMM_DAEMON_LOST);
    if (ret_detail)
        snprintf(ret_detail, size, "%s", done.detail);
    commgemm_completion_fini(&done);
    return done.status;
}

void pair_rank_close(struct rank *r)
{
    buffer_view_close(&r->in_view);
    buffer_view_close(&r->out_view);
    commgemm_disconnect(r->client);
}

void pair_rank_reopen(struct rank *r, const char *kind, struct commgemm_buffer *buffer)
{
    char name[32];
    snprintf(name, sizeof(name), "%s.%u", kind, r->rank);
    assert_int_equal(commgemm_buffer_open(r->client, name, 0, 0, buffer), COMMGEMM_OK);
}

void pair_rank_join(struct rank *r)
{
    assert_int_equal(commgemm_comm_join_simple(r->client, "pair", WORLD, r->rank, &r->comm),
                     COMMGEMM_OK);
}

static void *join(void *argument)
{
    pair_rank_join(argument);
    return NULL;
}

pid_t pair_executor_pid(const struct daemon *daemon)
{
    return (pid_t)daemon_status(daemon, "executor_pid");
}

void pair_await_executor(const struct pair *pair)
{
    for (uint32_t i = 0; i < WORLD; i++)
        assert_int_equal(commgemm_wait_executor(pair->rank[i].client, WAIT_MS), COMMGEMM_OK);
}

void pair_daemon_start(struct daemon *daemon, const char *setting, const char *another)
{
    daemon_init(daemon);
    daemon_start(daemon, test_backend_setting(), test_executor_setting(), test_devices_setting(),
                 setting, another, NULL);
}

void pair_join(struct pair *pair, const char *setting, const char *another)
{
    pthread_t threads[WORLD];
    pair_daemon_start(&pair->daemon, setting, another);
    for (uint32_t i = 0; i < WORLD; i++) {
        pair_rank_connect(&pair->rank[i], &pair->daemon, i);
        assert_int_equal(commgemm_wait_executor(pair->rank[i].client, WAIT_MS), COMMGEMM_OK);
        assert_int_equal(pthread_create(&threads[i], NULL, join, &pair->rank[i]), 0);
    }
    for (uint32_t i = 0; i < WORLD; i++)
        pthread_join(threads[i], NULL);
}

void pair_open(struct pair *pair, const char *setting)
{
    pair_join(pair, setting, NULL);
    for (uint32_t i = 0; i < WORLD; i++) {
        pair_rank_plan(&pair->rank[i]);
        pair_rank_buffers(&pair->rank[i]);
    }
}

void pair_close(struct pair *pair)
{
    for (uint32_t i = 0; i < WORLD; i++)
        pair_rank_close(&pair->rank[i]);
    if (pair->daemon.pid)
        daemon_stop(&pair->daemon);
}

static void check_product(const struct pair *pair, uint32_t rank)
{
    const struct rank *r = &pair->rank[rank];
    const float *rhs = r->inputs + LHS_FLOATS;
    for (uint32_t i = 0; i < M; i++) {
        const float *lhs = pair->rank[i / (M / WORLD)].inputs + i % (M / WORLD) * K;
        for (uint32_t j = 0; j < N / WORLD; j++) {
            float sum = 0;
            for (uint32_t k = 0; k < K; k++)
                sum += lhs[k] * rhs[k * (N / WORLD) + j];
            assert_true(r->product[i * (N / WORLD) + j] == sum);
        }
    }
}

void pair_run_once(struct pair *pair)
{
    uint64_t tickets[WORLD];
    for (uint32_t i = 0; i < WORLD; i++)
        assert_int_equal(pair_rank_submit(&pair->rank[i], 0, &tickets[i]), COMMGEMM_OK);
    for (uint32_t i = 0; i < WORLD; i++)
        assert_int_equal(pair_rank_wait(&pair->rank[i], tickets[i], NULL, 0), COMMGEMM_OK);
}

void pair_check_results(struct pair *pair)
{
    for (uint32_t i = 0; i < WORLD; i++) {
        struct rank *r = &pair->rank[i];
        assert_int_equal(buffer_view_pull(r->client, &r->out, &r->out_view), COMMGEMM_OK);
        check_product(pair, i);
    }
}

void pair_run(struct pair *pair)
{
    pair_run_once(pair);
    pair_check_results(pair);
}
