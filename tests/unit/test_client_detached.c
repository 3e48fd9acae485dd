/* Detached jobs, over a fake driver: nobody reaps them, and their failures are kept. */
#include "tests/unit/stream_fixture.h"

#include <stdatomic.h>

static void submit_detached(struct streams *s, int on_stream, uint64_t deadline_ms)
{
    struct commgemm_job job = noop(deadline_ms, 1);
    uint64_t ticket;
    int status;
    while ((status = on_stream ? commgemm_submit_on_stream(s->f.client, &job, s->stream, &ticket)
                               : commgemm_submit(s->f.client, &job, &ticket)) == COMMGEMM_RING_FULL)
        assert_ok(commgemm_wait_detached(s->f.client, 4, BOUND_MS));
    assert_ok(status);
}

static void reconnect(struct streams *s, int no_ring)
{
    commgemm_disconnect(s->f.client);
    s->f.options.no_ring = no_ring;
    assert_ok(commgemm_connect(&s->f.options, &s->f.client));
}

static void run_detached(int no_ring, int on_stream)
{
    struct streams s;
    struct commgemm_completion first;
    uint64_t count;
    streams_open(&s, &(struct fake_options){.shuffle = !no_ring}, 8, 0);
    reconnect(&s, no_ring);
    for (int i = 0; i < 2000; i++)
        submit_detached(&s, on_stream, 0);
    assert_ok(commgemm_wait_detached(s.f.client, 0, BOUND_MS));
    assert_ok(commgemm_detached_failures(s.f.client, &first, &count));
    assert_int_equal(count, 0);
    assert_int_equal(first.ticket, 0);
    assert_ok(commgemm_reap(s.f.client, &first, 1, (uint32_t *)&count));
    streams_close(&s);
}

static void test_detached_jobs_need_nobody(void **state)
{
    (void)state;
    run_detached(0, 0);
    run_detached(0, 1);
    run_detached(1, 0);
}

static void test_failures_of_detached_jobs_are_kept(void **state)
{
    struct streams s;
    struct commgemm_completion first;
    uint64_t count;
    struct commgemm_plan plan;
    struct commgemm_job job;
    (void)state;
    streams_open(&s, NULL, 8, 0);
    plan_make(s.f.client, comm_make(s.f.client), COMMGEMM_OP_AG_GEMM, 8192, &plan);
    commgemm_job_init(&job);
    job.plan = plan.id;
    job.rank = 1;
    job.detached = 1;
    uint64_t tickets[3];
    for (int i = 0; i < 3; i++) {
        job.rows = i ? FAKE_FAIL_ROWS : 0;
        assert_ok(commgemm_submit_on_stream(s.f.client, &job, s.stream, &tickets[i]));
    }
    assert_ok(commgemm_wait_detached(s.f.client, 0, BOUND_MS));
    assert_ok(commgemm_detached_failures(s.f.client, &first, &count));
    assert_int_equal(count, 2);
    assert_int_equal(first.status, COMMGEMM_MISMATCH);
    assert_true(first.ticket == tickets[1] || first.ticket == tickets[2]);
    assert_int_equal(first.plan, plan.id);
    assert_string_equal(first.detail, "rows are 4242");
    assert_ok(commgemm_detached_failures(s.f.client, NULL, &count));
    assert_int_equal(count, 0);
    assert_status(commgemm_wait(s.f.client, tickets[0], -1, NULL), COMMGEMM_NOT_FOUND);
    streams_close(&s);
}

static void test_waiting_for_detached_jobs(void **state)
{
    struct streams s;
    uint64_t count, ticket;
    (void)state;
    streams_open(&s, NULL, 8, 0);
    for (int i = 0; i < 3; i++)
        submit_detached(&s, 1, FAKE_HOLD_MS);
    assert_refused(commgemm_wait_detached(s.f.client, 2, 10), COMMGEMM_TIMEOUT, "3 detached jobs");
    assert_ok(commgemm_wait_detached(s.f.client, 3, 0));
    assert_ok(submit(&s, s.stream, FAKE_HOLD_MS, 1, &ticket));
    assert_status(commgemm_wait(s.f.client, ticket, 5, NULL), COMMGEMM_TIMEOUT);
    fake_kill_executor(s.f.fake);
    assert_ok(commgemm_wait_detached(s.f.client, 0, BOUND_MS));
    assert_ok(commgemm_detached_failures(s.f.client, NULL, &count));
    assert_int_equal(count, 4);
    streams_close(&s);
}

/* They have ended, but not well, and none will come. */
static void test_waiting_for_those_of_a_daemon_that_goes(void **state)
{
    struct streams s;
    (void)state;
    streams_open(&s, NULL, 8, 0);
    submit_detached(&s, 1, FAKE_HOLD_MS);
    fake_end_sessions(s.f.fake);
    assert_refused(commgemm_wait_detached(s.f.client, 0, BOUND_MS), COMMGEMM_DAEMON_LOST, "closed");
    streams_close(&s);
}

/* Some that are left may be older than what ends. */
static void test_waiting_for_some_of_them(void **state)
{
    struct streams s;
    (void)state;
    streams_open(&s, NULL, 8, 0);
    submit_detached(&s, 1, FAKE_HOLD_MS);
    submit_detached(&s, 0, 0);
    assert_refused(commgemm_wait_detached(NULL, 1, 0), COMMGEMM_INVALID_ARGUMENT, "client is NULL");
    assert_ok(commgemm_wait_detached(s.f.client, 1, BOUND_MS));
    assert_string_equal(commgemm_last_error(), "client is NULL"); /* the last that has failed */
    fake_kill_executor(s.f.fake);
    assert_ok(commgemm_wait_detached(s.f.client, 0, BOUND_MS));
    streams_close(&s);
}

static void *wait_for_all(void *argument)
{
    return (void *)(intptr_t)commgemm_wait_detached(argument, 0, BOUND_MS);
}

/* Also when it is the one that a thread waits for. */
static void test_the_first_failure_is_kept(void **state)
{
    struct streams s;
    struct commgemm_completion first;
    struct commgemm_job job = noop(FAKE_HOLD_MS, 1);
    uint64_t tickets[3], count;
    pthread_t thread;
    void *status;
    (void)state;
    streams_open(&s, NULL, 8, 0);
    for (int i = 0; i < 3; i++)
        assert_ok(commgemm_submit(s.f.client, &job, &tickets[i]));
    assert_int_equal(pthread_create(&thread, NULL, wait_for_all, s.f.client), 0);
    usleep(50000);
    fake_kill_executor(s.f.fake); /* they end in the order of their tickets */
    pthread_join(thread, &status);
    assert_int_equal((intptr_t)status, COMMGEMM_OK);
    assert_ok(commgemm_detached_failures(s.f.client, &first, &count));
    assert_int_equal(count, 3);
    assert_int_equal(first.ticket, tickets[0]);
    streams_close(&s);
}

/* However little time there is: it was too little only if more than those are left. */
static void test_waiting_a_little_for_some_of_them(void **state)
{
    struct streams s;
    unsigned late = 0;
    (void)state;
    streams_open(&s, NULL, 8, 0);
    submit_detached(&s, 1, FAKE_HOLD_MS);
    for (int i = 0; i < 200; i++) {
        submit_detached(&s, 0, 0);
        int status = commgemm_wait_detached(s.f.client, 1, 4);
        late += status != COMMGEMM_OK;
        if (status != COMMGEMM_OK)
            assert_non_null(strstr(commgemm_last_error(), "2 detached jobs"));
        assert_ok(commgemm_wait_detached(s.f.client, 1, BOUND_MS));
    }
    print_message("late %u times\n", late);
    fake_kill_executor(s.f.fake);
    streams_close(&s);
}

/* Also of those that are found to have ended by the thread that begins to wait for them. */
static void test_their_places_come_back(void **state)
{
    struct streams s;
    (void)state;
    streams_open(&s, NULL, 4, 0);
    for (int i = 0; i < 12; i++) {
        struct commgemm_job job = noop(0, 1);
        uint64_t ticket;
        assert_ok(commgemm_submit(s.f.client, &job, &ticket));
        usleep(20000);
        assert_status(commgemm_wait(s.f.client, ticket, 0, NULL), COMMGEMM_NOT_FOUND);
    }
    streams_close(&s);
}

static atomic_bool waiting_is_over;

static void *wait_for_none(void *client)
{
    int status = COMMGEMM_OK;
    while (status == COMMGEMM_OK && !atomic_load(&waiting_is_over))
        status = commgemm_wait_detached(client, 0, BOUND_MS);
    return (void *)(intptr_t)status;
}

/* What the daemon refuses was nobody's to wait for. */
static void test_those_that_are_refused(void **state)
{
    struct streams s;
    struct commgemm_plan plan;
    struct commgemm_job job;
    pthread_t thread;
    uint64_t ticket;
    void *status;
    (void)state;
    streams_open(&s, NULL, 8, 0);
    reconnect(&s, 1);
    plan_make(s.f.client, comm_make(s.f.client), COMMGEMM_OP_AG_GEMM, 8192, &plan);
    commgemm_job_init(&job);
    job.plan = plan.id;
    job.detached = 1;
    job.rows = FAKE_REFUSE_ROWS;
    pthread_create(&thread, NULL, wait_for_none, s.f.client);
    for (int i = 0; i < 2000; i++)
        assert_status(commgemm_submit(s.f.client, &job, &ticket), COMMGEMM_DRAINING);
    atomic_store(&waiting_is_over, true);
    pthread_join(thread, &status);
    assert_status((int)(intptr_t)status, COMMGEMM_OK);
    streams_close(&s);
}

/* However many threads wait for it, each finds it told, and its place free. */
static void check_beside_others_who_wait(int no_ring)
{
    struct streams s;
    struct commgemm_plan plan;
    struct commgemm_job job;
    pthread_t threads[2];
    uint64_t ticket, count;
    streams_open(&s, NULL, 4, 0);
    reconnect(&s, no_ring);
    plan_make(s.f.client, comm_make(s.f.client), COMMGEMM_OP_AG_GEMM, 8192, &plan);
    commgemm_job_init(&job);
    job.plan = plan.id;
    job.detached = 1;
    job.rows = FAKE_FAIL_ROWS;
    atomic_store(&waiting_is_over, false);
    for (int i = 0; i < 2; i++)
        pthread_create(&threads[i], NULL, wait_for_none, s.f.client);
    for (int round = 0; round < 1000; round++) {
        for (int i = 0; i < 4; i++)
            assert_ok(commgemm_submit(s.f.client, &job, &ticket));
        assert_ok(commgemm_wait_detached(s.f.client, 0, BOUND_MS));
        assert_ok(commgemm_detached_failures(s.f.client, NULL, &count));
        assert_int_equal(count, 4);
    }
    atomic_store(&waiting_is_over, true);
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    streams_close(&s);
}

static void test_beside_others_who_wait(void **state)
{
    (void)state;
    check_beside_others_who_wait(0);
    check_beside_others_who_wait(1);
}

struct pair {
    struct streams s;
    pthread_barrier_t begin, end;
    bool is_over;
};

static void spin_a_little(unsigned *seed)
{
    for (volatile int i = rand_r(seed) % 20000; i > 0; i--)
        continue;
}

static bool pair_begin(struct pair *pair)
{
    pthread_barrier_wait(&pair->begin);
    return !pair->is_over;
}

static void *submit_and_wait(void *argument)
{
    struct pair *pair = argument;
    struct commgemm_job job = noop(0, 1);
    uint64_t ticket;
    while (pair_begin(pair)) {
        if (commgemm_submit(pair->s.f.client, &job, &ticket) == COMMGEMM_OK)
            commgemm_wait(pair->s.f.client, ticket, BOUND_MS, NULL);
        pthread_barrier_wait(&pair->end);
    }
    return NULL;
}

static void *only_submit(void *argument)
{
    struct pair *pair = argument;
    struct commgemm_job job = noop(0, 1);
    unsigned seed = 1;
    uint64_t ticket;
    while (pair_begin(pair)) {
        spin_a_little(&seed);
        commgemm_submit(pair->s.f.client, &job, &ticket);
        pthread_barrier_wait(&pair->end);
    }
    return NULL;
}

/* Beside a thread that waits for its own, and one that submits before that takes it. */
static void test_beside_one_who_waits_for_his_own(void **state)
{
    struct pair pair = {.is_over = false};
    pthread_t threads[2];
    unsigned seed = 2;
    (void)state;
    streams_open(&pair.s, NULL, 8, 0);
    pthread_barrier_init(&pair.begin, NULL, 3);
    pthread_barrier_init(&pair.end, NULL, 3);
    pthread_create(&threads[0], NULL, submit_and_wait, &pair);
    pthread_create(&threads[1], NULL, only_submit, &pair);
    for (int round = 0; round < 10000; round++) {
        pthread_barrier_wait(&pair.begin);
        spin_a_little(&seed);
        assert_ok(commgemm_wait_detached(pair.s.f.client, 0, 5000));
        pthread_barrier_wait(&pair.end);
    }
    pair.is_over = true;
    pthread_barrier_wait(&pair.begin);
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    pthread_barrier_destroy(&pair.begin);
    pthread_barrier_destroy(&pair.end);
    streams_close(&pair.s);
}

/* ---- many threads -----------------------------------------------------------------------------
 */

#define THREADS 6
#define JOBS 300

struct worker {
    struct streams *s;
    void *stream, *context;
    unsigned seed;
    pthread_t thread;
};

static atomic_uint running;
static atomic_bool broken;

static bool is_expected(int status)
{
    return status == COMMGEMM_OK || status == COMMGEMM_EXECUTOR_LOST ||
           status == COMMGEMM_NO_EXECUTOR || status == COMMGEMM_RING_FULL;
}

static void work_once(struct worker *worker)
{
    commgemm_client *client = worker->s->f.client;
    int detached = rand_r(&worker->seed) % 2;
    struct commgemm_completion done;
    uint64_t ticket;
    int status = submit(worker->s, worker->stream, 0, detached, &ticket);
    if (!is_expected(status))
        atomic_store(&broken, true);
    if (status == COMMGEMM_RING_FULL)
        commgemm_wait_detached(client, 4, BOUND_MS);
    if (status == COMMGEMM_EXECUTOR_LOST || status == COMMGEMM_NO_EXECUTOR)
        commgemm_wait_executor(client, BOUND_MS);
    if (status != COMMGEMM_OK || detached)
        return;
    if (rand_r(&worker->seed) % 4 == 0)
        commgemm_cancel(client, ticket);
    if (commgemm_wait(client, ticket, BOUND_MS, &done) != COMMGEMM_OK)
        atomic_store(&broken, true);
}

static void *work(void *argument)
{
    struct worker *worker = argument;
    fake_context_set(worker->context);
    for (int i = 0; i < JOBS && !broken; i++)
        work_once(worker);
    atomic_fetch_sub(&running, 1);
    return NULL;
}

static void test_many_threads_and_dying_executors(void **state)
{
    struct streams s;
    struct worker workers[THREADS];
    (void)state;
    streams_open(&s, &(struct fake_options){.shuffle = true}, 16, 0);
    atomic_store(&running, THREADS);
    for (unsigned i = 0; i < THREADS; i++) {
        workers[i] = (struct worker){.s = &s, .seed = (unsigned)rand()};
        workers[i].context = i % 2 ? fake_context(i % 3) : NULL;
        workers[i].stream = fake_stream_new(fake_context(i % 3), 6);
        assert_int_equal(pthread_create(&workers[i].thread, NULL, work, &workers[i]), 0);
    }
    for (int deaths = 0; atomic_load(&running) > 0 && deaths < 20; deaths++) {
        usleep((unsigned)rand() % 20000);
        fake_kill_executor(s.f.fake);
        usleep((unsigned)rand() % 1000);
        fake_start_executor(s.f.fake);
    }
    for (unsigned i = 0; i < THREADS; i++)
        pthread_join(workers[i].thread, NULL);
    assert_false(broken);
    assert_ok(commgemm_wait_executor(s.f.client, BOUND_MS));
    assert_ok(commgemm_wait_detached(s.f.client, 0, BOUND_MS));
    for (unsigned i = 0; i < THREADS; i++)
        assert_released(workers[i].stream);
    streams_close(&s);
    for (unsigned i = 0; i < THREADS; i++)
        fake_stream_free(workers[i].stream);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_detached_jobs_need_nobody),
        cmocka_unit_test(test_failures_of_detached_jobs_are_kept),
        cmocka_unit_test(test_waiting_for_detached_jobs),
        cmocka_unit_test(test_waiting_for_those_of_a_daemon_that_goes),
        cmocka_unit_test(test_waiting_for_some_of_them),
        cmocka_unit_test(test_the_first_failure_is_kept),
        cmocka_unit_test(test_waiting_a_little_for_some_of_them),
        cmocka_unit_test(test_their_places_come_back),
        cmocka_unit_test(test_those_that_are_refused),
        cmocka_unit_test(test_beside_others_who_wait),
        cmocka_unit_test(test_beside_one_who_waits_for_his_own),
        cmocka_unit_test(test_many_threads_and_dying_executors),
    };
    seed_random();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
