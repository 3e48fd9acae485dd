/* More jobs of one comm than its queues have room for: they wait, and nobody else does. */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

#include "tests/daemon/broker_fixture.h"

#include "commgemm.h"
#include "tests/daemon/enter.h"
#include "tests/fault/spent.h"
#include "tests/send_signal.h"

#define EXECUTOR REAL_EXECUTOR
#define SIDE 8
#define ENTRIES 1024u
#define JOBS 600u
#define BEFORE 20u /* until these have ended the others are on their way */
#define RANKS 32u  /* each copy of all chunks is so many operations */
#define COPIES 120u
#define LAST 100u   /* jobs that are held for certain */
#define OUTPUTS 16u /* none of them the other's */
#define PAUSE_US 1000u
#define BYTES (sizeof(float) * SIDE * SIDE * RANKS)

#define LINES 8u /* sessions */
#define LINE_ENTRIES 4096u
#define ROUNDS 200 /* noops whose cost is measured */

/* Who has a comm of one rank on the first device. */
struct user {
    commgemm_client *client;
    uint64_t plan;
    struct commgemm_buffer in, out;
    uint64_t tickets[JOBS];
};

static struct daemon daemon_;
static struct user busy, other;

static void open_client_with(struct user *user, uint32_t entries)
{
    struct commgemm_connect_options options;
    commgemm_connect_options_init(&options);
    options.socket = daemon_.socket;
    options.ring_entries = entries;
    assert_int_equal(commgemm_connect(&options, &user->client), COMMGEMM_OK);
    assert_int_equal(commgemm_wait_executor(user->client, WAIT_S * 1000), COMMGEMM_OK);
}

static void open_client(struct user *user)
{
    open_client_with(user, ENTRIES);
}

/* All ranks are the user's, the first one is on the first device. */
static void make_plan(struct user *user, const char *name, enum commgemm_op op, uint32_t size)
{
    uint32_t ranks[RANKS];
    struct commgemm_join_options join;
    struct commgemm_plan_options options;
    struct commgemm_plan plan = {0};
    for (uint32_t rank = 0; rank < size; rank++)
        ranks[rank] = rank;
    commgemm_join_options_init(&join);
    join.name = name;
    join.size = join.n_ranks = size;
    join.create = 1;
    join.ranks = ranks;
    commgemm_plan_options_init(&options);
    options.op = op;
    options.m = options.n = SIDE * size;
    options.k = SIDE;
    if (commgemm_comm_join(user->client, &join, &options.comm) ||
        commgemm_plan_create(user->client, &options, &plan) ||
        commgemm_buffer_create(user->client, NULL, BYTES, 0, 0, 0, &user->in) ||
        commgemm_buffer_create(user->client, NULL, BYTES, 0, 0, 0, &user->out))
        fail_msg("%s: %s", name, commgemm_last_error());
    user->plan = plan.id;
}

static struct commgemm_operand all_of(const struct commgemm_buffer *buffer)
{
    return (struct commgemm_operand){.id = buffer->id, .generation = buffer->generation};
}

static void submit_jobs(struct user *user, const struct commgemm_job *job, unsigned count)
{
    for (unsigned i = 0; i < count; i++)
        if (commgemm_submit(user->client, job, &user->tickets[i]))
            fail_msg("submit: %s", commgemm_last_error());
}

static void submit_copies(struct user *user, uint32_t chunk, unsigned count)
{
    struct commgemm_job job;
    commgemm_job_init(&job);
    job.kind = COMMGEMM_JOB_COPY_IN;
    job.plan = user->plan;
    job.lhs = all_of(&user->in);
    job.chunk = chunk;
    submit_jobs(user, &job, count);
}

static void submit_with(struct user *user, unsigned count, int want_phases)
{
    struct commgemm_job job;
    commgemm_job_init(&job);
    job.want_phases = want_phases;
    job.plan = user->plan;
    job.lhs = job.rhs = all_of(&user->in);
    job.out = all_of(&user->out);
    submit_jobs(user, &job, count);
}

static void submit(struct user *user, unsigned count)
{
    submit_with(user, count, 0);
}

static void await(struct user *user, uint64_t ticket)
{
    struct commgemm_completion done;
    assert_int_equal(commgemm_wait(user->client, ticket, WAIT_S * 1000, &done), COMMGEMM_OK);
    if (done.status)
        fail_msg("job %llu: %s", (unsigned long long)ticket, done.detail);
    commgemm_completion_fini(&done);
}

/* How many ended meanwhile. */
static unsigned count_ended(const struct user *user)
{
    static struct commgemm_completion done[JOBS];
    uint32_t count;
    assert_int_equal(commgemm_reap(user->client, done, JOBS, &count), COMMGEMM_OK);
    return count;
}

static void set_up(const char *delay)
{
    daemon_init(&daemon_);
    daemon_start(&daemon_, EXECUTOR, "backend=cpu", delay, NULL);
    open_client(&busy);
    open_client(&other);
    make_plan(&other, "other", COMMGEMM_OP_GEMM_AR, 1);
}

static int set_up_for_runs(void **state)
{
    (void)state;
    set_up("test_delay_us=2000");
    make_plan(&busy, "busy", COMMGEMM_OP_GEMM_AR, 1);
    return 0;
}

static int set_up_for_copies(void **state)
{
    (void)state;
    set_up("test_delay_us=200");
    make_plan(&busy, "busy", COMMGEMM_OP_AG_GEMM, RANKS);
    return 0;
}

static int set_up_for_lines(void **state)
{
    (void)state;
    set_up(NULL);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    commgemm_disconnect(busy.client);
    commgemm_disconnect(other.client);
    daemon_stop(&daemon_);
    return 0;
}

/* The other one's job ends long before those of the busy one. They are on the same device. */
static void assert_not_behind(unsigned jobs)
{
    submit(&other, 1);
    await(&other, other.tickets[0]);
    unsigned ended = count_ended(&busy);
    print_message("%u of %u jobs of the busy one ended before\n", ended, jobs);
    assert_true(ended < jobs / 2);
}

static void test_nobody_waits_behind_a_full_queue(void **state)
{
    (void)state;
    submit(&busy, JOBS);
    await(&busy, busy.tickets[BEFORE]);
    assert_not_behind(JOBS);
    await(&busy, busy.tickets[JOBS - 1]);
}

/* What one chunk takes says nothing about all of them. */
static void test_nobody_waits_behind_copies_of_all_chunks(void **state)
{
    (void)state;
    submit_copies(&busy, 0, 2);
    await(&busy, busy.tickets[1]);
    submit_copies(&busy, COMMGEMM_WHOLE_BUFFER, COPIES);
    await(&busy, busy.tickets[0]);
    assert_not_behind(COPIES);
    await(&busy, busy.tickets[COPIES - 1]);
}

/* What has no room in a queue yet is not on its way: it has run on no device, and has not begun. */
static void test_what_is_held_can_be_cancelled(void **state)
{
    struct commgemm_completion done;
    (void)state;
    submit_with(&busy, JOBS, 1);
    await(&busy, busy.tickets[0]);
    for (unsigned i = JOBS - LAST; i < JOBS; i++)
        assert_int_equal(commgemm_cancel(busy.client, busy.tickets[i]), COMMGEMM_OK);
    for (unsigned i = JOBS - LAST; i < JOBS; i++) {
        assert_int_equal(commgemm_wait(busy.client, busy.tickets[i], WAIT_S * 1000, &done),
                         COMMGEMM_OK);
        assert_int_equal(done.status, COMMGEMM_CANCELLED);
        assert_int_equal(done.running_ns, 0);
        assert_int_equal(done.n_phases, 0);
        commgemm_completion_fini(&done);
    }
    await(&busy, busy.tickets[JOBS - LAST - 1]);
    submit(&busy, 1);
    await(&busy, busy.tickets[0]);
}

/* Its launch is when there is room for it: until then it waits. */
static void test_what_is_held_is_not_launched_yet(void **state)
{
    struct commgemm_completion done;
    (void)state;
    submit(&busy, JOBS);
    assert_int_equal(commgemm_wait(busy.client, busy.tickets[JOBS - 1], WAIT_S * 1000, &done),
                     COMMGEMM_OK);
    assert_int_equal(done.status, COMMGEMM_OK);
    print_message("the last one waited %llu us and ran %llu us\n",
                  (unsigned long long)done.waiting_ns / 1000,
                  (unsigned long long)done.running_ns / 1000);
    assert_true(done.waiting_ns > done.running_ns);
}

/* More operands than a plan keeps recordings of, so that each gives up its place again and again
 * while jobs that are held were to be enqueued from it. */
static void test_what_is_held_needs_no_recording(void **state)
{
    struct commgemm_job job;
    (void)state;
    commgemm_job_init(&job);
    job.plan = busy.plan;
    job.lhs = job.rhs = all_of(&busy.in);
    job.out = all_of(&busy.out);
    for (unsigned i = 0; i < JOBS; i++) {
        job.out.offset_bytes = i % OUTPUTS * (BYTES / OUTPUTS);
        assert_int_equal(commgemm_submit(busy.client, &job, &busy.tickets[i]), COMMGEMM_OK);
        usleep(PAUSE_US);
    }
    for (unsigned i = 0; i < JOBS; i++)
        await(&busy, busy.tickets[i]);
    for (unsigned i = 0; i < JOBS && daemon_status(&daemon_, "replays") == 0; i++) {
        submit(&busy, 1);
        await(&busy, busy.tickets[0]);
    }
    assert_true(daemon_status(&daemon_, "replays") > 0);
}

static uint64_t ended(uint64_t *ret_failed)
{
    *ret_failed = daemon_status(&daemon_, "jobs_failed");
    return daemon_status(&daemon_, "jobs_done") + *ret_failed;
}

/* Done as soon as it is read, and all that was submitted before it has been read then. */
static void await_reading(struct user *user)
{
    struct commgemm_job noop;
    uint64_t ticket;
    commgemm_job_init(&noop);
    noop.kind = COMMGEMM_JOB_NOOP;
    assert_int_equal(commgemm_submit(user->client, &noop, &ticket), COMMGEMM_OK);
    await(user, ticket);
}

/* How many of his jobs fail, all of which end. */
static uint64_t leave(void)
{
    struct user left;
    uint64_t failed, failed_before, before = ended(&failed_before);
    open_client(&left);
    make_plan(&left, "left", COMMGEMM_OP_GEMM_AR, 1);
    submit(&left, JOBS);
    await_reading(&left);
    commgemm_disconnect(left.client);
    for (unsigned i = 0; ended(&failed) - before < JOBS + 1; i++) {
        if (i == 100 * WAIT_S)
            fail_msg("%llu have ended, %llu of them failed",
                     (unsigned long long)(ended(&failed) - before), (unsigned long long)failed);
        usleep(10000);
    }
    return failed - failed_before;
}

/* Nobody waits for the results of who is gone. Where this test gets no processor for long, they may
 * be there before he is. */
static void test_nothing_is_computed_for_who_left(void **state)
{
    uint64_t failed = 0;
    (void)state;
    for (int i = 0; i < 10 && failed < LAST; i++)
        failed = leave();
    assert_true(failed >= LAST);
}

/* What takes it away comes behind them, though it takes another way to the executor. */
static void test_a_plan_is_destroyed_behind_its_jobs(void **state)
{
    struct commgemm_plan_options options;
    struct commgemm_join_options join;
    struct commgemm_plan plan;
    const uint32_t rank = 0;
    (void)state;
    commgemm_join_options_init(&join);
    commgemm_plan_options_init(&options);
    join.name = "destroyed";
    join.size = join.n_ranks = join.create = 1;
    join.ranks = &rank;
    options.op = COMMGEMM_OP_GEMM_AR;
    options.m = options.n = options.k = SIDE;
    assert_int_equal(commgemm_comm_join(other.client, &join, &options.comm), COMMGEMM_OK);
    for (int i = 0; i < 100; i++) {
        assert_int_equal(commgemm_plan_create(other.client, &options, &plan), COMMGEMM_OK);
        other.plan = plan.id;
        submit(&other, 8);
        assert_int_equal(commgemm_plan_destroy(other.client, plan.id), COMMGEMM_OK);
        for (int k = 0; k < 8; k++)
            await(&other, other.tickets[k]);
    }
}

static void *go_on_later(void *executor)
{
    usleep(400000);
    send_signal(*(const pid_t *)executor, SIGCONT);
    return NULL;
}

/* Nor are they late because the executor has had no processor for a while. */
static void test_a_plan_is_destroyed_behind_jobs_unread(void **state)
{
    struct commgemm_plan_options options;
    struct commgemm_plan plan;
    pthread_t later;
    pid_t executor = (pid_t)daemon_status(&daemon_, "executor_pid");
    (void)state;
    commgemm_plan_options_init(&options);
    options.op = COMMGEMM_OP_GEMM;
    options.m = options.n = options.k = SIDE;
    assert_int_equal(commgemm_comm_join_simple(other.client, "unread", 1, 0, &options.comm),
                     COMMGEMM_OK);
    for (int i = 0; i < 5; i++) {
        assert_int_equal(commgemm_plan_create(other.client, &options, &plan), COMMGEMM_OK);
        other.plan = plan.id;
        assert_int_equal(send_signal(executor, SIGSTOP), 0);
        assert_int_equal(pthread_create(&later, NULL, go_on_later, &executor), 0);
        submit(&other, 8);
        assert_int_equal(commgemm_plan_destroy(other.client, plan.id), COMMGEMM_OK);
        pthread_join(later, NULL);
        for (int k = 0; k < 8; k++)
            await(&other, other.tickets[k]);
    }
}

/* Of the executor, whoever else has the processors meanwhile. */
static uint64_t spent_on_noops(pid_t executor)
{
    uint64_t before = spent_ns(executor);
    for (int i = 0; i < ROUNDS; i++)
        await_reading(&other);
    return spent_ns(executor) - before;
}

/* Jobs of a rank whose other one does not come. in_line: copies behind a job that reads what they
 * copy to; else jobs that only lack the other rank. */
static void fill_ring(struct user *user, unsigned number, bool in_line)
{
    struct commgemm_job job;
    struct commgemm_chunk chunk;
    uint64_t ticket;
    char name[32];
    open_client_with(user, LINE_ENTRIES);
    snprintf(name, sizeof(name), "line-%u", number);
    make_plan(user, name, COMMGEMM_OP_AG_GEMM, 2);
    assert_int_equal(commgemm_plan_chunk(user->client, user->plan, 0, 0, &chunk), COMMGEMM_OK);
    commgemm_job_init(&job);
    job.plan = user->plan;
    job.lhs = in_line ? (struct commgemm_operand){.id = chunk.buffer,
                                                  .offset_bytes = chunk.offset_bytes,
                                                  .generation = chunk.generation}
                      : all_of(&user->in);
    job.rhs = all_of(&user->in);
    job.out = all_of(&user->out);
    for (unsigned i = 0; i < LINE_ENTRIES; i++) {
        if (commgemm_submit(user->client, &job, &ticket))
            fail_msg("submit: %s", commgemm_last_error());
        if (!in_line)
            continue;
        job.kind = COMMGEMM_JOB_COPY_IN;
        job.rhs = job.out = (struct commgemm_operand){0};
        job.lhs = all_of(&user->in);
    }
}

static uint64_t spent_beside(bool in_line)
{
    static struct user users[LINES];
    pid_t executor = (pid_t)daemon_status(&daemon_, "executor_pid");
    uint64_t failed, before;
    ended(&before);
    for (unsigned i = 0; i < LINES; i++)
        fill_ring(&users[i], i, in_line);
    await_reading(&other);
    uint64_t spent = spent_on_noops(executor);
    for (unsigned i = 0; i < LINES; i++)
        commgemm_disconnect(users[i].client);
    for (unsigned i = 0; ended(&failed), failed - before < LINES * LINE_ENTRIES; i++) {
        assert_true(i < 100 * WAIT_S);
        usleep(10000);
    }
    return spent;
}

/* Nor behind those that wait for a job before them: they are not looked at again and again. */
static void test_nobody_waits_for_a_line(void **state)
{
    (void)state;
    uint64_t waiting = spent_beside(false), in_line = spent_beside(true);
    print_message("%d noops took the executor %llu us beside %u jobs, and %llu us where they stand "
                  "in line\n",
                  ROUNDS, (unsigned long long)waiting / 1000, LINES * LINE_ENTRIES,
                  (unsigned long long)in_line / 1000);
    assert_true(in_line < 10 * waiting);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_nobody_waits_behind_a_full_queue, set_up_for_runs,
                                        tear_down),
        cmocka_unit_test_setup_teardown(test_what_is_held_can_be_cancelled, set_up_for_runs,
                                        tear_down),
        cmocka_unit_test_setup_teardown(test_what_is_held_is_not_launched_yet, set_up_for_runs,
                                        tear_down),
        cmocka_unit_test_setup_teardown(test_what_is_held_needs_no_recording, set_up_for_runs,
                                        tear_down),
        cmocka_unit_test_setup_teardown(test_nothing_is_computed_for_who_left, set_up_for_runs,
                                        tear_down),
        cmocka_unit_test_setup_teardown(test_nobody_waits_for_a_line, set_up_for_lines, tear_down),
        cmocka_unit_test_setup_teardown(test_a_plan_is_destroyed_behind_its_jobs, set_up_for_lines,
                                        tear_down),
        cmocka_unit_test_setup_teardown(test_a_plan_is_destroyed_behind_jobs_unread,
                                        set_up_for_lines, tear_down),
        cmocka_unit_test_setup_teardown(test_nobody_waits_behind_copies_of_all_chunks,
                                        set_up_for_copies, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
