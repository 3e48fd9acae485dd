#include "daemon/executor/cpu/park.h"

#include <limits.h>
#include <linux/futex.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define NS_PER_S 1000000000ull

#ifndef PR_FUTEX_HASH
#define PR_FUTEX_HASH 78 /* since Linux 6.16 */
#define PR_FUTEX_HASH_SET_SLOTS 1
#endif
#define SLOTS 8192ul

/* Left to itself the system gives a process four slots for each processor, where a wake looks at
 * all who sleep in one. Without the call all processes share a table that is large enough. */
void cgm_park_open(void)
{
    prctl(PR_FUTEX_HASH, PR_FUTEX_HASH_SET_SLOTS, SLOTS, 0, 0);
}

uint32_t cgm_park_prepare(struct cgm_park *park)
{
    atomic_fetch_add(&park->sleepers, 1);
    return atomic_load(&park->sequence);
}

void cgm_park_sleep(struct cgm_park *park, uint32_t key, uint64_t timeout_ns)
{
    struct timespec timeout = {(time_t)(timeout_ns / NS_PER_S), (long)(timeout_ns % NS_PER_S)};
    syscall(SYS_futex, &park->sequence, FUTEX_WAIT_PRIVATE, key, timeout_ns ? &timeout : NULL, NULL,
            0);
}

void cgm_park_finish(struct cgm_park *park)
{
    atomic_fetch_sub(&park->sleepers, 1);
}

void cgm_park_wake_slow(struct cgm_park *park)
{
    atomic_fetch_add(&park->sequence, 1);
    syscall(SYS_futex, &park->sequence, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

uint64_t cgm_cpu_now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * NS_PER_S + (uint64_t)now.tv_nsec;
}
