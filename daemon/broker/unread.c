#include "daemon/broker/unread.h"

#include <sys/socket.h>

/* It may be of no bytes at all: only that it has a sender then tells it from the end. Its fds are
 * not taken, as there is no room for them. */
enum cgm_unread cgm_unread_first(int fd)
{
    char byte;
    union {
        struct cmsghdr header;
        char space[CMSG_SPACE(sizeof(struct ucred))];
    } sender;
    struct iovec bytes = {&byte, sizeof(byte)};
    struct msghdr message = {.msg_iov = &bytes,
                             .msg_iovlen = 1,
                             .msg_control = sender.space,
                             .msg_controllen = sizeof(sender.space)};
    ssize_t n = recvmsg(fd, &message, MSG_DONTWAIT | MSG_PEEK);
    if (n < 0) /* what went wrong before is told once, and hides what lies there */
        n = recvmsg(fd, &message, MSG_DONTWAIT | MSG_PEEK);
    if (n == 0 && message.msg_controllen == 0)
        return CGM_UNREAD_NOTHING;
    bool perhaps = n < 0 || message.msg_controllen == 0 || message.msg_flags & MSG_CTRUNC;
    return perhaps ? CGM_UNREAD_PERHAPS_FDS : CGM_UNREAD_NO_FDS;
}

bool cgm_unread_has_fds(int fd)
{
    int on = 1, off = 0;
    setsockopt(fd, SOL_SOCKET, SO_PASSCRED, &on, sizeof(on));
    enum cgm_unread unread = cgm_unread_first(fd);
    setsockopt(fd, SOL_SOCKET, SO_PASSCRED, &off, sizeof(off));
    return unread == CGM_UNREAD_PERHAPS_FDS;
}
