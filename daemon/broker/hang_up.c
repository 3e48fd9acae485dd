#include "daemon/broker/hang_up.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "daemon/broker/broker.h"
#include "daemon/broker/listener.h"
#include "daemon/broker/unread.h"

/* So many packets without fds are quickly gone. A thread and an fd for each socket that has more
 * than a few would be more than a crowd is worth. */
#define PACKETS_AT_ONCE 64

/* When nothing more can come in, and nobody else takes what is there: else what is taken is not
 * what was looked at. */
static bool empty_quickly(int fd)
{
    char byte;
    int on = 1;
    enum cgm_unread unread = CGM_UNREAD_PERHAPS_FDS;
    if (setsockopt(fd, SOL_SOCKET, SO_PASSCRED, &on, sizeof(on)) < 0)
        return errno == ENOTSOCK; /* nothing comes in anyway */
    for (int i = 0; i <= PACKETS_AT_ONCE && (unread = cgm_unread_first(fd)) == CGM_UNREAD_NO_FDS;
         i++)
        (void)recv(fd, &byte, sizeof(byte), MSG_DONTWAIT | MSG_TRUNC);
    return unread == CGM_UNREAD_NOTHING;
}

/* Nobody is left who could read anything. */
static bool peer_is_gone(int fd)
{
    struct pollfd peer = {.fd = fd};
    return poll(&peer, 1, 0) == 1 && peer.revents & POLLHUP;
}

/* What lies in it, if anything does, costs no more than this. */
static bool closes_soon(int fd, bool is_gone)
{
    bool may_have_fds = cgm_listener_may_have_fds(fd);
    return (is_gone && !may_have_fds) || empty_quickly(fd) || !may_have_fds;
}

static void hang_up(struct cgm_broker *broker, uid_t uid, int fd, bool refused)
{
    bool is_gone = peer_is_gone(fd);
    shutdown(fd, SHUT_RDWR);
    if (closes_soon(fd, is_gone))
        close(fd);
    else
        cgm_closer_close_socket(broker, uid, fd,
                                is_gone ? CGM_DISCARD_NOTHING : CGM_DISCARD_A_WHILE, refused);
}

void cgm_hang_up(struct cgm_broker *broker, uid_t uid, int fd)
{
    hang_up(broker, uid, fd, false);
}

void cgm_hang_up_refused(struct cgm_broker *broker, uid_t uid, int fd)
{
    hang_up(broker, uid, fd, true);
}

bool cgm_hang_up_later(struct cgm_broker *broker, uid_t uid, int fd, bool *ret_by_thread)
{
    *ret_by_thread = false;
    shutdown(fd, SHUT_RDWR);
    if (closes_soon(fd, false))
        return true;
    int copy = fcntl(fd, F_DUPFD_CLOEXEC, 3);
    if (copy < 0)
        return false;
    cgm_closer_close_socket(broker, uid, copy, CGM_DISCARD_ALL, false);
    *ret_by_thread = true;
    return true;
}

void cgm_hang_up_emptied(struct cgm_broker *broker, uid_t uid, int fd)
{
    cgm_closer_close_socket(broker, uid, fd, CGM_DISCARD_NOTHING, false);
}
