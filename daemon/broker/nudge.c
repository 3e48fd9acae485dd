#include "daemon/broker/nudge.h"

#include <signal.h>
#include <unistd.h>

#ifndef sigev_notify_thread_id
#define sigev_notify_thread_id _sigev_un._tid
#endif

#define NUDGE_SIGNAL SIGUSR2
#define EVERY_NS 100000000

static _Thread_local volatile sig_atomic_t count;

static void on_signal(int number)
{
    (void)number;
    count++;
}

void cgm_nudge_init(void)
{
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    sigaction(NUDGE_SIGNAL, &action, NULL);
}

void cgm_nudge_begin(struct cgm_nudge *nudge)
{
    static const struct itimerspec every = {{0, EVERY_NS}, {0, EVERY_NS}};
    struct sigevent event = {.sigev_notify = SIGEV_THREAD_ID, .sigev_signo = NUDGE_SIGNAL};
    event.sigev_notify_thread_id = gettid();
    count = 0;
    nudge->runs = timer_create(CLOCK_MONOTONIC, &event, &nudge->timer) == 0;
    if (nudge->runs)
        timer_settime(nudge->timer, 0, &every, NULL);
}

void cgm_nudge_end(struct cgm_nudge *nudge)
{
    if (nudge->runs)
        timer_delete(nudge->timer);
    nudge->runs = false;
}

unsigned cgm_nudge_count(void)
{
    return (unsigned)count;
}
