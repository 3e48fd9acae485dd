#include "daemon/broker/own_table.h"

#include <sched.h>
#include <signal.h>
#include <unistd.h>

#include "proto/thread.h"

int cgm_own_table_start(void *(*run)(void *argument), void *argument, pthread_t *ret_thread)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = cgm_thread_start(PTHREAD_CREATE_JOINABLE, run, argument, ret_thread);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return error;
}

void cgm_own_table_clear(int fd)
{
    if (fd > 0)
        close_range(0, (unsigned)fd - 1, 0);
    close_range((unsigned)fd + 1, ~0u, 0);
}

bool cgm_own_table(int fd)
{
    if (unshare(CLONE_FILES) != 0)
        return false;
    cgm_own_table_clear(fd);
    return true;
}
