/* The daemon as systemd starts it: a listening socket as fd 3, a socket for what it has to say, a
 * watchdog, SIGHUP after a change of the configuration. */
#include "tests/daemon/broker_fixture.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "tests/proc_entries.h"
#include "tests/send_signal.h"

struct unit {
    struct daemon daemon;
    char notify_path[96], config[96];
    int notify_fd, listen_fd;
    const char *listen_fds; /* how many there are */
    const char *settings;   /* further lines of the configuration */
};

static int bind_socket(int type, const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    assert_true(strlen(path) < sizeof(address.sun_path));
    memcpy(address.sun_path, path, strlen(path) + 1);
    int fd = socket(AF_UNIX, type | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&address, sizeof(address)), 0);
    return fd;
}

static void write_config(const struct unit *unit, const char *level)
{
    FILE *file = fopen(unit->config, "w");
    assert_non_null(file);
    fprintf(file, "log_level = %s\nbackend = cpu\ndevices = 1\n%s", level, unit->settings);
    fclose(file);
}

static void exec_as_systemd(const struct unit *unit)
{
    char pid[16];
    snprintf(pid, sizeof(pid), "%d", (int)getpid());
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    setenv("LISTEN_PID", pid, 1);
    setenv("LISTEN_FDS", unit->listen_fds, 1);
    setenv("NOTIFY_SOCKET", unit->notify_path, 1);
    setenv("WATCHDOG_PID", pid, 1);
    setenv("WATCHDOG_USEC", "200000", 1);
    setenv("FAKE_EXECUTOR_DIR", unit->daemon.folder, 1);
    if (dup2(unit->listen_fd, 3) == 3)
        execl(CGM_BIN_DIR "/commgemmd", "commgemmd", "--config", unit->config, NULL);
    _exit(127);
}

static void unit_prepare(struct unit *unit, int socket_type)
{
    char folder[96];
    daemon_init(&unit->daemon);
    snprintf(folder, sizeof(folder), "%s/run", unit->daemon.folder);
    assert_int_equal(mkdir(folder, 0700), 0);
    snprintf(unit->notify_path, sizeof(unit->notify_path), "%s/notify", unit->daemon.folder);
    snprintf(unit->config, sizeof(unit->config), "%s/commgemmd.conf", unit->daemon.folder);
    unit->settings = "";
    write_config(unit, "info");
    unit->listen_fds = "1";
    unit->notify_fd = bind_socket(SOCK_DGRAM, unit->notify_path);
    /* Out of the way of fd 3, which dup2 would leave close-on-exec. */
    int fd = bind_socket(socket_type, unit->daemon.socket);
    unit->listen_fd = fcntl(fd, F_DUPFD_CLOEXEC, 10);
    close(fd);
    assert_int_equal(listen(unit->listen_fd, 8), 0);
}

static void unit_launch(struct unit *unit)
{
    unit->daemon.pid = fork();
    assert_true(unit->daemon.pid >= 0);
    if (unit->daemon.pid == 0)
        exec_as_systemd(unit);
}

static void unit_start(struct unit *unit, int socket_type)
{
    unit_prepare(unit, socket_type);
    unit_launch(unit);
}

/* The next message that begins so; others are passed over. */
static void await_word(const struct unit *unit, const char *begin)
{
    char text[512];
    struct pollfd poll_fd = {.fd = unit->notify_fd, .events = POLLIN};
    for (;;) {
        assert_int_equal(poll(&poll_fd, 1, WAIT_S * 1000), 1);
        ssize_t n = recv(unit->notify_fd, text, sizeof(text) - 1, 0);
        assert_true(n >= 0);
        text[n] = '\0';
        if (strncmp(text, begin, strlen(begin)) == 0)
            return;
    }
}

/* How many messages that begin so are there. */
static unsigned pending_words(const struct unit *unit, const char *begin)
{
    char text[512];
    unsigned count = 0;
    ssize_t n;
    while ((n = recv(unit->notify_fd, text, sizeof(text) - 1, MSG_DONTWAIT)) >= 0) {
        text[n] = '\0';
        count += strncmp(text, begin, strlen(begin)) == 0;
    }
    return count;
}

static void unit_stop(struct unit *unit)
{
    close(unit->listen_fd);
    close(unit->notify_fd);
    unlink(unit->notify_path);
    unlink(unit->config);
    unlink(unit->daemon.socket);
    daemon_stop(&unit->daemon);
}

static void test_a_life_under_systemd(void **state)
{
    struct unit unit;
    struct client client;
    (void)state;
    unit_start(&unit, SOCK_SEQPACKET);
    await_word(&unit, "READY=1");
    client_open(&client, &unit.daemon);
    await_word(&unit, "STATUS=1 sessions, backend cpu");
    await_word(&unit, "WATCHDOG=1");
    write_config(&unit, "debug");
    assert_int_equal(send_signal(unit.daemon.pid, SIGHUP), 0);
    await_word(&unit, "WATCHDOG=1");
    await_word(&unit, "WATCHDOG=1"); /* of after the signal */
    unlink(unit.config);
    assert_int_equal(send_signal(unit.daemon.pid, SIGHUP),
                     0); /* what cannot be read changes nothing */
    await_word(&unit, "WATCHDOG=1");
    assert_int_equal(mkfifo(unit.config, 0600), 0);
    assert_int_equal(send_signal(unit.daemon.pid, SIGHUP), 0); /* nor is it waited for */
    await_word(&unit, "WATCHDOG=1");
    await_word(&unit, "WATCHDOG=1");
    assert_int_equal(status_number(&client, "sessions"), 1);
    client_close(&client);
    assert_int_equal(send_signal(unit.daemon.pid, SIGTERM), 0);
    await_word(&unit, "STOPPING=1");
    assert_int_equal(daemon_wait(&unit.daemon), 0);
    assert_int_equal(access(unit.daemon.socket, F_OK), 0); /* it is systemd's */
    unit_stop(&unit);
}

static void test_the_executor_follows_the_log_level(void **state)
{
    struct unit unit;
    char line[64];
    (void)state;
    unit_prepare(&unit, SOCK_SEQPACKET);
    unit.settings = "executor = " CGM_BIN_DIR "/fake_executor\nexecutor_timeout = 1\n";
    write_config(&unit, "info");
    unit_launch(&unit);
    fake_wait_line(&unit.daemon, "log_level 6", line, sizeof(line));
    write_config(&unit, "error");
    assert_int_equal(send_signal(unit.daemon.pid, SIGHUP), 0);
    fake_wait_line(&unit.daemon, "log_level 3", line, sizeof(line));
    assert_int_equal(send_signal(unit.daemon.pid, SIGTERM), 0);
    assert_int_equal(daemon_wait(&unit.daemon), 0);
    unit_stop(&unit);
}

static double now_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static void connect_and_go(const struct unit *unit)
{
    int fd;
    assert_int_equal(cgm_socket_connect(unit->daemon.socket, &fd), CGM_OK);
    close(fd);
}

/* A status at most each second, however often clients come and go: process 1 has other work too. */
static void test_a_flood_of_clients_is_no_flood_of_words(void **state)
{
    struct unit unit;
    struct client client;
    unsigned words = 0;
    (void)state;
    unit_start(&unit, SOCK_SEQPACKET);
    await_word(&unit, "READY=1");
    double begin_s = now_s();
    for (int i = 0; i < 200; i++) {
        connect_and_go(&unit);
        words += pending_words(&unit, "STATUS=");
    }
    assert_in_range(words, 0, (uintmax_t)(now_s() - begin_s) + 2);
    client_open(&client, &unit.daemon);
    await_word(&unit, "STATUS=1 sessions, backend cpu"); /* the last one says what is */
    client_close(&client);
    unit_stop(&unit);
}

static unsigned fill(const struct unit *unit)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    unsigned words = 0;
    memcpy(address.sun_path, unit->notify_path, strlen(unit->notify_path) + 1);
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    while (sendto(fd, "X", 1, MSG_DONTWAIT, (struct sockaddr *)&address, sizeof(address)) == 1)
        words++;
    close(fd);
    return words;
}

/* Process 1 stands still, and its socket is full before the daemon's first word: clients notice
 * nothing, and it is told when it reads again. */
static void test_nobody_waits_for_systemd(void **state)
{
    struct unit unit;
    struct client client;
    (void)state;
    unit_prepare(&unit, SOCK_SEQPACKET);
    assert_in_range(fill(&unit), 1, UINT16_MAX);
    unit_launch(&unit);
    client_open(&client, &unit.daemon);
    wait_for_executor(&client);
    assert_int_equal(status_number(&client, "sessions"), 1);
    await_word(&unit, "READY=1");
    await_word(&unit, "STATUS=1 sessions, backend cpu");
    client_close(&client);
    fill(&unit);
    unit_stop(&unit);
}

/* It does not listen elsewhere instead. */
static void test_sockets_that_are_not_there(void **state)
{
    struct unit unit;
    (void)state;
    unit_prepare(&unit, SOCK_SEQPACKET);
    unit.listen_fds = "one";
    unit_launch(&unit);
    assert_int_equal(daemon_wait(&unit.daemon), 2);
    unit_stop(&unit);
}

static void test_a_socket_of_another_type(void **state)
{
    struct unit unit;
    (void)state;
    unit_start(&unit, SOCK_STREAM);
    assert_int_equal(daemon_wait(&unit.daemon), 2);
    unit_stop(&unit);
}

#ifndef SO_PASSPIDFD
#define SO_PASSPIDFD 76
#endif

/* With each packet the system gives one more fd where the unit says PassPIDFD=yes; also to those
 * that connected before the daemon was there. */
static void test_a_socket_that_passes_more(void **state)
{
    struct unit unit;
    struct client early, late;
    const int on = 1;
    (void)state;
    unit_prepare(&unit, SOCK_SEQPACKET);
    (void)setsockopt(unit.listen_fd, SOL_SOCKET, SO_PASSPIDFD, &on, sizeof(on));
    (void)setsockopt(unit.listen_fd, SOL_SOCKET, SO_PASSCRED, &on, sizeof(on));
    client_connect(&early, &unit.daemon);
    unit_launch(&unit);
    await_word(&unit, "READY=1");
    client_open(&late, &unit.daemon);
    status_number(&late, "sessions");
    unsigned before = proc_entries(unit.daemon.pid, "fd");
    Cgm__Hello hello = CGM__HELLO__INIT;
    hello.min_version = hello.max_version = CGM_PROTOCOL_MAX;
    message_free(client_call(&early, CGM_MSG_HELLO, &hello.base, NULL, 0, CGM_MSG_HELLO_REPLY));
    for (int i = 0; i < 20; i++) {
        status_number(&early, "sessions");
        status_number(&late, "sessions");
    }
    assert_int_equal(proc_entries(unit.daemon.pid, "fd"), before);
    client_close(&early);
    client_close(&late);
    unit_stop(&unit);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_life_under_systemd),
        cmocka_unit_test(test_the_executor_follows_the_log_level),
        cmocka_unit_test(test_a_flood_of_clients_is_no_flood_of_words),
        cmocka_unit_test(test_nobody_waits_for_systemd),
        cmocka_unit_test(test_sockets_that_are_not_there),
        cmocka_unit_test(test_a_socket_of_another_type),
        cmocka_unit_test(test_a_socket_that_passes_more),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
