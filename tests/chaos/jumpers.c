#include "tests/chaos/jumpers.h"

#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/chaos/chaos.h"
#include "tests/send_signal.h"

#define SPINS 20000 /* between two looks at the clock */

/* The n-th of the processors that this process may use. */
static int processor_at(const cpu_set_t *set, unsigned n)
{
    int cpu = -1;
    for (unsigned left = n + 1; left > 0; left--)
        do
            cpu++;
        while (!CPU_ISSET(cpu, set));
    return cpu;
}

static void go_to(int cpu)
{
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    sched_setaffinity(0, sizeof(one), &one);
}

static _Noreturn void jump_for_ever(pid_t parent, uint32_t period_us)
{
    cpu_set_t set;
    uint64_t at = UINT64_MAX, next;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent || sched_getaffinity(0, sizeof(set), &set) != 0)
        _exit(0);
    for (unsigned n = (unsigned)CPU_COUNT(&set);;) {
        next = chaos_now_ns() / (period_us * 1000ull);
        if (next != at)
            go_to(processor_at(&set, (unsigned)(next % n)));
        at = next;
        for (volatile unsigned i = 0; i < SPINS; i++)
            continue;
    }
}

void chaos_jumpers_start(struct chaos_jumpers *jumpers, uint32_t n, uint32_t period_us)
{
    pid_t parent = getpid(), pid;
    jumpers->n = 0;
    while (jumpers->n < n && (pid = fork()) >= 0) {
        if (pid == 0)
            jump_for_ever(parent, period_us);
        jumpers->pid[jumpers->n++] = pid;
    }
}

void chaos_jumpers_stop(struct chaos_jumpers *jumpers)
{
    while (jumpers->n > 0) {
        pid_t pid = jumpers->pid[--jumpers->n];
        send_signal(pid, SIGKILL);
        waitpid(pid, NULL, 0);
    }
}
