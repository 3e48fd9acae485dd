/* Nobody fills the log with what he does: his lines are counted, and left out beyond a limit. */
#include "tests/daemon/broker_fixture.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/resource.h>
#include <unistd.h>

#include "tests/send_signal.h"

static bool some_lines_were_left_out(const struct daemon *daemon)
{
    return daemon_log_has(daemon, "warning", "lines about what it did were left out");
}

/* Each of these comms is two lines. */
static void test_one_user_cannot_fill_the_log(void **state)
{
    enum { COMMS = 500, TIMES = 100 };
    struct daemon daemon;
    struct client attacker;
    bool limited = false;
    (void)state;
    skip_unless_root();
    daemon_init(&daemon);
    daemon_start(&daemon, "socket_mode=0666", NULL);
    client_open_as(STRANGER, &attacker, &daemon);
    for (int i = 0; i < COMMS * TIMES && !limited; i++) {
        Cgm__CommCreate create = CGM__COMM_CREATE__INIT;
        Cgm__CommLeave leave = CGM__COMM_LEAVE__INIT;
        create.size = 1;
        struct message *reply =
            client_call(&attacker, CGM_MSG_COMM_CREATE, &create.base, NULL, 0, CGM_MSG_COMM_REPLY);
        leave.id = ((const Cgm__CommReply *)reply->body)->id;
        message_free(reply);
        client_ok(&attacker, CGM_MSG_COMM_LEAVE, &leave.base);
        limited = i % COMMS == 0 && some_lines_were_left_out(&daemon);
    }
    assert_true(limited);
    client_close(&attacker);
    daemon_stop(&daemon);
}

/* Whatever the level: each of these clients is two lines. */
static void test_debugging_does_not_fill_the_log(void **state)
{
    enum { CLIENTS = 2500, AT_ONCE = 1000, A_SECOND = 10 };
    struct daemon daemon;
    struct client client;
    (void)state;
    skip_unless_root();
    daemon_init(&daemon);
    daemon_start(&daemon, "socket_mode=0666", "log_level=debug", NULL);
    for (int i = 0; i < CLIENTS; i++) {
        client_connect_as(STRANGER, &client, &daemon);
        client_close(&client);
    }
    assert_true(daemon_log_has(&daemon, "debug", "connected"));
    assert_in_range(daemon_log_count(&daemon, ""), AT_ONCE, AT_ONCE + WAIT_S * A_SECOND);
    daemon_stop(&daemon);
}

/* Nor with what he has, when an executor dies: each user buffer is a line. */
static void test_what_is_lost_does_not_fill_the_log(void **state)
{
    enum { RANKS = 64, PLANS = 20, AT_ONCE = 1000, LATER = 200 }; /* fewer than 1280 */
    struct daemon daemon;
    struct client attacker;
    (void)state;
    skip_unless_root();
    daemon_init(&daemon);
    daemon_start(&daemon, "socket_mode=0666", NULL);
    client_open_as(STRANGER, &attacker, &daemon);
    wait_for_executor(&attacker);
    uint64_t comm = comm_join_all(&attacker, "mesh", RANKS), life;
    for (uint64_t m = 1; m <= PLANS; m++)
        plan_create(&attacker, comm, m * RANKS);
    life = status_number(&attacker, "executor_life");
    pid_t executor = (pid_t)status_number(&attacker, "executor_pid");
    assert_int_equal(send_signal(executor, SIGKILL), 0);
    wait_for_status(&attacker, "executor_life", life + 1);
    wait_for_executor(&attacker);
    assert_in_range(daemon_log_count(&daemon, "lost with its executor"), 1, AT_ONCE + LATER);
    client_close(&attacker);
    daemon_stop(&daemon);
}

/* No further one, for the daemon. */
static void leave_no_fds(const struct daemon *daemon)
{
    struct rlimit limit;
    char path[64];
    rlim_t fd = 0;
    do
        snprintf(path, sizeof(path), "/proc/%d/fd/%d", (int)daemon->pid, (int)fd++);
    while (faccessat(AT_FDCWD, path, F_OK, AT_SYMLINK_NOFOLLOW) == 0);
    limit = (struct rlimit){fd - 1, fd - 1};
    assert_int_equal(prlimit(daemon->pid, RLIMIT_NOFILE, &limit, NULL), 0);
}

/* Also when nobody can be let in: each who tries is a line. */
static void test_refusals_do_not_fill_the_log(void **state)
{
    enum { CLIENTS = 500, TIMES = 40 };
    struct daemon daemon;
    struct client observer, client;
    bool limited = false;
    (void)state;
    skip_unless_root();
    daemon_init(&daemon);
    daemon_start(&daemon, "socket_mode=0666", NULL);
    client_open(&observer, &daemon);
    wait_for_executor(&observer);
    leave_no_fds(&daemon);
    for (int i = 0; i < CLIENTS * TIMES && !limited; i++) {
        client_connect_as(STRANGER, &client, &daemon);
        assert_true(client_is_closed(&client));
        client_close(&client);
        limited = i % CLIENTS == 0 && some_lines_were_left_out(&daemon);
    }
    assert_true(limited);
    assert_true(daemon_log_has(&daemon, "warning", "no file descriptors left"));
    client_close(&observer);
    daemon_stop(&daemon);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_user_cannot_fill_the_log),
        cmocka_unit_test(test_debugging_does_not_fill_the_log),
        cmocka_unit_test(test_what_is_lost_does_not_fill_the_log),
        cmocka_unit_test(test_refusals_do_not_fill_the_log),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
