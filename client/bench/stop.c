#include "client/bench/stop.h"

#include <signal.h>
#include <stddef.h>

static volatile sig_atomic_t caught;

static const int signals[] = {SIGINT, SIGTERM, SIGHUP};

static void on_signal(int number)
{
    caught = number;
}

static void set_handlers(void (*handler)(int))
{
    struct sigaction action = {.sa_handler = handler};
    sigemptyset(&action.sa_mask);
    for (size_t i = 0; i < sizeof(signals) / sizeof(signals[0]); i++)
        sigaction(signals[i], &action, NULL);
}

void cgm_stop_catch(void)
{
    set_handlers(on_signal);
}

void cgm_stop_forget(void)
{
    set_handlers(SIG_DFL);
    caught = 0;
}

int cgm_stop_signal(void)
{
    return caught;
}
