/* Ends connections so that what was sent to the peer stays readable for it. What it has sent, and
 * nobody has read, may have fds whose close() takes long: only a thread takes those (closer.h). */
#ifndef CGM_HANG_UP_H
#define CGM_HANG_UP_H

#include <stdbool.h>
#include <sys/types.h>

struct cgm_broker;

/* A session's socket. */
void cgm_hang_up(struct cgm_broker *broker, uid_t uid, int fd);
/* One that was not let in: where the kernel has taken fds from it nevertheless, and those are not
 * closed as fast as they come, nobody else is let in until they are. */
void cgm_hang_up_refused(struct cgm_broker *broker, uid_t uid, int fd);

/* A socket that stays for what its peer has not read: nothing more comes in, and what has come and
 * nobody has read is discarded, by a thread where it may have fds; such a socket is closed by
 * cgm_hang_up_emptied. It may hold the peer's own end, which is not closed before. False: no fd is
 * left to do that with. */
bool cgm_hang_up_later(struct cgm_broker *broker, uid_t uid, int fd, bool *ret_by_thread);
/* The thread may still be at it, and is the only one that takes anything from the socket. */
void cgm_hang_up_emptied(struct cgm_broker *broker, uid_t uid, int fd);

#endif
