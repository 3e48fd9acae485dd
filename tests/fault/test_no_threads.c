/* A daemon that gets no thread any more, since those of its user are all there already: what is
 * slow to close waits, and nobody else does. */
#include "tests/daemon/broker_fixture.h"

#include <linux/capability.h>
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/fault/slow_file.h"
#include "tests/proc_entries.h"
#include "tests/send_signal.h"

#define COUNTED_UID 29876u /* nobody else's threads are counted with the daemon's */
#define THREADS 40u        /* more than the daemon needs for itself */
#define SLOW 20u

/* Of root's threads nobody counts any. Files are still opened as root. */
static void be_counted(void)
{
    struct rlimit limit;
    getrlimit(RLIMIT_NPROC, &limit);
    limit.rlim_cur = THREADS;
    setrlimit(RLIMIT_NPROC, &limit);
    prctl(PR_CAPBSET_DROP, CAP_SYS_RESOURCE);
    prctl(PR_CAPBSET_DROP, CAP_SYS_ADMIN);
    (void)!setresuid(COUNTED_UID, 0, 0);
}

/* Processes that sleep, and are counted as well: there is room for none more. Who has come has no
 * file that is slow to close. */
static pid_t crowd[THREADS];

static void crowd_come(void)
{
    for (unsigned i = 0; i < THREADS; i++) {
        int ready[2];
        char byte;
        assert_int_equal(pipe(ready), 0);
        crowd[i] = fork();
        assert_true(crowd[i] >= 0);
        if (crowd[i] == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            (void)!setresuid(COUNTED_UID, 0, 0);
            close(ready[0]);
            close(ready[1]);
            for (;;)
                pause();
        }
        close(ready[1]);
        assert_int_equal(read(ready[0], &byte, 1), 0);
        close(ready[0]);
    }
}

static void crowd_go(void)
{
    for (unsigned i = 0; i < THREADS; i++) {
        send_signal(crowd[i], SIGKILL);
        waitpid(crowd[i], NULL, 0);
    }
}

static bool can_be_counted(void)
{
    int status = -1;
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0)
        _exit(prctl(PR_CAPBSET_DROP, CAP_SYS_RESOURCE) != 0);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return status == 0;
}

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
    if (!can_be_counted() || !slow_file_start(&file, path)) {
        print_message("no limit of threads, or no file of FUSE, can be had here\n");
        rmdir(daemon.folder);
        skip();
    }
    daemon.bequeath = be_counted;
    daemon_start(&daemon, "socket_mode=0666", NULL);
    client_open(&honest, &daemon);
    wait_for_executor(&honest);
    client_open_as(STRANGER, &attacker, &daemon);
    crowd_come();
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
    crowd_go();
    wait_for_closes(&file);
    slow_file_stop(&file);
    for (unsigned i = 0; i < SLOW; i++)
        close(fds[i]);
    for (unsigned naps = 0; proc_entries(daemon.pid, "fd") >= before; naps++) {
        assert_true(naps < WAIT_S * 100);
        usleep(10000);
    }
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
