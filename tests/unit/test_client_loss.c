/* What callers see when the executor or the daemon goes away. */
#include "tests/unit/client_fixture.h"

#include <errno.h>

struct caller {
    struct fixture *f;
    int (*call)(struct fixture *f);
    int status;
    pthread_t thread;
};

static int join_for_ever(struct fixture *f)
{
    uint64_t comm;
    return commgemm_comm_join_simple(f->client, FAKE_SILENT_NAME, 2, 0, &comm);
}

static int create_for_ever(struct fixture *f)
{
    struct commgemm_buffer buffer;
    return commgemm_buffer_create(f->client, FAKE_SILENT_NAME, 4096, -1, 0, 0, &buffer);
}

static int wait_for_ever(struct fixture *f)
{
    struct commgemm_completion done = {.status = 1};
    int status = commgemm_wait(f->client, 1, -1, &done);
    return status == done.status ? status : COMMGEMM_INTERNAL;
}

static int wait_for_another(struct fixture *f)
{
    return commgemm_wait(f->client, 2, 100000, NULL);
}

static int wait_for_executor(struct fixture *f)
{
    int status;
    while ((status = commgemm_wait_executor(f->client, -1)) == COMMGEMM_OK)
        usleep(1000);
    return status;
}

static int (*const calls[])(struct fixture *f) = {join_for_ever, create_for_ever, wait_for_ever,
                                                  wait_for_another, wait_for_executor};
#define N_CALLS (sizeof(calls) / sizeof(calls[0]))

static void *call_in_thread(void *argument)
{
    struct caller *caller = argument;
    caller->status = caller->call(caller->f);
    return NULL;
}

static void join_bounded(pthread_t thread)
{
    struct timespec limit;
    clock_gettime(CLOCK_REALTIME, &limit);
    limit.tv_sec += 60;
    assert_int_equal(pthread_timedjoin_np(thread, NULL, &limit), 0);
}

/* Nor is anybody held up by a caller who waits. */
static void test_a_close_beside_a_create_that_waits(void **state)
{
    struct fixture f;
    struct commgemm_buffer buffer;
    struct caller caller = {.f = &f, .call = create_for_ever};
    (void)state;
    fixture_open(&f, NULL, 4, 0, 0);
    assert_ok(commgemm_buffer_create(f.client, NULL, 4096, -1, 0, 0, &buffer));
    uint64_t before = fake_requests(f.fake);
    assert_int_equal(pthread_create(&caller.thread, NULL, call_in_thread, &caller), 0);
    while (fake_requests(f.fake) == before)
        usleep(1000);
    alarm(60);
    assert_ok(commgemm_buffer_close(f.client, buffer.id));
    assert_ok(commgemm_buffer_create(f.client, NULL, 4096, -1, 0, 0, &buffer));
    alarm(0);
    fake_hang_up(f.fake);
    join_bounded(caller.thread);
    assert_status(caller.status, COMMGEMM_DAEMON_LOST);
    fixture_close(&f);
}

static void run_daemon_lost(int no_ring, uint64_t spin_ns)
{
    struct fixture f;
    struct caller callers[N_CALLS];
    struct commgemm_job job;
    uint64_t ticket;
    fixture_open(&f, NULL, 4, no_ring, spin_ns);
    submit_noop(f.client, FAKE_HOLD_MS);
    submit_noop(f.client, FAKE_HOLD_MS);
    for (size_t i = 0; i < N_CALLS; i++) {
        callers[i] = (struct caller){.f = &f, .call = calls[i]};
        assert_int_equal(pthread_create(&callers[i].thread, NULL, call_in_thread, &callers[i]), 0);
    }
    usleep(30000);
    double before = seconds();
    fake_hang_up(f.fake);
    for (size_t i = 0; i < N_CALLS; i++) {
        join_bounded(callers[i].thread);
        assert_int_equal(callers[i].status, COMMGEMM_DAEMON_LOST);
    }
    print_message("every waiting call had returned after %.1f ms\n", 1e3 * (seconds() - before));
    commgemm_job_init(&job);
    job.kind = COMMGEMM_JOB_NOOP;
    assert_status(commgemm_submit(f.client, &job, &ticket), COMMGEMM_DAEMON_LOST);
    assert_status(commgemm_comm_leave(f.client, 1), COMMGEMM_DAEMON_LOST);
    fixture_close(&f);
}

/* Memory is there still, as far as the fd goes, and may be a hole by now. */
static void test_memory_goes_with_the_session(void **state)
{
    struct fixture f;
    struct commgemm_buffer buffer;
    void *address;
    char bytes[16] = "whatever";
    (void)state;
    fixture_open(&f, NULL, 4, 0, 0);
    assert_ok(commgemm_buffer_open(f.client, NULL, FAKE_LOST_BUFFER, 0, &buffer));
    assert_refused(commgemm_buffer_write(f.client, &buffer, 0, bytes, sizeof(bytes)),
                   COMMGEMM_NOT_FOUND, "not open");
    assert_refused(commgemm_buffer_read(f.client, &buffer, 0, bytes, sizeof(bytes)),
                   COMMGEMM_NOT_FOUND, "not open");
    assert_refused(commgemm_buffer_map(f.client, &buffer, &address), COMMGEMM_NOT_FOUND,
                   "not open");
    assert_ok(commgemm_buffer_create(f.client, NULL, 4096, -1, 0, 0, &buffer));
    assert_ok(commgemm_buffer_write(f.client, &buffer, 0, bytes, sizeof(bytes)));
    assert_ok(commgemm_buffer_read(f.client, &buffer, 0, bytes, sizeof(bytes)));
    fake_hang_up(f.fake);
    assert_refused(commgemm_buffer_map(f.client, &buffer, &address), COMMGEMM_DAEMON_LOST,
                   "closed");
    assert_refused(commgemm_buffer_read(f.client, &buffer, 0, bytes, sizeof(bytes)),
                   COMMGEMM_DAEMON_LOST, "closed");
    assert_refused(commgemm_buffer_write(f.client, &buffer, 0, bytes, sizeof(bytes)),
                   COMMGEMM_DAEMON_LOST, "closed");
    fixture_close(&f);
}

/* A daemon from before features is not asked what it does not know. */
static void test_an_old_daemon(void **state)
{
    const struct fake_options old = {.is_old = true};
    struct fixture f;
    struct commgemm_buffer buffer;
    char bytes[16] = "whatever";
    (void)state;
    fixture_open(&f, &old, 4, 0, 0);
    assert_ok(commgemm_buffer_create(f.client, NULL, 4096, -1, 0, 0, &buffer));
    assert_ok(commgemm_buffer_write(f.client, &buffer, 0, bytes, sizeof(bytes)));
    assert_ok(commgemm_buffer_read(f.client, &buffer, 0, bytes, sizeof(bytes)));
    fixture_close(&f);
}

static void test_daemon_lost(void **state)
{
    (void)state;
    run_daemon_lost(0, 0);
    run_daemon_lost(0, 10000000000);
    run_daemon_lost(1, 0);
}

static void run_executor_lost(int no_ring)
{
    struct fixture f;
    struct commgemm_completion done;
    struct commgemm_info info;
    struct commgemm_job job;
    uint64_t ticket;
    fixture_open(&f, NULL, 4, no_ring, 0);
    for (int round = 1; round <= 3; round++) {
        uint64_t ended = submit_noop(f.client, 0);
        uint64_t held = submit_noop(f.client, FAKE_HOLD_MS);
        if (!no_ring) /* it has ended, though nobody has looked */
            while (fake_jobs(f.fake) < 2 * (uint64_t)round - 1)
                usleep(100);
        assert_ok(commgemm_wait_executor(f.client, 0));
        fake_kill_executor(f.fake);
        assert_ok(commgemm_wait(f.client, held, -1, &done));
        assert_int_equal(done.status, COMMGEMM_EXECUTOR_LOST);
        assert_true(done.detail[0]);
        assert_ok(commgemm_wait(f.client, ended, -1, &done));
        assert_int_equal(done.status, COMMGEMM_OK);
        commgemm_job_init(&job);
        job.kind = COMMGEMM_JOB_NOOP;
        assert_int_equal(commgemm_submit(f.client, &job, &ticket),
                         no_ring ? COMMGEMM_NO_EXECUTOR : COMMGEMM_EXECUTOR_LOST);
        assert_refused(commgemm_wait_executor(f.client, 0), COMMGEMM_TIMEOUT, "no executor");
        fake_start_executor(f.fake);
        assert_ok(commgemm_wait_executor(f.client, -1));
        assert_ok(commgemm_get_info(f.client, &info));
        assert_int_equal(info.executor_life, round + 1);
        /* Tickets go on: the refused submission took none. */
        uint64_t next = submit_noop(f.client, 0);
        assert_int_equal(next, held + 1);
        assert_ok(commgemm_wait(f.client, next, -1, &done));
        assert_int_equal(done.status, COMMGEMM_OK);
        assert_int_equal(done.ticket, next);
    }
    fixture_close(&f);
}

/* What becomes of jobs that are reaped is the same, whichever says first that the session is over:
 * who reaps until nothing is left must not take lost jobs for all that there is to know. */
static void test_a_dead_ring_is_the_end_for_who_reaps(void **state)
{
    struct fixture f;
    struct commgemm_completion done[2];
    uint32_t count = 0;
    (void)state;
    fixture_open(&f, NULL, 4, 0, 0);
    submit_noop(f.client, FAKE_HOLD_MS);
    fake_end_sessions(f.fake);
    assert_ok(commgemm_reap(f.client, done, 2, &count));
    assert_int_equal(count, 1);
    assert_int_equal(done[0].status, COMMGEMM_DAEMON_LOST);
    assert_refused(commgemm_reap(f.client, done, 2, &count), COMMGEMM_DAEMON_LOST, "closed");
    fixture_close(&f);
}

static void lose_a_record(int status, struct commgemm_plan *ret_plan,
                          struct commgemm_completion *ret_done)
{
    struct fixture f;
    struct commgemm_job job;
    uint64_t ticket;
    fixture_open(&f, NULL, 4, 0, 0);
    plan_make(f.client, comm_make(f.client), COMMGEMM_OP_GEMM, 64, ret_plan);
    commgemm_job_init(&job);
    job.plan = ret_plan->id;
    job.rank = 1;
    job.deadline_ms = FAKE_HOLD_MS;
    assert_ok(commgemm_submit(f.client, &job, &ticket));
    fake_set_done(f.fake, 0, ticket, status);
    fake_kill_executor(f.fake);
    assert_ok(commgemm_wait(f.client, ticket, -1, ret_done));
    assert_int_equal(ret_done->status, status);
    fixture_close(&f);
}

/* It was done, so it is told as done, and as what it was. */
static void test_a_job_whose_record_is_missing(void **state)
{
    struct commgemm_completion done;
    struct commgemm_plan plan;
    (void)state;
    lose_a_record(COMMGEMM_OK, &plan, &done);
    assert_int_equal(done.algorithm, plan.algorithm);
    assert_string_equal(done.reason, plan.reason);
    assert_string_equal(done.detail, "");
}

/* That the executor is lost is not why. */
static void test_a_failed_job_whose_record_is_missing(void **state)
{
    struct commgemm_completion done;
    struct commgemm_plan plan;
    (void)state;
    lose_a_record(COMMGEMM_MISMATCH, &plan, &done);
    assert_non_null(strstr(done.detail, "the job had ended with MISMATCH; why is lost: "));
}

static void test_executor_lost(void **state)
{
    (void)state;
    run_executor_lost(0);
    run_executor_lost(1);
}

static uint64_t submit_held(commgemm_client *client, const struct commgemm_plan *plan, int rank)
{
    struct commgemm_job job;
    uint64_t ticket;
    commgemm_job_init(&job);
    job.kind = COMMGEMM_JOB_BARRIER;
    job.plan = plan->id;
    job.rank = rank;
    job.deadline_ms = FAKE_HOLD_MS;
    assert_ok(commgemm_submit(client, &job, &ticket));
    return ticket;
}

/* A rank was told that the job ended well, this session's were not any more: it did for them, too.
 */
static void test_what_ended_well_without_a_ring(void **state)
{
    struct fixture f;
    struct commgemm_plan plan;
    struct commgemm_completion done;
    (void)state;
    fixture_open(&f, NULL, 4, 1, 0);
    plan_make(f.client, comm_make(f.client), COMMGEMM_OP_AG_GEMM, 8, &plan);
    uint64_t first = submit_held(f.client, &plan, 1), other = submit_held(f.client, &plan, 2);
    uint64_t second = submit_held(f.client, &plan, 1), noop = submit_noop(f.client, FAKE_HOLD_MS);
    fake_set_ending(f.fake, plan.comm, 1);
    fake_kill_executor(f.fake);
    const struct {
        uint64_t ticket;
        int status;
    } rows[] = {{first, COMMGEMM_OK},
                {other, COMMGEMM_OK},
                {second, COMMGEMM_EXECUTOR_LOST},
                {noop, COMMGEMM_EXECUTOR_LOST}};
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        assert_ok(commgemm_wait(f.client, rows[i].ticket, -1, &done));
        assert_int_equal(done.status, rows[i].status);
    }
    fixture_close(&f);
}

static uint64_t next_number(commgemm_client *client, const struct commgemm_plan *plan, int rank)
{
    struct commgemm_completion done;
    struct commgemm_job job;
    uint64_t ticket;
    commgemm_job_init(&job);
    job.kind = COMMGEMM_JOB_BARRIER;
    job.plan = plan->id;
    job.rank = rank;
    assert_ok(commgemm_submit(client, &job, &ticket));
    assert_ok(commgemm_wait(client, ticket, -1, &done));
    assert_int_equal(done.status, COMMGEMM_OK);
    return done.comm_number;
}

/* Whoever submits it again is matched as before, however many jobs each rank had in flight. */
static void run_lost_numbers(int no_ring)
{
    struct fixture f;
    struct commgemm_plan plan;
    uint64_t lost[4];
    fixture_open(&f, NULL, 8, no_ring, 0);
    plan_make(f.client, comm_make(f.client), COMMGEMM_OP_AG_GEMM, 8, &plan);
    for (uint32_t i = 0; i < 3; i++)
        lost[i] = submit_held(f.client, &plan, 1);
    lost[3] = submit_held(f.client, &plan, 2);
    if (no_ring) /* where rings would say it themselves */
        fake_set_ending(f.fake, plan.comm, 2);
    fake_kill_executor(f.fake);
    for (uint32_t i = 0; i < 4; i++) {
        struct commgemm_completion done;
        bool ended = no_ring && i == 1;
        assert_ok(commgemm_wait(f.client, lost[i], -1, &done));
        assert_int_equal(done.status, ended ? COMMGEMM_OK : COMMGEMM_EXECUTOR_LOST);
    }
    fake_start_executor(f.fake);
    assert_ok(commgemm_wait_executor(f.client, -1));
    static const uint64_t all[] = {1, 2, 3, 4, 5}, but_ended[] = {1, 3, 4, 5, 6};
    for (uint32_t i = 0; i < 5; i++)
        assert_int_equal(next_number(f.client, &plan, 1), no_ring ? but_ended[i] : all[i]);
    for (uint64_t number = 1; number <= 3; number++)
        assert_int_equal(next_number(f.client, &plan, 2), number);
    fixture_close(&f);
}

static void test_numbers_of_lost_jobs_come_again(void **state)
{
    (void)state;
    run_lost_numbers(0);
    run_lost_numbers(1);
}

/* A job of a dead ring may be taken long after the next ring came. */
static void test_old_jobs_outlive_their_ring(void **state)
{
    struct fixture f;
    struct commgemm_completion done;
    uint64_t tickets[6];
    (void)state;
    fixture_open(&f, NULL, 4, 0, 0);
    for (int life = 0; life < 3; life++) {
        tickets[2 * life] = submit_noop(f.client, FAKE_HOLD_MS);
        tickets[2 * life + 1] = submit_noop(f.client, FAKE_HOLD_MS);
        fake_kill_executor(f.fake);
        fake_start_executor(f.fake);
        assert_int_equal(commgemm_wait(f.client, tickets[0], -1, NULL),
                         life ? COMMGEMM_NOT_FOUND : COMMGEMM_OK);
        assert_ok(commgemm_wait_executor(f.client, -1));
    }
    for (int i = 5; i > 0; i--) {
        assert_ok(commgemm_wait(f.client, tickets[i], -1, &done));
        assert_int_equal(done.status, COMMGEMM_EXECUTOR_LOST);
    }
    assert_ok(commgemm_wait(f.client, submit_noop(f.client, 0), -1, NULL));
    fixture_close(&f);
}

static void connect_without_executor(int no_ring)
{
    struct fixture f;
    struct commgemm_job job;
    struct commgemm_info info;
    uint64_t ticket;
    fixture_open(&f, &(struct fake_options){.no_executor = true}, 4, no_ring, 0);
    commgemm_job_init(&job);
    job.kind = COMMGEMM_JOB_NOOP;
    assert_ok(commgemm_get_info(f.client, &info));
    assert_int_equal(info.executor_life, 0);
    assert_int_equal(info.devices, 0);
    uint64_t asked = fake_requests(f.fake);
    assert_status(commgemm_submit(f.client, &job, &ticket), COMMGEMM_NO_EXECUTOR);
    assert_int_equal(fake_requests(f.fake), asked); /* whose job would it be by then? */
    assert_status(commgemm_wait_executor(f.client, 20), COMMGEMM_TIMEOUT);
    fake_start_executor(f.fake);
    assert_ok(commgemm_wait_executor(f.client, -1));
    assert_ok(commgemm_get_info(f.client, &info));
    assert_int_equal(info.devices, FAKE_DEVICES); /* of the one that serves */
    assert_string_equal(info.backend, "cpu");
    assert_ok(commgemm_wait(f.client, submit_noop(f.client, 0), -1, NULL));
    fixture_close(&f);
}

static void test_connect_without_executor(void **state)
{
    (void)state;
    connect_without_executor(0);
    connect_without_executor(1);
}

/* It refuses what it is asked before the daemon says that it is lost: the next one is waited for.
 */
static void executor_that_is_ending(int no_ring)
{
    struct fixture f;
    struct commgemm_info info;
    uint64_t comm;
    fixture_open(&f, NULL, 4, no_ring, 0);
    assert_ok(commgemm_wait_executor(f.client, 0));
    assert_status(commgemm_comm_create(f.client, FAKE_ABSENT_NAME, 2, 0, &comm),
                  COMMGEMM_NO_EXECUTOR);
    assert_refused(commgemm_wait_executor(f.client, 0), COMMGEMM_TIMEOUT, "no executor");
    assert_ok(commgemm_get_info(f.client, &info));
    assert_int_equal(info.executor_life, 0);
    fake_kill_executor(f.fake);
    fake_start_executor(f.fake);
    assert_ok(commgemm_wait_executor(f.client, -1));
    assert_ok(commgemm_get_info(f.client, &info));
    assert_int_equal(info.executor_life, 2);
    fixture_close(&f);
}

static void test_an_executor_that_is_ending(void **state)
{
    (void)state;
    executor_that_is_ending(0);
    executor_that_is_ending(1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_close_beside_a_create_that_waits),
        cmocka_unit_test(test_daemon_lost),
        cmocka_unit_test(test_memory_goes_with_the_session),
        cmocka_unit_test(test_an_old_daemon),
        cmocka_unit_test(test_a_dead_ring_is_the_end_for_who_reaps),
        cmocka_unit_test(test_a_job_whose_record_is_missing),
        cmocka_unit_test(test_a_failed_job_whose_record_is_missing),
        cmocka_unit_test(test_executor_lost),
        cmocka_unit_test(test_what_ended_well_without_a_ring),
        cmocka_unit_test(test_numbers_of_lost_jobs_come_again),
        cmocka_unit_test(test_old_jobs_outlive_their_ring),
        cmocka_unit_test(test_connect_without_executor),
        cmocka_unit_test(test_an_executor_that_is_ending),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
