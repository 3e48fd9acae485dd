/* What a test of the daemon's process cannot see or wait for; the rest is in
 * daemon/test_broker_surroundings.c. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "daemon/broker/inherited.h"

static const int timers[] = {ITIMER_REAL, ITIMER_VIRTUAL, ITIMER_PROF};
#define TIMER_COUNT (sizeof(timers) / sizeof(timers[0]))

/* The exit status of a process that resets what it has; it is not the test's own. */
static int reset_elsewhere(void)
{
    const struct itimerval later = {.it_value = {.tv_sec = 3600}};
    struct itimerval left;
    int running = 0;
    for (size_t i = 0; i < TIMER_COUNT; i++)
        setitimer(timers[i], &later, NULL);
    cgm_inherited_reset();
    for (size_t i = 0; i < TIMER_COUNT; i++)
        running += getitimer(timers[i], &left) < 0 || left.it_value.tv_sec != 0;
    return running;
}

static void test_timers_are_stopped(void **state)
{
    int status;
    (void)state;
    pid_t pid = fork();
    if (pid == 0)
        _exit(reset_elsewhere());
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_timers_are_stopped),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
