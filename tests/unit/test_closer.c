/* What hanging up costs: a thread for who may have sent fds whose close() takes long, none for the
 * others; for who has gone hardly anything is read. The peer still reads what was sent to it. And
 * who closes what clients have had. pthread_create, recv and close are this file's (--wrap), and
 * count. */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <netinet/in.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>
#include <cmocka.h>

#include "daemon/broker/broker.h"
#include "daemon/broker/closer.h"
#include "daemon/broker/hang_up.h"
#include "daemon/broker/quota.h"
#include "proto/ring.h"
#include "proto/status.h"
#include "tests/unit/wrapped_threads.h"

#ifndef SO_PASSRIGHTS
#define SO_PASSRIGHTS 83 /* since Linux 6.16 */
#endif

#define UID 4711u
#define MANY 200u

static struct cgm_broker broker;
static _Atomic unsigned received, received_here, closed_here;
static _Atomic int slow_fd = -1; /* whose close() takes as long as it stays this */
static pthread_t loop_thread;

ssize_t __real_recv(int fd, void *bytes, size_t size, int flags);
ssize_t __wrap_recv(int fd, void *bytes, size_t size, int flags);

ssize_t __wrap_recv(int fd, void *bytes, size_t size, int flags)
{
    received++;
    received_here += pthread_equal(pthread_self(), loop_thread) != 0;
    return __real_recv(fd, bytes, size, flags);
}

int __real_close(int fd);
int __wrap_close(int fd);

int __wrap_close(int fd)
{
    closed_here += pthread_equal(pthread_self(), loop_thread) != 0;
    while (fd == slow_fd)
        usleep(1000);
    return __real_close(fd);
}

static int set_up(void **state)
{
    (void)state;
    loop_thread = pthread_self();
    broker = (struct cgm_broker){0};
    assert_int_equal(uv_loop_init(&broker.loop), 0);
    assert_int_equal(cgm_closer_init(&broker), 0);
    received = 0;
    threads = 0;
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    slow_fd = -1;
    cgm_closer_fini(&broker);
    uv_close((uv_handle_t *)&broker.closer.ended, NULL);
    uv_close((uv_handle_t *)&broker.closer.again, NULL);
    no_threads = false;
    uv_run(&broker.loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&broker.loop), 0);
    cgm_quota_fini(&broker);
    cgm_registry_fini(&broker.users);
    return 0;
}

static int ours, theirs;

static void connect_both(void)
{
    int fds[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds), 0);
    ours = fds[0];
    theirs = fds[1];
}

static void await_the_rest(void)
{
    while (broker.closer.newest)
        uv_run(&broker.loop, UV_RUN_ONCE);
}

/* Until the socket is closed. */
static void expect_threads(unsigned count)
{
    cgm_hang_up(&broker, UID, ours);
    assert_int_equal(threads, count);
    await_the_rest();
}

static void send_bytes(int socket, size_t size)
{
    static const char bytes[100];
    assert_int_equal(send(socket, bytes, size, 0), size);
}

static void send_fd(int socket, int fd)
{
    union {
        struct cmsghdr header;
        char space[CMSG_SPACE(sizeof(int))];
    } control = {.header = {.cmsg_len = CMSG_LEN(sizeof(int)),
                            .cmsg_level = SOL_SOCKET,
                            .cmsg_type = SCM_RIGHTS}};
    char byte = 0;
    struct iovec bytes = {&byte, sizeof(byte)};
    struct msghdr message = {.msg_iov = &bytes,
                             .msg_iovlen = 1,
                             .msg_control = control.space,
                             .msg_controllen = sizeof(control.space)};
    memcpy(CMSG_DATA(&control.header), &fd, sizeof(fd));
    assert_int_equal(sendmsg(socket, &message, 0), 1);
}

/* And no error, which would hide what was sent before. */
static void expect_end(void)
{
    char byte;
    assert_int_equal(recv(theirs, &byte, sizeof(byte), 0), 0);
    close(theirs);
}

static void test_who_was_silent_costs_no_thread(void **state)
{
    (void)state;
    connect_both();
    expect_threads(0);
    expect_end();
}

static void test_unread_bytes_cost_no_thread(void **state)
{
    char byte;
    (void)state;
    connect_both();
    send_bytes(theirs, 40);
    send_bytes(theirs, 0);
    send_bytes(theirs, 1);
    send_bytes(ours, 1);
    expect_threads(0);
    assert_int_equal(recv(theirs, &byte, sizeof(byte), 0), 1);
    expect_end();
}

static void test_unread_fds_cost_a_thread(void **state)
{
    (void)state;
    connect_both();
    send_bytes(theirs, 40);
    send_fd(theirs, STDERR_FILENO);
    expect_threads(1);
    close(theirs);
}

/* A packet of no bytes reads like the end. */
static void test_fds_behind_nothing_cost_a_thread(void **state)
{
    (void)state;
    connect_both();
    send_bytes(theirs, 0);
    send_fd(theirs, STDERR_FILENO);
    expect_threads(1);
    close(theirs);
}

/* Who leaves without having read all resets the connection, which the next call tells instead of
 * what lies there. */
static void test_fds_behind_an_error_cost_a_thread(void **state)
{
    (void)state;
    connect_both();
    send_bytes(ours, 1);
    send_fd(theirs, STDERR_FILENO);
    close(theirs);
    expect_threads(1);
}

static void send_many(void)
{
    for (unsigned i = 0; i < MANY; i++)
        send_bytes(theirs, 1);
}

static void test_many_packets_cost_a_thread(void **state)
{
    char byte;
    (void)state;
    connect_both();
    send_many();
    send_bytes(ours, 1);
    expect_threads(1);
    assert_true(received >= MANY);
    assert_int_equal(recv(theirs, &byte, sizeof(byte), 0), 1);
    expect_end();
}

/* Who fills sockets and goes, again and again, would have them emptied by the daemon. */
static void test_for_who_has_gone_little_is_emptied(void **state)
{
    (void)state;
    connect_both();
    send_many();
    close(theirs); /* with nothing unread, which would reset our end */
    expect_threads(1);
    assert_true(received < MANY / 2);
}

/* Nothing that takes long can be there: the kernel has taken no fds. */
static void test_who_was_not_admitted_costs_no_thread(void **state)
{
    const int off = 0;
    (void)state;
    connect_both();
    if (setsockopt(ours, SOL_SOCKET, SO_PASSRIGHTS, &off, sizeof(off)) < 0) {
        close(ours);
        close(theirs);
        skip();
    }
    send_many();
    expect_threads(0);
    close(theirs);
    connect_both();
    setsockopt(ours, SOL_SOCKET, SO_PASSRIGHTS, &off, sizeof(off));
    send_many();
    close(theirs);
    received = 0;
    expect_threads(0);
    assert_int_equal(received, 0);
}

/* A TCP socket that cannot send all of it, and waits for that when it is closed. */
static int lingering_socket(int *ret_far_end)
{
    static const char bytes[65536];
    const struct linger linger = {.l_onoff = 1, .l_linger = 3000};
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof(address);
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(listener, (struct sockaddr *)&address, sizeof(address)), 0);
    assert_int_equal(listen(listener, 1), 0);
    assert_int_equal(getsockname(listener, (struct sockaddr *)&address, &length), 0);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&address, sizeof(address)), 0);
    *ret_far_end = accept(listener, NULL, NULL);
    assert_true(*ret_far_end >= 0);
    close(listener);
    while (send(fd, bytes, sizeof(bytes), MSG_DONTWAIT | MSG_NOSIGNAL) > 0)
        continue;
    assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, sizeof(linger)), 0);
    return fd;
}

/* What was sent is the last of it: closing that would take as long as the client has set. */
static void test_sockets_that_linger(void **state)
{
    int fd, far_ends[3];
    (void)state;
    connect_both();
    for (unsigned i = 0; i < 2; i++) {
        fd = lingering_socket(&far_ends[i]);
        send_fd(theirs, fd);
        close(fd);
    }
    fd = lingering_socket(&far_ends[2]);
    assert_false(cgm_closer_close(&broker, UID, &fd, 1));
    expect_threads(2);
    for (unsigned i = 0; i < 3; i++)
        close(far_ends[i]);
    close(theirs);
}

/* A thread is at it when its peer has read all: what somebody else would look at there, the thread
 * could take before it is taken. */
static void test_one_alone_empties_a_socket(void **state)
{
    int fd, far_end;
    char byte;
    (void)state;
    broker.wire = calloc(1, sizeof(*broker.wire));
    cgm_linger_init(&broker);
    connect_both();
    fd = lingering_socket(&far_end);
    send_bytes(ours, 1);
    send_fd(theirs, fd);
    close(fd);
    send_bytes(theirs, 1);
    cgm_linger_hang_up(&broker, UID, ours, 0);
    while (received == 0)
        usleep(1000);
    received_here = 0;
    assert_int_equal(__real_recv(theirs, &byte, sizeof(byte), 0), 1);
    while (broker.linger.first)
        uv_run(&broker.loop, UV_RUN_ONCE);
    assert_int_equal(received_here, 0);
    close(far_end);
    await_the_rest();
    assert_int_equal(received_here, 0);
    expect_end();
    uv_close((uv_handle_t *)&broker.linger.timer, NULL);
    free(broker.wire);
}

/* Where the kernel takes fds from those who are refused they could come faster than they go. */
static void test_a_flood_of_the_refused_lets_nobody_in(void **state)
{
    enum { FLOOD = 400 };
    unsigned refused = 0;
    (void)state;
    no_threads = true;
    while (!broker.listener.paused && refused < FLOOD) {
        connect_both();
        send_fd(theirs, STDERR_FILENO);
        close(theirs);
        cgm_hang_up_refused(&broker, UID, ours);
        refused++;
    }
    assert_in_range(refused, 2, FLOOD - 1);
    no_threads = false;
    while (broker.listener.paused)
        uv_run(&broker.loop, UV_RUN_ONCE);
    assert_in_range(broker.closer.refused, 1, refused - 1);
    await_the_rest();
    assert_int_equal(broker.closer.refused, 0);
}

static int little_memory(void)
{
    int fd = memfd_create("closer", MFD_CLOEXEC);
    assert_int_equal(ftruncate(fd, 4096), 0);
    return fd;
}

/* However little of it is pages: the system may keep a million attributes with it. */
static void test_no_memory_is_closed_here(void **state)
{
    int fds[] = {little_memory(), little_memory()}, ring_fd;
    struct cgm_ring ring;
    (void)state;
    assert_int_equal(cgm_ring_create(2, 1, 1, &ring_fd), CGM_OK);
    assert_int_equal(cgm_ring_map(ring_fd, 2, &ring), CGM_OK);
    closed_here = 0;
    cgm_closer_drop(&broker, UID, &fds[0], 1);
    assert_true(cgm_closer_close(&broker, UID, &fds[1], 1));
    cgm_closer_unmap(&broker, UID, &ring, ring_fd);
    assert_int_equal(closed_here, 0);
    assert_int_equal(threads, 0); /* but the one that was there */
    await_the_rest();
}

static bool is_closed_soon(int fd)
{
    for (unsigned naps = 0; naps < 10000; naps++) {
        uv_run(&broker.loop, UV_RUN_NOWAIT);
        if (fcntl(fd, F_GETFD) < 0)
            return true;
        usleep(1000);
    }
    return false;
}

/* Freeing gigabytes takes a while. */
static void test_nobody_waits_for_memory_of_others(void **state)
{
    int fds[3];
    (void)state;
    slow_fd = fds[0] = little_memory();
    cgm_closer_drop(&broker, UID, &fds[0], 1);
    for (uid_t i = 1; i < 3; i++) {
        fds[i] = little_memory();
        cgm_closer_drop(&broker, UID + i, &fds[i], 1);
        assert_true(is_closed_soon(fds[i]));
    }
    assert_true(fcntl(fds[0], F_GETFD) >= 0);
    slow_fd = -1;
    await_the_rest();
}

/* Whoever closes it last waits for those who watch it. */
static void test_what_clients_may_watch_costs_a_thread(void **state)
{
    int fds[] = {eventfd(0, EFD_CLOEXEC), eventfd(0, EFD_CLOEXEC)};
    (void)state;
    closed_here = 0;
    cgm_closer_drop(&broker, UID, fds, 2);
    assert_int_equal(threads, 1);
    assert_int_equal(closed_here, 0);
    await_the_rest();
}

/* Where the system has no more of them it waits, in its turn. */
static void test_what_gets_no_thread_waits(void **state)
{
    (void)state;
    no_threads = true;
    closed_here = 0;
    for (int i = 0; i < 3; i++) {
        int fd = eventfd(0, EFD_CLOEXEC);
        cgm_closer_drop(&broker, UID, &fd, 1);
    }
    assert_false(cgm_closer_hurry(&broker));
    uv_run(&broker.loop, UV_RUN_ONCE);
    assert_int_equal(closed_here, 0);
    no_threads = false;
    await_the_rest();
    assert_int_equal(threads, 3);
    assert_int_equal(closed_here, 0);
}

/* With those that wait still. */
static void test_the_end_comes_before_a_thread(void **state)
{
    int fd = eventfd(0, EFD_CLOEXEC);
    (void)state;
    no_threads = true;
    cgm_closer_drop(&broker, UID, &fd, 1);
}

/* What was given before is gone by then, also what the loop has not heard of. */
static void test_after_the_end_everything_is_closed_here(void **state)
{
    int fds[] = {little_memory(), little_memory(), eventfd(0, EFD_CLOEXEC)};
    (void)state;
    cgm_closer_drop(&broker, UID, &fds[0], 1);
    cgm_closer_fini(&broker);
    closed_here = 0;
    cgm_closer_drop(&broker, UID, &fds[1], 2);
    assert_int_equal(closed_here, 2);
    assert_null(broker.closer.newest);
}

#define CASE(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(test_who_was_silent_costs_no_thread),
        CASE(test_unread_bytes_cost_no_thread),
        CASE(test_unread_fds_cost_a_thread),
        CASE(test_fds_behind_nothing_cost_a_thread),
        CASE(test_fds_behind_an_error_cost_a_thread),
        CASE(test_many_packets_cost_a_thread),
        CASE(test_for_who_has_gone_little_is_emptied),
        CASE(test_who_was_not_admitted_costs_no_thread),
        CASE(test_one_alone_empties_a_socket),
        CASE(test_a_flood_of_the_refused_lets_nobody_in),
        CASE(test_sockets_that_linger),
        CASE(test_no_memory_is_closed_here),
        CASE(test_nobody_waits_for_memory_of_others),
        CASE(test_what_clients_may_watch_costs_a_thread),
        CASE(test_what_gets_no_thread_waits),
        CASE(test_the_end_comes_before_a_thread),
        CASE(test_after_the_end_everything_is_closed_here),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
