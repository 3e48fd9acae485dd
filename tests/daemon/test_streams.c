/* Jobs in streams through the real daemon and CPU executor; the streams are the fake driver's. */
#include "tests/daemon/broker_fixture.h"

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "commgemm.h"
#include "tests/send_signal.h"
#include "tests/unit/fake_cuda.h"

#define WORLD 2u
#define ROWS 8u
#define COLS 16u
#define SHARD (ROWS * COLS)
#define WAIT_MS (WAIT_S * 1000)

#define ok(call) status_must((call), #call)

static void status_must(int status, const char *call)
{
    if (status != COMMGEMM_OK)
        fail_msg("%s: %s: %s", call, commgemm_status_name(status), commgemm_last_error());
}

/* Both ranks of an all-gather in one session, a stream each. */
struct ranks {
    struct daemon daemon;
    commgemm_client *client;
    struct commgemm_plan plan;
    struct commgemm_buffer buffer[WORLD]; /* lhs, then out */
    float *memory[WORLD];
    void *stream[WORLD];
};

static void ranks_join(struct ranks *r)
{
    static const uint32_t all[WORLD] = {0, 1};
    struct commgemm_join_options join;
    struct commgemm_plan_options options;
    commgemm_join_options_init(&join);
    commgemm_plan_options_init(&options);
    join.name = "streams";
    join.create = 1;
    join.size = join.n_ranks = WORLD;
    join.ranks = all;
    ok(commgemm_comm_join(r->client, &join, &options.comm));
    options.op = COMMGEMM_OP_AG;
    options.m = WORLD * ROWS;
    options.n = options.k = COLS;
    ok(commgemm_plan_create(r->client, &options, &r->plan));
}

static void ranks_open(struct ranks *r)
{
    struct commgemm_connect_options options;
    setenv("COMMGEMM_LIBCUDA", FAKE_CUDA, 1);
    daemon_init(&r->daemon);
    daemon_start(&r->daemon, "backend=cpu", REAL_EXECUTOR, NULL);
    commgemm_connect_options_init(&options);
    options.socket = r->daemon.socket;
    options.ring_entries = 8;
    ok(commgemm_connect(&options, &r->client));
    ok(commgemm_wait_executor(r->client, WAIT_MS));
    ranks_join(r);
    for (uint32_t i = 0; i < WORLD; i++) {
        ok(commgemm_buffer_create(r->client, NULL, (1 + WORLD) * SHARD * 4, -1, 0, 0,
                                  &r->buffer[i]));
        ok(commgemm_buffer_map(r->client, &r->buffer[i], (void **)&r->memory[i]));
        r->stream[i] = fake_stream_new(fake_context(i), 0);
    }
}

static void ranks_close(struct ranks *r)
{
    for (uint32_t i = 0; i < WORLD; i++)
        assert_true(fake_stream_is_done(r->stream[i], WAIT_MS));
    commgemm_disconnect(r->client);
    for (uint32_t i = 0; i < WORLD; i++) {
        commgemm_buffer_unmap(r->memory[i], r->buffer[i].bytes);
        fake_stream_free(r->stream[i]);
    }
    assert_string_equal(fake_cuda_complaint(), "");
    assert_int_equal(fake_cuda_registered(), 0);
    daemon_stop(&r->daemon);
}

static int submit(struct ranks *r, uint32_t rank, uint64_t deadline_ms, uint64_t *ret_ticket)
{
    struct commgemm_job job;
    commgemm_job_init(&job);
    job.plan = r->plan.id;
    job.rank = rank;
    job.deadline_ms = deadline_ms;
    job.lhs = commgemm_operand_at(&r->buffer[rank], 0);
    job.out = commgemm_operand_at(&r->buffer[rank], SHARD * 4);
    return commgemm_submit_on_stream(r->client, &job, r->stream[rank], ret_ticket);
}

static int end_of(struct ranks *r, uint64_t ticket)
{
    struct commgemm_completion done;
    memset(&done, 0, sizeof(done));
    int status = commgemm_wait(r->client, ticket, WAIT_MS, &done);
    assert_true(status == COMMGEMM_OK || status == COMMGEMM_DAEMON_LOST);
    if (done.status != COMMGEMM_OK)
        print_message("%s\n", done.detail);
    return done.status;
}

static void run_round(struct ranks *r, unsigned round)
{
    uint64_t tickets[WORLD];
    unsigned late = round % 3; /* the rank whose stream is behind; 2: none */
    if (late < WORLD)
        fake_stream_hold(r->stream[late]);
    for (uint32_t i = 0; i < WORLD; i++) {
        for (uint32_t k = 0; k < SHARD; k++)
            r->memory[i][k] = late == i ? -1 : (float)(1000 * round + 100 * i + k);
        ok(submit(r, i, 0, &tickets[i]));
    }
    if (late < WORLD) {
        assert_false(fake_stream_is_done(r->stream[1 - late], 2));
        for (uint32_t k = 0; k < SHARD; k++)
            r->memory[late][k] = (float)(1000 * round + 100 * late + k);
        fake_stream_release(r->stream[late]);
    }
    for (uint32_t i = 0; i < WORLD; i++) {
        assert_true(fake_stream_is_done(r->stream[i], WAIT_MS));
        for (uint32_t k = 0; k < WORLD * SHARD; k++) {
            uint32_t from = k / SHARD;
            assert_true(r->memory[i][SHARD + k] == (float)(1000 * round + 100 * from + k % SHARD));
        }
        assert_int_equal(end_of(r, tickets[i]), COMMGEMM_OK);
    }
}

static void test_jobs_start_when_every_stream_has_come(void **state)
{
    struct ranks r;
    (void)state;
    ranks_open(&r);
    for (unsigned round = 0; round < 60; round++)
        run_round(&r, round);
    ranks_close(&r);
}

/* The job of the rank that came is cancelled with the one whose stream failed. */
static void test_a_stream_that_fails(void **state)
{
    struct ranks r;
    uint64_t ticket, other;
    (void)state;
    ranks_open(&r);
    for (unsigned i = 0; i < 20; i++) {
        ok(submit(&r, 0, 0, &other));
        fake_cuda_fail(i % 2 ? FAKE_WAIT : FAKE_WRITE, 719, 0);
        assert_int_equal(submit(&r, 1, 0, &ticket), COMMGEMM_INVALID_ARGUMENT);
        int status = end_of(&r, other);
        assert_true(status == COMMGEMM_CANCELLED || (i % 2 && status == COMMGEMM_OK));
        run_round(&r, i);
    }
    ranks_close(&r);
}

static void test_a_stream_that_comes_too_late(void **state)
{
    struct ranks r;
    uint64_t tickets[WORLD];
    (void)state;
    ranks_open(&r);
    for (unsigned i = 0; i < 3; i++) {
        fake_stream_hold(r.stream[1]);
        ok(submit(&r, 0, 0, &tickets[0]));
        ok(submit(&r, 1, 0, &tickets[1]));
        while (fake_stream_length(r.stream[0]) > 1) /* it has come, and waits */
            usleep(100);
        ok(commgemm_cancel(r.client, tickets[0]));
        assert_int_equal(end_of(&r, tickets[0]), COMMGEMM_CANCELLED);
        assert_int_equal(end_of(&r, tickets[1]), COMMGEMM_CANCELLED);
        assert_true(fake_stream_is_done(r.stream[0], WAIT_MS));
        assert_true(isnan(r.memory[0][SHARD]));
        fake_stream_release(r.stream[1]);
        run_round(&r, 2);
    }
    ranks_close(&r);
}

static pid_t executor_of(commgemm_client *client)
{
    char *json;
    ok(commgemm_query(client, "status", &json));
    const char *at = strstr(json, "\"executor_pid\":");
    assert_non_null(at);
    pid_t pid = (pid_t)atoi(at + strlen("\"executor_pid\":"));
    free(json);
    assert_true(pid > 1);
    return pid;
}

/* The executor has taken the job from the ring. */
static void wait_until_known(commgemm_client *client)
{
    bool known = false;
    while (!known) {
        char *json;
        ok(commgemm_query(client, "jobs", &json));
        known = strstr(json, "\"ticket\"") != NULL;
        free(json);
    }
}

static void test_the_dead_release_streams(void **state)
{
    struct ranks r;
    uint64_t ticket;
    (void)state;
    ranks_open(&r);
    ok(submit(&r, 0, 0, &ticket));
    wait_until_known(r.client);
    send_signal(executor_of(r.client), SIGKILL);
    assert_true(fake_stream_is_done(r.stream[0], WAIT_MS));
    assert_int_equal(end_of(&r, ticket), COMMGEMM_EXECUTOR_LOST);
    ok(commgemm_wait_executor(r.client, WAIT_MS));
    ok(submit(&r, 0, 0, &ticket));
    usleep(20000);
    send_signal(r.daemon.pid, SIGKILL);
    assert_true(fake_stream_is_done(r.stream[0], WAIT_MS));
    assert_int_equal(end_of(&r, ticket), COMMGEMM_DAEMON_LOST);
    assert_int_equal(daemon_wait(&r.daemon), 1000 + SIGKILL);
    unlink(r.daemon.socket);
    ranks_close(&r);
}

/* The executor knows its devices by UUID; the client's numbers mean nothing to it. */
static void test_memory_of_another_device(void **state)
{
    const struct fake_memory memory = {
        .base = 1ull << 40, .bytes = 4096, .memory_type = 2, .ipc_capable = true};
    struct commgemm_operand operand;
    struct ranks r;
    (void)state;
    ranks_open(&r);
    fake_memory_add(&memory);
    assert_int_equal(commgemm_import_pointer(r.client, memory.base, 64, &operand),
                     COMMGEMM_INVALID_ARGUMENT);
    print_message("%s\n", commgemm_last_error());
    assert_non_null(strstr(commgemm_last_error(), "GPU-abababab-abab-abab-abab-ababababab00"));
    assert_non_null(strstr(commgemm_last_error(), "cpu executor"));
    ranks_close(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_jobs_start_when_every_stream_has_come),
        cmocka_unit_test(test_a_stream_that_fails),
        cmocka_unit_test(test_a_stream_that_comes_too_late),
        cmocka_unit_test(test_memory_of_another_device),
        cmocka_unit_test(test_the_dead_release_streams),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
