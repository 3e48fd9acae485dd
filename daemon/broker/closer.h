/* Closes file descriptors that came from a client. close() may take as long as whoever made the
 * file likes: a socket lingers until its peer has read all, a FUSE file until its server has
 * answered, and inotify and epoll let go of all that they watch. So what is not known to close at
 * once is closed by a thread of its own, at the uid's cost. */
#ifndef CGM_CLOSER_H
#define CGM_CLOSER_H

#include <pthread.h>
#include <stdbool.h>
#include <uv.h>

struct cgm_broker;
struct cgm_closing;

struct cgm_closer {
    uv_async_t ended;
    pthread_mutex_t lock;
    struct cgm_closing *newest; /* of all that are not given back; the loop's */
    struct cgm_closing *done;   /* under lock: closed, and not yet given back */
    bool over;                  /* under lock: nobody waits for them any more */
};

int cgm_closer_init(struct cgm_broker *broker);
/* Threads that still close are left alone: they end with the process. Before the loop's end. */
void cgm_closer_fini(struct cgm_broker *broker);

/* True for a memfd and, where the executor is that of CUDA, for what only its driver knows. Never
 * blocks. */
bool cgm_closer_may_be_memory(const struct cgm_broker *broker, int fd);

/* Closes memory that is not large, and moves the rest to the front of the list; how many these
 * are. */
unsigned cgm_closer_close_quick(int *fds, unsigned n_fds);

/* Takes the fds, at most CGM_PACKET_FDS_ROOM. Until all are closed they are in the uid's quota, as
 * fds and as one session, whether or not it allows them. */
void cgm_closer_close(struct cgm_broker *broker, uid_t uid, const int *fds, unsigned n_fds);

/* A process that is forked has a copy of every fd, and closes it before it runs: with some files
 * that takes as long as closing them here. True when no such fd is left; else each gets a thread,
 * with which it leaves the table, and whoever wants to fork asks again a little later. */
bool cgm_closer_hurry(struct cgm_broker *broker);

/* A session's socket, or one that is refused: what was sent to the peer stays readable for it. */
void cgm_closer_hang_up(struct cgm_broker *broker, uid_t uid, int fd);

#endif
