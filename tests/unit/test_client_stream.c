/* Jobs in the order of streams, over a fake driver: order, failures, deaths, slots. */
#include "tests/unit/stream_fixture.h"

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
    assert_refused(submit(&s, unable, 0, 0, &ticket), COMMGEMM_NOT_SUPPORTED, "device 7");
    fake_stream_free(unable);
    /* What disconnect finds of contexts that are gone is nobody's failure. */
    assert_refused(commgemm_wait(s.f.client, 999, 0, NULL), COMMGEMM_NOT_FOUND, "ticket is 999");
    assert_released(s.stream);
    fake_cuda_fail(FAKE_PUSH, 709, 0);
    streams_close(&s);
    assert_non_null(strstr(commgemm_last_error(), "ticket is 999"));
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
        assert_refused(commgemm_submit_on_streams(jobs, 3), COMMGEMM_INVALID_ARGUMENT, "cuStreamW");
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

static void run_both(struct streams *s, struct commgemm_stream_job jobs[2], uint64_t number)
{
    struct commgemm_completion done;
    assert_ok(commgemm_submit_on_streams(jobs, 2));
    for (int i = 0; i < 2; i++) {
        assert_ok(commgemm_wait(s->f.client, jobs[i].ticket, BOUND_MS, &done));
        assert_int_equal(done.comm_number, number);
    }
}

/* The ranks of a comm that are refused together go on together, whichever of them is refused. */
static void test_no_rank_alone_spends_a_number(void **state)
{
    struct streams s;
    struct commgemm_plan plan;
    struct commgemm_job job[2];
    uint64_t held[3];
    (void)state;
    streams_open(&s, NULL, 4, 0);
    void *other = fake_stream_new(fake_context(2), 0), *full = fake_stream_new(fake_context(0), 0);
    plan_make(s.f.client, comm_make(s.f.client), COMMGEMM_OP_AR, 8, &plan);
    struct commgemm_stream_job jobs[2] = {{s.f.client, &job[0], s.stream, 0},
                                          {s.f.client, &job[1], other, 0}};
    for (uint32_t i = 0; i < 2; i++) {
        commgemm_job_init(&job[i]);
        job[i].plan = plan.id;
        job[i].rank = 1 + i;
    }
    for (uint64_t number = 1; number <= 6; number += 2) {
        run_both(&s, jobs, number);
        fake_stream_hold(full);
        for (int i = 0; i < 3; i++)
            held[i] = submit_ok(&s, full, 0);
        assert_refused(
            commgemm_submit_on_streams(jobs, 2), COMMGEMM_RING_FULL,
            "3 jobs are in flight or not reaped, and 2 are to follow together; ring_entries is 4");
        fake_stream_release(full);
        for (int i = 0; i < 3; i++)
            assert_int_equal(status_of(&s, held[i]), COMMGEMM_OK);
        fake_stream_capture(other, true);
        assert_refused(commgemm_submit_on_streams(jobs, 2), COMMGEMM_NOT_SUPPORTED, "captured");
        fake_stream_capture(other, false);
        job[1].rank = 4;
        assert_refused(commgemm_submit_on_streams(jobs, 2), COMMGEMM_INVALID_ARGUMENT, "rank is 4");
        job[1].rank = 2;
        run_both(&s, jobs, number + 1);
    }
    struct commgemm_stream_job many[5];
    for (int i = 0; i < 5; i++)
        many[i] = jobs[0];
    assert_refused(commgemm_submit_on_streams(many, 5), COMMGEMM_INVALID_ARGUMENT,
                   "5 of the jobs are of one client, whose ring_entries is 4");
    streams_close(&s);
    fake_stream_free(other);
    fake_stream_free(full);
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
        assert_refused(submit(&s, s.stream, 0, i % 2, &ticket), COMMGEMM_INVALID_ARGUMENT,
                       "cuStreamWaitValue64");
    }
    for (int i = 0; i < 20; i++)
        assert_int_equal(status_of(&s, submit_noop(s.f.client, 0)), COMMGEMM_OK);
    uint64_t held = submit_noop(s.f.client, FAKE_HOLD_MS);
    struct commgemm_job job = noop(0, 0);
    assert_refused(commgemm_submit(s.f.client, &job, &ticket), COMMGEMM_RING_FULL,
                   "wait for the streams");
    struct commgemm_stream_job two[2] = {{s.f.client, &job, s.stream, 0},
                                         {s.f.client, &job, s.stream, 0}};
    assert_refused(commgemm_submit_on_streams(two, 2), COMMGEMM_RING_FULL, "wait for the streams");
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

struct lost_pair {
    struct streams s;
    struct commgemm_stream_job jobs[2];
    int status;
    bool says_nothing;
};

static void *submit_two(void *argument)
{
    struct lost_pair *pair = argument;
    struct commgemm_job job = noop(FAKE_HOLD_MS, 0);
    for (int i = 0; i < 2; i++)
        pair->jobs[i] = (struct commgemm_stream_job){pair->s.f.client, &job, pair->s.stream, 0};
    pair->status = commgemm_submit_on_streams(pair->jobs, 2);
    pair->says_nothing = commgemm_last_error()[0] == '\0';
    return NULL;
}

/* Whoever waits in the driver while the executor dies is told that, whatever the driver says then:
 * the job's other ranks are, and submit it again. What had ended otherwise had done so. */
static void test_a_lost_job_is_lost_for_who_is_refused(void **state)
{
    struct lost_pair pair;
    pthread_t thread;
    (void)state;
    streams_open(&pair.s, NULL, 8, 2);
    for (int is_cancelled = 0; is_cancelled < 2; is_cancelled++) {
        uint64_t first = 1 + 2 * (uint64_t)is_cancelled;
        fake_stream_hold(pair.s.stream);
        pthread_create(&thread, NULL, submit_two, &pair);
        while (fake_stream_length(pair.s.stream) < 2) /* the first one's write, behind the hold */
            usleep(100);
        if (is_cancelled)
            assert_ok(commgemm_cancel(pair.s.f.client, first));
        fake_kill_executor(pair.s.f.fake);
        fake_start_executor(pair.s.f.fake);
        assert_ok(commgemm_wait_executor(pair.s.f.client, -1));
        fake_cuda_fail(FAKE_WAIT, 1, 0);
        fake_stream_release(pair.s.stream);
        pthread_join(thread, NULL);
        assert_ok(pair.status);
        assert_true(pair.says_nothing);
        assert_int_equal(pair.jobs[0].ticket, first);
        assert_int_equal(status_of(&pair.s, first),
                         is_cancelled ? COMMGEMM_CANCELLED : COMMGEMM_EXECUTOR_LOST);
        assert_int_equal(status_of(&pair.s, pair.jobs[1].ticket), COMMGEMM_EXECUTOR_LOST);
        assert_released(pair.s.stream);
    }
    streams_close(&pair.s);
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
        cmocka_unit_test(test_no_rank_alone_spends_a_number),
        cmocka_unit_test(test_a_failed_write_cancels_the_job),
        cmocka_unit_test(test_a_failed_wait_cancels_the_job),
        cmocka_unit_test(test_a_failed_write_without_a_cancel),
        cmocka_unit_test(test_a_late_stream_disturbs_no_later_job),
        cmocka_unit_test(test_dead_executors_release_streams),
        cmocka_unit_test(test_a_dead_daemon_releases_streams),
        cmocka_unit_test(test_disconnect_with_streams_under_way),
        cmocka_unit_test(test_a_full_launch_queue_blocks_only_its_caller),
        cmocka_unit_test(test_a_lost_job_is_lost_for_who_is_refused),
    };
    seed_random();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
