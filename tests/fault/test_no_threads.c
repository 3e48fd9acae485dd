/* A daemon that gets no thread any more, since those of its user are all there already: what is
 * slow to close waits, and nobody else does. */
#include "tests/daemon/broker_fixture.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "tests/fault/counted.h"
#include "tests/fault/slow_file.h"
#include "tests/proc_entries.h"
#include "tests/send_signal.h"

#define SLOW 20u
#define ATTACKERS 80u /* each of whom would have a thread: more than there may be */

static void send_slow(struct client *client, const int *fds)
{
    assert_true(client_send_fds(client, fds, SLOW));
    assert_true(client_is_closed(client));
}

/* The test's end where nobody can be counted, or no file is slow. */
static void start(struct daemon *daemon, struct slow_file *file, const char *executor)
{
    char path[96];
    skip_unless_root();
    daemon_init(daemon);
    snprintf(path, sizeof(path), "%s/slow", daemon->folder);
    if (!counted_can_be() || !slow_file_start(file, path)) {
        print_message("no limit of threads, or no file of FUSE, can be had here\n");
        rmdir(daemon->folder);
        skip();
    }
    daemon->bequeath = counted_be;
    daemon_start(daemon, "socket_mode=0666", executor, NULL);
}

static void open_slow(const struct slow_file *file, int *ret_fds)
{
    for (unsigned i = 0; i < SLOW; i++)
        ret_fds[i] = i ? dup(ret_fds[0]) : slow_file_open(file);
    assert_true(ret_fds[0] >= 0);
}

static void stop_slow(struct slow_file *file, const int *fds)
{
    slow_file_stop(file);
    for (unsigned i = 0; i < SLOW; i++)
        close(fds[i]);
}

static void wait_for_closes(const struct slow_file *file)
{
    for (unsigned naps = 0; atomic_load(file->closes) == 0; naps++) {
        assert_true(naps < WAIT_S * 100);
        usleep(10000);
    }
}

static void test_what_is_slow_to_close_waits(void **state)
{
    struct daemon daemon;
    struct client attacker, honest;
    struct slow_file file;
    int fds[SLOW];
    (void)state;
    start(&daemon, &file, NULL);
    client_open(&honest, &daemon);
    wait_for_executor(&honest);
    client_open_as(STRANGER, &attacker, &daemon);
    counted_crowd_come();
    unsigned before = proc_entries(daemon.pid, "fd");
    open_slow(&file, fds);
    send_slow(&attacker, fds);
    for (int i = 0; i < 20; i++, usleep(20000))
        assert_int_equal(status_number(&honest, "sessions"), 1);
    assert_true(daemon_log_has(&daemon, "warning", "no thread to close what uid 12345 has sent"));
    assert_true(proc_entries(daemon.pid, "fd") >= before - 1 + SLOW);
    assert_int_equal(atomic_load(file.closes), 0);
    counted_crowd_go();
    wait_for_closes(&file);
    stop_slow(&file, fds);
    daemon_wait_for_at_most(&daemon, "fd", before - 1);
    client_close(&attacker);
    client_close(&honest);
    daemon_stop(&daemon);
}

/* One user's slow ones have few of the threads: the next executor finds its own. */
static void test_an_executor_starts_beside_them(void **state)
{
    struct daemon daemon;
    struct client attackers[ATTACKERS], honest;
    struct slow_file file;
    int fds[SLOW];
    (void)state;
    start(&daemon, &file, REAL_EXECUTOR);
    client_open(&honest, &daemon);
    wait_for_executor(&honest);
    for (unsigned i = 0; i < ATTACKERS; i++)
        client_open_as(STRANGER, &attackers[i], &daemon);
    open_slow(&file, fds);
    for (unsigned i = 0; i < ATTACKERS; i++)
        assert_true(client_send_fds(&attackers[i], fds, 1));
    for (unsigned i = 0; i < ATTACKERS; i++)
        assert_true(client_is_closed(&attackers[i]));
    uint64_t life = status_number(&honest, "executor_life");
    assert_int_equal(send_signal((pid_t)status_number(&honest, "executor_pid"), SIGKILL), 0);
    wait_for_status(&honest, "executor_life", life + 1);
    wait_for_executor(&honest);
    assert_int_equal(status_number(&honest, "executor_deaths"), 1);
    stop_slow(&file, fds);
    for (unsigned i = 0; i < ATTACKERS; i++)
        client_close(&attackers[i]);
    client_close(&honest);
    daemon_stop(&daemon);
}

/* A rank has two on the CPU backend: who is refused hears of what there is too little. */
static void test_queues_want_threads(void **state)
{
    struct daemon daemon;
    struct client client;
    struct slow_file file;
    Cgm__CommJoin join = CGM__COMM_JOIN__INIT;
    uint32_t rank = 0;
    (void)state;
    start(&daemon, &file, REAL_EXECUTOR);
    client_open(&client, &daemon);
    wait_for_executor(&client);
    counted_crowd_come();
    join.name = (char *)(uintptr_t) "alone";
    join.has_create = join.create = join.has_size = 1;
    join.size = 1;
    join.n_ranks = 1;
    join.ranks = &rank;
    client_error(&client, CGM_MSG_COMM_JOIN, &join.base, NULL, 0, CGM_NO_MEMORY,
                 "out of memory, or of threads");
    counted_crowd_go();
    comm_join_all(&client, "alone", 1);
    assert_int_equal(status_number(&client, "executor_deaths"), 0);
    slow_file_stop(&file);
    client_close(&client);
    daemon_stop(&daemon);
}

/* Of a session's ring the daemon closes what it has made for it: beside a crowd, too. */
static void test_sessions_end_without_threads(void **state)
{
    struct daemon daemon;
    struct client witness;
    struct slow_file file;
    (void)state;
    start(&daemon, &file, REAL_EXECUTOR);
    client_open(&witness, &daemon);
    wait_for_executor(&witness);
    counted_crowd_come();
    for (int i = 0; i < 20; i++) {
        struct client client;
        client_open_as(STRANGER, &client, &daemon);
        message_free(client_ring_set_up(&client, 64));
        client_close(&client);
    }
    wait_for_status(&witness, "sessions", 1);
    for (int i = 0; i < 200; i++) {
        char ending[32] = "";
        query_value(&witness, CGM_QUERY_QUOTAS, "quota", "\"quota_sessions\"", "ending", ending,
                    sizeof(ending));
        if (strtoull(ending, NULL, 10) == 0)
            break;
        assert_true(i < 199);
        usleep(20000);
    }
    counted_crowd_go();
    slow_file_stop(&file);
    client_close(&witness);
    daemon_stop(&daemon);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_is_slow_to_close_waits),
        cmocka_unit_test(test_an_executor_starts_beside_them),
        cmocka_unit_test(test_queues_want_threads),
        cmocka_unit_test(test_sessions_end_without_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
