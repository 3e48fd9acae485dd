#include "daemon/broker/ghost.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "daemon/broker/broker.h"
#include "daemon/broker/session.h"

#define LOOK_MS 1000u

/* Also as long as its parent does not ask how it ended. While another process has its number it
 * seems to live: its session ends when that one has gone. A process of another pid namespace has no
 * number here. Without a pidfd (before Linux 5.3, or none left) it lives until its parent asks. */
static bool has_gone(pid_t pid)
{
    int fd = pid > 0 ? (int)syscall(SYS_pidfd_open, pid, 0) : -1;
    if (fd < 0)
        return pid > 0 && kill(pid, 0) < 0 && errno == ESRCH;
    bool ended = poll(&(struct pollfd){.fd = fd, .events = POLLIN}, 1, 0) == 1;
    close(fd);
    return ended;
}

static void on_timer(uv_timer_t *timer)
{
    struct cgm_broker *broker = timer->data;
    struct cgm_session *session;
    uint64_t at = 0;
    while ((session = cgm_registry_next(&broker->sessions, &at)))
        if (!session->connection.paused && !cgm_session_owes_reading(session))
            continue;
        else if (has_gone(session->pid))
            cgm_session_end(session, "its process has gone, and its requests have to wait");
        else
            cgm_ghost_watch(broker);
}

void cgm_ghost_watch(struct cgm_broker *broker)
{
    if (!broker->ending && !uv_is_active((uv_handle_t *)&broker->ghost_timer))
        uv_timer_start(&broker->ghost_timer, on_timer, LOOK_MS, 0);
}
