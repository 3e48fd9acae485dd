#include "tests/unit/client_fixture.h"

#include <poll.h>

static void run_noops(int no_ring, uint64_t spin_ns, uint64_t poller_spin_ns)
{
    struct fixture f;
    struct commgemm_completion done;
    fixture_open(&f, &(struct fake_options){.poller_spin_ns = poller_spin_ns}, 4, no_ring, spin_ns);
    for (uint64_t i = 1; i <= 200; i++) {
        uint64_t ticket = submit_noop(f.client, 0);
        assert_int_equal(ticket, i);
        memset(&done, 0xff, sizeof(done));
        assert_ok(commgemm_wait(f.client, ticket, -1, &done));
        assert_int_equal(done.ticket, i);
        assert_int_equal(done.status, COMMGEMM_OK);
        assert_string_equal(done.detail, "");
        assert_string_equal(done.reason, "");
        assert_null(done.phases);
    }
    fixture_close(&f);
}

static void test_noops_polling(void **state)
{
    (void)state;
    run_noops(0, 1000000, 1000000000);
}

static void test_noops_sleeping(void **state)
{
    (void)state;
    run_noops(0, 0, 0);
}

static void test_noops_by_message(void **state)
{
    (void)state;
    run_noops(1, 0, 0);
}

static void fill(struct fixture *f, uint64_t tickets[4])
{
    struct commgemm_job job;
    uint64_t ticket;
    for (int i = 0; i < 4; i++)
        tickets[i] = submit_noop(f->client, FAKE_HOLD_MS);
    commgemm_job_init(&job);
    job.kind = COMMGEMM_JOB_NOOP;
    assert_refused(commgemm_submit(f->client, &job, &ticket), COMMGEMM_RING_FULL,
                   "4 jobs are in flight or not reaped; ring_entries is 4");
}

static void test_a_full_ring_refuses_and_recovers(void **state)
{
    struct fixture f;
    uint64_t tickets[4];
    (void)state;
    fixture_open(&f, NULL, 4, 0, 0);
    for (int round = 0; round < 3; round++) {
        fill(&f, tickets);
        assert_refused(commgemm_wait(f.client, tickets[2], 0, NULL), COMMGEMM_TIMEOUT, "job");
        assert_refused(commgemm_wait(f.client, tickets[2], 5, NULL), COMMGEMM_TIMEOUT, "5 ms");
        fake_release(f.fake);
        for (int i = 3; i >= 0; i--)
            assert_ok(commgemm_wait(f.client, tickets[i], -1, NULL));
        assert_refused(commgemm_wait(f.client, tickets[0], -1, NULL), COMMGEMM_NOT_FOUND, "ticket");
    }
    assert_refused(commgemm_wait(f.client, 0, -1, NULL), COMMGEMM_NOT_FOUND, "ticket is 0");
    assert_refused(commgemm_wait(f.client, 99, -1, NULL), COMMGEMM_NOT_FOUND, "ticket is 99");
    fixture_close(&f);
}

/* One job stays while thousands come and go: tickets in flight are far apart. */
static void test_an_old_job_among_many(void **state)
{
    struct fixture f;
    (void)state;
    fixture_open(&f, NULL, 4, 0, 20000);
    uint64_t old = submit_noop(f.client, FAKE_HOLD_MS);
    for (int i = 0; i < 5000; i++)
        assert_ok(commgemm_wait(f.client, submit_noop(f.client, 0), -1, NULL));
    fake_release(f.fake);
    assert_ok(commgemm_wait(f.client, old, -1, NULL));
    fixture_close(&f);
}

static void fill_operands(struct commgemm_job *job)
{
    struct commgemm_operand *operand = &job->lhs;
    for (uint64_t i = 0; i < CGM_OPERAND_COUNT; i++)
        operand[i] = (struct commgemm_operand){.id = 10 + i,
                                               .offset_bytes = 20 + i,
                                               .row_stride_bytes = 30 + i,
                                               .generation = (uint32_t)(40 + i)};
}

static void check_operands(const struct cgm_entry *entry)
{
    for (uint64_t i = 0; i < CGM_OPERAND_COUNT; i++) {
        assert_int_equal(entry->operand[i].id, 10 + i);
        assert_int_equal(entry->operand[i].offset_bytes, 20 + i);
        assert_int_equal(entry->operand[i].row_stride_bytes, 30 + i);
        assert_int_equal(entry->operand[i].generation, 40 + i);
        assert_int_equal(entry->operand[i].reserved, 0);
    }
}

static void run_entry(int no_ring)
{
    struct fixture f;
    struct commgemm_plan plan;
    struct commgemm_job job;
    uint64_t ticket;
    fixture_open(&f, NULL, 4, no_ring, 20000);
    plan_make(f.client, comm_make(f.client), COMMGEMM_OP_AG_GEMM, 64, &plan);
    commgemm_job_init(&job);
    job.plan = plan.id;
    job.rank = 2;
    job.rows = 48;
    job.accumulate = 1;
    job.deadline_ms = 1234;
    job.chunk = 3;
    fill_operands(&job);
    assert_ok(commgemm_submit(f.client, &job, &ticket));
    assert_ok(commgemm_wait(f.client, ticket, -1, NULL));
    struct cgm_entry entry = fake_last_entry(f.fake);
    assert_int_equal(entry.ticket, 1);
    assert_int_equal(entry.plan, plan.id);
    assert_int_equal(entry.comm_number, 1);
    assert_int_equal(entry.opcode, CGM_OPCODE_RUN);
    assert_int_equal(entry.rank, 2);
    assert_int_equal(entry.rows, 48);
    assert_int_equal(entry.deadline_ms, 1234);
    assert_int_equal(entry.flags, CGM_ENTRY_ACCUMULATE);
    assert_int_equal(entry.chunk, 3);
    assert_true(entry.submit_ns > 0);
    assert_int_equal(entry.comm, plan.comm);
    for (size_t i = 0; i < sizeof(entry.reserved) / sizeof(entry.reserved[0]); i++)
        assert_int_equal(entry.reserved[i], 0);
    check_operands(&entry);
    fixture_close(&f);
}

static void test_the_entry_says_all_of_the_job(void **state)
{
    (void)state;
    run_entry(0);
    run_entry(1);
}

static uint64_t number_of(struct fixture *f, uint64_t plan, uint32_t rank, int kind, uint64_t rows)
{
    struct commgemm_job job;
    struct commgemm_completion done;
    uint64_t ticket;
    commgemm_job_init(&job);
    job.kind = kind;
    job.plan = plan;
    job.rank = rank;
    job.rows = rows;
    int status = commgemm_submit(f->client, &job, &ticket);
    if (rows == FAKE_REFUSE_ROWS) {
        assert_int_equal(status, COMMGEMM_DRAINING);
        return 0;
    }
    assert_ok(status);
    assert_ok(commgemm_wait(f->client, ticket, -1, &done));
    assert_int_equal(done.comm_number, fake_last_entry(f->fake).comm_number);
    assert_int_equal(done.plan, plan);
    assert_string_equal(done.reason, "the fake broker's favourite");
    return done.comm_number;
}

static void run_numbers(int no_ring)
{
    struct fixture f;
    struct commgemm_plan ag, gemm, rs;
    char refused[512];
    fixture_open(&f, NULL, 4, no_ring, 20000);
    uint64_t comm = comm_make(f.client);
    plan_make(f.client, comm, COMMGEMM_OP_AG_GEMM, 64, &ag);
    plan_make(f.client, comm, COMMGEMM_OP_RS, 64, &rs);
    plan_make(f.client, comm, COMMGEMM_OP_GEMM, 64, &gemm);
    const int run = COMMGEMM_JOB_RUN;
    assert_int_equal(number_of(&f, ag.id, 1, run, 0), 1);
    assert_int_equal(number_of(&f, rs.id, 1, run, 0), 2);
    assert_int_equal(number_of(&f, gemm.id, 1, run, 0), 0);
    assert_int_equal(number_of(&f, ag.id, 2, run, 0), 1);
    assert_int_equal(number_of(&f, ag.id, 1, COMMGEMM_JOB_COPY_IN, 0), 0);
    if (no_ring) {
        number_of(&f, ag.id, 1, run, FAKE_REFUSE_ROWS);
        strcpy(refused, commgemm_last_error());
        number_of(&f, gemm.id, 1, run, FAKE_LOSE_ROWS);
        assert_string_equal(commgemm_last_error(), refused); /* the last that has failed */
    }
    assert_int_equal(number_of(&f, ag.id, 1, run, 0), 3);
    fake_kill_executor(f.fake);
    fake_start_executor(f.fake);
    assert_ok(commgemm_wait_executor(f.client, -1));
    assert_int_equal(number_of(&f, rs.id, 1, run, 0), 4);
    fixture_close(&f);
}

static void test_numbers_count_collective_jobs_of_a_rank(void **state)
{
    (void)state;
    run_numbers(0);
    run_numbers(1);
}

static void run_phases(int no_ring)
{
    struct fixture f;
    struct commgemm_job job;
    struct commgemm_completion done;
    uint64_t ticket;
    fixture_open(&f, NULL, 4, no_ring, 0);
    commgemm_job_init(&job);
    job.kind = COMMGEMM_JOB_NOOP;
    job.want_phases = 1;
    for (int i = 0; i < 6; i++) {
        assert_ok(commgemm_submit(f.client, &job, &ticket));
        assert_ok(commgemm_wait(f.client, ticket, -1, i % 2 ? &done : NULL));
        if (i % 2 == 0)
            continue;
        assert_int_equal(done.n_phases, FAKE_PHASES);
        assert_int_equal(done.phases[2].end_ns, 5);
        commgemm_completion_fini(&done);
        commgemm_completion_fini(&done);
    }
    /* One that nobody takes. */
    assert_ok(commgemm_submit(f.client, &job, &ticket));
    fixture_close(&f);
}

static void test_phases(void **state)
{
    (void)state;
    run_phases(0);
    run_phases(1);
}

static void test_a_failed_job_has_status_and_detail(void **state)
{
    struct fixture f;
    struct commgemm_plan plan;
    struct commgemm_job job;
    struct commgemm_completion done;
    uint64_t ticket;
    (void)state;
    fixture_open(&f, NULL, 4, 0, 0);
    plan_make(f.client, comm_make(f.client), COMMGEMM_OP_GEMM, 64, &plan);
    commgemm_job_init(&job);
    job.plan = plan.id;
    job.rows = FAKE_FAIL_ROWS;
    assert_ok(commgemm_submit(f.client, &job, &ticket));
    assert_ok(commgemm_wait(f.client, ticket, -1, &done));
    assert_int_equal(done.status, COMMGEMM_MISMATCH);
    assert_string_equal(done.detail, "rows are 4242");
    fixture_close(&f);
}

static void test_bad_jobs_are_refused(void **state)
{
    struct fixture f;
    struct commgemm_plan plan;
    struct commgemm_job job;
    uint64_t ticket = 77;
    (void)state;
    fixture_open(&f, NULL, 4, 0, 0);
    plan_make(f.client, comm_make(f.client), COMMGEMM_OP_GEMM, 64, &plan);
    commgemm_job_init(&job);
    assert_refused(commgemm_submit(f.client, NULL, &ticket), COMMGEMM_INVALID_ARGUMENT, "job");
    assert_refused(commgemm_submit(f.client, &job, NULL), COMMGEMM_INVALID_ARGUMENT, "ret_ticket");
    job.plan = 0xabc;
    assert_refused(commgemm_submit(f.client, &job, &ticket), COMMGEMM_NOT_FOUND, "0xabc");
    job.plan = plan.id;
    job.rank = 4;
    assert_refused(commgemm_submit(f.client, &job, &ticket), COMMGEMM_INVALID_ARGUMENT,
                   "rank is 4; comm");
    job.rank = 0;
    job.kind = 4;
    assert_refused(commgemm_submit(f.client, &job, &ticket), COMMGEMM_INVALID_ARGUMENT,
                   "kind is 4");
    job.kind = COMMGEMM_JOB_RUN;
    job.struct_size = sizeof(job) + 1;
    assert_refused(commgemm_submit(f.client, &job, &ticket), COMMGEMM_INVALID_ARGUMENT,
                   "struct_size");
    assert_int_equal(ticket, 77);
    /* An older program: the fields behind are the defaults. */
    job.struct_size = offsetof(struct commgemm_job, accumulate);
    job.accumulate = 1;
    assert_ok(commgemm_submit(f.client, &job, &ticket));
    assert_int_equal(ticket, 1);
    assert_ok(commgemm_wait(f.client, ticket, -1, NULL));
    assert_int_equal(fake_last_entry(f.fake).flags, 0);
    assert_int_equal(fake_last_entry(f.fake).chunk, COMMGEMM_WHOLE_BUFFER);
    fixture_close(&f);
}

static bool is_readable(int fd, int timeout_ms)
{
    struct pollfd pollfd = {.fd = fd, .events = POLLIN};
    return poll(&pollfd, 1, timeout_ms) == 1;
}

static uint32_t reap_all(struct fixture *f, int fd, uint32_t wanted)
{
    struct commgemm_completion done[3];
    uint32_t count, total = 0;
    while (total < wanted) {
        assert_true(is_readable(fd, 10000));
        assert_ok(commgemm_reap(f->client, done, 3, &count));
        total += count;
    }
    return total;
}

static void run_poll_fd(int no_ring, uint64_t poller_spin_ns)
{
    struct fixture f;
    struct commgemm_completion done;
    uint32_t count;
    int fd, again;
    fixture_open(&f, &(struct fake_options){.poller_spin_ns = poller_spin_ns}, 8, no_ring, 0);
    submit_noop(f.client, 0); /* before the poll fd was asked for */
    assert_ok(commgemm_poll_fd(f.client, &fd));
    assert_ok(commgemm_poll_fd(f.client, &again));
    assert_int_equal(fd, again);
    assert_int_equal(reap_all(&f, fd, 1), 1);
    for (int round = 0; round < 300; round++) {
        uint32_t jobs = 1 + (uint32_t)rand() % 7;
        for (uint32_t i = 0; i < jobs; i++)
            submit_noop(f.client, 0);
        if (rand() % 2) { /* the others wait in the table meanwhile */
            uint64_t waited = submit_noop(f.client, 0);
            assert_ok(commgemm_wait(f.client, waited, -1, NULL));
        }
        assert_int_equal(reap_all(&f, fd, jobs), jobs);
    }
    assert_ok(commgemm_reap(f.client, &done, 1, &count));
    assert_int_equal(count, 0);
    assert_false(is_readable(fd, 0));
    submit_noop(f.client, FAKE_HOLD_MS);
    assert_false(is_readable(fd, 20));
    fake_hang_up(f.fake);
    assert_true(is_readable(fd, 10000));
    do
        assert_ok(commgemm_reap(f.client, &done, 1, &count));
    while (count == 0);
    assert_int_equal(done.status, COMMGEMM_DAEMON_LOST);
    assert_status(commgemm_reap(f.client, &done, 1, &count), COMMGEMM_DAEMON_LOST);
    assert_true(is_readable(fd, 0));
    fixture_close(&f);
}

static void test_poll_fd(void **state)
{
    (void)state;
    run_poll_fd(0, 0);
    run_poll_fd(0, 1000000000);
    run_poll_fd(1, 0);
}

static void *wait_in_thread(void *argument)
{
    struct fixture *f = argument;
    return (void *)(intptr_t)commgemm_wait(f->client, 1, -1, NULL);
}

static void test_reap_leaves_what_is_waited_for(void **state)
{
    struct fixture f;
    struct commgemm_completion done[2];
    pthread_t thread;
    void *status;
    uint32_t count = 0, total = 0;
    (void)state;
    fixture_open(&f, NULL, 4, 0, 0);
    submit_noop(f.client, FAKE_HOLD_MS);
    assert_int_equal(pthread_create(&thread, NULL, wait_in_thread, &f), 0);
    usleep(20000);
    submit_noop(f.client, FAKE_HOLD_MS);
    fake_release(f.fake);
    while (total == 0) {
        assert_ok(commgemm_reap(f.client, done, 2, &count));
        total += count;
    }
    assert_int_equal(total, 1);
    assert_int_equal(done[0].ticket, 2);
    pthread_join(thread, &status);
    assert_int_equal((intptr_t)status, COMMGEMM_OK);
    fixture_close(&f);
}

static void test_forged_records_change_nothing(void **state)
{
    struct fixture f;
    struct commgemm_completion done;
    uint32_t count;
    (void)state;
    fixture_open(&f, NULL, 4, 0, 0);
    uint64_t held = submit_noop(f.client, FAKE_HOLD_MS);
    assert_ok(commgemm_wait(f.client, submit_noop(f.client, 0), -1, NULL));
    for (uint32_t slot = 0; slot < 7; slot++) {
        fake_forge_cqe(f.fake, slot < 6 ? slot : UINT32_MAX, slot < 4 ? 99 : held);
        assert_ok(commgemm_reap(f.client, &done, 1, &count));
        assert_int_equal(count, 0);
    }
    fake_release(f.fake);
    assert_ok(commgemm_wait(f.client, held, -1, &done));
    assert_int_equal(done.status, COMMGEMM_OK);
    fixture_close(&f);
}

static void test_impossible_indices_end_the_ring(void **state)
{
    struct fixture f;
    struct commgemm_completion done;
    (void)state;
    fixture_open(&f, NULL, 4, 0, 0);
    uint64_t held = submit_noop(f.client, FAKE_HOLD_MS);
    for (int i = 0; i < 5; i++)
        fake_forge_cqe(f.fake, 0, 99);
    assert_ok(commgemm_wait(f.client, held, -1, &done));
    assert_int_equal(done.status, COMMGEMM_BAD_MESSAGE);
    fixture_close(&f);
}

static void test_cancel(void **state)
{
    struct fixture f;
    (void)state;
    fixture_open(&f, NULL, 4, 0, 0);
    assert_refused(commgemm_cancel(f.client, 1), COMMGEMM_NOT_FOUND, "ticket is 1");
    uint64_t ticket = submit_noop(f.client, FAKE_HOLD_MS);
    uint64_t requests = fake_requests(f.fake);
    assert_ok(commgemm_cancel(f.client, ticket));
    assert_int_equal(fake_requests(f.fake), requests + 1);
    fake_release(f.fake);
    assert_ok(commgemm_wait(f.client, ticket, -1, NULL));
    assert_ok(commgemm_cancel(f.client, ticket));
    assert_int_equal(fake_requests(f.fake), requests + 1);
    fixture_close(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_noops_polling),
        cmocka_unit_test(test_noops_sleeping),
        cmocka_unit_test(test_noops_by_message),
        cmocka_unit_test(test_a_full_ring_refuses_and_recovers),
        cmocka_unit_test(test_an_old_job_among_many),
        cmocka_unit_test(test_the_entry_says_all_of_the_job),
        cmocka_unit_test(test_numbers_count_collective_jobs_of_a_rank),
        cmocka_unit_test(test_phases),
        cmocka_unit_test(test_a_failed_job_has_status_and_detail),
        cmocka_unit_test(test_bad_jobs_are_refused),
        cmocka_unit_test(test_poll_fd),
        cmocka_unit_test(test_reap_leaves_what_is_waited_for),
        cmocka_unit_test(test_forged_records_change_nothing),
        cmocka_unit_test(test_impossible_indices_end_the_ring),
        cmocka_unit_test(test_cancel),
    };
    seed_random();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
