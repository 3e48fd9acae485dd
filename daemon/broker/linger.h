/* Sockets that were hung up, and whose peers have not read all that was sent to them: until they
 * read it or close, it is memory of the daemon's, and fds in it are fds that the daemon's user has
 * in flight. A session's is at the cost of its user like the session itself; of those who were
 * refused there are few, and what they are told is little. */
#ifndef CGM_LINGER_H
#define CGM_LINGER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <uv.h>

struct cgm_broker;
struct cgm_lingering;

struct cgm_linger {
    uv_timer_t timer; /* while there are any */
    struct cgm_lingering *first;
    size_t sessions, refused; /* so many of both kinds */
    uint64_t next_look_ns;    /* for those who were refused to be told why */
};

void cgm_linger_init(struct cgm_broker *broker);
/* Closes all. */
void cgm_linger_fini(struct cgm_broker *broker);

/* A session's socket; takes it over. unread_fds: so many of its user's are its. */
void cgm_linger_hang_up(struct cgm_broker *broker, uid_t uid, int fd, unsigned unread_fds);

/* False: who is refused must not be told why, as too many others of the uid, or of all, have not
 * read it. */
bool cgm_linger_has_room(struct cgm_broker *broker, uid_t uid, int fd);
/* The socket of one who was refused. */
void cgm_linger_refuse(struct cgm_broker *broker, uid_t uid, int fd);

#endif
