/* Sessions that an operator ends, when their process has ended before. */
#include "tests/daemon/broker_fixture.h"

#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77
#endif

/* Linux does since 6.5. */
static bool kernel_knows_peers(void)
{
    int pair[2], process = -1;
    socklen_t length = sizeof(process);
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
    bool knows = getsockopt(pair[0], SOL_SOCKET, SO_PEERPIDFD, &process, &length) == 0;
    close(pair[0]);
    close(pair[1]);
    if (knows)
        close(process);
    return knows;
}

static void say_hello(struct client *client)
{
    Cgm__Hello hello = CGM__HELLO__INIT;
    hello.min_version = hello.max_version = CGM_PROTOCOL_MAX;
    struct message *reply =
        client_call(client, CGM_MSG_HELLO, &hello.base, NULL, 0, CGM_MSG_HELLO_REPLY);
    client->session = ((Cgm__HelloReply *)reply->body)->session;
    message_free(reply);
}

/* The session of a process that connects and ends; this one has its end of the socket then. */
static void open_by_another(struct client *client, const struct daemon *daemon)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int status;
    snprintf(address.sun_path, sizeof(address.sun_path), "%s", daemon->socket);
    *client = (struct client){.fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0)};
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0)
        _exit(connect(client->fd, (struct sockaddr *)&address, sizeof(address)) != 0);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    say_hello(client);
}

static void expect_kill(struct client *client, const struct client *victim, pid_t pid)
{
    Cgm__SessionKill request = CGM__SESSION_KILL__INIT;
    request.session = victim->session;
    struct message *reply = client_call(client, CGM_MSG_SESSION_KILL, &request.base, NULL, 0,
                                        CGM_MSG_SESSION_KILL_REPLY);
    assert_int_equal(((Cgm__SessionKillReply *)reply->body)->pid, pid);
    message_free(reply);
}

/* Its number may be somebody else's by now, whom the operator would send a signal. */
static void test_a_process_that_has_ended_is_not_named(void **state)
{
    struct client operator, victim, child;
    if (!kernel_knows_peers())
        skip();
    client_open(&operator, * state);
    open_by_another(&child, *state);
    client_open(&victim, *state);
    expect_kill(&operator, & child, 0);
    expect_kill(&operator, & victim, getpid());
    wait_for_status(&operator, "sessions", 1);
    client_close(&child);
    client_close(&victim);
    client_close(&operator);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_a_process_that_has_ended_is_not_named, daemon_set_up,
                                        daemon_tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
