#include "tests/fault/counted.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>
#include <linux/capability.h>

#include "tests/send_signal.h"

#define UID 29876u  /* nobody else's threads are counted with the daemon's */
#define THREADS 64u /* more than the daemon needs for itself */

static pid_t crowd[THREADS];

bool counted_can_be(void)
{
    int status = -1;
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0)
        _exit(prctl(PR_CAPBSET_DROP, CAP_SYS_RESOURCE) != 0);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return status == 0;
}

static void forget_standard_fds(void)
{
    close_range(0, ~0u, 0);
}

/* Who becomes another user, and is another program then, is no longer killed at its parent's death
 * by the system. */
static void guard(pid_t parent, pid_t guarded)
{
    pid_t between = fork();
    if (between == 0) {
        if (fork() > 0)
            _exit(0);
        forget_standard_fds();
        while (kill(parent, 0) == 0 && kill(guarded, 0) == 0)
            usleep(100000);
        kill(guarded, SIGKILL);
        _exit(0);
    }
    waitpid(between, NULL, 0);
}

/* Of root's threads nobody counts any. Files are still opened as root. */
void counted_be(void)
{
    struct rlimit limit;
    getrlimit(RLIMIT_NPROC, &limit);
    limit.rlim_cur = THREADS;
    setrlimit(RLIMIT_NPROC, &limit);
    prctl(PR_CAPBSET_DROP, CAP_SYS_RESOURCE);
    prctl(PR_CAPBSET_DROP, CAP_SYS_ADMIN);
    (void)!setresuid(UID, 0, 0);
    guard(getppid(), getpid());
}

/* Who has come has no file that is slow to close. */
void counted_crowd_come(void)
{
    for (unsigned i = 0; i < THREADS; i++) {
        int ready[2];
        char byte;
        assert_int_equal(pipe(ready), 0);
        crowd[i] = fork();
        assert_true(crowd[i] >= 0);
        if (crowd[i] == 0) {
            (void)!setresuid(UID, 0, 0);
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            forget_standard_fds();
            for (;;)
                pause();
        }
        close(ready[1]);
        assert_int_equal(read(ready[0], &byte, 1), 0);
        close(ready[0]);
    }
}

void counted_crowd_go(void)
{
    for (unsigned i = 0; i < THREADS; i++) {
        send_signal(crowd[i], SIGKILL);
        waitpid(crowd[i], NULL, 0);
    }
}
