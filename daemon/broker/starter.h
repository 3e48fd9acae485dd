/* Starts processes, from a thread with a table of its own: a new process has a copy of every file
 * descriptor of the table that it comes from, and closes it before it runs, which with some files
 * of a client takes as long as that one likes. */
#ifndef CGM_STARTER_H
#define CGM_STARTER_H

#include <pthread.h>
#include <semaphore.h>
#include <stdbool.h>
#include <sys/types.h>

#define CGM_STARTER_FDS_MAX 4u

struct cgm_starter {
    int socket, thread_end; /* this side's, and the thread's */
    bool runs, alone;       /* there is a thread; it has a table of its own, else it has this one */
    sem_t settled;          /* there when runs */
    pthread_t thread;
};

/* Before anything of a client is there. An errno. */
int cgm_starter_init(struct cgm_starter *starter);

/* Its standard input is empty, the fds are its 1, 2, 3...; it has default signals, and this thread
 * is what PR_SET_PDEATHSIG watches. Returns when it runs. The fds stay the caller's, who also reaps
 * the process. 0, or an errno. */
int cgm_starter_run(struct cgm_starter *starter, const char *path, const int *fds, unsigned n_fds,
                    pid_t *ret_pid);

/* Safe without an init, after a failed one, and a second time. */
void cgm_starter_fini(struct cgm_starter *starter);

#endif
