/* The lock file beside the socket, which decides between two daemons. The descriptor that has it
 * belongs to a thread with a table of its own: a thread that closes what a client sent may stand
 * still for as long as that one likes, and then nothing else in its table is closed, even when the
 * process has been killed. */
#ifndef CGM_BROKER_LOCK_H
#define CGM_BROKER_LOCK_H

#include <pthread.h>
#include <semaphore.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

struct cgm_lock {
    char path[264];
    dev_t device;     /* of the file that is locked; whoever can write its folder may put */
    ino_t inode;      /* another one into its place */
    char left[64];    /* which socket a daemon had that is gone without a word; "": none */
    int fd;           /* -1: none, or it is the keeper's */
    int kept_fd;      /* the keeper's */
    bool kept, alone; /* there is a keeper; it has a table of its own */
    pthread_t keeper;
    sem_t settled, over; /* there when kept */
};

void cgm_lock_init(struct cgm_lock *lock);

/* Of this socket. EXISTS with a detail that names the other daemon, or an error of the file's. */
int cgm_lock_take(struct cgm_lock *lock, const char *socket_path, char *ret_detail, size_t size);

/* Whether this file is the socket of a daemon that had the lock and is gone, which may still be
 * open in it. */
bool cgm_lock_left(const struct cgm_lock *lock, const char *socket_path);

/* It is bound: notes it for the next daemon, and gives the lock to the keeper. NO_MEMORY with a
 * detail. Where the system lets no thread have a table the lock stays in this one. */
int cgm_lock_keep(struct cgm_lock *lock, const char *socket_path, char *ret_detail, size_t size);

/* Removes the file, if it is still there, and lets another daemon have the lock. Safe in every
 * state. */
void cgm_lock_give(struct cgm_lock *lock);

#endif
