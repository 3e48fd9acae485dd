#include "daemon/broker/inherited.h"

#include <signal.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <systemd/sd-daemon.h>
#include <unistd.h>

#include "proto/standard_fds.h"

/* Handlers are not inherited: one that is there is this process's own, a sanitizer's. SIGHUP gets
 * one soon, and must not end a daemon until then. */
static void reset_signals(void)
{
    struct sigaction action;
    sigset_t none;
    for (int number = 1; number <= SIGRTMAX; number++)
        if (number != SIGHUP && sigaction(number, NULL, &action) == 0 &&
            action.sa_handler == SIG_IGN)
            signal(number, SIG_DFL);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
}

/* They end who does not expect them. */
static void reset_timers(void)
{
    static const struct itimerval off;
    setitimer(ITIMER_REAL, &off, NULL);
    setitimer(ITIMER_VIRTUAL, &off, NULL);
    setitimer(ITIMER_PROF, &off, NULL);
}

/* All but systemd's. It allocates nothing: what is left open would never be noticed. */
static void close_fds(void)
{
    int passed = sd_listen_fds(0);
    closefrom(SD_LISTEN_FDS_START + (passed > 0 ? passed : 0));
}

void cgm_inherited_reset(void)
{
    cgm_standard_fds_open();
    reset_timers();
    reset_signals();
    close_fds();
    umask(022);
}
