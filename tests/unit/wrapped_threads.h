/* Threads that a test may refuse, and counts: its pthread_create (--wrap). */
#ifndef CGM_TEST_WRAPPED_THREADS_H
#define CGM_TEST_WRAPPED_THREADS_H

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

static _Atomic bool no_threads;
static _Atomic unsigned threads;

int __real_pthread_create(pthread_t *ret_thread, const pthread_attr_t *attributes,
                          void *(*run)(void *), void *argument);
int __wrap_pthread_create(pthread_t *ret_thread, const pthread_attr_t *attributes,
                          void *(*run)(void *), void *argument);

int __wrap_pthread_create(pthread_t *ret_thread, const pthread_attr_t *attributes,
                          void *(*run)(void *), void *argument)
{
    if (no_threads)
        return EAGAIN;
    threads++;
    return __real_pthread_create(ret_thread, attributes, run, argument);
}

#endif
