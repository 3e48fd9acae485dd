/* A thread that needs little: what it calls goes a few frames deep. */
#ifndef CGM_THREAD_H
#define CGM_THREAD_H

#include <pthread.h>
#include <signal.h>

/* By which a process is told something: SIGTERM, SIGINT, SIGHUP. They are the main thread's. */
sigset_t cgm_thread_signals(void);

/* detach: as for pthread_attr_setdetachstate. 0, or an errno. */
int cgm_thread_start(int detach, void *(*run)(void *argument), void *argument,
                     pthread_t *ret_thread);

#endif
