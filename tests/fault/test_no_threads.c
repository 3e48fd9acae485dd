/* A daemon that gets no thread any more, since those of its user are all there already: what is
 * slow to close waits, and nobody else does. */
#include "tests/daemon/broker_fixture.h"

#include <stdio.h>
#include <unistd.h>

#include "tests/fault/counted.h"
#include "tests/fault/slow_file.h"
#include "tests/proc_entries.h"

#define SLOW 20u

static void send_slow(struct client *client, const int *fds)
{
    Cgm__Query query = CGM__QUERY__INIT;
    client_send(client, CGM_MSG_QUERY, &query.base, fds, SLOW);
    assert_true(client_is_closed(client));
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
    char path[96];
    int fds[SLOW];
    (void)state;
    skip_unless_root();
    daemon_init(&daemon);
    snprintf(path, sizeof(path), "%s/slow", daemon.folder);
    if (!counted_can_be() || !slow_file_start(&file, path)) {
        print_message("no limit of threads, or no file of FUSE, can be had here\n");
        rmdir(daemon.folder);
        skip();
    }
    daemon.bequeath = counted_be;
    daemon_start(&daemon, "socket_mode=0666", NULL);
    client_open(&honest, &daemon);
    wait_for_executor(&honest);
    client_open_as(STRANGER, &attacker, &daemon);
    counted_crowd_come();
    unsigned before = proc_entries(daemon.pid, "fd");
    for (unsigned i = 0; i < SLOW; i++)
        fds[i] = i ? dup(fds[0]) : slow_file_open(&file);
    assert_true(fds[0] >= 0);
    send_slow(&attacker, fds);
    for (int i = 0; i < 20; i++, usleep(20000))
        assert_int_equal(status_number(&honest, "sessions"), 1);
    assert_true(daemon_log_has(&daemon, "warning", "no thread to close what uid 12345 has sent"));
    assert_true(proc_entries(daemon.pid, "fd") >= before - 1 + SLOW);
    assert_int_equal(atomic_load(file.closes), 0);
    counted_crowd_go();
    wait_for_closes(&file);
    slow_file_stop(&file);
    for (unsigned i = 0; i < SLOW; i++)
        close(fds[i]);
    daemon_wait_for_at_most(&daemon, "fd", before - 1);
    client_close(&attacker);
    client_close(&honest);
    daemon_stop(&daemon);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_is_slow_to_close_waits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
