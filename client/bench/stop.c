#include "client/bench/stop.h"

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>

static volatile sig_atomic_t caught;

static const int signals[] = {SIGINT, SIGTERM, SIGHUP};

static void on_signal(int number)
{
    caught = number;
}

/* A shell ignores SIGINT for what it starts in the background, and that may be sent on purpose. */
static bool is_for_nohup(int number)
{
    struct sigaction before;
    return number == SIGHUP && sigaction(number, NULL, &before) == 0 &&
           before.sa_handler == SIG_IGN;
}

static void set_handlers(void (*handler)(int))
{
    struct sigaction action = {.sa_handler = handler};
    sigemptyset(&action.sa_mask);
    for (size_t i = 0; i < sizeof(signals) / sizeof(signals[0]); i++)
        if (!is_for_nohup(signals[i]))
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
