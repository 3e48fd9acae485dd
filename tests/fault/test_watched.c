/* A client whose end of a socket many watch: waking it takes long, so it is told later, but of
 * everything. */
#include "tests/daemon/broker_fixture.h"

#include <errno.h>
#include <poll.h>
#include <stdatomic.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#define WATCHES 20000
#define DESCRIPTORS_LEFT 64
#define ENTRIES 16u
#define JOBS 40u

struct sleeper {
    struct client client;
    struct cgm_ring ring;
    int wake_fd, notify_fd;
    uint32_t submitted;
};

static void sleeper_open(struct sleeper *sleeper, const struct daemon *daemon)
{
    *sleeper = (struct sleeper){.submitted = 0};
    client_open(&sleeper->client, daemon);
    struct message *reply = client_ring_set_up(&sleeper->client, ENTRIES);
    assert_int_equal(cgm_ring_join(reply->fds[0], ENTRIES, &sleeper->ring), CGM_OK);
    sleeper->wake_fd = dup(reply->fds[1]);
    sleeper->notify_fd = dup(reply->fds[2]);
    message_free(reply);
    uint64_t one = 1; /* the ring begins */
    assert_int_equal(write(sleeper->wake_fd, &one, sizeof(one)), sizeof(one));
}

static void sleeper_close(struct sleeper *sleeper)
{
    close(sleeper->notify_fd);
    close(sleeper->wake_fd);
    cgm_ring_unmap(&sleeper->ring);
    client_close(&sleeper->client);
}

static void submit(struct sleeper *sleeper)
{
    struct cgm_ring *ring = &sleeper->ring;
    uint64_t one = 1;
    uint32_t slot = sleeper->submitted & ring->mask;
    struct cgm_entry entry = {.ticket = sleeper->submitted + 1, .opcode = CGM_OPCODE_NOOP};
    ring->entry[slot] = entry;
    atomic_store(&ring->ready[slot], entry.ticket);
    atomic_store(&ring->sq[slot], slot);
    atomic_store(&ring->header->cq_need_wakeup, 1);
    atomic_store(&ring->header->sq_tail, ++sleeper->submitted);
    if (atomic_exchange(&ring->header->sq_need_wakeup, 0))
        assert_int_equal(write(sleeper->wake_fd, &one, sizeof(one)), sizeof(one));
}

/* Looks at nothing until it is told. */
static void expect_notice(struct sleeper *sleeper)
{
    struct pollfd told = {.fd = sleeper->notify_fd, .events = POLLIN};
    char bytes[16];
    assert_int_equal(poll(&told, 1, WAIT_S * 1000), 1);
    assert_true(recv(sleeper->notify_fd, bytes, sizeof(bytes), MSG_DONTWAIT) > 0);
    assert_int_equal(atomic_load(&sleeper->ring.header->cq_tail), sleeper->submitted);
    atomic_store(&sleeper->ring.header->cq_head, sleeper->submitted);
}

/* As many as there can be; the limit of descriptors may be low. */
static unsigned watch(int epoll_fd, int fd, int *ret_fds)
{
    unsigned count = 0;
    struct epoll_event event = {.events = EPOLLIN | EPOLLET};
    for (; count < WATCHES; count++) {
        int copy = dup(fd);
        if (copy < 0 || epoll_ctl(epoll_fd, EPOLL_CTL_ADD, copy, &event) != 0) {
            close(copy);
            break;
        }
        ret_fds[count] = copy;
    }
    for (unsigned i = 0; i < DESCRIPTORS_LEFT && count > 0; i++)
        close(ret_fds[--count]);
    return count;
}

static void raise_limit(void)
{
    struct rlimit limit;
    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
}

/* And so is another client of its user. */
static void test_who_is_watched_is_told_of_everything(void **state)
{
    static int watches[WATCHES];
    struct sleeper watched, other;
    raise_limit();
    sleeper_open(&watched, *state);
    sleeper_open(&other, *state);
    int epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    assert_true(epoll_fd >= 0);
    unsigned count = watch(epoll_fd, watched.notify_fd, watches);
    print_message("%u watches\n", count);
    for (unsigned i = 0; i < JOBS; i++) {
        submit(&watched);
        submit(&other);
        expect_notice(&watched);
        expect_notice(&other);
    }
    while (count > 0)
        close(watches[--count]);
    close(epoll_fd);
    sleeper_close(&other);
    sleeper_close(&watched);
}

/* Takes a place of the comm for each rank from the first one on, with a request each. */
static void send_joins(struct client *client, const char *name, uint32_t first, uint32_t count)
{
    Cgm__CommJoin join = CGM__COMM_JOIN__INIT;
    join.name = (char *)(uintptr_t)name;
    join.has_create = join.create = join.has_size = join.has_mode = 1;
    join.size = CGM_COMM_SIZE_MAX;
    join.mode = 0666;
    join.n_ranks = 1;
    for (uint32_t rank = first; rank < first + count; rank++) {
        join.ranks = &rank;
        client_send(client, CGM_MSG_COMM_JOIN, &join.base, NULL, 0);
    }
}

static unsigned count_packets(struct client *client)
{
    unsigned count = 0;
    char byte;
    while (recv(client->fd, &byte, 1, MSG_DONTWAIT | MSG_TRUNC) > 0)
        count++;
    return count;
}

/* All its answers are there at once, and are sent one after the other: whoever else is answered
 * does not wait for all of them. */
static void test_answers_to_who_is_watched_come_later(void **state)
{
    enum { ANSWERS = CGM_COMM_SIZE_MAX - 1 };
    static int watches[WATCHES];
    struct client watched, honest;
    skip_unless_root();
    raise_limit();
    client_open(&honest, *state);
    client_open_as(STRANGER, &watched, *state);
    send_joins(&watched, "watched", 0, ANSWERS);
    wait_for_status(&honest, "comms", 1);
    int epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    unsigned count = watch(epoll_fd, watched.fd, watches);
    send_joins(&honest, "watched", ANSWERS, 1);
    message_free(client_reply(&honest, honest.serial));
    status_number(&honest, "sessions");
    unsigned answered = count_packets(&watched);
    print_message("%u watches, %u of %u answered by then\n", count, answered, (unsigned)ANSWERS);
    if (count > WATCHES / 2) /* what few watch is sent quickly */
        assert_true(answered < ANSWERS / 2);
    for (unsigned naps = 0; answered < ANSWERS; naps++, usleep(10000)) {
        assert_true(naps < WAIT_S * 100);
        answered += count_packets(&watched);
    }
    while (count > 0)
        close(watches[--count]);
    close(epoll_fd);
    client_close(&watched);
    client_close(&honest);
}

static int set_up(void **state)
{
    static struct daemon daemon;
    struct client client;
    daemon_init(&daemon);
    daemon_start(&daemon, REAL_EXECUTOR, "backend=cpu", "socket_mode=0666", NULL);
    client_open(&client, &daemon);
    wait_for_executor(&client);
    client_close(&client);
    *state = &daemon;
    return 0;
}

static int tear_down(void **state)
{
    daemon_stop(*state);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_who_is_watched_is_told_of_everything),
        cmocka_unit_test(test_answers_to_who_is_watched_come_later),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
