/* Standard error that nobody reads, or that has no room, keeps no writer waiting; what was left out
 * is counted. Each case is a process of its own: what a process writes to is settled once. */
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "proto/log_line.h"
#include "proto/log_sink.h"
#include "tests/send_signal.h"

#define WAIT_S 60
#define LINES 20000 /* of at least 100 bytes: more than a pipe or a socket takes */

static void say(const char *format, ...) __attribute__((format(printf, 1, 2)));

static void say(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    cgm_log_line_write(4, "test: ", format, arguments);
    va_end(arguments);
}

static uid_t writer_uid; /* 0: the test's own */

static void write_lines(int gate)
{
    char word;
    if (writer_uid && seteuid(writer_uid) < 0)
        _exit(4);
    cgm_log_sink_open();
    for (int i = 0; i < LINES; i++)
        say("%0100d", i);
    if (write(gate, "w", 1) != 1 || read(gate, &word, 1) != 1)
        _exit(3);
    say("there is room again");
    _exit(0);
}

/* The other end of a socket on which the writer says that it is through, and waits. */
static pid_t start_writer(int target, int *ret_gate)
{
    int gate[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, gate), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        dup2(target, STDERR_FILENO);
        write_lines(gate[1]);
    }
    close(gate[1]);
    *ret_gate = gate[0];
    return pid;
}

static void expect_through(pid_t pid, int gate)
{
    char word;
    struct pollfd poll_fd = {.fd = gate, .events = POLLIN};
    bool through = poll(&poll_fd, 1, WAIT_S * 1000) == 1 && read(gate, &word, 1) == 1;
    if (!through)
        send_signal(pid, SIGKILL);
    assert_true(through);
}

/* All that is there: whole lines. */
static unsigned drain(int fd, unsigned *ret_left_out)
{
    char text[65536];
    unsigned lines = 0;
    FILE *file = fdopen(fd, "r");
    assert_non_null(file);
    *ret_left_out = 0;
    while (fgets(text, sizeof(text), file)) {
        const char *note = strstr(text, "log: ");
        assert_non_null(strchr(text, '\n'));
        if (note)
            assert_int_equal(sscanf(note, "log: %u lines", ret_left_out), 1);
        lines += !note;
    }
    fclose(file);
    return lines;
}

static void expect_no_waiting(int reader, int writer)
{
    int gate, status;
    char text[4096];
    unsigned left_out, first = 0;
    pid_t pid = start_writer(writer, &gate);
    close(writer);
    expect_through(pid, gate);
    fcntl(reader, F_SETFL, O_NONBLOCK);
    for (ssize_t n; (n = read(reader, text, sizeof(text))) > 0;)
        for (ssize_t i = 0; i < n; i++)
            first += text[i] == '\n';
    fcntl(reader, F_SETFL, 0);
    assert_int_equal(write(gate, "w", 1), 1);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    close(gate);
    assert_int_equal(drain(reader, &left_out), 1);
    assert_in_range(first, 1, LINES - 1);
    assert_int_equal(first + left_out, LINES);
}

static void test_a_pipe(void **state)
{
    int ends[2];
    (void)state;
    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    expect_no_waiting(ends[0], ends[1]);
}

/* Which the writer may not open anew. */
static void test_a_pipe_of_another_user(void **state)
{
    if (geteuid() != 0) {
        print_message("needs root to become another user\n");
        skip();
    }
    writer_uid = 65534;
    test_a_pipe(state);
    writer_uid = 0;
}

/* As systemd's journal has it. */
static void test_a_socket(void **state)
{
    int ends[2];
    (void)state;
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    expect_no_waiting(ends[0], ends[1]);
}

/* Whatever it is made of. */
static void test_a_line_is_one_line(void **state)
{
    char text[512];
    int ends[2], status;
    (void)state;
    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        dup2(ends[1], STDERR_FILENO);
        cgm_log_sink_open();
        say("%s", "esc\033[2J\n10:00:00.000 error   forged");
        _exit(0);
    }
    close(ends[1]);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    ssize_t n = read(ends[0], text, sizeof(text) - 1);
    assert_true(n > 0);
    text[n] = '\0';
    assert_non_null(strstr(text, "test: esc?[2J?10:00:00.000 error   forged\n"));
    close(ends[0]);
}

static void write_to_a_full_disk(void)
{
    struct rlimit limit;
    getrlimit(RLIMIT_FSIZE, &limit);
    limit.rlim_cur = 1000;
    signal(SIGXFSZ, SIG_IGN);
    setrlimit(RLIMIT_FSIZE, &limit);
    cgm_log_sink_open();
    for (int i = 0; i < 20; i++)
        say("%0100d", i);
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_FSIZE, &limit);
    say("there is room again");
    _exit(0);
}

/* A line that was cut off is not taken for the beginning of another. */
static void test_a_full_disk(void **state)
{
    int status;
    char text[2048];
    (void)state;
    FILE *file = tmpfile();
    assert_non_null(file);
    pid_t pid = fork();
    if (pid == 0) {
        dup2(fileno(file), STDERR_FILENO);
        write_to_a_full_disk();
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    ssize_t n = pread(fileno(file), text, sizeof(text) - 1, 0);
    assert_in_range(n, 1000, sizeof(text) - 1);
    text[n] = '\0';
    assert_int_equal(text[1000], '\n');
    assert_non_null(strstr(text + 1000, "log: "));
    assert_non_null(strstr(text + 1000, "test: there is room again\n"));
    fclose(file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_pipe),      cmocka_unit_test(test_a_pipe_of_another_user),
        cmocka_unit_test(test_a_socket),    cmocka_unit_test(test_a_line_is_one_line),
        cmocka_unit_test(test_a_full_disk),
    };
    unsetenv("JOURNAL_STREAM");
    return cmocka_run_group_tests(tests, NULL, NULL);
}
