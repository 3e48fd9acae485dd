/* The socket and its lock file lie where others may remove, swap or forge them: two daemons never
 * get into each other's way, and what is no lock file is not written to. */
#include "tests/daemon/broker_fixture.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/proc_child.h"
#include "tests/send_signal.h"

static void lock_of(const struct daemon *daemon, char *ret_path, size_t size)
{
    snprintf(ret_path, size, "%s.lock", daemon->socket);
}

static ino_t inode_of(const char *path)
{
    struct stat st;
    return lstat(path, &st) == 0 ? st.st_ino : 0;
}

static void expect_exit(const struct daemon *daemon, int exit_status, const char *words)
{
    struct daemon other = *daemon;
    daemon_launch(&other, NULL);
    assert_int_equal(daemon_wait(&other), exit_status);
    assert_true(daemon_log_has(daemon, "commgemmd: ", words));
}

static void expect_refused(const struct daemon *daemon, const char *words)
{
    expect_exit(daemon, CGM_EXIT_FAILED, words);
}

static void expect_socket_check(struct client *client, const char *result, const char *words)
{
    char value[512];
    query_value(client, CGM_QUERY_DOCTOR, "check", "\"socket\"", "result", value, sizeof(value));
    assert_non_null(strstr(value, result));
    query_value(client, CGM_QUERY_DOCTOR, "check", "\"socket\"", "text", value, sizeof(value));
    assert_non_null(strstr(value, words));
}

static void test_a_lock_that_was_removed(void **state)
{
    struct daemon *daemon = *state;
    struct client client;
    char lock[128];
    lock_of(daemon, lock, sizeof(lock));
    ino_t inode = inode_of(daemon->socket);
    assert_int_equal(unlink(lock), 0);
    expect_refused(daemon, "another daemon listens on");
    assert_int_equal(inode_of(daemon->socket), inode);
    client_open(&client, daemon);
    expect_socket_check(&client, "ok", daemon->socket);
    client_close(&client);
}

/* Nothing tells the second one that there is a first. */
static void test_both_were_removed(void **state)
{
    struct daemon *daemon = *state, next;
    struct client old, new;
    char lock[128];
    lock_of(daemon, lock, sizeof(lock));
    client_open(&old, daemon);
    assert_int_equal(unlink(lock), 0);
    assert_int_equal(unlink(daemon->socket), 0);
    expect_socket_check(&old, "failure", "No such file");
    next = *daemon;
    daemon_start(&next, NULL);
    ino_t inode = inode_of(next.socket), lock_inode = inode_of(lock);
    expect_socket_check(&old, "failure", "replaced");
    client_close(&old);
    assert_int_equal(send_signal(daemon->pid, SIGTERM), 0);
    assert_int_equal(daemon_wait(daemon), 0);
    assert_int_equal(inode_of(next.socket), inode);
    assert_int_equal(inode_of(lock), lock_inode);
    client_open(&new, &next);
    expect_socket_check(&new, "ok", next.socket);
    client_close(&new);
    *daemon = next; /* which the tear-down ends */
}

static void expect_the_log_says_so(const char *executor_timeout)
{
    struct daemon daemon;
    daemon_init(&daemon);
    daemon_start(&daemon, executor_timeout, NULL);
    assert_int_equal(unlink(daemon.socket), 0);
    for (unsigned naps = 0; !daemon_log_has(&daemon, "error", "removed or replaced"); naps++) {
        assert_true(naps < WAIT_S * 100);
        usleep(10000);
    }
    daemon_stop(&daemon);
}

/* Also when nobody asks, and however long an executor may take. */
static void test_the_log_says_so(void **state)
{
    (void)state;
    expect_the_log_says_so("executor_timeout=1");
    expect_the_log_says_so("executor_timeout=0");
}

/* Before the first one can serve: nobody listens on its socket, and it would be taken for one that
 * was left over. Later it finds that it has lost its place, and ends. */
static void test_replaced_before_it_listens(void **state)
{
    struct daemon first, next;
    struct client client;
    char lock[128], line[64];
    (void)state;
    daemon_init(&first);
    lock_of(&first, lock, sizeof(lock));
    fake_fault(&first, "drop", "ExecutorSetup", "");
    daemon_launch(&first, NULL);
    fake_wait_line(&first, "ExecutorSetup", line, sizeof(line));
    fake_heal(&first, "drop", "ExecutorSetup");
    assert_int_equal(unlink(lock), 0);
    next = first;
    daemon_start(&next, NULL);
    assert_int_equal(send_signal(proc_child(first.pid), SIGKILL), 0);
    assert_int_equal(daemon_wait(&first), CGM_EXIT_FAILED);
    assert_true(daemon_log_has(&first, "error", "cannot listen"));
    client_open(&client, &next);
    expect_socket_check(&client, "ok", next.socket);
    client_close(&client);
    daemon_stop(&next);
}

static void make_fifo(const char *path, const char *victim)
{
    (void)victim;
    assert_int_equal(mkfifo(path, 0600), 0);
}

static void make_folder(const char *path, const char *victim)
{
    (void)victim;
    assert_int_equal(mkdir(path, 0700), 0);
}

static void make_symlink(const char *path, const char *victim)
{
    assert_int_equal(symlink(victim, path), 0);
}

static void make_link(const char *path, const char *victim)
{
    assert_int_equal(link(victim, path), 0);
}

static void make_socket(const char *path, const char *victim)
{
    (void)victim;
    assert_int_equal(mknod(path, S_IFSOCK | 0600, 0), 0);
}

static void test_what_is_no_lock(void **state)
{
    static void (*const makers[])(const char *path, const char *victim) = {
        make_fifo, make_folder, make_symlink, make_link, make_socket};
    struct daemon daemon;
    struct stat st;
    char lock[128], victim[128], run[128];
    (void)state;
    daemon_init(&daemon);
    lock_of(&daemon, lock, sizeof(lock));
    snprintf(victim, sizeof(victim), "%s/victim", daemon.folder);
    snprintf(run, sizeof(run), "%s/run", daemon.folder);
    assert_int_equal(mkdir(run, 0700), 0);
    FILE *file = fopen(victim, "w");
    assert_non_null(file);
    fputs("what matters", file);
    fclose(file);
    for (size_t i = 0; i < sizeof(makers) / sizeof(makers[0]); i++) {
        makers[i](lock, victim);
        expect_refused(&daemon, lock);
        assert_int_equal(remove(lock), 0); /* it was left alone */
        assert_int_equal(stat(victim, &st), 0);
        assert_int_equal(st.st_size, strlen("what matters"));
    }
    daemon_start(&daemon, NULL);
    daemon_stop(&daemon);
}

/* One that is missing is made, and no more than that. */
static void test_a_folder_that_is_not_there(void **state)
{
    struct daemon daemon, other;
    char run[128];
    (void)state;
    daemon_init(&daemon);
    other = daemon;
    snprintf(other.socket, sizeof(other.socket), "%s/run/none/daemon.sock", daemon.folder);
    expect_exit(&other, CGM_EXIT_USAGE, "/run/none of the socket: No such file");
    snprintf(run, sizeof(run), "%s/run", daemon.folder);
    assert_int_equal(symlink("nowhere", run), 0);
    expect_exit(&daemon, CGM_EXIT_USAGE, "daemon.sock.lock: No such file");
    assert_int_equal(unlink(run), 0);
    daemon_start(&daemon, NULL);
    daemon_stop(&daemon);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_a_lock_that_was_removed, daemon_set_up,
                                        daemon_tear_down),
        cmocka_unit_test_setup_teardown(test_both_were_removed, daemon_set_up, daemon_tear_down),
        cmocka_unit_test(test_the_log_says_so),
        cmocka_unit_test(test_replaced_before_it_listens),
        cmocka_unit_test(test_what_is_no_lock),
        cmocka_unit_test(test_a_folder_that_is_not_there),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
