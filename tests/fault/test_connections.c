/* Who may connect, how often, and who is told why he may not. */
#include "tests/daemon/broker_fixture.h"

#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "commgemm.h"
#include "tests/proc_entries.h"

static void expect_refusal(struct client *client, int status, const char *text)
{
    expect_error(client_event(client, CGM_MSG_ERROR), status, text);
    assert_true(client_is_closed(client));
    client_close(client);
}

static void test_who_says_nothing_is_sent_away(void **state)
{
    struct daemon daemon;
    struct client silent, late, friendly;
    (void)state;
    daemon_init(&daemon);
    daemon_start(&daemon, "hello_timeout=1", NULL);
    client_open(&friendly, &daemon);
    client_connect(&silent, &daemon);
    usleep(300000);
    client_connect(&late, &daemon); /* has a time of its own */
    expect_refusal(&silent, CGM_TIMEOUT, "Hello did not come within 1 s");
    expect_refusal(&late, CGM_TIMEOUT, "Hello did not come within 1 s");
    wait_for_status(&friendly, "sessions", 1);
    client_close(&friendly);
    daemon_stop(&daemon);
}

static void test_connection_rate(void **state)
{
    struct commgemm_connect_options options;
    commgemm_client *library = NULL;
    struct daemon daemon;
    struct client clients[4], more;
    (void)state;
    daemon_init(&daemon);
    daemon_start(&daemon, "connection_rate=4", NULL);
    usleep(1000000); /* the one that waited for the daemon is forgotten */
    for (int i = 0; i < 4; i++)
        client_open(&clients[i], &daemon);
    client_connect(&more, &daemon);
    expect_refusal(&more, CGM_QUOTA, "asked for 1, used 4 within a second, allowed 4");
    commgemm_connect_options_init(&options);
    options.socket = daemon.socket;
    assert_int_equal(commgemm_connect(&options, &library), COMMGEMM_QUOTA);
    assert_non_null(strstr(commgemm_last_error(), "connection_rate"));
    usleep(1000000);
    client_open(&more, &daemon);
    client_close(&more);
    for (int i = 0; i < 4; i++)
        client_close(&clients[i]);
    daemon_stop(&daemon);
}

/* Whatever one user opens, silently or not, the others get in. */
static void test_one_user_cannot_take_every_session(void **state)
{
    enum { MANY = 40 };
    struct daemon daemon;
    struct client flood[MANY], honest;
    (void)state;
    skip_unless_root();
    daemon_init(&daemon);
    daemon_start(&daemon, "socket_mode=0666", "quota_sessions=3", "max_sessions=8", NULL);
    for (int i = 0; i < MANY; i++)
        client_connect_as(STRANGER, &flood[i], &daemon);
    client_open_as(STRANGER + 1, &honest, &daemon);
    assert_true(status_number(&honest, "sessions") <= 4);
    expect_refusal(&flood[MANY - 1], CGM_QUOTA, "quota_sessions of uid 12345: asked for 1, used 3");
    for (int i = 0; i < MANY - 1; i++)
        client_close(&flood[i]);
    client_close(&honest);
    daemon_stop(&daemon);
}

/* Nor two together, as long as the others want few. */
static void test_two_users_cannot_take_every_session(void **state)
{
    enum { MAX = 64, KEPT = MAX / 8, HALF = MAX / 2 };
    struct daemon daemon;
    struct client conspiracy[2][HALF], honest[KEPT], more;
    (void)state;
    skip_unless_root();
    daemon_init(&daemon);
    daemon_start(&daemon, "socket_mode=0666", "quota_sessions=32", "max_sessions=64", NULL);
    for (unsigned who = 0; who < 2; who++)
        for (unsigned i = 0; i < HALF; i++)
            client_connect_as(STRANGER + who, &conspiracy[who][i], &daemon);
    for (unsigned i = 0; i < KEPT; i++)
        client_open_as(STRANGER + 2, &honest[i], &daemon);
    assert_int_equal(status_number(&honest[0], "sessions"), MAX);
    expect_refusal(&conspiracy[1][HALF - 1], CGM_QUOTA,
                   "used 56, allowed 64, of which the last 8 are for users with fewer than 16; uid "
                   "12346 has 24");
    client_connect_as(STRANGER + 2, &more, &daemon);
    expect_refusal(&more, CGM_QUOTA, "max_sessions: asked for 1, used 64, allowed 64");
    client_close(&more);
    for (unsigned i = 0; i < KEPT; i++)
        client_close(&honest[i]);
    for (unsigned who = 0; who < 2; who++)
        for (unsigned i = 0; i < HALF; i++)
            client_close(&conspiracy[who][i]);
    daemon_stop(&daemon);
}

static void test_an_operator_gets_in_when_it_is_full(void **state)
{
    struct daemon daemon;
    struct client two[2], stranger, operator;
    (void)state;
    skip_unless_root();
    daemon_init(&daemon);
    daemon_start(&daemon, "socket_mode=0666", "max_sessions=2", NULL);
    client_open_as(STRANGER, &two[0], &daemon);
    wait_for_status(&two[0], "sessions", 1);
    client_open_as(STRANGER, &two[1], &daemon);
    client_connect_as(STRANGER + 1, &stranger, &daemon);
    expect_refusal(&stranger, CGM_QUOTA, "max_sessions: asked for 1, used 2, allowed 2");
    client_open(&operator, & daemon);
    assert_int_equal(status_number(&operator, "sessions"), 3);
    client_close(&operator);
    client_close(&two[0]);
    client_close(&two[1]);
    daemon_stop(&daemon);
}

static void send_garbage(const struct client *client)
{
    assert_int_equal(send(client->fd, "junk", 4, MSG_NOSIGNAL), 4);
}

/* What was sent to a session is the daemon's until it is read, also when the session has ended. */
static void test_what_the_ended_have_not_read_counts(void **state)
{
    enum { SESSIONS = 3 };
    struct daemon daemon;
    struct client deaf[SESSIONS], more, honest;
    (void)state;
    skip_unless_root();
    daemon_init(&daemon);
    daemon_start(&daemon, "socket_mode=0666", "quota_sessions=3", NULL);
    client_open(&honest, &daemon);
    for (int i = 0; i < SESSIONS; i++) {
        client_open_as(STRANGER, &deaf[i], &daemon);
        send_garbage(&deaf[i]); /* the answer to which is not read */
    }
    wait_for_status(&honest, "sessions", 1);
    assert_int_equal(quota_used(&honest, STRANGER, "quota_sessions"), SESSIONS);
    client_connect_as(STRANGER, &more, &daemon);
    expect_refusal(&more, CGM_QUOTA, "quota_sessions of uid 12345: asked for 1, used 3");
    assert_true(client_is_closed(&deaf[0])); /* reads it */
    client_close(&deaf[1]);
    for (int naps = 0; quota_used(&honest, STRANGER, "quota_sessions") != SESSIONS - 2; naps++) {
        assert_true(naps < WAIT_S * 100);
        usleep(10000);
    }
    client_open_as(STRANGER, &more, &daemon);
    client_close(&more);
    client_close(&deaf[0]);
    client_close(&deaf[2]);
    client_close(&honest);
    daemon_stop(&daemon);
}

/* Of those who are refused, and do not read why, some are told. */
static void test_few_are_told_why_they_are_refused(void **state)
{
    enum { MANY = 200, AT_MOST = 64 };
    struct daemon daemon;
    struct client in[2], flood[MANY], honest;
    unsigned told = 0;
    (void)state;
    skip_unless_root();
    daemon_init(&daemon);
    daemon_start(&daemon, "socket_mode=0666", "quota_sessions=2", NULL);
    client_open(&honest, &daemon);
    for (int i = 0; i < 2; i++)
        client_open_as(STRANGER, &in[i], &daemon);
    unsigned fds = proc_entries(daemon.pid, "fd");
    for (int i = 0; i < MANY; i++)
        client_connect_as(STRANGER, &flood[i], &daemon);
    for (int i = 0; i < MANY; i++) { /* the daemon has come to all */
        struct pollfd gone = {.fd = flood[i].fd, .events = POLLRDHUP};
        assert_int_equal(poll(&gone, 1, WAIT_S * 1000), 1);
    }
    assert_int_equal(status_number(&honest, "sessions"), 3);
    assert_in_range(proc_entries(daemon.pid, "fd"), 1, fds + AT_MOST);
    for (int i = 0; i < MANY; i++) {
        char byte;
        told += recv(flood[i].fd, &byte, 1, MSG_PEEK) == 1;
        assert_true(client_is_closed(&flood[i]));
        client_close(&flood[i]);
    }
    assert_in_range(told, 1, AT_MOST);
    daemon_wait_for_at_most(&daemon, "fd", fds);
    for (int i = 0; i < MANY; i++) { /* who reads it is told, however often */
        client_connect_as(STRANGER, &flood[0], &daemon);
        expect_refusal(&flood[0], CGM_QUOTA, "quota_sessions of uid 12345: asked for 1, used 2");
    }
    client_close(&in[0]);
    client_close(&in[1]);
    client_close(&honest);
    daemon_stop(&daemon);
}

/* So many, at most as many as fit, without waiting for an answer. */
static void send_small_packets(const struct client *client, unsigned count)
{
    for (unsigned i = 0; i < count; i++)
        if (send(client->fd, "junk", 4, MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
            return;
}

/* Sessions that end with answers and packets that nobody reads, and as many that are refused, come
 * as fast as they can: they have their user's share of fds, and no more. */
static void test_a_flood_of_packets_takes_no_fds(void **state)
{
    enum { ROUNDS = 30, CROWD = 400, QUOTA = 64, AT_MOST = 4 * QUOTA };
    struct daemon daemon;
    struct client crowd[CROWD];
    unsigned most = 0;
    (void)state;
    skip_unless_root();
    daemon_init(&daemon);
    daemon_start(&daemon, "socket_mode=0666", "quota_sessions=64", "connection_rate=0", NULL);
    unsigned fds = proc_entries(daemon.pid, "fd");
    for (int round = 0; round < ROUNDS; round++)
        for (int i = 0; i < CROWD; i++) {
            if (round > 0)
                client_close(&crowd[i]);
            client_connect_as(STRANGER, &crowd[i], &daemon);
            send_small_packets(&crowd[i], 25);
            unsigned now = i % 20 == 0 ? proc_entries(daemon.pid, "fd") : 0;
            most = now > most ? now : most;
        }
    print_message("%u fds at most, %u at first\n", most, fds);
    assert_true(most < fds + AT_MOST);
    for (int i = 0; i < CROWD; i++)
        client_close(&crowd[i]);
    daemon_wait_for_at_most(&daemon, "fd", fds);
    daemon_stop(&daemon);
}

/* He is remembered for a while, as how often he comes is limited, too. */
static void test_who_has_nothing_is_not_listed(void **state)
{
    struct daemon daemon;
    struct client client, stranger;
    char uid[16], value[32];
    (void)state;
    skip_unless_root();
    snprintf(uid, sizeof(uid), "%u", STRANGER);
    daemon_init(&daemon);
    daemon_start(&daemon, "socket_mode=0666", "connection_rate=5", NULL);
    client_open(&client, &daemon);
    for (int i = 0; i < 5; i++) {
        client_open_as(STRANGER, &stranger, &daemon);
        client_close(&stranger);
        wait_for_status(&client, "sessions", 1);
    }
    query_value(&client, CGM_QUERY_QUOTAS, "uid", uid, "used", value, sizeof(value));
    assert_string_equal(value, "");
    client_close(&client);
    daemon_stop(&daemon);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_who_says_nothing_is_sent_away),
        cmocka_unit_test(test_connection_rate),
        cmocka_unit_test(test_one_user_cannot_take_every_session),
        cmocka_unit_test(test_two_users_cannot_take_every_session),
        cmocka_unit_test(test_an_operator_gets_in_when_it_is_full),
        cmocka_unit_test(test_what_the_ended_have_not_read_counts),
        cmocka_unit_test(test_few_are_told_why_they_are_refused),
        cmocka_unit_test(test_a_flood_of_packets_takes_no_fds),
        cmocka_unit_test(test_who_has_nothing_is_not_listed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
