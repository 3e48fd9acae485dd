/* Client streams on a real device, through daemon, executor and library: the order of streams, four
 * ranks on one GPU, deaths, and how long an empty job takes from client stream to client stream. */
#include "tests/gpu/stream_fixture.h"

#include "tests/send_signal.h"

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
        send_signal(round ? daemon->pid : executor_of(r->client), SIGKILL);
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
        cmocka_unit_test(test_the_dead_release_streams),
    };
    streams_init();
    if (argc > 2 && strcmp(argv[1], "--one-connection") == 0)
        return with_one_connection(argv[2]);
    return streams_have_device() ? cmocka_run_group_tests(tests, start_daemon, stop_daemon) : 77;
}
