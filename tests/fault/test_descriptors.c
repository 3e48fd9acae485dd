/* File descriptors that clients send: not those of one user, nor those that nobody closes, keep the
 * daemon from serving others or from starting its executor. */
#include "tests/daemon/broker_fixture.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/fault/slow_file.h"
#include "tests/fault/spent.h"
#include "tests/proc_entries.h"
#include "tests/send_signal.h"

#define PAGE 4096u
#define LINGER_S 600 /* longer than any wait of a test */

/* Everybody may connect. */
static void start_for_all(struct daemon *daemon)
{
    daemon_init(daemon);
    daemon_start(daemon, "socket_mode=0666", NULL);
}

static int sealed_memfd(uint64_t bytes)
{
    int fd = memfd_create("descriptors", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    assert_int_equal(ftruncate(fd, (off_t)bytes), 0);
    assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK), 0);
    return fd;
}

/* Imports a page of memory as often as one import can have it. */
static struct message *import(struct client *client, int memfd)
{
    Cgm__ImportCreate create = CGM__IMPORT_CREATE__INIT;
    uint32_t kind[CGM_IMPORT_SEGMENTS_MAX];
    uint64_t offset[CGM_IMPORT_SEGMENTS_MAX] = {0}, length[CGM_IMPORT_SEGMENTS_MAX];
    int fds[CGM_IMPORT_SEGMENTS_MAX];
    for (uint32_t i = 0; i < CGM_IMPORT_SEGMENTS_MAX; i++) {
        kind[i] = 1;
        length[i] = PAGE;
        fds[i] = memfd;
    }
    create.n_kind = create.n_offset = create.n_length = CGM_IMPORT_SEGMENTS_MAX;
    create.kind = kind;
    create.offset = offset;
    create.length = length;
    return client_reply(client, client_send(client, CGM_MSG_IMPORT_CREATE, &create.base, fds,
                                            CGM_IMPORT_SEGMENTS_MAX));
}

/* Whoever closes it last waits until the peer has read what is in it: never. */
static int lingering_socket(int *ret_peer)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct linger linger = {1, LINGER_S};
    socklen_t length = sizeof(address);
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    static const char bytes[65536];
    assert_int_equal(bind(listener, (struct sockaddr *)&address, sizeof(address)), 0);
    assert_int_equal(listen(listener, 1), 0);
    assert_int_equal(getsockname(listener, (struct sockaddr *)&address, &length), 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&address, sizeof(address)), 0);
    *ret_peer = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    assert_true(*ret_peer >= 0);
    close(listener);
    for (unsigned naps = 0; naps < 10; naps++) {
        while (send(fd, bytes, sizeof(bytes), MSG_DONTWAIT) > 0)
            naps = 0;
        usleep(2000);
    }
    assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, sizeof(linger)), 0);
    return fd;
}

/* ---- quotas ------------------------------------------------------------------------------------
 */

/* What is ending counts as much again, and the executor has the fds too. */
static void test_one_user_has_a_quarter(void **state)
{
    struct daemon daemon;
    struct client client;
    (void)state;
    daemon_init(&daemon);
    daemon_start(&daemon, NULL);
    client_open(&client, &daemon);
    daemon_limit_fds(&daemon, 400);
    int memfd = sealed_memfd(PAGE);
    message_free(import(&client, memfd));
    expect_error(import(&client, memfd), CGM_QUOTA, "asked for 64, used 65, allowed 100");
    close(memfd);
    client_close(&client);
    daemon_stop(&daemon);
}

/* User buffer and workspace of each rank. */
static void test_plans_have_two_for_each_rank(void **state)
{
    struct daemon daemon;
    struct client client;
    Cgm__PlanCreate create = CGM__PLAN_CREATE__INIT;
    (void)state;
    daemon_init(&daemon);
    daemon_start(&daemon, "quota_fds=12", NULL);
    client_open(&client, &daemon);
    create.comm = comm_join_all(&client, "four", 4);
    create.op = 2;
    create.method = 4;
    create.m = create.n = create.k = 8;
    message_free(
        client_call(&client, CGM_MSG_PLAN_CREATE, &create.base, NULL, 0, CGM_MSG_PLAN_REPLY));
    create.m = 16;
    client_error(&client, CGM_MSG_PLAN_CREATE, &create.base, NULL, 0, CGM_QUOTA,
                 "quota_fds of uid");
    client_close(&client);
    daemon_stop(&daemon);
}

/* ---- what is no memory -------------------------------------------------------------------------
 */

static int epoll_of(int watched)
{
    struct epoll_event event = {.events = EPOLLIN};
    int fd = epoll_create1(EPOLL_CLOEXEC);
    assert_int_equal(epoll_ctl(fd, EPOLL_CTL_ADD, watched, &event), 0);
    return fd;
}

/* Closing an inotify or an epoll takes as long as it watches many files: no loop may wait for it,
 * and no executor of the CPU needs to see any. */
static void test_only_memory_may_come(void **state)
{
    struct daemon daemon;
    struct client client;
    int watched = eventfd(0, EFD_CLOEXEC);
    int fds[] = {watched, epoll_of(watched), inotify_init1(IN_CLOEXEC),
                 open("/dev/null", O_RDWR | O_CLOEXEC)};
    (void)state;
    daemon_init(&daemon);
    daemon_start(&daemon, REAL_EXECUTOR, NULL);
    for (size_t i = 0; i < sizeof(fds) / sizeof(fds[0]); i++) {
        client_open(&client, &daemon);
        expect_error(import(&client, fds[i]), CGM_INVALID_ARGUMENT, "neither a memfd nor device");
        assert_true(client_is_closed(&client));
        client_close(&client);
        close(fds[i]);
    }
    daemon_stop(&daemon);
}

/* ---- what nobody closes ------------------------------------------------------------------------
 */

/* recvmsg closes by itself what finds no room in this process, and waits as long as that takes. */
static void test_the_reserve_has_room_for_every_packet(void **state)
{
    enum { USERS = 8 };
    struct daemon daemon;
    struct client users[USERS], attacker, honest;
    int fds[CGM_PACKET_FDS_ROOM], peer, memfd = sealed_memfd(PAGE), refused = 0;
    (void)state;
    skip_unless_root();
    start_for_all(&daemon);
    client_open(&attacker, &daemon);
    client_open(&honest, &daemon);
    daemon_limit_fds(&daemon, 900);
    for (int i = 0; i < USERS * 4; i++) {
        if (i % 4 == 0)
            client_open_as(STRANGER + (uid_t)i, &users[i / 4], &daemon);
        unsigned before = proc_entries(daemon.pid, "fd");
        struct message *reply = import(&users[i / 4], memfd);
        bool taken = reply->type != CGM_MSG_ERROR;
        refused += !taken && ((const Cgm__Error *)reply->body)->status == CGM_NO_MEMORY;
        message_free(reply);
        daemon_wait_for_at_most(&daemon, "fd", before + (taken ? CGM_IMPORT_SEGMENTS_MAX : 0));
    }
    assert_true(refused > 0);
    for (unsigned i = 0; i < CGM_PACKET_FDS_ROOM - 1; i++)
        fds[i] = memfd;
    fds[CGM_PACKET_FDS_ROOM - 1] = lingering_socket(&peer);
    assert_int_equal(send_signal(daemon.pid, SIGSTOP), 0); /* its close must be the last one */
    assert_true(client_send_fds(&attacker, fds, CGM_PACKET_FDS_ROOM));
    close(fds[CGM_PACKET_FDS_ROOM - 1]);
    assert_int_equal(send_signal(daemon.pid, SIGCONT), 0);
    assert_true(status_number(&honest, "sessions") > 0);
    assert_true(client_is_closed(&attacker));
    close(peer);
    close(memfd);
    for (int i = 0; i < USERS; i++)
        client_close(&users[i]);
    wait_for_status(&honest, "sessions", 1);
    client_close(&attacker);
    client_close(&honest);
    daemon_stop(&daemon);
}

static bool start_slow_file(struct slow_file *file, const struct daemon *daemon)
{
    char path[96];
    snprintf(path, sizeof(path), "%s/slow", daemon->folder);
    if (slow_file_start(file, path))
        return true;
    print_message("no file of FUSE can be had here\n");
    return false;
}

/* Every session sends its last packet at once; they are heard until the user has too much. */
static void test_what_is_slow_to_close_is_limited(void **state)
{
    enum { SESSIONS = 40, FDS = 4000 };
    struct daemon daemon;
    struct client flood[SESSIONS], honest;
    struct slow_file file;
    int fds[CGM_PACKET_FDS_ROOM];
    (void)state;
    skip_unless_root();
    start_for_all(&daemon);
    client_open(&honest, &daemon);
    daemon_limit_fds(&daemon, FDS);
    if (start_slow_file(&file, &daemon)) {
        for (unsigned i = 0; i < CGM_PACKET_FDS_ROOM; i++)
            fds[i] = i ? dup(fds[0]) : slow_file_open(&file);
        assert_true(fds[0] >= 0);
        for (int i = 0; i < SESSIONS; i++)
            client_open_as(STRANGER, &flood[i], &daemon);
        unsigned before = proc_entries(daemon.pid, "fd");
        for (int i = 0; i < SESSIONS; i++)
            client_send_fds(&flood[i], fds, CGM_PACKET_FDS_ROOM);
        for (int i = 0; i < SESSIONS; i++)
            assert_true(client_is_closed(&flood[i]));
        assert_in_range(proc_entries(daemon.pid, "fd"), 1,
                        before + FDS / 4 + 2 * CGM_PACKET_FDS_ROOM);
        struct client another;
        client_open_as(STRANGER + 1, &another, &daemon);
        buffer_create(&another, NULL, PAGE, 0, NULL);
        client_close(&another);
        slow_file_stop(&file);
        for (unsigned i = 0; i < CGM_PACKET_FDS_ROOM; i++)
            close(fds[i]);
        for (int i = 0; i < SESSIONS; i++)
            client_close(&flood[i]);
        daemon_wait_for_at_most(&daemon, "fd", before - SESSIONS);
    }
    client_close(&honest);
    daemon_stop(&daemon);
}

/* The new process has copies, and closes them before it runs. */
static void test_an_executor_starts_beside_them(void **state)
{
    enum { SLOW = 20 };
    struct daemon daemon;
    struct client attacker, honest;
    struct slow_file file;
    int fds[SLOW];
    (void)state;
    skip_unless_root();
    start_for_all(&daemon);
    client_open(&honest, &daemon);
    client_open(&attacker, &daemon);
    wait_for_executor(&honest);
    uint64_t life = status_number(&honest, "executor_life");
    pid_t executor = (pid_t)status_number(&honest, "executor_pid");
    if (start_slow_file(&file, &daemon)) {
        for (unsigned i = 0; i < SLOW; i++)
            fds[i] = i ? dup(fds[0]) : slow_file_open(&file);
        assert_true(client_send_fds(&attacker, fds, SLOW));
        assert_true(client_is_closed(&attacker));
        assert_int_equal(send_signal(executor, SIGKILL), 0);
        wait_for_status(&honest, "executor_life", life + 1);
        wait_for_executor(&honest);
        slow_file_stop(&file);
        for (unsigned i = 0; i < SLOW; i++)
            close(fds[i]);
    }
    client_close(&attacker);
    client_close(&honest);
    daemon_stop(&daemon);
}

/* ---- what is sent to where nobody reads --------------------------------------------------------
 */

/* The client's end of the socket through which its ring's executor wakes it. */
static int notify_socket(struct client *client)
{
    struct message *ring = client_ring_set_up(client, 8);
    assert_int_equal(ring->n_fds, 3);
    int fd = fcntl(ring->fds[2], F_DUPFD_CLOEXEC, 3);
    message_free(ring);
    return fd;
}

/* Whoever closes the other end closes what lies in it, and that is a thread of the executor. */
static void test_the_executor_closes_nothing_of_a_client(void **state)
{
    struct daemon daemon;
    struct client attacker, honest;
    int peer;
    (void)state;
    daemon_init(&daemon);
    daemon_start(&daemon, REAL_EXECUTOR, NULL);
    client_open(&honest, &daemon);
    client_open(&attacker, &daemon);
    uint64_t life = status_number(&honest, "executor_life");
    int notify = notify_socket(&attacker), slow = lingering_socket(&peer);
    assert_int_not_equal(cgm_packet_send_bytes(notify, (const uint8_t *)"", 1, &slow, 1), CGM_OK);
    close(peer);
    close(slow);
    close(notify);
    client_close(&attacker);
    wait_for_status(&honest, "sessions", 1);
    buffer_create(&honest, NULL, PAGE, 0, NULL);
    assert_int_equal(status_number(&honest, "executor_life"), life);
    client_close(&honest);
    daemon_stop(&daemon);
}

/* How long the thread of this name has run. */
static uint64_t thread_ns(pid_t pid, const char *name)
{
    char path[96], text[32];
    unsigned long long ns = 0;
    snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
    DIR *tasks = opendir(path);
    assert_non_null(tasks);
    for (const struct dirent *task; (task = readdir(tasks)) && ns == 0;) {
        snprintf(path, sizeof(path), "/proc/%d/task/%.16s/comm", (int)pid, task->d_name);
        FILE *file = fopen(path, "re");
        bool found = file && fscanf(file, "%31s", text) == 1 && strcmp(text, name) == 0;
        if (file)
            fclose(file);
        snprintf(path, sizeof(path), "/proc/%d/task/%.16s/schedstat", (int)pid, task->d_name);
        file = found ? fopen(path, "re") : NULL;
        if (found && !file)
            skip(); /* the kernel does not count */
        if (file) {
            assert_int_equal(fscanf(file, "%llu", &ns), 1);
            fclose(file);
        }
    }
    closedir(tasks);
    return ns;
}

/* Memory and a handle that no executor of the CPU takes, from a client that goes at once. */
static void send_large_import(const struct daemon *daemon)
{
    uint8_t bytes[64] = {0};
    uint32_t kind[] = {1, 2};
    uint64_t offset[] = {0, 0}, length[] = {256u << 20, PAGE};
    ProtobufCBinaryData handle[] = {{0, NULL}, {sizeof(bytes), bytes}};
    Cgm__ImportCreate create = CGM__IMPORT_CREATE__INIT;
    struct client client;
    int fd = sealed_memfd(length[0]);
    assert_int_equal(fallocate(fd, 0, 0, (off_t)length[0]), 0);
    create.n_kind = create.n_offset = create.n_length = create.n_handle = 2;
    create.kind = kind;
    create.offset = offset;
    create.length = length;
    create.handle = handle;
    client_open(&client, daemon);
    client_send(&client, CGM_MSG_IMPORT_CREATE, &create.base, &fd, 1);
    close(fd);
    client_close(&client);
}

/* Nobody else has the memory any more: who closes it frees it, and that must not be the thread that
 * makes everybody's buffers. */
static void test_the_mapper_frees_nothing_of_a_client(void **state)
{
    struct daemon daemon;
    struct client honest;
    char own[24], last[24] = "";
    (void)state;
    daemon_init(&daemon);
    daemon_start(&daemon, REAL_EXECUTOR, NULL);
    client_open(&honest, &daemon);
    wait_for_executor(&honest);
    pid_t executor = (pid_t)status_number(&honest, "executor_pid");
    uint64_t mapper = thread_ns(executor, "cgm-mapper");
    uint64_t others = spent_ns(executor) + spent_ns(daemon.pid) - mapper;
    assert_int_equal(send_signal(executor, SIGSTOP), 0);
    send_large_import(&daemon);
    snprintf(own, sizeof(own), "%ju", (uintmax_t)honest.session);
    for (unsigned naps = 0; strcmp(last, own) != 0; naps++) {
        assert_true(naps < WAIT_S * 100);
        usleep(10000);
        query_value(&honest, CGM_QUERY_SESSIONS, NULL, NULL, "id", last, sizeof(last));
    }
    assert_int_equal(send_signal(executor, SIGCONT), 0);
    int memfd = sealed_memfd(PAGE);
    struct message *reply = import(&honest, memfd);
    Cgm__ImportRelease release = CGM__IMPORT_RELEASE__INIT;
    release.id = ((const Cgm__ImportReply *)reply->body)->id;
    client_ok(&honest, CGM_MSG_IMPORT_RELEASE, &release.base); /* behind all of it */
    message_free(reply);
    close(memfd);
    uint64_t mapper_took = 0, others_took = 0;
    for (unsigned naps = 0; others_took <= mapper_took; naps++) { /* they are not waited for */
        assert_true(naps < WAIT_S * 100);
        usleep(10000);
        mapper_took = thread_ns(executor, "cgm-mapper") - mapper;
        others_took = spent_ns(executor) + spent_ns(daemon.pid) - mapper - mapper_took - others;
    }
    print_message("mapper %.1f ms, others and daemon %.1f ms\n", (double)mapper_took * 1e-6,
                  (double)others_took * 1e-6);
    client_close(&honest);
    daemon_stop(&daemon);
}

/* Whoever has an fd of a buffer can keep the system from making a hole of it. */
static void test_the_mapper_frees_no_buffer(void **state)
{
    struct daemon daemon;
    struct client client;
    int fd;
    (void)state;
    daemon_init(&daemon);
    daemon_start(&daemon, REAL_EXECUTOR, NULL);
    client_open(&client, &daemon);
    wait_for_executor(&client);
    pid_t executor = (pid_t)status_number(&client, "executor_pid");
    Cgm__BufferClose going = CGM__BUFFER_CLOSE__INIT;
    going.id = buffer_create(&client, NULL, 256u << 20, 0, &fd);
    uint64_t mapper = thread_ns(executor, "cgm-mapper");
    uint64_t others = spent_ns(executor) - mapper;
    client_ok(&client, CGM_MSG_BUFFER_CLOSE, &going.base);
    uint64_t mapper_took = 0, others_took = 0;
    for (unsigned naps = 0; others_took <= mapper_took; naps++) { /* they are not waited for */
        assert_true(naps < WAIT_S * 100);
        usleep(10000);
        mapper_took = thread_ns(executor, "cgm-mapper") - mapper;
        others_took = spent_ns(executor) - mapper - mapper_took - others;
    }
    print_message("mapper %.1f ms, others %.1f ms\n", (double)mapper_took * 1e-6,
                  (double)others_took * 1e-6);
    close(fd);
    client_close(&client);
    daemon_stop(&daemon);
}

/* A session's own socket on its way to nowhere would keep the session for ever. */
static void test_a_session_ends_with_its_last_process(void **state)
{
    struct daemon daemon;
    struct client attacker, honest;
    (void)state;
    daemon_init(&daemon);
    daemon_start(&daemon, REAL_EXECUTOR, NULL);
    client_open(&honest, &daemon);
    client_open(&attacker, &daemon);
    int notify = notify_socket(&attacker);
    (void)!cgm_packet_send_bytes(notify, (const uint8_t *)"", 1, &attacker.fd, 1);
    close(notify);
    client_close(&attacker);
    wait_for_status(&honest, "sessions", 1);
    client_close(&honest);
    daemon_stop(&daemon);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_user_has_a_quarter),
        cmocka_unit_test(test_plans_have_two_for_each_rank),
        cmocka_unit_test(test_only_memory_may_come),
        cmocka_unit_test(test_the_reserve_has_room_for_every_packet),
        cmocka_unit_test(test_what_is_slow_to_close_is_limited),
        cmocka_unit_test(test_an_executor_starts_beside_them),
        cmocka_unit_test(test_the_executor_closes_nothing_of_a_client),
        cmocka_unit_test(test_the_mapper_frees_nothing_of_a_client),
        cmocka_unit_test(test_the_mapper_frees_no_buffer),
        cmocka_unit_test(test_a_session_ends_with_its_last_process),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
