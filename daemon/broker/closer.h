/* Closes file descriptors that came from a client, or whose memory clients have had, and keeps
 * nobody waiting for that. close() may take as long as whoever made the file likes: a socket
 * lingers until its peer has read all, a FUSE file until its server has answered, and inotify and
 * epoll let go of all that they watch. So what is not known to close soon is closed by a thread of
 * its own; while its user has many of those, or the system lets no more of them begin, it waits.
 * Memory closes soon, but whoever closes it last frees it, which takes a second for every few
 * gigabytes, or for everything else that a client has had the system keep with it; with a GPU's
 * memory it waits for locks of the driver that others hold while they make or end contexts. So each
 * user's is closed one after the other, and no other user's behind it. Until it is done, it is at
 * the uid's cost. */
#ifndef CGM_CLOSER_H
#define CGM_CLOSER_H

#include <pthread.h>
#include <stdbool.h>
#include <uv.h>

#include "daemon/broker/lanes.h"

struct cgm_broker;
struct cgm_closing;
struct cgm_ring;

struct cgm_closer {
    uv_async_t ended;
    uv_timer_t again; /* while some wait for a thread */
    pthread_mutex_t lock;
    struct cgm_closing *newest, *oldest; /* of all that are not given back; the loop's */
    unsigned refused;                    /* sockets of who was refused; the loop's */
    struct cgm_closing *done;            /* under lock: closed, and not yet given back */
    bool over;                           /* under lock: nobody waits for them any more */
    bool runs;                           /* the first thread of memory */
    struct cgm_lanes memory;
};

int cgm_closer_init(struct cgm_broker *broker);
/* Threads that still close what may take for ever are left alone: they end with the process. Before
 * the loop's end; what is closed afterwards is closed at once. */
void cgm_closer_fini(struct cgm_broker *broker);

/* Pages that have an fd. */
bool cgm_closer_is_memory(int fd);
/* True for that and, where the executor is that of CUDA, for what only its driver knows. Never
 * blocks. */
bool cgm_closer_may_be_memory(const struct cgm_broker *broker, int fd);

/* Fds that came from a client, at most CGM_PACKET_FDS_ROOM; those below 0 are none. What is not
 * closed at once is in the uid's quota until it is, whether or not that allows it: as fds that are
 * ending, and what is no memory as fds that it has and as one session. False: some cannot be
 * memory.
 */
bool cgm_closer_close(struct cgm_broker *broker, uid_t uid, const int *fds, unsigned n_fds);
/* Fds that the daemon has taken or made: all of it is ending. Who has let clients have one closes
 * it here, since they may have let go of it already, but for what watches it. */
void cgm_closer_drop(struct cgm_broker *broker, uid_t uid, const int *fds, unsigned n_fds);

/* Those that the daemon has made, and in which nothing lies that clients have sent. They do not
 * take for ever: where there is no thread, they are closed with the user's memory. */
void cgm_closer_drop_made(struct cgm_broker *broker, uid_t uid, const int *fds, unsigned n_fds);

/* Takes the mapping, if there is one, and its fd; -1: there is neither. Until they are gone they
 * are ending in the uid's quota, the entries as jobs. */
void cgm_closer_unmap(struct cgm_broker *broker, uid_t uid, struct cgm_ring *ring, int fd);

/* A process that is forked has a copy of every fd, and closes it before it runs: with some files
 * that takes as long as closing them here. True when no such fd is left; else each gets a thread,
 * with which it leaves the table, and whoever wants to fork asks again a little later. */
bool cgm_closer_hurry(struct cgm_broker *broker);

/* Of unread packets, before a socket is closed. */
enum cgm_discard { CGM_DISCARD_NOTHING, CGM_DISCARD_A_WHILE, CGM_DISCARD_ALL };

/* A peer's socket in which fds may lie (hang_up.h), by a thread. refused: of one that was not let
 * in; where those are not closed as fast as they come, nobody else is let in until they are. */
void cgm_closer_close_socket(struct cgm_broker *broker, uid_t uid, int fd, enum cgm_discard discard,
                             bool refused);

#endif
