/* Descriptors that lie unread: in sockets, and in the daemon where they wait to be sent. */
#include "tests/daemon/broker_fixture.h"

#include <signal.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "commgemm.h"

#include "tests/fault/counted.h"
#include "tests/proc_entries.h"
#include "tests/send_signal.h"

#define PAGE 4096u

/* Answers with fds that nobody reads are copies of the daemon's. */
static void test_unread_fds_of_many_sessions(void **state)
{
    enum { SESSIONS = 30, OPENS = 450, FDS = 4000 };
    static uint8_t packet[CGM_PACKET_BYTES_MAX];
    Cgm__BufferOpen open_it = CGM__BUFFER_OPEN__INIT;
    struct daemon daemon;
    struct client deaf[SESSIONS], honest;
    size_t size;
    unsigned most = 0;
    (void)state;
    daemon_init(&daemon);
    daemon_start(&daemon, NULL);
    client_open(&honest, &daemon);
    daemon_limit_fds(&daemon, FDS);
    open_it.has_id = 1;
    for (int i = 0; i < SESSIONS; i++) {
        int fd;
        client_open(&deaf[i], &daemon);
        open_it.id = buffer_create(&deaf[i], NULL, PAGE, 0, &fd);
        close(fd);
        assert_int_equal(cgm_packet_pack(CGM_MSG_BUFFER_OPEN, 7, &open_it.base, 0, packet, &size),
                         CGM_OK);
        for (int k = 0; k < OPENS; k++) /* until it is not heard */
            if (send(deaf[i].fd, packet, size, MSG_NOSIGNAL | MSG_DONTWAIT) != (ssize_t)size)
                break;
        status_number(&honest, "sessions");
        unsigned fds = proc_entries(daemon.pid, "fd");
        most = fds > most ? fds : most;
    }
    print_message("%u file descriptors at most\n", most);
    assert_in_range(most, 1, FDS / 8); /* those that wait to be sent are few, too */
    for (int i = 0; i < SESSIONS; i++)
        client_close(&deaf[i]);
    buffer_create(&honest, NULL, PAGE, 0, NULL);
    client_close(&honest);
    daemon_stop(&daemon);
}

/* Of a buffer of its own; nothing is read. Opens it that often, or until it is not heard. */
static void ask_for_fds(struct client *client, int opens)
{
    Cgm__BufferOpen open_it = CGM__BUFFER_OPEN__INIT;
    int fd;
    open_it.has_id = 1;
    open_it.id = buffer_create(client, NULL, PAGE, 0, &fd);
    close(fd);
    for (int i = 0; i < opens; i++)
        client_send(client, CGM_MSG_BUFFER_OPEN, &open_it.base, NULL, 0);
}

/* What cannot be sent waits in the daemon, where it is one of its file descriptors. */
static void test_fds_that_wait_to_be_sent(void **state)
{
    enum { SESSIONS = 60, OPENS = 30, FDS = 4000 };
    struct daemon daemon;
    struct client deaf[SESSIONS], honest;
    (void)state;
    daemon_init(&daemon);
    daemon_start(&daemon, NULL);
    client_open(&honest, &daemon);
    daemon_limit_fds(&daemon, FDS);
    for (int i = 0; i < SESSIONS; i++) {
        client_open(&deaf[i], &daemon);
        ask_for_fds(&deaf[i], OPENS);
    }
    status_number(&honest, "sessions");
    usleep(100000);
    unsigned fds = proc_entries(daemon.pid, "fd");
    print_message("%u file descriptors\n", fds);
    assert_in_range(fds, 1, FDS / 8);
    for (int i = 0; i < SESSIONS; i++)
        client_close(&deaf[i]);
    client_close(&honest);
    daemon_stop(&daemon);
}

/* Whoever reads later than they come is not cut off for what other users leave unread. */
static void leave_unread(uid_t users)
{
    enum { SESSIONS = 80, OPENS = 120, FDS = 4000 };
    struct daemon daemon;
    struct client deaf[SESSIONS], honest;
    daemon_init(&daemon);
    daemon_start(&daemon, "socket_mode=0666", NULL);
    client_open_as(STRANGER, &honest, &daemon);
    daemon_limit_fds(&daemon, FDS);
    for (int i = 0; i < SESSIONS; i++) {
        client_open_as(STRANGER + 1 + (uid_t)i % users, &deaf[i], &daemon);
        ask_for_fds(&deaf[i], OPENS);
        status_number(&honest, "sessions");
    }
    ask_for_fds(&honest, OPENS);
    usleep(100000); /* until all are sent, or wait in the daemon */
    for (uint32_t i = honest.serial - OPENS; i < honest.serial; i++)
        message_free(client_reply(&honest, i + 1));
    for (int i = 0; i < SESSIONS; i++)
        client_close(&deaf[i]);
    client_close(&honest);
    daemon_stop(&daemon);
}

static void test_unread_fds_of_another_user(void **state)
{
    (void)state;
    skip_unless_root();
    leave_unread(1);
}

static void test_unread_fds_of_many_users(void **state)
{
    (void)state;
    skip_unless_root();
    leave_unread(10);
}

#define FDS_IN_FLIGHT 1000u

/* As a service's daemon: of its user no more may be in flight than a process may have open. */
static void be_no_root(void)
{
    const struct rlimit limit = {FDS_IN_FLIGHT, FDS_IN_FLIGHT};
    setrlimit(RLIMIT_NOFILE, &limit);
    counted_be();
}

/* They stay in flight when the session has ended, until who has its socket reads or closes it. The
 * executor needs some, too. */
static void test_unread_fds_of_ended_sessions(void **state)
{
    enum { SESSIONS = 100, OPENS = 30 };
    struct daemon daemon;
    struct client deaf[SESSIONS], owner, honest;
    Cgm__BufferOpen open_it = CGM__BUFFER_OPEN__INIT;
    (void)state;
    skip_unless_root();
    if (!counted_can_be())
        skip();
    daemon_init(&daemon);
    daemon.bequeath = be_no_root;
    daemon_start(&daemon, REAL_EXECUTOR, "socket_mode=0666", NULL);
    client_open(&honest, &daemon);
    wait_for_executor(&honest);
    client_open_as(STRANGER, &owner, &daemon);
    open_it.has_id = 1;
    open_it.id = buffer_create(&owner, NULL, PAGE, 0, NULL);
    for (unsigned i = 0; i < SESSIONS; i++) {
        client_open_as(STRANGER, &deaf[i], &daemon);
        for (unsigned k = 0; k < OPENS; k++)
            client_send(&deaf[i], CGM_MSG_BUFFER_OPEN, &open_it.base, NULL, 0);
        assert_int_equal(shutdown(deaf[i].fd, SHUT_WR), 0);
    }
    wait_for_status(&honest, "sessions", 2);
    for (unsigned i = 0; i < 10; i++)
        buffer_create(&honest, NULL, PAGE, 0, NULL);
    assert_int_equal(status_number(&honest, "executor_deaths"), 0);
    for (unsigned i = 0; i < SESSIONS; i++)
        client_close(&deaf[i]);
    client_close(&owner);
    client_close(&honest);
    daemon_stop(&daemon);
}

/* ---- completions ------------------------------------------------------------------------------
 */

enum { WORLD = 16, ROUNDS = 16, SIDE = 16, JOBS = WORLD * ROUNDS };

static commgemm_client *enter_without_ring(const struct daemon *daemon)
{
    struct commgemm_connect_options options;
    commgemm_client *client;
    commgemm_connect_options_init(&options);
    options.socket = daemon->socket;
    options.no_ring = 1;
    if (commgemm_connect(&options, &client) != COMMGEMM_OK ||
        commgemm_wait_executor(client, WAIT_S * 1000) != COMMGEMM_OK)
        _exit(1);
    return client;
}

static void plan_for_all(commgemm_client *client, struct commgemm_job *ret_job)
{
    uint32_t ranks[WORLD];
    struct commgemm_join_options join;
    struct commgemm_plan_options options;
    struct commgemm_plan plan;
    for (uint32_t rank = 0; rank < WORLD; rank++)
        ranks[rank] = rank;
    commgemm_join_options_init(&join);
    join.name = "deaf", join.create = 1, join.size = join.n_ranks = WORLD, join.ranks = ranks;
    commgemm_plan_options_init(&options);
    options.op = COMMGEMM_OP_AG_GEMM, options.m = options.n = options.k = SIDE;
    if (commgemm_comm_join(client, &join, &options.comm) != COMMGEMM_OK ||
        commgemm_plan_create(client, &options, &plan) != COMMGEMM_OK)
        _exit(2);
    commgemm_job_init(ret_job);
    ret_job->plan = plan.id;
    ret_job->want_phases = 1;
}

/* Stops when all jobs are submitted; the phases that it finds missing when it goes on. */
static uint32_t sleep_over_jobs(const struct daemon *daemon)
{
    uint64_t tickets[JOBS];
    uint32_t lost = 0;
    struct commgemm_job job;
    struct commgemm_buffer buffer;
    struct commgemm_completion done;
    commgemm_client *client = enter_without_ring(daemon);
    plan_for_all(client, &job);
    if (commgemm_buffer_create(client, NULL, (WORLD + 1) * SIDE * SIDE * 4, 0, 0, 0, &buffer))
        _exit(3);
    job.lhs = job.rhs = commgemm_operand_at(&buffer, 0);
    for (uint32_t i = 0; i < JOBS; i++) {
        job.rank = i % WORLD;
        job.out = commgemm_operand_at(&buffer, (job.rank + 1) * SIDE * SIDE * 4);
        if (commgemm_submit(client, &job, &tickets[i]) != COMMGEMM_OK)
            _exit(4);
    }
    raise(SIGSTOP);
    for (uint32_t i = 0; i < JOBS; i++) {
        if (commgemm_wait(client, tickets[i], WAIT_S * 1000, &done) != COMMGEMM_OK || done.status)
            _exit(5);
        lost += done.phases_lost;
        commgemm_completion_fini(&done);
    }
    commgemm_disconnect(client);
    return lost;
}

/* A process that is stopped for a while loses phases, and nothing else. */
static void test_completions_that_are_not_read(void **state)
{
    struct daemon daemon;
    int status;
    (void)state;
    daemon_init(&daemon);
    daemon_start(&daemon, REAL_EXECUTOR, "tune_ms=0", "test_delay_us=500", NULL);
    pid_t pid = fork();
    if (pid == 0)
        _exit(sleep_over_jobs(&daemon) ? 0 : 6);
    assert_int_equal(waitpid(pid, &status, WUNTRACED), pid);
    assert_true(WIFSTOPPED(status));
    for (unsigned naps = 0; daemon_status(&daemon, "jobs_done") < JOBS; naps++) {
        assert_true(naps < WAIT_S * 100);
        usleep(10000);
    }
    assert_int_equal(send_signal(pid, SIGCONT), 0);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    daemon_stop(&daemon);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_unread_fds_of_many_sessions),
        cmocka_unit_test(test_fds_that_wait_to_be_sent),
        cmocka_unit_test(test_unread_fds_of_another_user),
        cmocka_unit_test(test_unread_fds_of_many_users),
        cmocka_unit_test(test_unread_fds_of_ended_sessions),
        cmocka_unit_test(test_completions_that_are_not_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
