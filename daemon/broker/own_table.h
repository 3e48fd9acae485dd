/* A thread with a table of file descriptors of its own, in which nothing lies that a client has
 * sent. */
#ifndef CGM_OWN_TABLE_H
#define CGM_OWN_TABLE_H

#include <pthread.h>
#include <stdbool.h>

/* Starts a thread that is to have one. Signals are the loop's, whose pipe will not be in it: the
 * thread gets none. An errno. */
int cgm_own_table_start(void *(*run)(void *argument), void *argument, pthread_t *ret_thread);

/* From now on the calling thread has this fd alone. False: the system does not let it have a table,
 * and everything is as it was. */
bool cgm_own_table(int fd);

/* In a thread that has one: closes whatever has come beside this fd. */
void cgm_own_table_clear(int fd);

#endif
