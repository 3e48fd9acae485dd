/* What comes in before and instead of a proper conversation, and who may listen. */
#include "tests/daemon/broker_fixture.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tests/send_signal.h"

static void hello_error(struct client *client, uint32_t min, uint32_t max, const char *name,
                        int status, const char *text)
{
    Cgm__Hello hello = CGM__HELLO__INIT;
    hello.min_version = min;
    hello.max_version = max;
    hello.name = (char *)(uintptr_t)name;
    client_error(client, CGM_MSG_HELLO, &hello.base, NULL, 0, status, text);
    assert_true(client_is_closed(client));
    client_close(client);
}

/* The daemon goes on, whatever somebody sent. */
static void expect_alive(const struct daemon *daemon)
{
    struct client client;
    client_open(&client, daemon);
    wait_for_status(&client, "sessions", 1);
    client_close(&client);
}

static void test_versions(void **state)
{
    struct client client;
    client_connect(&client, *state);
    hello_error(&client, 7, 9, NULL, CGM_VERSION, "7 to 9");
    client_connect(&client, *state);
    hello_error(&client, 7, 9, NULL, CGM_VERSION, "1 to 1");
    client_connect(&client, *state);
    hello_error(&client, 0, 0, NULL, CGM_VERSION, "0 to 0");
    expect_alive(*state);
}

static void test_program_names(void **state)
{
    static const char *const names[] = {"", "a b", "-x", ".x", "x\n", "caf\xc3\xa9"};
    struct client client;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        client_connect(&client, *state);
        hello_error(&client, 1, 1, names[i], CGM_INVALID_ARGUMENT, "name");
    }
    expect_alive(*state);
}

static void test_hello_comes_first_and_once(void **state)
{
    Cgm__Query query = CGM__QUERY__INIT;
    Cgm__Hello hello = CGM__HELLO__INIT;
    struct client client;
    client_connect(&client, *state);
    client_error(&client, CGM_MSG_QUERY, &query.base, NULL, 0, CGM_BAD_MESSAGE, "Hello");
    assert_true(client_is_closed(&client));
    client_close(&client);
    client_open(&client, *state);
    hello.min_version = hello.max_version = 1;
    client_error(&client, CGM_MSG_HELLO, &hello.base, NULL, 0, CGM_EXISTS, "already");
    client_close(&client);
    expect_alive(*state);
}

static void send_raw(struct client *client, const void *bytes, size_t size)
{
    assert_int_equal(send(client->fd, bytes, size, MSG_NOSIGNAL), size);
}

static void test_garbage(void **state)
{
    static uint8_t bytes[CGM_PACKET_BYTES_MAX];
    struct client client;
    for (int i = 0; i < 200; i++) {
        size_t size = 1 + (size_t)rand() % (i % 2 ? 64 : sizeof(bytes));
        for (size_t b = 0; b < size; b++)
            bytes[b] = (uint8_t)rand();
        client_connect(&client, *state);
        send_raw(&client, bytes, size);
        assert_true(client_is_closed(&client));
        client_close(&client);
    }
    expect_alive(*state);
}

/* The header is readable, so that the answer carries its serial. */
static void test_truncated_packets(void **state)
{
    static uint8_t bytes[CGM_PACKET_BYTES_MAX];
    Cgm__BufferCreate create = CGM__BUFFER_CREATE__INIT;
    struct client client;
    size_t size;
    create.bytes = 1;
    create.name = (char *)(uintptr_t) "truncated";
    assert_int_equal(cgm_packet_pack(CGM_MSG_BUFFER_CREATE, 42, &create.base, 0, bytes, &size),
                     CGM_OK);
    for (size_t cut = sizeof(struct cgm_packet_header); cut < size; cut++) {
        client_open(&client, *state);
        send_raw(&client, bytes, cut);
        expect_error(client_reply(&client, 42), CGM_BAD_MESSAGE, "truncated");
        assert_true(client_is_closed(&client));
        client_close(&client);
    }
    expect_alive(*state);
}

/* The answer can be read even when the daemon closed with more of the client's packets unread. */
static void test_error_before_unread_packets(void **state)
{
    static uint8_t bytes[CGM_PACKET_BYTES_MAX];
    Cgm__Query query = CGM__QUERY__INIT;
    struct client client;
    size_t size;
    assert_int_equal(cgm_packet_pack(CGM_MSG_QUERY, 42, &query.base, 0, bytes, &size), CGM_OK);
    for (int i = 0; i < 50; i++) {
        client_open(&client, *state);
        send_raw(&client, bytes, size - 1);
        for (int more = 0; more < 20; more++)
            if (send(client.fd, bytes, size, MSG_NOSIGNAL) < 0)
                break;
        expect_error(client_reply(&client, 42), CGM_BAD_MESSAGE, "truncated");
        assert_true(client_is_closed(&client));
        client_close(&client);
    }
    expect_alive(*state);
}

static void test_malformed_bodies_and_types(void **state)
{
    struct {
        struct cgm_packet_header header;
        uint8_t body[64];
    } packet;
    struct client client;
    for (int i = 0; i < 300; i++) {
        packet.header = (struct cgm_packet_header){
            .magic = CGM_PACKET_MAGIC,
            .type = (uint16_t)(i < 100 ? i : rand()),
            .serial = 9,
            .body_bytes = sizeof(packet.body),
        };
        memset(packet.body, 0xff, sizeof(packet.body));
        client_open(&client, *state);
        send_raw(&client, &packet, sizeof(packet));
        expect_error(client_reply(&client, 9), CGM_BAD_MESSAGE, "");
        assert_true(client_is_closed(&client));
        client_close(&client);
    }
    expect_alive(*state);
}

static void test_wrong_fds(void **state)
{
    Cgm__Query query = CGM__QUERY__INIT;
    Cgm__ImportCreate import = CGM__IMPORT_CREATE__INIT;
    uint32_t kind = 1;
    uint64_t offset = 0, length = 4096;
    struct client client;
    int fds[3] = {0, 1, 2};
    client_open(&client, *state);
    client_error(&client, CGM_MSG_QUERY, &query.base, fds, 3, CGM_BAD_MESSAGE,
                 "3 file descriptors");
    assert_true(client_is_closed(&client));
    client_close(&client);
    import.n_kind = import.n_offset = import.n_length = 1;
    import.kind = &kind;
    import.offset = &offset;
    import.length = &length;
    client_open(&client, *state);
    client_error(&client, CGM_MSG_IMPORT_CREATE, &import.base, NULL, 0, CGM_BAD_MESSAGE,
                 "no file descriptor");
    assert_true(client_is_closed(&client));
    client_close(&client);
    expect_alive(*state);
}

#ifndef SO_PASSRIGHTS
#define SO_PASSRIGHTS 83
#endif

/* Linux does since 6.16. */
static bool kernel_can_refuse_fds(void)
{
    int pass = 1, fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    bool can = setsockopt(fd, SOL_SOCKET, SO_PASSRIGHTS, &pass, sizeof(pass)) == 0;
    close(fd);
    return can;
}

/* Who is not let in has left nothing whose closing keeps the daemon busy: nobody can send file
 * descriptors before the daemon knows him. */
static void test_no_fds_before_a_client_is_let_in(void **state)
{
    const struct daemon *daemon = *state;
    struct client client;
    Cgm__Hello hello = CGM__HELLO__INIT;
    if (!kernel_can_refuse_fds())
        skip();
    hello.min_version = hello.max_version = CGM_PROTOCOL_MAX;
    assert_int_equal(send_signal(daemon->pid, SIGSTOP), 0);
    client_connect(&client, daemon);
    int status = cgm_packet_send(client.fd, CGM_MSG_HELLO, 1, &hello.base, &client.fd, 1);
    assert_int_equal(send_signal(daemon->pid, SIGCONT), 0);
    assert_int_equal(status, CGM_PERMISSION);
    client_close(&client);
    client_open(&client, daemon);
    client_error(&client, CGM_MSG_PLAN_DESTROY_ALL, &hello.base, &client.fd, 1, CGM_BAD_MESSAGE,
                 "1 file descriptors");
    client_close(&client);
}

static void test_serial_zero(void **state)
{
    Cgm__Query query = CGM__QUERY__INIT;
    struct client client;
    client_open(&client, *state);
    assert_int_equal(cgm_packet_send(client.fd, CGM_MSG_QUERY, 0, &query.base, NULL, 0), CGM_OK);
    expect_error(client_event(&client, CGM_MSG_ERROR), CGM_BAD_MESSAGE, "serial");
    assert_true(client_is_closed(&client));
    client_close(&client);
    expect_alive(*state);
}

static void test_submit_of_a_wrong_size(void **state)
{
    Cgm__Submit submit = CGM__SUBMIT__INIT;
    uint8_t bytes[10] = {0};
    struct client client;
    submit.entry.data = bytes;
    submit.entry.len = sizeof(bytes);
    client_open(&client, *state);
    client_error(&client, CGM_MSG_SUBMIT, &submit.base, NULL, 0, CGM_BAD_MESSAGE, "entry");
    client_close(&client);
    expect_alive(*state);
}

/* ---- the socket -------------------------------------------------------------------------------
 */

static void expect_log(const struct daemon *daemon, const char *text)
{
    char path[128], log[8192];
    snprintf(path, sizeof(path), "%s/log", daemon->folder);
    FILE *file = fopen(path, "re");
    assert_non_null(file);
    size_t n = fread(log, 1, sizeof(log) - 1, file);
    log[n] = '\0';
    fclose(file);
    assert_non_null(strstr(log, text));
}

static void test_two_daemons_on_one_socket(void **state)
{
    struct daemon second = *(struct daemon *)*state;
    daemon_launch(&second, NULL);
    assert_int_equal(daemon_wait(&second), CGM_EXIT_FAILED);
    expect_log(&second, "another daemon");
    expect_log(&second, second.socket);
    expect_alive(*state);
}

static void test_stale_socket_file(void **state)
{
    struct daemon daemon;
    (void)state;
    daemon_init(&daemon);
    daemon_start(&daemon, NULL);
    send_signal(daemon.pid, SIGKILL);
    assert_int_equal(daemon_wait(&daemon), 1000 + SIGKILL);
    assert_int_equal(access(daemon.socket, F_OK), 0);
    daemon_start(&daemon, NULL);
    expect_log(&daemon, "stale");
    expect_alive(&daemon);
    daemon_stop(&daemon);
}

static void test_a_file_is_not_a_socket(void **state)
{
    struct daemon daemon;
    char folder[96];
    (void)state;
    daemon_init(&daemon);
    snprintf(folder, sizeof(folder), "%s/run", daemon.folder);
    assert_int_equal(mkdir(folder, 0700), 0);
    FILE *file = fopen(daemon.socket, "we");
    fclose(file);
    daemon_launch(&daemon, NULL);
    assert_int_equal(daemon_wait(&daemon), CGM_EXIT_FAILED);
    expect_log(&daemon, "not a socket");
    assert_int_equal(unlink(daemon.socket), 0);
    daemon_stop(&daemon);
}

/* Somebody else's live socket without our lock is left alone, too. */
static void test_somebody_else_listens(void **state)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    struct daemon daemon;
    char folder[96];
    (void)state;
    daemon_init(&daemon);
    snprintf(folder, sizeof(folder), "%s/run", daemon.folder);
    assert_int_equal(mkdir(folder, 0700), 0);
    strcpy(address.sun_path, daemon.socket);
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&address, sizeof(address)), 0);
    assert_int_equal(listen(fd, 8), 0);
    daemon_launch(&daemon, NULL);
    assert_int_equal(daemon_wait(&daemon), CGM_EXIT_FAILED);
    expect_log(&daemon, "another daemon listens on");
    assert_int_equal(access(daemon.socket, F_OK), 0);
    close(fd);
    unlink(daemon.socket);
    daemon_stop(&daemon);
}

static void test_socket_mode(void **state)
{
    struct daemon daemon;
    struct stat st;
    (void)state;
    daemon_init(&daemon);
    daemon_start(&daemon, "socket_mode=0606", NULL);
    assert_int_equal(stat(daemon.socket, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0606);
    daemon_stop(&daemon);
}

static void test_wrong_settings(void **state)
{
    static const char *const rows[][2] = {
        {"colour=red", "colour"},
        {"devices=100", "from 1 to 64"},
        {"socket_group=no-such-group-here", "no-such-group-here"}};
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const char *settings[] = {rows[i][0], NULL};
        struct daemon daemon;
        daemon_init(&daemon);
        daemon_launch(&daemon, settings);
        assert_int_equal(daemon_wait(&daemon), CGM_EXIT_USAGE);
        expect_log(&daemon, rows[i][1]);
        daemon_stop(&daemon);
    }
}

/* What fits into a client's packet need not fit into the one that the executor gets for it. */
static void test_requests_that_grow(void **state)
{
    struct client client;
    char uuid[CGM_PACKET_BYTES_MAX];
    uint32_t counts[CGM_PACKET_BYTES_MAX], kind = 1;
    uint64_t offset = 0, length = 4096;
    Cgm__ImportCreate import = CGM__IMPORT_CREATE__INIT;
    Cgm__PlanCreate plan = CGM__PLAN_CREATE__INIT;
    const size_t most = CGM_PACKET_BYTES_MAX - sizeof(struct cgm_packet_header);
    int fd = memfd_create("import", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    assert_int_equal(ftruncate(fd, 4096), 0);
    assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK), 0);
    client_open(&client, *state);
    import.n_kind = import.n_offset = import.n_length = 1;
    import.kind = &kind, import.offset = &offset, import.length = &length;
    import.device_uuid = memset(uuid, 'A', sizeof(uuid));
    uuid[most - 32] = '\0';
    for (size_t i = strlen(uuid); protobuf_c_message_get_packed_size(&import.base) < most; i++)
        uuid[i] = 'A', uuid[i + 1] = '\0';
    assert_int_equal(protobuf_c_message_get_packed_size(&import.base), most);
    client_error(&client, CGM_MSG_IMPORT_CREATE, &import.base, &fd, 1, CGM_INVALID_ARGUMENT,
                 "device_uuid");
    import.device_uuid = (char *)(uintptr_t) "GPU-1\nexecutor: a line of the log";
    client_error(&client, CGM_MSG_IMPORT_CREATE, &import.base, &fd, 1, CGM_INVALID_ARGUMENT,
                 "device_uuid");
    plan.comm = comm_join_all(&client, "grows", 1);
    plan.op = 11, plan.m = plan.n = plan.k = 64;
    plan.counts = counts;
    for (size_t i = 0; i < CGM_PACKET_BYTES_MAX; i++)
        counts[i] = 1;
    while (protobuf_c_message_get_packed_size(&plan.base) < most)
        plan.n_counts += plan.n_counts < most - 64 ? most - 64 : 1;
    client_error(&client, CGM_MSG_PLAN_CREATE, &plan.base, NULL, 0, CGM_INVALID_ARGUMENT,
                 "at most 4096");
    assert_int_equal(status_number(&client, "executor_deaths"), 0);
    close(fd);
    client_close(&client);
}

/* A socket whose last close() waits for a peer that reads nothing. */
static int lingering_socket(int listener, int *ret_peer)
{
    static const char bytes[65536];
    struct linger linger = {.l_onoff = 1, .l_linger = 10 * WAIT_S};
    struct sockaddr_in address;
    socklen_t length = sizeof(address);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(getsockname(listener, (struct sockaddr *)&address, &length), 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&address, length), 0);
    *ret_peer = accept(listener, NULL, NULL);
    assert_true(*ret_peer >= 0);
    while (send(fd, bytes, sizeof(bytes), MSG_DONTWAIT) > 0)
        ;
    assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, sizeof(linger)), 0);
    return fd;
}

enum lingering { IN_A_QUERY, IN_AN_IMPORT, IN_TOO_LARGE_A_LIST, IN_AN_UNREAD_PACKET, LINGERINGS };

/* Closes the fd. */
static void send_lingering(const struct daemon *daemon, struct client *client, enum lingering where,
                           int fd)
{
    uint32_t kind = 1;
    uint64_t offset = 0, length = 4096;
    int fds[CGM_PACKET_FDS_ROOM];
    uint8_t bytes[CGM_PACKET_BYTES_MAX];
    size_t size;
    Cgm__Query query = CGM__QUERY__INIT;
    Cgm__ImportCreate import = CGM__IMPORT_CREATE__INIT;
    import.n_kind = import.n_offset = import.n_length = 1;
    import.kind = &kind, import.offset = &offset, import.length = &length;
    for (size_t i = 0; i < CGM_PACKET_FDS_ROOM; i++)
        fds[i] = fd;
    assert_int_equal(send_signal(daemon->pid, SIGSTOP), 0);
    assert_int_equal(cgm_packet_pack(CGM_MSG_QUERY, 9, &query.base, 1, bytes, &size), CGM_OK);
    if (where == IN_AN_UNREAD_PACKET) /* two that end the session; the second is never read */
        send_raw(client, bytes, size);
    if (where == IN_AN_IMPORT)
        client_send(client, CGM_MSG_IMPORT_CREATE, &import.base, &fd, 1);
    else
        assert_int_equal(
            cgm_packet_send_bytes(client->fd, bytes, size, fds,
                                  where == IN_TOO_LARGE_A_LIST ? CGM_PACKET_FDS_ROOM : 1),
            CGM_OK);
    close(fd); /* not the last one */
    assert_int_equal(send_signal(daemon->pid, SIGCONT), 0);
}

/* Of its quota. */
static void sessions_used(struct client *client, char *ret_used, size_t size)
{
    query_value(client, CGM_QUERY_QUOTAS, "quota", "\"quota_sessions\"", "used", ret_used, size);
}

static void wait_for_sessions(struct client *client, const char *count)
{
    char used[32] = "";
    for (int i = 0; i < 100 * WAIT_S && strcmp(used, count) != 0; i++) {
        usleep(10000);
        sessions_used(client, used, sizeof(used));
    }
    assert_string_equal(used, count);
}

/* Whoever passes what takes long to close keeps nobody waiting, and pays for it until it is closed.
 */
static void test_fds_that_are_slow_to_close(void **state)
{
    struct client client, other;
    int peer[LINGERINGS], listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    char used[32];
    assert_int_equal(listen(listener, LINGERINGS), 0);
    for (int where = 0; where < LINGERINGS; where++) {
        client_open(&client, *state);
        int fd = lingering_socket(listener, &peer[where]);
        send_lingering(*state, &client, where, fd);
        assert_true(client_is_closed(&client));
        client_close(&client);
        expect_alive(*state);
    }
    client_open(&other, *state);
    sessions_used(&other, used, sizeof(used));
    assert_true(atoi(used) > 1);
    for (int where = 0; where < LINGERINGS; where++) {
        shutdown(peer[where], SHUT_RDWR);
        close(peer[where]);
    }
    wait_for_sessions(&other, "1");
    close(listener);
    client_close(&other);
}

/* Behind what ends its session a client sends its own end of the socket, which nobody else has
 * then, and has not read all that it was sent. */
static void test_a_socket_in_itself(void **state)
{
    uint8_t bytes[CGM_PACKET_BYTES_MAX];
    size_t size;
    Cgm__Query query = CGM__QUERY__INIT;
    struct client client;
    for (int i = 0; i < 8; i++) {
        client_open(&client, *state);
        assert_int_equal(cgm_packet_pack(CGM_MSG_QUERY, 9, &query.base, 0, bytes, &size), CGM_OK);
        send_raw(&client, bytes, size);
        assert_int_equal(poll(&(struct pollfd){.fd = client.fd, .events = POLLIN}, 1, -1), 1);
        assert_int_equal(send_signal(((struct daemon *)*state)->pid, SIGSTOP), 0);
        send_raw(&client, "bad", 3);
        if (i % 2)
            send_raw(&client, "", 0);
        assert_int_equal(cgm_packet_pack(CGM_MSG_QUERY, 9, &query.base, 1, bytes, &size), CGM_OK);
        assert_int_equal(cgm_packet_send_bytes(client.fd, bytes, size, &client.fd, 1), CGM_OK);
        client_close(&client);
        assert_int_equal(send_signal(((struct daemon *)*state)->pid, SIGCONT), 0);
    }
    client_open(&client, *state);
    wait_for_sessions(&client, "1");
    client_close(&client);
}

/* A query that the executor does not answer, and its own end of the socket behind it. */
static void leave_own_end(const struct daemon *daemon)
{
    uint8_t bytes[CGM_PACKET_BYTES_MAX];
    size_t size;
    struct client client;
    Cgm__Query query = CGM__QUERY__INIT;
    query.what = CGM_QUERY_JOBS;
    client_open(&client, daemon);
    client_send(&client, CGM_MSG_QUERY, &query.base, NULL, 0);
    usleep(100000);
    assert_int_equal(cgm_packet_pack(CGM_MSG_QUERY, 9, &query.base, 1, bytes, &size), CGM_OK);
    assert_int_equal(cgm_packet_send_bytes(client.fd, bytes, size, &client.fd, 1), CGM_OK);
    client_close(&client);
}

/* What a session waits for keeps it from being read, and in what is not read lies its own end. */
static void test_a_socket_in_itself_that_is_not_read(void **state)
{
    struct client client;
    siginfo_t ended;
    fake_fault(*state, "drop", "Query", "");
    leave_own_end(*state); /* this process lives, and may have its end elsewhere */
    pid_t child = fork();
    if (child == 0) {
        leave_own_end(*state);
        _exit(0);
    }
    assert_int_equal(waitid(P_PID, (id_t)child, &ended, WEXITED | WNOWAIT), 0);
    assert_int_equal(ended.si_status, 0);
    client_open(&client, *state);
    wait_for_sessions(&client, "2"); /* also before its parent has asked for its end */
    usleep(1200000);
    wait_for_sessions(&client, "2");
    assert_int_equal(waitpid(child, NULL, 0), child);
    client_close(&client);
}

int main(void)
{
    unsigned seed = (unsigned)time(NULL);
    print_message("seed %u\n", seed);
    srand(seed);
#define WITH_DAEMON(test) cmocka_unit_test_setup_teardown(test, daemon_set_up, daemon_tear_down)
    const struct CMUnitTest tests[] = {
        WITH_DAEMON(test_versions),
        WITH_DAEMON(test_program_names),
        WITH_DAEMON(test_hello_comes_first_and_once),
        WITH_DAEMON(test_garbage),
        WITH_DAEMON(test_truncated_packets),
        WITH_DAEMON(test_error_before_unread_packets),
        WITH_DAEMON(test_requests_that_grow),
        WITH_DAEMON(test_fds_that_are_slow_to_close),
        WITH_DAEMON(test_a_socket_in_itself),
        WITH_DAEMON(test_a_socket_in_itself_that_is_not_read),
        WITH_DAEMON(test_malformed_bodies_and_types),
        WITH_DAEMON(test_wrong_fds),
        WITH_DAEMON(test_no_fds_before_a_client_is_let_in),
        WITH_DAEMON(test_serial_zero),
        WITH_DAEMON(test_submit_of_a_wrong_size),
        WITH_DAEMON(test_two_daemons_on_one_socket),
        cmocka_unit_test(test_stale_socket_file),
        cmocka_unit_test(test_a_file_is_not_a_socket),
        cmocka_unit_test(test_somebody_else_listens),
        cmocka_unit_test(test_socket_mode),
        cmocka_unit_test(test_wrong_settings),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
