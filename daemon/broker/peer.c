#include "daemon/broker/peer.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77 /* since Linux 6.5 */
#endif

/* By its number alone, while another process has that, it seems to live. -1 and errno. */
static int open_process(int socket, pid_t pid)
{
    int fd;
    socklen_t length = sizeof(fd);
    if (getsockopt(socket, SOL_SOCKET, SO_PEERPIDFD, &fd, &length) == 0)
        return fd;
    return errno == ENOPROTOOPT && pid > 0 ? (int)syscall(SYS_pidfd_open, pid, 0) : -1;
}

enum cgm_peer cgm_peer_look(int socket, pid_t pid)
{
    int fd = open_process(socket, pid);
    if (fd < 0 && errno == ENOSYS) /* before Linux 5.3 */
        return kill(pid, 0) < 0 && errno == ESRCH ? CGM_PEER_ENDED : CGM_PEER_LIVES;
    if (fd < 0) /* which of the two says that nobody has it any more is the kernel's choice */
        return errno == ESRCH || errno == EINVAL ? CGM_PEER_ENDED : CGM_PEER_UNKNOWN;
    bool has_ended = poll(&(struct pollfd){.fd = fd, .events = POLLIN}, 1, 0) == 1;
    close(fd);
    return has_ended ? CGM_PEER_ENDED : CGM_PEER_LIVES;
}
