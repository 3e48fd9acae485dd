/* Many sessions, and sessions that do not read. */
#include "tests/daemon/broker_fixture.h"
#include "tests/proc_entries.h"
#include "tests/send_signal.h"

#include <dirent.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static long resident_kib(pid_t pid)
{
    char path[64], line[256];
    long kib = 0;
    snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
    FILE *file = fopen(path, "re");
    while (fgets(line, sizeof(line), file))
        if (strncmp(line, "VmRSS:", 6) == 0)
            kib = atol(line + 6);
    fclose(file);
    return kib;
}

static bool sanitized(void)
{
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    return true;
#else
    return false;
#endif
}

static void open_and_close(const struct daemon *daemon, int count)
{
    for (int i = 0; i < count; i++) {
        struct client client;
        client_open(&client, daemon);
        if (i % 10 == 0)
            buffer_create(&client, NULL, 4096, 0, NULL);
        client_close(&client);
    }
}

static void test_a_thousand_sessions_leave_nothing(void **state)
{
    const struct daemon *daemon = *state;
    struct client observer;
    client_open(&observer, daemon);
    wait_for_status(&observer, "sessions", 1);
    unsigned fds = proc_entries(daemon->pid, "fd");
    open_and_close(daemon, 100); /* what is allocated once, is */
    wait_for_status(&observer, "sessions", 1);
    long kib = resident_kib(daemon->pid);
    open_and_close(daemon, 1000);
    wait_for_status(&observer, "sessions", 1);
    wait_for_status(&observer, "buffers", 0);
    daemon_wait_for_at_most(daemon, "fd", fds);
    print_message("resident %ld KiB before, %ld KiB after\n", kib, resident_kib(daemon->pid));
    if (!sanitized())
        assert_true(resident_kib(daemon->pid) - kib < 512);
    client_close(&observer);
}

static void test_memory_of_the_broker(void **state)
{
    enum { SESSIONS = 200 };
    static struct client clients[SESSIONS];
    const struct daemon *daemon = *state;
    client_open(&clients[0], daemon);
    wait_for_status(&clients[0], "sessions", 1);
    long idle = resident_kib(daemon->pid);
    for (int i = 1; i < SESSIONS; i++) {
        client_open(&clients[i], daemon);
        message_free(client_ring_set_up(&clients[i], CGM_RING_ENTRIES_DEFAULT));
    }
    long each = (resident_kib(daemon->pid) - idle) / (SESSIONS - 1);
    print_message("idle %ld KiB, %ld KiB a session with a ring\n", idle, each);
    if (!sanitized()) {
        assert_true(idle < 10 * 1024);
        assert_true(each < 64);
    }
    for (int i = 0; i < SESSIONS; i++)
        client_close(&clients[i]);
}

/* It asks and asks and never reads: it is cut off, others are served. */
static void test_slow_reader(void **state)
{
    Cgm__Query query = CGM__QUERY__INIT;
    struct client slow, other;
    uint8_t bytes[64];
    size_t size;
    client_open(&other, *state);
    for (int i = 0; i < 50; i++)
        buffer_create(&other, NULL, 1, 0, NULL);
    client_open(&slow, *state);
    query.what = CGM_QUERY_BUFFERS;
    static uint8_t packet[CGM_PACKET_BYTES_MAX];
    assert_int_equal(cgm_packet_pack(CGM_MSG_QUERY, 1, &query.base, 0, packet, &size), CGM_OK);
    assert_true(size <= sizeof(bytes));
    int sent = 0;
    while (sent < 100000 && send(slow.fd, packet, size, MSG_NOSIGNAL) == (ssize_t)size)
        sent++;
    assert_true(sent < 100000);
    print_message("cut off after %d requests\n", sent);
    wait_for_status(&other, "sessions", 1);
    buffer_create(&other, NULL, 1, 0, NULL);
    client_close(&slow);
    client_close(&other);
}

/* A reader that is merely late gets everything, in order. */
static void test_late_reader(void **state)
{
    enum { REQUESTS = 150 };
    Cgm__Query query = CGM__QUERY__INIT;
    struct client late, other;
    client_open(&other, *state);
    for (int i = 0; i < 20; i++)
        buffer_create(&other, NULL, 1, 0, NULL);
    client_open(&late, *state);
    query.what = CGM_QUERY_BUFFERS;
    uint32_t first = late.serial + 1;
    for (int i = 0; i < REQUESTS; i++)
        client_send(&late, CGM_MSG_QUERY, &query.base, NULL, 0);
    for (uint32_t i = 0; i < REQUESTS; i++) {
        struct message *reply = client_reply(&late, first + i);
        assert_int_equal(reply->type, CGM_MSG_QUERY_REPLY);
        assert_null(late.events);
        message_free(reply);
    }
    client_close(&late);
    client_close(&other);
}

/* fds wait in the queue as well. */
static void test_late_reader_of_fds(void **state)
{
    enum { REQUESTS = 400 };
    Cgm__BufferCreate create = CGM__BUFFER_CREATE__INIT;
    struct client late;
    client_open(&late, *state);
    create.bytes = 1;
    uint32_t first = late.serial + 1;
    for (int i = 0; i < REQUESTS; i++)
        client_send(&late, CGM_MSG_BUFFER_CREATE, &create.base, NULL, 0);
    for (uint32_t i = 0; i < REQUESTS; i++) {
        struct message *reply = client_reply(&late, first + i);
        assert_int_equal(reply->type, CGM_MSG_BUFFER_REPLY);
        assert_int_equal(reply->n_fds, 1);
        message_free(reply);
    }
    client_close(&late);
}

static void test_long_listings_come_in_pages(void **state)
{
    enum { BUFFERS = 1000 };
    Cgm__Query query = CGM__QUERY__INIT;
    struct client client;
    size_t rows = 0, pages = 0;
    client_open(&client, *state);
    for (int i = 0; i < BUFFERS; i++)
        buffer_create(&client, NULL, 1, 0, NULL);
    query.what = CGM_QUERY_BUFFERS;
    for (bool more = true; more; pages++) {
        struct message *reply =
            client_call(&client, CGM_MSG_QUERY, &query.base, NULL, 0, CGM_MSG_QUERY_REPLY);
        const Cgm__QueryReply *page = (const Cgm__QueryReply *)reply->body;
        rows += page->n_row;
        more = page->has_next;
        query.has_after = 1;
        query.after = page->next;
        message_free(reply);
    }
    assert_int_equal(rows, BUFFERS);
    assert_true(pages > 1);
    client_close(&client);
}

static void ask_for_names(struct client *client)
{
    Cgm__BufferOpen open_it = CGM__BUFFER_OPEN__INIT;
    Cgm__CommJoin join = CGM__COMM_JOIN__INIT;
    open_it.name = join.name = (char *)(uintptr_t) "nobody";
    client_error(client, CGM_MSG_BUFFER_OPEN, &open_it.base, NULL, 0, CGM_NOT_FOUND, "");
    client_error(client, CGM_MSG_COMM_JOIN, &join.base, NULL, 0, CGM_NOT_FOUND, "");
}

static void ask_for_sessions(struct client *client)
{
    Cgm__Query query = CGM__QUERY__INIT;
    query.what = CGM_QUERY_SESSIONS;
    message_free(client_call(client, CGM_MSG_QUERY, &query.base, NULL, 0, CGM_MSG_QUERY_REPLY));
}

/* The daemon's processor time, in ns. */
static uint64_t cost_of(void (*ask)(struct client *client), const struct daemon *daemon,
                        struct client *client)
{
    enum { TIMES = 1000 };
    struct timespec begin, end;
    clockid_t clock;
    assert_int_equal(clock_getcpuclockid(daemon->pid, &clock), 0);
    clock_gettime(clock, &begin);
    for (int i = 0; i < TIMES; i++)
        ask(client);
    clock_gettime(clock, &end);
    return (uint64_t)((end.tv_sec - begin.tv_sec) * 1000000000 + end.tv_nsec - begin.tv_nsec) /
           TIMES;
}

/* What others have makes neither a name slower to find, nor a listing slower to make. */
static void test_names_and_listings_among_many(void **state)
{
    enum { BUFFERS = 4000, COMMS = 4000 };
    struct daemon daemon;
    struct client client, other;
    (void)state;
    daemon_init(&daemon);
    daemon_start(&daemon, "quota_comms=4096", "quota_ranks=8192", NULL);
    client_open(&client, &daemon);
    client_open(&other, &daemon);
    uint64_t alone = cost_of(ask_for_names, &daemon, &client);
    uint64_t listing_alone = cost_of(ask_for_sessions, &daemon, &client);
    for (int i = 0; i < BUFFERS; i++)
        buffer_create(&other, NULL, 1, 0, NULL);
    uint64_t listing_among_many = cost_of(ask_for_sessions, &daemon, &client);
    for (int i = 0; i < COMMS; i++) {
        Cgm__CommCreate create = CGM__COMM_CREATE__INIT;
        char name[16];
        snprintf(name, sizeof(name), "c%d", i);
        create.name = name;
        create.size = 2;
        message_free(
            client_call(&other, CGM_MSG_COMM_CREATE, &create.base, NULL, 0, CGM_MSG_COMM_REPLY));
    }
    uint64_t among_many = cost_of(ask_for_names, &daemon, &client);
    print_message("names: %ju ns alone, %ju ns among many; sessions: %ju, %ju\n", (uintmax_t)alone,
                  (uintmax_t)among_many, (uintmax_t)listing_alone, (uintmax_t)listing_among_many);
    assert_true(listing_among_many < 8 * listing_alone);
    assert_true(among_many < 8 * alone); /* 24 times, when all were looked at */
    client_close(&other);
    client_close(&client);
    daemon_stop(&daemon);
}

/* ---- an executor that reads late --------------------------------------------------------------
 */

/* Together more than the executor's queue has room for. */
enum { FLOODERS = 32, FLOODING_USERS = 8, FLOODS = 140 };

static bool send_large_plan(struct client *client, uint64_t comm, uint64_t m)
{
    static uint32_t counts[4096];
    static uint8_t packet[CGM_PACKET_BYTES_MAX];
    Cgm__PlanCreate create = CGM__PLAN_CREATE__INIT;
    size_t size;
    memset(counts, 0x7f, sizeof(counts));
    create.comm = comm;
    create.m = create.n = create.k = m;
    create.n_counts = sizeof(counts) / sizeof(counts[0]);
    create.counts = counts;
    assert_int_equal(
        cgm_packet_pack(CGM_MSG_PLAN_CREATE, client->serial + 1, &create.base, 0, packet, &size),
        CGM_OK);
    if (send(client->fd, packet, size, MSG_NOSIGNAL | MSG_DONTWAIT) != (ssize_t)size)
        return false;
    client->serial++;
    return true;
}

/* Until nobody could send anything for a second. */
static unsigned flood(struct client clients[FLOODERS], const uint64_t comms[FLOODERS])
{
    unsigned sent[FLOODERS] = {0}, all = 0;
    for (unsigned idle_ms = 0; idle_ms < 1000 && all < FLOODERS * FLOODS; idle_ms += 10) {
        for (unsigned i = 0; i < FLOODERS; i++)
            while (sent[i] < FLOODS && send_large_plan(&clients[i], comms[i], sent[i] + 1)) {
                sent[i]++;
                all++;
                idle_ms = 0;
            }
        usleep(10000);
    }
    return all;
}

/* Asks, and is gone before anybody can have answered. */
static void ask_and_go(const struct daemon *daemon)
{
    struct client client;
    Cgm__Hello hello = CGM__HELLO__INIT;
    Cgm__Query query = CGM__QUERY__INIT;
    hello.min_version = CGM_PROTOCOL_MIN;
    hello.max_version = CGM_PROTOCOL_MAX;
    query.what = CGM_QUERY_JOBS;
    client_connect_as(STRANGER, &client, daemon);
    client_send(&client, CGM_MSG_HELLO, &hello.base, NULL, 0);
    client_send(&client, CGM_MSG_QUERY, &query.base, NULL, 0);
    usleep(50000);
    client_close(&client);
}

/* Others' would stand behind them, and what is written for nobody is work all the same. */
static void test_queries_of_those_who_go(void **state)
{
    enum { QUERIES = 12, AT_MOST = 4 };
    struct daemon daemon;
    struct client client, honest;
    char line[64];
    (void)state;
    skip_unless_root();
    daemon_init(&daemon);
    daemon_start(&daemon, "socket_mode=0666", NULL);
    client_open(&honest, &daemon);
    pid_t executor = (pid_t)status_number(&honest, "executor_pid");
    fake_fault(&daemon, "drop", "Query", "");
    fake_forget_lines(&daemon);
    for (int i = 0; i < QUERIES; i++)
        ask_and_go(&daemon);
    assert_in_range(fake_count_lines(&daemon, "Query"), 1, AT_MOST);
    fake_heal(&daemon, "drop", "Query");
    fake_forget_lines(&daemon);
    assert_int_equal(kill(executor, SIGKILL), 0);
    fake_wait_line(&daemon, "life", line, sizeof(line));
    client_open_as(STRANGER, &client, &daemon); /* is heard again */
    wait_for_status(&client, "executor_deaths", 1);
    client_close(&client);
    client_close(&honest);
    daemon_stop(&daemon);
}

/* More opens than may lie unread, and its own end of the socket behind them. */
static void leave_own_end(const struct daemon *daemon)
{
    enum { OPENS = 100 };
    static uint8_t bytes[CGM_PACKET_BYTES_MAX];
    size_t size;
    int fd;
    struct client client;
    Cgm__BufferOpen open_it = CGM__BUFFER_OPEN__INIT;
    client_open(&client, daemon);
    open_it.has_id = 1;
    open_it.id = buffer_create(&client, NULL, 1, 0, &fd);
    for (int i = 0; i < OPENS; i++)
        client_send(&client, CGM_MSG_BUFFER_OPEN, &open_it.base, NULL, 0);
    usleep(200000);
    assert_int_equal(cgm_packet_pack(CGM_MSG_BUFFER_OPEN, 9, &open_it.base, 1, bytes, &size),
                     CGM_OK);
    assert_int_equal(cgm_packet_send_bytes(client.fd, bytes, size, &client.fd, 1), CGM_OK);
    client_close(&client);
}

/* It is not heard, since it does not read, and has no process any more. */
static void test_a_socket_in_itself_of_who_does_not_read(void **state)
{
    const struct daemon *daemon = *state;
    struct client client;
    int status;
    client_open(&client, daemon);
    daemon_limit_fds(daemon, 600); /* of which 75 may lie unread */
    pid_t child = fork();
    if (child == 0) {
        leave_own_end(daemon);
        _exit(0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    wait_for_status(&client, "sessions", 1);
    wait_for_status(&client, "buffers", 0);
    client_close(&client);
}

/* Its Hello lies there as long as its user has to wait: it has not been silent. */
static void test_a_hello_that_is_not_read(void **state)
{
    enum { QUERIES = 4 };
    Cgm__Hello hello = CGM__HELLO__INIT;
    Cgm__Query query = CGM__QUERY__INIT;
    struct daemon daemon;
    struct client asking[QUERIES], late, silent, honest;
    (void)state;
    skip_unless_root();
    daemon_init(&daemon);
    daemon_start(&daemon, "socket_mode=0666", "hello_timeout=1", NULL);
    client_open(&honest, &daemon);
    for (int i = 0; i < QUERIES; i++)
        client_open_as(STRANGER, &asking[i], &daemon);
    fake_fault(&daemon, "drop", "Query", "");
    query.what = CGM_QUERY_JOBS;
    for (int i = 0; i < QUERIES; i++)
        client_send(&asking[i], CGM_MSG_QUERY, &query.base, NULL, 0);
    usleep(100000);
    client_connect_as(STRANGER, &silent, &daemon);
    client_connect_as(STRANGER, &late, &daemon);
    hello.min_version = CGM_PROTOCOL_MIN;
    hello.max_version = CGM_PROTOCOL_MAX;
    uint32_t serial = client_send(&late, CGM_MSG_HELLO, &hello.base, NULL, 0);
    assert_true(client_is_closed(&silent));
    usleep(1000000);
    fake_heal(&daemon, "drop", "Query");
    client_kill_executor(&honest);
    struct message *reply = client_reply(&late, serial);
    assert_int_equal(reply->type, CGM_MSG_HELLO_REPLY);
    message_free(reply);
    for (int i = 0; i < QUERIES; i++)
        client_close(&asking[i]);
    client_close(&silent);
    client_close(&late);
    client_close(&honest);
    daemon_stop(&daemon);
}

/* Users who ask for much meanwhile wait for it; others are served, and it is not cut off. */
static void test_late_executor(void **state)
{
    struct daemon daemon;
    struct client clients[FLOODERS], observer;
    uint64_t comms[FLOODERS];
    (void)state;
    skip_unless_root();
    daemon_init(&daemon);
    daemon_start(&daemon, "executor_timeout=60", "socket_mode=0666", NULL);
    client_open(&observer, &daemon);
    for (uid_t i = 0; i < FLOODERS; i++) {
        char name[16];
        snprintf(name, sizeof(name), "flood%u", (unsigned)i);
        client_open_as(STRANGER + i % FLOODING_USERS, &clients[i], &daemon);
        comms[i] = comm_join_all(&clients[i], name, 1);
    }
    uint64_t life = status_number(&observer, "executor_life");
    pid_t pid = (pid_t)status_number(&observer, "executor_pid");
    assert_int_equal(send_signal(pid, SIGSTOP), 0);
    unsigned sent = flood(clients, comms);
    print_message("%u of %u requests sent\n", sent, FLOODERS * FLOODS);
    assert_true(quota_used(&observer, STRANGER, "quota_plans") > 0);
    assert_int_equal(send_signal(pid, SIGCONT), 0);
    for (unsigned i = 0; i < FLOODERS; i++)
        message_free(client_reply(&clients[i], clients[i].serial));
    assert_int_equal(status_number(&observer, "executor_life"), life);
    for (unsigned i = 0; i < FLOODERS; i++)
        client_close(&clients[i]);
    client_close(&observer);
    daemon_stop(&daemon);
}

int main(void)
{
#define WITH_DAEMON(test) cmocka_unit_test_setup_teardown(test, daemon_set_up, daemon_tear_down)
    const struct CMUnitTest tests[] = {
        WITH_DAEMON(test_a_thousand_sessions_leave_nothing),
        WITH_DAEMON(test_memory_of_the_broker),
        WITH_DAEMON(test_slow_reader),
        WITH_DAEMON(test_late_reader),
        WITH_DAEMON(test_late_reader_of_fds),
        WITH_DAEMON(test_long_listings_come_in_pages),
        WITH_DAEMON(test_a_socket_in_itself_of_who_does_not_read),
        cmocka_unit_test(test_names_and_listings_among_many),
        cmocka_unit_test(test_a_hello_that_is_not_read),
        cmocka_unit_test(test_late_executor),
        cmocka_unit_test(test_queries_of_those_who_go),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
