#include "tests/lines/stalls.h"

#include <signal.h>
#include <unistd.h>

#include "tests/send_signal.h"

#define AFTER_US 20000u
#define FOR_US 250000u

static void *stall(void *arg)
{
    const struct stalls *stalls = arg;
    for (uint32_t i = 0; i < stalls->n; i++) {
        usleep(stalls->after_us[i]);
        send_signal(stalls->executor, SIGSTOP);
        usleep(stalls->for_us[i]);
        send_signal(stalls->executor, SIGCONT);
    }
    return NULL;
}

void stalls_begin(struct stalls *stalls, pid_t executor, struct cgm_random *random)
{
    *stalls = (struct stalls){.executor = executor};
    if (executor <= 0 || cgm_random_below(random, 6) != 0)
        return;
    stalls->n = 1 + (uint32_t)cgm_random_below(random, STALLS_MAX);
    for (uint32_t i = 0; i < stalls->n; i++) {
        stalls->after_us[i] = (uint32_t)cgm_random_below(random, AFTER_US);
        stalls->for_us[i] = (uint32_t)cgm_random_below(random, FOR_US);
    }
    if (pthread_create(&stalls->thread, NULL, stall, stalls))
        stalls->n = 0;
}

void stalls_end(struct stalls *stalls)
{
    if (stalls->n > 0)
        pthread_join(stalls->thread, NULL);
}
