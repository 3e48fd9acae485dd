/* Who dies, and what everybody else sees: the real daemon, executor and library, two ranks, with
 * the backend that tests/backend.h says. */
#include "tests/fault/pair.h"

#include <fcntl.h>
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/send_signal.h"

#define TIMEOUT_S test_backend_wait(1) /* of an executor that does not answer */

static const char *timeout_setting(void)
{
    static char setting[48];
    snprintf(setting, sizeof(setting), "executor_timeout=%d", TIMEOUT_S);
    return setting;
}

/* Nobody may be there to reap it. */
static bool is_gone(pid_t pid)
{
    char path[64], state = 'X';
    snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
    FILE *file = fopen(path, "re");
    if (!file || fscanf(file, "%*d (%*[^)]) %c", &state) != 1)
        state = 'X';
    if (file)
        fclose(file);
    return state == 'X' || state == 'Z';
}

/* ---- the executor -------------------------------------------------------------------------------
 */

static void test_executor_dies_in_a_job(void **state)
{
    (void)state;
    struct pair pair;
    uint64_t tickets[WORLD];
    float inputs[WORLD][LHS_FLOATS + RHS_FLOATS];
    pair_open(&pair, "test_delay_us=200000"); /* the job takes its time */
    for (uint32_t i = 0; i < WORLD; i++) {
        memcpy(inputs[i], pair.rank[i].inputs, sizeof(inputs[i]));
        assert_int_equal(pair_rank_submit(&pair.rank[i], 0, &tickets[i]), COMMGEMM_OK);
    }
    usleep(50000);
    assert_int_equal(send_signal(pair_executor_pid(&pair.daemon), SIGKILL), 0);
    for (uint32_t i = 0; i < WORLD; i++)
        assert_int_equal(pair_rank_wait(&pair.rank[i], tickets[i], NULL, 0),
                         COMMGEMM_EXECUTOR_LOST);
    for (uint32_t i = 0; i < WORLD; i++) {
        struct rank *r = &pair.rank[i];
        assert_int_equal(commgemm_wait_executor(r->client, WAIT_MS), COMMGEMM_OK);
        pair_rank_reopen(r, "in", &r->in);
        pair_rank_reopen(r, "out", &r->out);
        assert_int_equal(r->in.generation, 1);
        assert_false(r->in.tainted);
        assert_int_equal(buffer_view_pull(r->client, &r->in, &r->in_view), COMMGEMM_OK);
        assert_memory_equal(inputs[i], r->inputs, sizeof(inputs[i]));
        /* What it was writing is marked, until it is written again. */
        assert_int_equal(r->out.generation, 2);
        assert_true(r->out.tainted);
    }
    pair_run(&pair);
    /* The counters outlive the executor, and know what was lost with it. */
    assert_int_equal(daemon_status(&pair.daemon, "jobs_failed"), WORLD);
    assert_int_equal(daemon_status(&pair.daemon, "jobs_done"), WORLD);
    for (uint32_t i = 0; i < WORLD; i++) {
        pair_rank_reopen(&pair.rank[i], "out", &pair.rank[i].out);
        assert_int_equal(pair.rank[i].out.generation, 2);
        assert_false(pair.rank[i].out.tainted);
    }
    pair_close(&pair);
}

static void test_executor_dies_again_and_again(void **state)
{
    (void)state;
    struct pair pair;
    pair_open(&pair, "spin_us=0");
    for (int round = 0; round < 4; round++) {
        pair_run(&pair);
        pid_t pid = pair_executor_pid(&pair.daemon);
        assert_int_equal(send_signal(pid, SIGKILL), 0);
        /* Idle: nothing is lost but the executor. */
        AWAIT(pair_executor_pid(&pair.daemon) != pid);
        pair_await_executor(&pair);
    }
    pair_run(&pair);
    pair_close(&pair);
}

/* ---- jobs that were nowhere yet
 * ------------------------------------------------------------------
 */

/* The entry lay in the ring and nobody had taken it. */
static void test_executor_dies_before_it_takes_an_entry(void **state)
{
    (void)state;
    struct pair pair;
    uint64_t ticket;
    pair_open(&pair, "spin_us=0");
    pid_t executor = pair_executor_pid(&pair.daemon);
    assert_int_equal(send_signal(executor, SIGSTOP), 0);
    assert_int_equal(pair_rank_submit(&pair.rank[0], 0, &ticket), COMMGEMM_OK);
    assert_int_equal(send_signal(executor, SIGKILL), 0);
    assert_int_equal(pair_rank_wait(&pair.rank[0], ticket, NULL, 0), COMMGEMM_EXECUTOR_LOST);
    pair_await_executor(&pair);
    pair_run(&pair);
    pair_close(&pair);
}

/* It hangs without dying: nobody waits for it for ever. */
static void test_executor_that_hangs(void **state)
{
    (void)state;
    struct pair pair;
    uint64_t ticket;
    pair_open(&pair, timeout_setting());
    pid_t executor = pair_executor_pid(&pair.daemon);
    assert_int_equal(send_signal(executor, SIGSTOP), 0);
    assert_int_equal(pair_rank_submit(&pair.rank[0], 0, &ticket), COMMGEMM_OK);
    assert_int_equal(pair_rank_wait(&pair.rank[0], ticket, NULL, 0), COMMGEMM_EXECUTOR_LOST);
    pair_await_executor(&pair);
    assert_int_not_equal(pair_executor_pid(&pair.daemon), executor);
    pair_run(&pair);
    pair_close(&pair);
}

/* The first run of a plan, which its creation waits for, is watched as a job is. */
static void test_first_run_that_takes_too_long(void **state)
{
    (void)state;
    struct pair pair;
    pair_join(&pair, "test_delay_us=1000000", "job_timeout=1");
    int status;
    do /* each operation is delayed at random: it may be in time by chance */
        status = pair_rank_try_plan(&pair.rank[0]);
    while (status == COMMGEMM_OK &&
           commgemm_plan_destroy(pair.rank[0].client, pair.rank[0].plan.id) == COMMGEMM_OK);
    assert_true(status == COMMGEMM_WATCHDOG || status == COMMGEMM_EXECUTOR_LOST);
    pair_close(&pair);
}

/* A stopped executor looks at its clock too late to blame the job: what is aborted then has time to
 * end. */
static void test_executor_that_stopped_for_long(void **state)
{
    (void)state;
    struct pair pair;
    uint64_t tickets[WORLD];
    bool cuda = test_backend_is_cuda();
    pair_join(&pair, "test_delay_us=200000", cuda ? "job_timeout=4" : "job_timeout=2");
    for (uint32_t i = 0; i < WORLD; i++) {
        pair_rank_plan(&pair.rank[i]);
        pair_rank_buffers(&pair.rank[i]);
    }
    for (uint32_t i = 0; i < WORLD; i++)
        assert_int_equal(pair_rank_submit(&pair.rank[i], 0, &tickets[i]), COMMGEMM_OK);
    pid_t executor = pair_executor_pid(&pair.daemon);
    assert_int_equal(send_signal(executor, SIGSTOP), 0);
    /* Longer than the job may take, and than an aborted one may. */
    usleep(cuda ? 6500000 : 4500000);
    assert_int_equal(send_signal(executor, SIGCONT), 0);
    for (uint32_t i = 0; i < WORLD; i++) {
        int status = pair_rank_wait(&pair.rank[i], tickets[i], NULL, 0);
        assert_true(status == COMMGEMM_WATCHDOG || status == COMMGEMM_OK);
    }
    assert_int_equal(pair_executor_pid(&pair.daemon), executor);
    pair_close(&pair);
}

/* Time in which the daemon itself stood still is not held against the executor. */
static void test_daemon_that_stops_for_long(void **state)
{
    (void)state;
    struct pair pair;
    pair_open(&pair, timeout_setting());
    pid_t executor = pair_executor_pid(&pair.daemon);
    assert_int_equal(send_signal(pair.daemon.pid, SIGSTOP), 0);
    pair_run_once(&pair); /* through the rings, which the executor serves alone */
    usleep((useconds_t)TIMEOUT_S * 1500000);
    assert_int_equal(send_signal(pair.daemon.pid, SIGCONT), 0);
    pair_check_results(&pair);
    usleep(500000);
    assert_int_equal(pair_executor_pid(&pair.daemon), executor);
    pair_run(&pair);
    pair_close(&pair);
}

/* ---- a client -----------------------------------------------------------------------------------
 */

static pid_t start_rank_1(const struct daemon *daemon)
{
    pid_t pid = fork();
    if (pid == 0) {
        struct rank r;
        pair_rank_connect(&r, daemon, 1);
        commgemm_wait_executor(r.client, WAIT_MS);
        pair_rank_join(&r);
        pair_rank_plan(&r);
        pause();
    }
    return pid;
}

static void with_a_peer_process(void (*test)(struct rank *r, pid_t peer))
{
    struct daemon daemon;
    struct rank r;
    pair_daemon_start(&daemon, NULL, NULL);
    pid_t peer = start_rank_1(&daemon);
    pair_rank_connect(&r, &daemon, 0);
    assert_int_equal(commgemm_wait_executor(r.client, WAIT_MS), COMMGEMM_OK);
    pair_rank_join(&r);
    pair_rank_plan(&r);
    pair_rank_buffers(&r);
    test(&r, peer);
    send_signal(peer, SIGKILL);
    waitpid(peer, NULL, 0);
    pair_rank_close(&r);
    daemon_stop(&daemon);
}

static void client_dies(struct rank *r, pid_t peer)
{
    uint64_t ticket;
    char detail[192];
    assert_int_equal(pair_rank_submit(r, 0, &ticket), COMMGEMM_OK);
    send_signal(peer, SIGKILL);
    assert_int_equal(pair_rank_wait(r, ticket, detail, sizeof(detail)), COMMGEMM_PEER_LOST);
    assert_non_null(strstr(detail, "rank 1"));
    assert_int_equal(buffer_view_pull(r->client, &r->out, &r->out_view), COMMGEMM_OK);
    for (uint32_t i = 0; i < OUT_FLOATS; i++)
        assert_true(isnan(r->product[i]));
    /* Later submissions are told at once. */
    assert_int_equal(pair_rank_submit(r, 0, &ticket), COMMGEMM_OK);
    assert_int_equal(pair_rank_wait(r, ticket, NULL, 0), COMMGEMM_PEER_LOST);
}

static void test_client_dies_before_it_submits(void **state)
{
    (void)state;
    with_a_peer_process(client_dies);
}

static void client_stops(struct rank *r, pid_t peer)
{
    uint64_t ticket;
    char detail[192];
    send_signal(peer, SIGSTOP);
    assert_int_equal(pair_rank_submit(r, 200, &ticket), COMMGEMM_OK);
    assert_int_equal(pair_rank_wait(r, ticket, detail, sizeof(detail)), COMMGEMM_JOIN_TIMEOUT);
    assert_non_null(strstr(detail, "rank 1"));
}

static void test_client_that_stops_is_named(void **state)
{
    (void)state;
    with_a_peer_process(client_stops);
}

/* ---- the daemon ---------------------------------------------------------------------------------
 */

static void *kill_soon(void *daemon)
{
    usleep(100000);
    send_signal(((struct daemon *)daemon)->pid, SIGKILL);
    return NULL;
}

static void test_daemon_dies(void **state)
{
    (void)state;
    struct pair pair;
    struct commgemm_buffer buffer;
    uint64_t ticket;
    pthread_t killer;
    pair_open(&pair, "spin_us=0");
    pid_t executor = pair_executor_pid(&pair.daemon);
    assert_int_equal(pair_rank_submit(&pair.rank[0], 0, &ticket), COMMGEMM_OK);
    assert_int_equal(pthread_create(&killer, NULL, kill_soon, &pair.daemon), 0);
    assert_int_equal(pair_rank_wait(&pair.rank[0], ticket, NULL, 0), COMMGEMM_DAEMON_LOST);
    assert_int_equal(commgemm_buffer_open(pair.rank[1].client, "in.1", 0, 0, &buffer),
                     COMMGEMM_DAEMON_LOST);
    /* The other session learns of it when its own socket hangs up: at the submission or after. */
    int status = pair_rank_submit(&pair.rank[1], 0, &ticket);
    if (status == COMMGEMM_OK)
        status = pair_rank_wait(&pair.rank[1], ticket, NULL, 0);
    assert_int_equal(status, COMMGEMM_DAEMON_LOST);
    pthread_join(killer, NULL);
    assert_int_equal(daemon_wait(&pair.daemon), 1000 + SIGKILL);
    AWAIT(is_gone(executor)); /* it ends with its broker */
    pair_close(&pair);
}

/* ---- a liar -------------------------------------------------------------------------------------
 */

/* Opens a session by hand and maps its ring. */
static void liar_open(struct client *liar, const struct daemon *daemon, struct cgm_ring *ret_ring,
                      int *ret_wake_fd)
{
    client_open(liar, daemon);
    struct message *reply = client_ring_set_up(liar, 16);
    assert_int_equal(cgm_ring_join(reply->fds[0], 16, ret_ring), CGM_OK);
    *ret_wake_fd = dup(reply->fds[1]);
    message_free(reply);
}

/* Holes would keep whoever looks at it waiting, for as long as they are being made. */
static void test_nobody_makes_holes_in_a_ring(void **state)
{
    const int hole = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE;
    struct pair pair;
    struct client client;
    struct cgm_ring ring;
    (void)state;
    pair_open(&pair, NULL);
    client_open(&client, &pair.daemon);
    struct message *reply = client_ring_set_up(&client, 16);
    assert_int_equal(cgm_ring_join(reply->fds[0], 16, &ring), CGM_OK);
    assert_int_equal(fallocate(reply->fds[0], hole, 0, (off_t)ring.bytes), -1);
    assert_int_equal(madvise(ring.header, ring.bytes, MADV_REMOVE), -1);
    cgm_ring_unmap(&ring);
    message_free(reply);
    client_close(&client);
    pair_run(&pair);
    pair_close(&pair);
}

/* And who has not seen to that has submitted nothing. */
static void test_session_with_a_ring_for_holes_is_closed(void **state)
{
    struct pair pair;
    struct client liar;
    struct cgm_ring ring;
    uint64_t one = 1;
    (void)state;
    pair_open(&pair, NULL);
    client_open(&liar, &pair.daemon);
    struct message *reply = client_ring_set_up(&liar, 16);
    assert_int_equal(cgm_ring_map(reply->fds[0], 16, &ring), CGM_OK);
    ring.entry[0].ticket = 1;
    atomic_store(&ring.header->sq_tail, 1);
    assert_int_equal(write(reply->fds[1], &one, sizeof(one)), sizeof(one));
    expect_error(client_event(&liar, CGM_MSG_ERROR), CGM_BAD_MESSAGE, "F_SEAL_FUTURE_WRITE");
    assert_true(client_is_closed(&liar));
    assert_int_equal(atomic_load(&ring.header->sq_head), 0);
    cgm_ring_unmap(&ring);
    message_free(reply);
    close(liar.fd);
    pair_run(&pair);
    pair_close(&pair);
}

static void test_session_with_a_broken_ring_is_closed(void **state)
{
    (void)state;
    struct pair pair;
    struct client liar;
    struct cgm_ring ring;
    uint64_t one = 1;
    int wake_fd;
    pair_open(&pair, "spin_us=0");
    liar_open(&liar, &pair.daemon, &ring, &wake_fd);
    memset(ring.header, 0xa5, sizeof(*ring.header));
    assert_int_equal(write(wake_fd, &one, sizeof(one)), sizeof(one));
    assert_true(client_is_closed(&liar));
    pair_run(&pair);
    cgm_ring_unmap(&ring);
    close(wake_fd);
    close(liar.fd);
    pair_close(&pair);
}

/* test_deaths [[-]PATTERN]: only those tests whose names match, or none of them; with * and ?. */
int main(int argc, char **argv)
{
    unsigned seed = (unsigned)getpid();
    print_message("seed %u\n", seed);
    srand(seed);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_executor_dies_in_a_job),
        cmocka_unit_test(test_executor_dies_again_and_again),
        cmocka_unit_test(test_executor_dies_before_it_takes_an_entry),
        cmocka_unit_test(test_executor_that_hangs),
        cmocka_unit_test(test_first_run_that_takes_too_long),
        cmocka_unit_test(test_executor_that_stopped_for_long),
        cmocka_unit_test(test_daemon_that_stops_for_long),
        cmocka_unit_test(test_client_dies_before_it_submits),
        cmocka_unit_test(test_client_that_stops_is_named),
        cmocka_unit_test(test_daemon_dies),
        cmocka_unit_test(test_session_with_a_broken_ring_is_closed),
        cmocka_unit_test(test_nobody_makes_holes_in_a_ring),
        cmocka_unit_test(test_session_with_a_ring_for_holes_is_closed),
    };
    if (argc > 1 && argv[1][0] == '-')
        cmocka_set_skip_filter(argv[1] + 1);
    else if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
