#include "proto/thread.h"

#define STACK_BYTES (256u * 1024)

sigset_t cgm_thread_signals(void)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGHUP);
    return set;
}

int cgm_thread_start(int detach, void *(*run)(void *argument), void *argument,
                     pthread_t *ret_thread)
{
    sigset_t told = cgm_thread_signals(), before;
    pthread_attr_t attributes;
    int error = pthread_attr_init(&attributes);
    if (error)
        return error;
    pthread_attr_setdetachstate(&attributes, detach);
    pthread_attr_setstacksize(&attributes, STACK_BYTES);
    pthread_sigmask(SIG_BLOCK, &told, &before);
    error = pthread_create(ret_thread, &attributes, run, argument);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
    return error;
}
