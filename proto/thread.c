#include "proto/thread.h"

#define STACK_BYTES (256u * 1024)

int cgm_thread_start(int detach, void *(*run)(void *argument), void *argument,
                     pthread_t *ret_thread)
{
    pthread_attr_t attributes;
    int error = pthread_attr_init(&attributes);
    if (error)
        return error;
    pthread_attr_setdetachstate(&attributes, detach);
    pthread_attr_setstacksize(&attributes, STACK_BYTES);
    error = pthread_create(ret_thread, &attributes, run, argument);
    pthread_attr_destroy(&attributes);
    return error;
}
