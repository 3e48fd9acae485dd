/* The listening socket. A lock file beside it decides between two daemons (lock.h); a socket file
 * that nobody serves is replaced. The socket is bound first and listens later, when the daemon can
 * serve. */
#ifndef CGM_LISTENER_H
#define CGM_LISTENER_H

#include <stdbool.h>
#include <stddef.h>
#include <uv.h>

#include "daemon/broker/lock.h"

struct cgm_config;

struct cgm_listener {
    uv_poll_t poll;
    struct cgm_lock lock;
    int fd;
    int spare_fd; /* given up for a moment to refuse a client when fds are exhausted */
    bool inherited, listening, polling, paused;
    bool missed; /* the log says that the path leads elsewhere */
    char path[256];
    dev_t device; /* of the file that was bound; nobody else gets its number while fd is */
    ino_t inode;  /* open */
    bool (*on_client)(void *owner, int fd);
    void (*on_refused)(void *owner, int fd);
    void *owner;
};

/* Takes systemd's socket, or locks and binds a path. Status with a detail. Zero the listener before
 * with cgm_listener_init. */
void cgm_listener_init(struct cgm_listener *listener);
int cgm_listener_bind(struct cgm_listener *listener, const struct cgm_config *config,
                      char *ret_detail, size_t size);

/* Whether the path still leads to this socket: whoever can write its folder may have removed it, or
 * put another one into its place. */
bool cgm_listener_is_there(const struct cgm_listener *listener);
/* Looks, and logs it when that is so no more. */
void cgm_listener_look(struct cgm_listener *listener);

/* EXISTS when the path leads elsewhere by now. From now on clients come in; on_client owns the
 * non-blocking fd, and says whether it lets it in. on_refused closes the fd of one for which there
 * is no room. */
int cgm_listener_start(struct cgm_listener *listener, uv_loop_t *loop,
                       bool (*on_client)(void *owner, int fd),
                       void (*on_refused)(void *owner, int fd), void *owner);

/* This client may send file descriptors. Until then the kernel takes none from it, if it can do so:
 * a client that is refused would leave what it has sent in its socket, and closing that may take as
 * long as it likes. */
void cgm_listener_admit(int fd);

/* False: it was not admitted, and the kernel has taken none. */
bool cgm_listener_may_have_fds(int fd);

/* Nobody is taken meanwhile; who connects waits. */
void cgm_listener_pause(struct cgm_listener *listener, bool paused);

/* Removes the socket, if it is still there: nobody comes in any more. Safe in every state. */
void cgm_listener_close(struct cgm_listener *listener);

/* And the lock file: from now on another daemon can start, and this one does nothing that it would
 * notice. */
void cgm_listener_fini(struct cgm_listener *listener);

#endif
