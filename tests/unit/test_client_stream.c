/* Jobs in the order of streams, over a fake driver: order, failures, deaths, slots, detached jobs.
 */
#include "tests/unit/client_fixture.h"

#include <stdatomic.h>

#include "tests/unit/fake_cuda.h"

#define BOUND_MS 60000

/* Both words' registration, and a stream of context 0. */
struct streams {
    struct fixture f;
    void *stream;
};

static void streams_open(struct streams *s, const struct fake_options *fake, uint32_t entries,
                         unsigned depth)
{
    fake_context_set(fake_context(1));
    fixture_open(&s->f, fake, entries, 0, 20000);
    s->stream = fake_stream_new(fake_context(0), depth);
}

static void streams_close(struct streams *s)
{
    fixture_close(&s->f);
    fake_stream_free(s->stream);
    assert_string_equal(fake_cuda_complaint(), "");
    assert_int_equal(fake_cuda_registered(), 0);
    fake_context_set(NULL);
}

static struct commgemm_job noop(uint64_t deadline_ms, int detached)
{
    struct commgemm_job job;
    commgemm_job_init(&job);
    job.kind = COMMGEMM_JOB_NOOP;
    job.deadline_ms = deadline_ms;
    job.detached = detached;
    return job;
}

static int submit(struct streams *s, void *stream, uint64_t deadline_ms, int detached,
                  uint64_t *ret_ticket)
{
    struct commgemm_job job = noop(deadline_ms, detached);
    return commgemm_submit_on_stream(s->f.client, &job, stream, ret_ticket);
}

static uint64_t submit_ok(struct streams *s, void *stream, uint64_t deadline_ms)
{
    uint64_t ticket = 0;
    assert_ok(submit(s, stream, deadline_ms, 0, &ticket));
    return ticket;
}

static int status_of(struct streams *s, uint64_t ticket)
{
    struct commgemm_completion done;
    int status = commgemm_wait(s->f.client, ticket, BOUND_MS, &done);
    assert_true(status == COMMGEMM_OK || status == COMMGEMM_DAEMON_LOST);
    return done.status;
}

static void assert_released(void *stream)
{
    assert_true(fake_stream_is_done(stream, BOUND_MS));
}

/* ---- what is refused --------------------------------------------------------------------------
 */

static void test_without_a_driver(void **state)
{
    struct fixture f;
    struct commgemm_job job = noop(0, 0);
    struct commgemm_operand operand;
    uint64_t ticket;
    (void)state;
    setenv("COMMGEMM_LIBCUDA", "libnosuchcuda.so.1", 1);
    fixture_open(&f, NULL, 4, 0, 0);
    assert_refused(commgemm_submit_on_stream(f.client, &job, NULL, &ticket), COMMGEMM_NOT_SUPPORTED,
                   "no CUDA driver");
    assert_refused(commgemm_import_pointer(f.client, 4096, 1, &operand), COMMGEMM_NOT_SUPPORTED,
                   "libnosuchcuda.so.1");
    setenv("COMMGEMM_LIBCUDA", "libm.so.6", 1);
    assert_refused(commgemm_submit_on_stream(f.client, &job, NULL, &ticket), COMMGEMM_NOT_SUPPORTED,
                   "has no cuGetErrorName");
    assert_ok(commgemm_wait(f.client, submit_noop(f.client, 0), -1, NULL));
    fixture_close(&f);
    setenv("COMMGEMM_LIBCUDA", FAKE_CUDA, 1);
}

static void test_wrong_streams(void **state)
{
    struct streams s;
    struct fixture f;
    struct commgemm_job job = noop(0, 0);
    uint64_t ticket;
    (void)state;
    streams_open(&s, NULL, 4, 0);
    fake_stream_capture(s.stream, true);
    assert_refused(submit(&s, s.stream, 0, 0, &ticket), COMMGEMM_NOT_SUPPORTED, "captured");
    fake_stream_capture(s.stream, false);
    fake_context_set(NULL);
    assert_refused(submit(&s, NULL, 0, 0, &ticket), COMMGEMM_INVALID_ARGUMENT, "no CUDA context");
    void *unable = fake_stream_new(fake_context(7), 0);
    assert_refused(submit(&s, unable, 0, 0, &ticket), COMMGEMM_NOT_SUPPORTED, "device 7");
    fake_cuda_fail(FAKE_REGISTER, 2, 0);
    assert_refused(submit(&s, s.stream, 0, 0, &ticket), COMMGEMM_NO_MEMORY, "locked memory");
    fixture_open(&f, NULL, 4, 1, 0);
    assert_refused(commgemm_submit_on_stream(f.client, &job, s.stream, &ticket),
                   COMMGEMM_NOT_SUPPORTED, "no_ring");
    fixture_close(&f);
    job.detached = job.want_phases = 1;
    assert_refused(commgemm_submit_on_stream(s.f.client, &job, s.stream, &ticket),
                   COMMGEMM_INVALID_ARGUMENT, "want_phases");
    assert_int_equal(status_of(&s, submit_ok(&s, s.stream, 0)), COMMGEMM_OK);
    fake_stream_free(unable);
    streams_close(&s);
}

/* ---- order ------------------------------------------------------------------------------------
 */

static void test_jobs_keep_the_stream_s_order(void **state)
{
    struct streams s;
    (void)state;
    streams_open(&s, NULL, 4, 0);
    for (int i = 0; i < 500; i++)
        assert_int_equal(status_of(&s, submit_ok(&s, s.stream, 0)), COMMGEMM_OK);
    fake_stream_hold(s.stream);
    uint64_t ticket = submit_ok(&s, s.stream, 0);
    assert_status(commgemm_wait(s.f.client, ticket, 20, NULL), COMMGEMM_TIMEOUT);
    fake_stream_release(s.stream);
    assert_int_equal(status_of(&s, ticket), COMMGEMM_OK);
    ticket = submit_ok(&s, s.stream, FAKE_HOLD_MS);
    assert_false(fake_stream_is_done(s.stream, 20));
    fake_release(s.f.fake);
    assert_released(s.stream);
    assert_int_equal(status_of(&s, ticket), COMMGEMM_OK);
    streams_close(&s);
}

/* The job of one stream waits; those of others and of no stream go past. */
static void test_streams_do_not_wait_for_each_other(void **state)
{
    struct streams s;
    (void)state;
    streams_open(&s, NULL, 8, 0);
    void *other = fake_stream_new(fake_context(2), 0);
    fake_stream_hold(s.stream);
    uint64_t late = submit_ok(&s, s.stream, 0);
    for (int i = 0; i < 100; i++) {
        assert_int_equal(status_of(&s, submit_ok(&s, other, 0)), COMMGEMM_OK);
        assert_int_equal(status_of(&s, submit_noop(s.f.client, 0)), COMMGEMM_OK);
    }
    fake_stream_release(s.stream);
    assert_int_equal(status_of(&s, late), COMMGEMM_OK);
    streams_close(&s);
    fake_stream_free(other);
}

/* One queue for all streams: a wait holds up whatever was put in behind it. */
static void test_streams_that_share_a_queue(void **state)
{
    struct streams s;
    struct fixture other;
    struct commgemm_job job = noop(0, 0);
    (void)state;
    streams_open(&s, NULL, 8, 0);
    fixture_open(&other, NULL, 8, 0, 20000);
    for (int i = 0; i < 50; i++) {
        struct commgemm_stream_job jobs[] = {
            {.client = s.f.client, .job = &job, .stream = s.stream},
            {.client = other.client, .job = &job, .stream = s.stream},
            {.client = s.f.client, .job = &job, .stream = s.stream},
        };
        job.deadline_ms = i % 2 ? FAKE_HOLD_MS : 0;
        assert_ok(commgemm_submit_on_streams(jobs, 3));
        while (!fake_stream_is_done(s.stream, 1)) {
            fake_release(s.f.fake);
            fake_release(other.fake);
        }
        assert_int_equal(jobs[2].ticket, jobs[0].ticket + 1);
        assert_int_equal(status_of(&s, jobs[0].ticket), COMMGEMM_OK);
        assert_int_equal(status_of(&s, jobs[2].ticket), COMMGEMM_OK);
        assert_ok(commgemm_wait(other.client, jobs[1].ticket, BOUND_MS, NULL));
    }
    fixture_close(&other);
    streams_close(&s);
}

/* All or none, whichever call fails. */
static void test_several_jobs_fail_together(void **state)
{
    struct streams s;
    struct commgemm_job job = noop(0, 0);
    (void)state;
    streams_open(&s, NULL, 4, 0);
    for (int i = 0; i < 12; i++) {
        struct commgemm_stream_job jobs[3];
        for (int k = 0; k < 3; k++)
            jobs[k] = (struct commgemm_stream_job){s.f.client, &job, s.stream, 99};
        fake_cuda_fail(i % 2 ? FAKE_WAIT : FAKE_WRITE, 719, i / 2 % 3);
        assert_refused(commgemm_submit_on_streams(jobs, 3), COMMGEMM_GPU_LOST, "cuStreamW");
        assert_int_equal(jobs[0].ticket, 99);
        assert_released(s.stream);
        jobs[2].job = NULL;
        assert_refused(commgemm_submit_on_streams(jobs, 3), COMMGEMM_INVALID_ARGUMENT, "job is");
    }
    assert_refused(commgemm_submit_on_streams(NULL, 1), COMMGEMM_INVALID_ARGUMENT, "jobs is NULL");
    struct commgemm_stream_job none;
    assert_refused(commgemm_submit_on_streams(&none, 0), COMMGEMM_INVALID_ARGUMENT, "n_jobs is 0");
    for (int i = 0; i < 4; i++)
        submit_ok(&s, s.stream, 0);
    streams_close(&s);
}

/* ---- failures of the driver -------------------------------------------------------------------
 */

static void test_a_failed_write_cancels_the_job(void **state)
{
    struct streams s;
    uint64_t ticket = 77;
    (void)state;
    streams_open(&s, NULL, 2, 0);
    for (int i = 0; i < 20; i++) {
        fake_cuda_fail(FAKE_WRITE, 1, 0);
        assert_refused(submit(&s, s.stream, 0, i % 2, &ticket), COMMGEMM_INVALID_ARGUMENT,
                       "cuStreamWriteValue64: CUDA_ERROR_INVALID_VALUE");
        assert_int_equal(ticket, 77);
    }
    uint64_t first = submit_ok(&s, s.stream, 0), second = submit_ok(&s, s.stream, 0);
    assert_int_equal(first, 21);
    assert_int_equal(status_of(&s, first), COMMGEMM_OK);
    assert_int_equal(status_of(&s, second), COMMGEMM_OK);
    streams_close(&s);
}

/* The ready word is still to be written: its slot rests until it is. */
static void test_a_failed_wait_cancels_the_job(void **state)
{
    struct streams s;
    uint64_t ticket;
    (void)state;
    streams_open(&s, NULL, 4, 0);
    fake_stream_hold(s.stream);
    for (int i = 0; i < 3; i++) {
        fake_cuda_fail(FAKE_WAIT, 719, 0);
        assert_refused(submit(&s, s.stream, 0, i % 2, &ticket), COMMGEMM_GPU_LOST,
                       "cuStreamWaitValue64");
    }
    for (int i = 0; i < 20; i++)
        assert_int_equal(status_of(&s, submit_noop(s.f.client, 0)), COMMGEMM_OK);
    uint64_t held = submit_noop(s.f.client, FAKE_HOLD_MS);
    struct commgemm_job job = noop(0, 0);
    assert_refused(commgemm_submit(s.f.client, &job, &ticket), COMMGEMM_RING_FULL,
                   "wait for the streams");
    fake_stream_release(s.stream);
    assert_released(s.stream);
    for (int i = 0; i < 3; i++)
        submit_noop(s.f.client, FAKE_HOLD_MS);
    fake_release(s.f.fake);
    assert_int_equal(status_of(&s, held), COMMGEMM_OK);
    streams_close(&s);
}

/* Not even the cancel arrives: the call still returns, and nobody has to take the job. */
static void test_a_failed_write_without_a_cancel(void **state)
{
    struct streams s;
    uint64_t ticket;
    (void)state;
    streams_open(&s, NULL, 2, 0);
    fake_refuse_cancel(s.f.fake, true);
    fake_cuda_fail(FAKE_WRITE, 1, 0);
    assert_status(submit(&s, s.stream, 0, 0, &ticket), COMMGEMM_INVALID_ARGUMENT);
    for (int i = 0; i < 10; i++)
        assert_int_equal(status_of(&s, submit_ok(&s, s.stream, 0)), COMMGEMM_OK);
    streams_close(&s);
}

/* ---- jobs that end before their stream comes --------------------------------------------------
 */

static void test_a_late_stream_disturbs_no_later_job(void **state)
{
    struct streams s;
    (void)state;
    streams_open(&s, NULL, 2, 0);
    for (int round = 0; round < 5; round++) {
        fake_stream_hold(s.stream);
        uint64_t ticket = submit_ok(&s, s.stream, 0);
        assert_ok(commgemm_cancel(s.f.client, ticket));
        assert_int_equal(status_of(&s, ticket), COMMGEMM_CANCELLED);
        for (int i = 0; i < 20; i++)
            assert_int_equal(status_of(&s, submit_noop(s.f.client, 0)), COMMGEMM_OK);
        fake_stream_release(s.stream);
        assert_released(s.stream);
        uint64_t pair[2] = {submit_noop(s.f.client, FAKE_HOLD_MS), submit_ok(&s, s.stream, 0)};
        assert_int_equal(status_of(&s, pair[1]), COMMGEMM_OK);
        fake_release(s.f.fake);
        assert_int_equal(status_of(&s, pair[0]), COMMGEMM_OK);
    }
    streams_close(&s);
}

/* ---- deaths -----------------------------------------------------------------------------------
 */

static void test_dead_executors_release_streams(void **state)
{
    struct streams s;
    (void)state;
    streams_open(&s, NULL, 8, 0);
    void *behind = fake_stream_new(fake_context(0), 0);
    for (int round = 0; round < 3; round++) {
        uint64_t waiting = submit_ok(&s, s.stream, FAKE_HOLD_MS);
        fake_stream_hold(behind);
        uint64_t late = submit_ok(&s, behind, 0);
        fake_kill_executor(s.f.fake);
        assert_released(s.stream);
        assert_int_equal(status_of(&s, waiting), COMMGEMM_EXECUTOR_LOST);
        assert_int_equal(status_of(&s, late), COMMGEMM_EXECUTOR_LOST);
        uint64_t ticket;
        assert_status(submit(&s, s.stream, 0, 0, &ticket), COMMGEMM_EXECUTOR_LOST);
        fake_start_executor(s.f.fake);
        assert_ok(commgemm_wait_executor(s.f.client, -1));
        assert_int_equal(status_of(&s, submit_ok(&s, s.stream, 0)), COMMGEMM_OK);
        fake_stream_release(behind); /* its words are those of a ring long gone */
        assert_released(behind);
    }
    streams_close(&s);
    fake_stream_free(behind);
}

static void test_a_dead_daemon_releases_streams(void **state)
{
    struct streams s;
    (void)state;
    streams_open(&s, NULL, 8, 0);
    uint64_t tickets[3];
    for (int i = 0; i < 3; i++)
        tickets[i] = submit_ok(&s, s.stream, FAKE_HOLD_MS);
    fake_hang_up(s.f.fake);
    assert_released(s.stream);
    for (int i = 0; i < 3; i++)
        assert_int_equal(status_of(&s, tickets[i]), COMMGEMM_DAEMON_LOST);
    streams_close(&s);
}

static void *release_later(void *stream)
{
    usleep(30000);
    fake_stream_release(stream);
    return NULL;
}

/* Disconnecting waits for a stream that has yet to come to its wait. */
static void test_disconnect_with_streams_under_way(void **state)
{
    struct streams s;
    pthread_t thread;
    (void)state;
    streams_open(&s, NULL, 8, 0);
    submit_ok(&s, s.stream, FAKE_HOLD_MS);
    fake_stream_hold(s.stream);
    submit_ok(&s, s.stream, FAKE_HOLD_MS);
    pthread_create(&thread, NULL, release_later, s.stream);
    streams_close(&s);
    pthread_join(thread, NULL);
}

/* ---- a full launch queue ----------------------------------------------------------------------
 */

static void *submit_three(void *argument)
{
    struct streams *s = argument;
    uint64_t ticket;
    for (int i = 0; i < 3; i++)
        if (submit(s, s->stream, FAKE_HOLD_MS, 1, &ticket) != COMMGEMM_OK)
            return NULL;
    return s;
}

/* The thread that blocks in the driver holds nothing that ending jobs needs. */
static void test_a_full_launch_queue_blocks_only_its_caller(void **state)
{
    struct streams s;
    pthread_t thread;
    void *result;
    (void)state;
    streams_open(&s, NULL, 8, 3);
    pthread_create(&thread, NULL, submit_three, &s);
    usleep(20000);
    assert_int_equal(status_of(&s, submit_noop(s.f.client, 0)), COMMGEMM_OK);
    fake_kill_executor(s.f.fake);
    fake_start_executor(s.f.fake);
    pthread_join(thread, &result);
    assert_ok(commgemm_wait_executor(s.f.client, -1));
    fake_release(s.f.fake);
    while (!fake_stream_is_done(s.stream, 10))
        fake_release(s.f.fake);
    streams_close(&s);
}

/* ---- detached jobs ----------------------------------------------------------------------------
 */

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

static void run_detached(int no_ring, int on_stream)
{
    struct streams s;
    struct commgemm_completion first;
    uint64_t count;
    streams_open(&s, &(struct fake_options){.shuffle = !no_ring}, 8, 0);
    if (no_ring) {
        commgemm_disconnect(s.f.client);
        s.f.options.no_ring = 1;
        assert_ok(commgemm_connect(&s.f.options, &s.f.client));
    }
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
        cmocka_unit_test(test_without_a_driver),
        cmocka_unit_test(test_wrong_streams),
        cmocka_unit_test(test_jobs_keep_the_stream_s_order),
        cmocka_unit_test(test_streams_do_not_wait_for_each_other),
        cmocka_unit_test(test_streams_that_share_a_queue),
        cmocka_unit_test(test_several_jobs_fail_together),
        cmocka_unit_test(test_a_failed_write_cancels_the_job),
        cmocka_unit_test(test_a_failed_wait_cancels_the_job),
        cmocka_unit_test(test_a_failed_write_without_a_cancel),
        cmocka_unit_test(test_a_late_stream_disturbs_no_later_job),
        cmocka_unit_test(test_dead_executors_release_streams),
        cmocka_unit_test(test_a_dead_daemon_releases_streams),
        cmocka_unit_test(test_disconnect_with_streams_under_way),
        cmocka_unit_test(test_a_full_launch_queue_blocks_only_its_caller),
        cmocka_unit_test(test_detached_jobs_need_nobody),
        cmocka_unit_test(test_failures_of_detached_jobs_are_kept),
        cmocka_unit_test(test_waiting_for_detached_jobs),
        cmocka_unit_test(test_many_threads_and_dying_executors),
    };
    seed_random();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
