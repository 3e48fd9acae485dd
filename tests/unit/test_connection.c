/* Who has hung up and who could not be heard are told apart: of the first nothing comes any more.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "daemon/broker/connection.h"

struct peer {
    struct cgm_connection connection;
    struct cgm_wire wire;
    uv_loop_t loop;
    const char *why; /* it ended */
};

static void on_end(void *owner, const char *why)
{
    struct peer *peer = owner;
    peer->why = why;
    uv_stop(&peer->loop);
}

static const struct cgm_connection_events events = {.packets_per_turn = 1, .on_end = on_end};

static void wait_for_end(struct peer *peer, int fd)
{
    memset(peer, 0, sizeof(*peer));
    assert_int_equal(uv_loop_init(&peer->loop), 0);
    assert_int_equal(
        cgm_connection_open(&peer->connection, &peer->loop, &peer->wire, fd, 1, &events, peer), 0);
    uv_run(&peer->loop, UV_RUN_DEFAULT);
    assert_non_null(peer->why);
}

static void test_a_peer_that_hangs_up(void **state)
{
    static struct peer peer;
    int pair[2];
    (void)state;
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK, 0, pair), 0);
    close(pair[1]);
    wait_for_end(&peer, pair[0]);
    assert_string_equal(peer.why, "hung up");
    assert_false(cgm_connection_was_cut(&peer.connection));
}

/* Of a pipe nothing can be received, whatever there is to read. */
static void test_a_peer_that_cannot_be_heard(void **state)
{
    static struct peer peer;
    int pair[2];
    (void)state;
    assert_int_equal(pipe(pair), 0);
    assert_int_equal(write(pair[1], "x", 1), 1);
    wait_for_end(&peer, pair[0]);
    assert_string_equal(peer.why, "receiving failed");
    assert_true(cgm_connection_was_cut(&peer.connection));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_peer_that_hangs_up),
        cmocka_unit_test(test_a_peer_that_cannot_be_heard),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
