/* What goes on with the executor that follows one that died, and what does not: numbers of jobs,
 * ranks that were lost, user buffers of plans. With the backend that tests/backend.h says. */
#include "tests/fault/pair.h"

#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "tests/send_signal.h"

static uint64_t submit_barrier(const struct rank *r)
{
    struct commgemm_job job;
    uint64_t ticket;
    commgemm_job_init(&job);
    job.kind = COMMGEMM_JOB_BARRIER;
    job.plan = r->plan.id;
    job.rank = r->rank;
    assert_int_equal(commgemm_submit(r->client, &job, &ticket), COMMGEMM_OK);
    return ticket;
}

static int status_and_number(const struct rank *r, uint64_t ticket, uint64_t *ret_number)
{
    struct commgemm_completion done;
    memset(&done, 0, sizeof(done));
    assert_int_equal(commgemm_wait(r->client, ticket, WAIT_MS, &done), COMMGEMM_OK);
    *ret_number = done.comm_number;
    commgemm_completion_fini(&done);
    return done.status;
}

static bool thread_is_stopped(pid_t pid, const char *thread)
{
    char path[96], text[256] = "";
    snprintf(path, sizeof(path), "/proc/%d/task/%.20s/stat", (int)pid, thread);
    FILE *file = fopen(path, "re");
    size_t bytes = file ? fread(text, 1, sizeof(text) - 1, file) : 0;
    if (file)
        fclose(file);
    const char *state = bytes ? strrchr(text, ')') : NULL;
    return !state || state[2] == 'T';
}

/* Its threads notice the signal one after the other. */
static bool is_stopped(pid_t pid)
{
    char path[64];
    bool stopped = true;
    snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
    DIR *folder = opendir(path);
    assert_non_null(folder);
    for (const struct dirent *entry; (entry = readdir(folder));)
        if (entry->d_name[0] != '.')
            stopped = stopped && thread_is_stopped(pid, entry->d_name);
    closedir(folder);
    return stopped;
}

/* One rank has three jobs in flight, the other one: whoever submits what was lost again, and then
 * goes on, without waiting in between, meets the other in the same job. */
static void test_ranks_agree_after_a_restart(void **state)
{
    enum { JOBS = 3 };
    (void)state;
    struct pair pair;
    uint64_t ticket[WORLD][JOBS], number;
    pair_open(&pair, "spin_us=0");
    pair_run(&pair);
    pid_t executor = pair_executor_pid(&pair.daemon);
    assert_int_equal(send_signal(executor, SIGSTOP), 0);
    AWAIT(is_stopped(executor));
    for (uint32_t i = 0; i < JOBS; i++)
        ticket[0][i] = submit_barrier(&pair.rank[0]);
    ticket[1][0] = submit_barrier(&pair.rank[1]);
    assert_int_equal(send_signal(executor, SIGKILL), 0);
    for (uint32_t i = 0; i < JOBS; i++)
        assert_int_equal(status_and_number(&pair.rank[0], ticket[0][i], &number),
                         COMMGEMM_EXECUTOR_LOST);
    assert_int_equal(status_and_number(&pair.rank[1], ticket[1][0], &number),
                     COMMGEMM_EXECUTOR_LOST);
    uint64_t first = number;
    pair_await_executor(&pair);
    for (uint32_t r = 0; r < WORLD; r++)
        for (uint32_t i = 0; i < JOBS; i++)
            ticket[r][i] = submit_barrier(&pair.rank[r]);
    for (uint32_t r = 0; r < WORLD; r++)
        for (uint32_t i = 0; i < JOBS; i++) {
            assert_int_equal(status_and_number(&pair.rank[r], ticket[r][i], &number), COMMGEMM_OK);
            assert_int_equal(number, first + i);
        }
    pair_run(&pair);
    pair_close(&pair);
}

/* It had failed for all ranks before the executor died: also for the one that comes now. */
static void test_what_failed_before_a_restart(void **state)
{
    (void)state;
    struct pair pair;
    uint64_t ticket;
    pair_open(&pair, "spin_us=0");
    pair_run(&pair);
    assert_int_equal(pair_rank_submit(&pair.rank[0], 0, &ticket), COMMGEMM_OK);
    assert_int_equal(commgemm_cancel(pair.rank[0].client, ticket), COMMGEMM_OK);
    assert_int_equal(pair_rank_wait(&pair.rank[0], ticket, NULL, 0), COMMGEMM_CANCELLED);
    assert_int_equal(send_signal(pair_executor_pid(&pair.daemon), SIGKILL), 0);
    AWAIT(daemon_status(&pair.daemon, "executor_life") == 2);
    pair_await_executor(&pair);
    for (uint32_t i = 0; i < WORLD; i++)
        pair_rank_reopen(&pair.rank[i], "out", &pair.rank[i].out);
    assert_int_equal(pair_rank_submit(&pair.rank[1], 0, &ticket), COMMGEMM_OK);
    assert_int_equal(pair_rank_wait(&pair.rank[1], ticket, NULL, 0), COMMGEMM_CANCELLED);
    pair_run(&pair);
    pair_close(&pair);
}

/* A rank left, then the executor died: the one that is left is told the same as before. */
static void test_lost_rank_is_remembered(void **state)
{
    (void)state;
    struct pair pair;
    uint64_t ticket;
    char detail[192];
    pair_open(&pair, "spin_us=0");
    assert_int_equal(commgemm_comm_leave(pair.rank[1].client, pair.rank[1].comm), COMMGEMM_OK);
    assert_int_equal(send_signal(pair_executor_pid(&pair.daemon), SIGKILL), 0);
    for (int i = 0; i < 2; i++) { /* with the old executor or the new one, and with the new one */
        int status = pair_rank_submit(&pair.rank[0], 0, &ticket);
        if (status == COMMGEMM_OK)
            status = pair_rank_wait(&pair.rank[0], ticket, detail, sizeof(detail));
        assert_int_equal(commgemm_wait_executor(pair.rank[0].client, WAIT_MS), COMMGEMM_OK);
        if (i == 0)
            AWAIT(daemon_status(&pair.daemon, "executor_life") == 2);
        else
            assert_int_equal(status, COMMGEMM_PEER_LOST);
    }
    assert_non_null(strstr(detail, "rank 1"));
    pair_close(&pair);
}

/* ---- what a plan's user buffer held -------------------------------------------------------------
 */

#define SIDE 16u
#define SQUARE_BYTES (SIDE * SIDE * sizeof(float))

/* A bulk_ag of one rank: what was copied in comes out at aux_out. */
static void bulk_plan(struct rank *r, struct commgemm_plan *ret_plan)
{
    struct commgemm_plan_options options;
    uint64_t comm;
    assert_int_equal(commgemm_comm_join_simple(r->client, "alone", 1, 0, &comm), COMMGEMM_OK);
    commgemm_plan_options_init(&options);
    options.comm = comm;
    options.op = COMMGEMM_OP_BULK_AG;
    options.method = COMMGEMM_METHOD_BULK;
    options.m = options.n = options.k = SIDE;
    options.buffer_shape[0] = options.buffer_shape[1] = SIDE;
    assert_int_equal(commgemm_plan_create(r->client, &options, ret_plan), COMMGEMM_OK);
}

static int bulk_job(struct rank *r, const struct commgemm_plan *plan, int kind, char *ret_detail,
                    size_t size)
{
    struct commgemm_job job;
    uint64_t ticket;
    commgemm_job_init(&job);
    job.plan = plan->id;
    job.kind = kind;
    job.lhs = commgemm_operand_at(&r->in, 0);
    if (kind == COMMGEMM_JOB_RUN) {
        job.rhs = commgemm_operand_at(&r->in, SQUARE_BYTES);
        job.out = commgemm_operand_at(&r->out, 0);
        job.aux_out = commgemm_operand_at(&r->out, SQUARE_BYTES);
    }
    assert_int_equal(commgemm_submit(r->client, &job, &ticket), COMMGEMM_OK);
    return pair_rank_wait(r, ticket, ret_detail, size);
}

static void replace_executor(struct pair *pair)
{
    pid_t pid = pair_executor_pid(&pair->daemon);
    assert_int_equal(send_signal(pid, SIGKILL), 0);
    AWAIT(pair_executor_pid(&pair->daemon) != pid);
    pair_await_executor(pair);
}

/* It went with the executor that had it, and nothing tells the job that would read it but this. */
static void test_user_buffers_end_with_their_executor(void **state)
{
    (void)state;
    struct pair pair;
    struct rank *r = &pair.rank[0];
    struct commgemm_plan plan;
    char detail[192];
    pair_open(&pair, "spin_us=0");
    bulk_plan(r, &plan);
    for (int life = 0; life < 2; life++) {
        assert_int_equal(bulk_job(r, &plan, COMMGEMM_JOB_COPY_IN, NULL, 0), COMMGEMM_OK);
        assert_int_equal(bulk_job(r, &plan, COMMGEMM_JOB_RUN, NULL, 0), COMMGEMM_OK);
        assert_int_equal(buffer_view_pull(r->client, &r->out, &r->out_view), COMMGEMM_OK);
        assert_memory_equal(r->product + SIDE * SIDE, r->inputs, SQUARE_BYTES);
        replace_executor(&pair);
        assert_int_equal(bulk_job(r, &plan, COMMGEMM_JOB_RUN, detail, sizeof(detail)),
                         COMMGEMM_TAINTED);
        assert_non_null(strstr(detail, "rank 0: chunk 0 of its user buffer was lost"));
    }
    pair_close(&pair);
}

static void open_user_buffer(struct rank *r, const struct commgemm_plan *plan,
                             struct commgemm_buffer *ret_buffer)
{
    struct commgemm_chunk whole;
    assert_int_equal(commgemm_plan_chunk(r->client, plan->id, 0, COMMGEMM_WHOLE_BUFFER, &whole),
                     COMMGEMM_OK);
    assert_int_equal(commgemm_buffer_open(r->client, NULL, whole.buffer, 0, ret_buffer),
                     COMMGEMM_OK);
}

/* What goes into the memory of the executor before reaches nobody, and nobody vouches for it. */
static void test_user_buffers_are_opened_again(void **state)
{
    (void)state;
    struct pair pair;
    struct rank *r = &pair.rank[0];
    struct commgemm_plan plan;
    struct commgemm_buffer before, now;
    float bytes[SIDE * SIDE];
    pair_open(&pair, "spin_us=0");
    bulk_plan(r, &plan);
    open_user_buffer(r, &plan, &before);
    replace_executor(&pair);
    if (!test_backend_is_cuda()) { /* there the daemon copies, into what there is now */
        assert_int_equal(commgemm_buffer_write(r->client, &before, 0, r->inputs, SQUARE_BYTES),
                         COMMGEMM_STALE);
        assert_int_equal(commgemm_buffer_read(r->client, &before, 0, bytes, SQUARE_BYTES),
                         COMMGEMM_STALE);
    }
    assert_int_equal(commgemm_buffer_rewritten(r->client, &before), COMMGEMM_STALE);
    assert_non_null(strstr(commgemm_last_error(), "open it again"));
    assert_int_equal(bulk_job(r, &plan, COMMGEMM_JOB_RUN, NULL, 0), COMMGEMM_TAINTED);
    open_user_buffer(r, &plan, &now);
    assert_int_equal(now.id, before.id);
    assert_int_equal(commgemm_buffer_write(r->client, &now, 0, r->inputs, SQUARE_BYTES),
                     COMMGEMM_OK);
    assert_int_equal(commgemm_buffer_rewritten(r->client, &now), COMMGEMM_OK);
    assert_int_equal(bulk_job(r, &plan, COMMGEMM_JOB_RUN, NULL, 0), COMMGEMM_OK);
    assert_int_equal(buffer_view_pull(r->client, &r->out, &r->out_view), COMMGEMM_OK);
    assert_memory_equal(r->product + SIDE * SIDE, r->inputs, SQUARE_BYTES);
    /* One that was created outlives its executor, and so does what it was opened as. */
    assert_int_equal(commgemm_buffer_read(r->client, &r->in, 0, bytes, SQUARE_BYTES), COMMGEMM_OK);
    assert_memory_equal(bytes, r->inputs, SQUARE_BYTES);
    assert_int_equal(commgemm_buffer_rewritten(r->client, &r->in), COMMGEMM_OK);
    pair_close(&pair);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ranks_agree_after_a_restart),
        cmocka_unit_test(test_what_failed_before_a_restart),
        cmocka_unit_test(test_lost_rank_is_remembered),
        cmocka_unit_test(test_user_buffers_end_with_their_executor),
        cmocka_unit_test(test_user_buffers_are_opened_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
