/* What whoever starts the daemon leaves to it, and the executor through it: neither cares. */
#include "tests/daemon/broker_fixture.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/send_signal.h"

#define LEFT_OPEN 57

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#else
#define SANITIZED 0
#endif

/* A line of /proc/PID/status, a number in base 16. */
static uint64_t status_mask(pid_t pid, const char *key)
{
    char path[64], line[256];
    uint64_t mask = UINT64_MAX;
    snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
    FILE *file = fopen(path, "re");
    assert_non_null(file);
    while (fgets(line, sizeof(line), file))
        if (strncmp(line, key, strlen(key)) == 0)
            mask = strtoull(line + strlen(key), NULL, 16);
    fclose(file);
    return mask;
}

static uint64_t bit_of(int number)
{
    return 1ull << (number - 1);
}

static mode_t mode_of(const char *path)
{
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    return st.st_mode & 07777u;
}

static void bequeath_signals(void)
{
    sigset_t all;
    sigfillset(&all);
    for (int number = 1; number <= SIGRTMAX; number++)
        signal(number, SIG_IGN);
    sigprocmask(SIG_SETMASK, &all, NULL);
}

static void test_signals(void **state)
{
    struct daemon daemon = {0};
    struct client client;
    (void)state;
    daemon_init(&daemon);
    daemon.bequeath = bequeath_signals;
    daemon_start(&daemon, NULL);
    client_open(&client, &daemon);
    wait_for_executor(&client);
    pid_t executor = (pid_t)status_number(&client, "executor_pid");
    uint64_t expected = bit_of(SIGPIPE) | bit_of(SIGXFSZ);
    uint64_t of_library = bit_of(32) | bit_of(33); /* of C, which a process cannot see */
    assert_int_equal(status_mask(daemon.pid, "SigBlk:"), 0);
    assert_int_equal(status_mask(daemon.pid, "SigIgn:"), expected);
    assert_int_equal(status_mask(executor, "SigBlk:"), 0);
    assert_int_equal(status_mask(executor, "SigIgn:") & ~(expected | of_library), 0);
    /* Its end is noticed, which comes by a signal. */
    uint64_t life = status_number(&client, "executor_life");
    assert_int_equal(send_signal(executor, SIGKILL), 0);
    wait_for_more(&client, "executor_life", life);
    client_close(&client);
    daemon_stop(&daemon);
}

/* Of another process: the write end of a pipe, which ends when nobody has it any more. */
static int left_open;

static void bequeath_fds(void)
{
    dup2(left_open, LEFT_OPEN);
}

static void test_open_fds_are_nobodys(void **state)
{
    struct daemon daemon;
    struct client client;
    int ends[2];
    char path[64];
    (void)state;
    daemon_init(&daemon);
    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    left_open = ends[1];
    daemon.bequeath = bequeath_fds;
    daemon_start(&daemon, NULL);
    close(ends[1]);
    client_open(&client, &daemon);
    wait_for_executor(&client);
    snprintf(path, sizeof(path), "/proc/%d/fd/%d", (int)status_number(&client, "executor_pid"),
             LEFT_OPEN);
    assert_int_equal(access(path, F_OK), -1);
    struct pollfd poll_fd = {.fd = ends[0], .events = POLLIN};
    assert_int_equal(poll(&poll_fd, 1, WAIT_S * 1000), 1);
    assert_int_equal(poll_fd.revents, POLLHUP);
    close(ends[0]);
    client_close(&client);
    daemon_stop(&daemon);
}

static void bequeath_nothing(void)
{
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
        close(fd);
}

static void expect_target(pid_t pid, int fd, const char *target)
{
    char path[64], found[128] = "";
    snprintf(path, sizeof(path), "/proc/%d/fd/%d", (int)pid, fd);
    assert_true(readlink(path, found, sizeof(found) - 1) > 0);
    assert_string_equal(found, target);
}

static void test_standard_fds_are_there(void **state)
{
    struct daemon daemon;
    struct client client;
    (void)state;
    daemon_init(&daemon);
    daemon.bequeath = bequeath_nothing;
    daemon_start(&daemon, NULL);
    client_open(&client, &daemon);
    wait_for_executor(&client);
    pid_t executor = (pid_t)status_number(&client, "executor_pid");
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++) {
        expect_target(daemon.pid, fd, "/dev/null");
        expect_target(executor, fd, "/dev/null");
    }
    client_close(&client);
    daemon_stop(&daemon);
}

static void bequeath_umask(void)
{
    umask(0777);
}

static void test_umask(void **state)
{
    struct daemon daemon;
    char path[128];
    (void)state;
    daemon_init(&daemon);
    daemon.bequeath = bequeath_umask;
    daemon_start(&daemon, NULL);
    snprintf(path, sizeof(path), "%s/run", daemon.folder);
    assert_int_equal(mode_of(path), 0755);
    assert_int_equal(mode_of(daemon.socket), 0660);
    snprintf(path, sizeof(path), "%s.lock", daemon.socket);
    assert_int_equal(mode_of(path), 0600);
    daemon_stop(&daemon);
}

static rlim_t stack_max;

static void bequeath_small_stack(void)
{
    struct rlimit limit = {64 << 10, stack_max};
    setrlimit(RLIMIT_STACK, &limit);
}

/* Its limit is raised as far as may be; where that is not enough, no executor could start. */
static void test_small_stack(void **state)
{
    static const char *const no_settings[] = {NULL};
    struct daemon daemon;
    struct client client;
    (void)state;
    if (SANITIZED) {
        print_message("sanitizers need more of a stack than that\n");
        skip();
    }
    daemon_init(&daemon);
    daemon.bequeath = bequeath_small_stack;
    stack_max = 64 << 10;
    daemon_launch(&daemon, no_settings);
    assert_int_equal(daemon_wait(&daemon), cgm_status_exit(CGM_NOT_SUPPORTED));
    stack_max = 1 << 20;
    daemon_start(&daemon, REAL_EXECUTOR, NULL);
    client_open(&client, &daemon);
    wait_for_executor(&client);
    buffer_create(&client, NULL, 1, 0, NULL);
    client_close(&client);
    daemon_stop(&daemon);
}

/* Standard error is a pipe that nobody reads, and full. */
static int full_pipe;

static void bequeath_full_pipe(void)
{
    dup2(full_pipe, STDERR_FILENO);
}

static void fill(int fd)
{
    char page[4096] = "";
    fcntl(fd, F_SETFL, O_NONBLOCK);
    while (write(fd, page, sizeof(page)) > 0)
        continue;
    fcntl(fd, F_SETFL, 0);
}

static void test_a_log_that_nobody_reads(void **state)
{
    struct daemon daemon;
    struct client client;
    int ends[2];
    (void)state;
    daemon_init(&daemon);
    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    fill(ends[1]);
    full_pipe = ends[1];
    daemon.bequeath = bequeath_full_pipe;
    daemon_start(&daemon, NULL);
    client_open(&client, &daemon);
    wait_for_executor(&client);
    client_close(&client);
    daemon_stop(&daemon);
    close(ends[0]);
    close(ends[1]);
}

/* A terminal sends its signals to all of the group: the executor leaves them to the daemon. */
static void test_signals_of_a_terminal(void **state)
{
    struct daemon daemon;
    struct client client;
    (void)state;
    daemon_init(&daemon);
    daemon.own_session = true;
    daemon_start(&daemon, REAL_EXECUTOR, NULL);
    client_open(&client, &daemon);
    wait_for_executor(&client);
    assert_true(daemon.pid > 1);
    assert_int_equal(kill(-daemon.pid, SIGHUP), 0);
    buffer_create(&client, "made", 4096, 0, NULL);
    assert_int_equal(status_number(&client, "executor_deaths"), 0);
    client_close(&client);
    assert_int_equal(kill(-daemon.pid, SIGINT), 0);
    assert_int_equal(daemon_wait(&daemon), 0);
    assert_false(daemon_log_has(&daemon, "executor: ", "ended by signal"));
    daemon_stop(&daemon);
}

static int oom_score_adj(uint64_t pid)
{
    char path[48], text[16] = "";
    snprintf(path, sizeof(path), "/proc/%llu/oom_score_adj", (unsigned long long)pid);
    FILE *file = fopen(path, "re");
    assert_non_null(file);
    assert_non_null(fgets(text, sizeof(text), file));
    fclose(file);
    return atoi(text);
}

/* Where memory runs out the executor is killed, and not the broker with all named buffers. */
static void test_the_executor_goes_first(void **state)
{
    struct daemon daemon;
    struct client client;
    (void)state;
    daemon_init(&daemon);
    daemon_start(&daemon, REAL_EXECUTOR, NULL);
    client_open(&client, &daemon);
    wait_for_executor(&client);
    int broker = oom_score_adj((uint64_t)daemon.pid);
    int executor = oom_score_adj(status_number(&client, "executor_pid"));
    assert_true(executor > broker || executor == 1000);
    client_close(&client);
    daemon_stop(&daemon);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_signals),
        cmocka_unit_test(test_open_fds_are_nobodys),
        cmocka_unit_test(test_standard_fds_are_there),
        cmocka_unit_test(test_umask),
        cmocka_unit_test(test_small_stack),
        cmocka_unit_test(test_a_log_that_nobody_reads),
        cmocka_unit_test(test_signals_of_a_terminal),
        cmocka_unit_test(test_the_executor_goes_first),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
