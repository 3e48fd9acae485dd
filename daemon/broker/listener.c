#include "daemon/broker/listener.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "daemon/broker/config.h"
#include "daemon/broker/log.h"
#include "daemon/broker/notify.h"
#include "proto/messages.h"
#include "proto/packet.h"
#include "proto/status.h"

#ifndef SO_PASSPIDFD
#define SO_PASSPIDFD 76 /* since Linux 6.5 */
#endif
#ifndef SO_PASSRIGHTS
#define SO_PASSRIGHTS 83 /* since Linux 6.16 */
#endif

#define BACKLOG 512
/* Who waits to get in waits behind all of a flood, so that it must go quickly; those who are in
 * already must not wait for all of it. Of those who are refused few come in a turn: what they cost
 * is nobody's. */
#define WORK_PER_TURN 32
#define WORK_OF_ADMITTED 2
#define WORK_OF_REFUSED 16

/* Of those that connect, which have it from the listening socket, and of one. */
static void pass_fds(int fd, int pass)
{
    setsockopt(fd, SOL_SOCKET, SO_PASSRIGHTS, &pass, sizeof(pass));
}

/* What whoever made the socket may have wished for, and has from the listening socket, too: it
 * would come with every packet, and one of them is an fd. */
static void pass_nothing_else(int fd)
{
    static const int options[] = {SO_PASSCRED, SO_PASSSEC, SO_PASSPIDFD};
    const int off = 0;
    for (size_t i = 0; i < sizeof(options) / sizeof(options[0]); i++)
        setsockopt(fd, SOL_SOCKET, options[i], &off, sizeof(off));
}

void cgm_listener_admit(int fd)
{
    pass_nothing_else(fd);
    pass_fds(fd, 1);
}

bool cgm_listener_may_have_fds(int fd)
{
    int passes;
    socklen_t length = sizeof(passes);
    return getsockopt(fd, SOL_SOCKET, SO_PASSRIGHTS, &passes, &length) < 0 || passes;
}

void cgm_listener_init(struct cgm_listener *listener)
{
    memset(listener, 0, sizeof(*listener));
    listener->fd = listener->spare_fd = -1;
    cgm_lock_init(&listener->lock);
}

static int make_folder(const char *path, char *ret_detail, size_t size)
{
    char folder[256];
    snprintf(folder, sizeof(folder), "%s", path);
    char *slash = strrchr(folder, '/');
    if (!slash || slash == folder)
        return CGM_OK;
    *slash = '\0';
    if (mkdir(folder, 0755) == 0 || errno == EEXIST)
        return CGM_OK;
    return cgm_detail(ret_detail, size, cgm_status_of_errno(errno),
                      "cannot create the folder %s of the socket: %s", folder, strerror(errno));
}

static int remove_left_over(const char *path)
{
    cgm_log_info("socket %s: removing a stale socket file", path);
    unlink(path);
    return CGM_OK;
}

/* The lock is ours, so a file that refuses connections is left over, and one of who had the lock
 * before us. */
static int remove_stale(const struct cgm_listener *listener, char *ret_detail, size_t size)
{
    const char *path = listener->path;
    struct stat st;
    int other;
    if (lstat(path, &st) < 0)
        return CGM_OK;
    if (!S_ISSOCK(st.st_mode))
        return cgm_detail(ret_detail, size, CGM_EXISTS, "%s exists and is not a socket", path);
    if (cgm_lock_left(&listener->lock, path))
        return remove_left_over(path);
    int status = cgm_socket_connect(path, &other);
    if (status == CGM_OK) {
        close(other);
        return cgm_detail(ret_detail, size, CGM_EXISTS, "another daemon listens on %s", path);
    }
    if (status != CGM_NOT_RUNNING)
        return cgm_detail(ret_detail, size, status, "cannot tell who listens on %s: %s", path,
                          strerror(errno));
    return remove_left_over(path);
}

static int set_access(const char *path, const struct cgm_config *config, char *ret_detail,
                      size_t size)
{
    if (config->socket_group[0]) {
        struct group *group = getgrnam(config->socket_group);
        if (!group)
            return cgm_detail(ret_detail, size, CGM_INVALID_ARGUMENT,
                              "socket_group is '%s'; there is no such group", config->socket_group);
        if (chown(path, (uid_t)-1, group->gr_gid) < 0)
            return cgm_detail(ret_detail, size, cgm_status_of_errno(errno),
                              "cannot give %s to the group %s: %s", path, config->socket_group,
                              strerror(errno));
    }
    if (chmod(path, (mode_t)config->socket_mode) < 0)
        return cgm_detail(ret_detail, size, cgm_status_of_errno(errno),
                          "cannot set the mode of %s: %s", path, strerror(errno));
    return CGM_OK;
}

static void note_file(struct cgm_listener *listener)
{
    struct stat st;
    if (lstat(listener->path, &st) < 0)
        return;
    listener->device = st.st_dev;
    listener->inode = st.st_ino;
}

static int bind_path(struct cgm_listener *listener, char *ret_detail, size_t size)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    memcpy(address.sun_path, listener->path, strlen(listener->path) + 1);
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return cgm_status_of_errno(errno);
    mode_t mask = umask(0); /* who comes before set_access finds that nobody listens */
    int failed = bind(fd, (struct sockaddr *)&address, sizeof(address));
    int error = errno;
    umask(mask);
    if (failed) {
        close(fd);
        return cgm_detail(ret_detail, size, cgm_status_of_errno(error), "cannot bind %s: %s",
                          listener->path, strerror(error));
    }
    listener->fd = fd;
    note_file(listener);
    return CGM_OK;
}

bool cgm_listener_is_there(const struct cgm_listener *listener)
{
    struct stat st;
    return listener->inherited || (lstat(listener->path, &st) == 0 &&
                                   st.st_dev == listener->device && st.st_ino == listener->inode);
}

void cgm_listener_look(struct cgm_listener *listener)
{
    if (!listener->listening || listener->missed || cgm_listener_is_there(listener))
        return;
    listener->missed = true;
    cgm_log_error("socket %s: it was removed or replaced, nobody can connect any more; restart the "
                  "daemon",
                  listener->path);
}

/* Who sets these in vain may think that nobody else can connect. */
static void warn_of_keys(const struct cgm_config *config)
{
    struct cgm_config defaults;
    cgm_config_init(&defaults);
    if (config->socket_mode != defaults.socket_mode || config->socket_group[0])
        cgm_log_warning("socket_mode and socket_group are not used: the socket is systemd's, whose "
                        "unit has SocketMode= and SocketGroup=");
}

static int inherit(struct cgm_listener *listener, char *ret_detail, size_t size)
{
    struct sockaddr_un address;
    socklen_t length = sizeof(address);
    int status = cgm_notify_listen_fd(&listener->fd, ret_detail, (unsigned)size);
    if (status != CGM_OK || listener->fd < 0)
        return status;
    listener->inherited = true;
    fcntl(listener->fd, F_SETFL, fcntl(listener->fd, F_GETFL) | O_NONBLOCK);
    if (getsockname(listener->fd, (struct sockaddr *)&address, &length) == 0)
        snprintf(listener->path, sizeof(listener->path), "%.*s", (int)sizeof(address.sun_path),
                 address.sun_path);
    return CGM_OK;
}

static void open_spare(struct cgm_listener *listener)
{
    if (listener->spare_fd < 0)
        listener->spare_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
}

int cgm_listener_bind(struct cgm_listener *listener, const struct cgm_config *config,
                      char *ret_detail, size_t size)
{
    snprintf(ret_detail, size, "no detail");
    open_spare(listener);
    int status = inherit(listener, ret_detail, size);
    if (listener->inherited)
        warn_of_keys(config);
    if (status != CGM_OK || listener->inherited)
        return status;
    status = cgm_socket_path(config->socket, 1, listener->path, sizeof(listener->path));
    if (status != CGM_OK)
        return cgm_detail(ret_detail, size, status,
                          "the socket's path is longer than 107 bytes: %s", config->socket);
    status = make_folder(listener->path, ret_detail, size);
    if (status == CGM_OK)
        status = cgm_lock_take(&listener->lock, listener->path, ret_detail, size);
    if (status == CGM_OK)
        status = remove_stale(listener, ret_detail, size);
    if (status == CGM_OK)
        status = bind_path(listener, ret_detail, size);
    if (status == CGM_OK)
        status = set_access(listener->path, config, ret_detail, size);
    return status == CGM_OK ? cgm_lock_keep(&listener->lock, listener->path, ret_detail, size)
                            : status;
}

/* Out of fds: a waiting client would keep the loop awake for ever, so it is taken and dropped. What
 * it has sent already may keep its closer for a while, and then the spare one comes later. */
static void refuse_one(struct cgm_listener *listener)
{
    open_spare(listener);
    if (listener->spare_fd < 0)
        return;
    close(listener->spare_fd);
    listener->spare_fd = -1;
    int fd = accept4(listener->fd, NULL, NULL, SOCK_CLOEXEC);
    if (fd >= 0)
        listener->on_refused(listener->owner, fd);
    open_spare(listener);
}

static void on_readable(uv_poll_t *poll, int status, int events)
{
    struct cgm_listener *listener = poll->data;
    (void)events;
    for (int work = 0;
         status == 0 && listener->polling && !listener->paused && work < WORK_PER_TURN;) {
        int fd = accept4(listener->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd < 0) {
            if (errno == EMFILE || errno == ENFILE)
                refuse_one(listener);
            return;
        }
        work += listener->on_client(listener->owner, fd) ? WORK_OF_ADMITTED : WORK_OF_REFUSED;
    }
}

void cgm_listener_pause(struct cgm_listener *listener, bool paused)
{
    if (listener->paused == paused)
        return;
    listener->paused = paused;
    if (!listener->polling)
        return;
    if (paused)
        uv_poll_stop(&listener->poll);
    else
        uv_poll_start(&listener->poll, UV_READABLE, on_readable);
}

int cgm_listener_start(struct cgm_listener *listener, uv_loop_t *loop,
                       bool (*on_client)(void *owner, int fd),
                       void (*on_refused)(void *owner, int fd), void *owner)
{
    listener->on_client = on_client;
    listener->on_refused = on_refused;
    listener->owner = owner;
    pass_nothing_else(listener->fd);
    pass_fds(listener->fd, 0);
    if (!cgm_listener_is_there(listener))
        return CGM_EXISTS;
    if (!listener->inherited && listen(listener->fd, BACKLOG) < 0)
        return cgm_status_of_errno(errno);
    if (uv_poll_init(loop, &listener->poll, listener->fd) != 0)
        return CGM_NO_MEMORY;
    listener->poll.data = listener;
    listener->listening = listener->polling = true;
    uv_poll_start(&listener->poll, UV_READABLE, on_readable);
    return CGM_OK;
}

void cgm_listener_close(struct cgm_listener *listener)
{
    if (listener->polling) {
        uv_poll_stop(&listener->poll);
        uv_close((uv_handle_t *)&listener->poll, NULL);
        listener->polling = false;
    }
    if (listener->fd >= 0) {
        if (!listener->inherited && cgm_listener_is_there(listener))
            unlink(listener->path);
        close(listener->fd);
    }
    if (listener->spare_fd >= 0)
        close(listener->spare_fd);
    listener->fd = listener->spare_fd = -1;
    listener->listening = false;
}

void cgm_listener_fini(struct cgm_listener *listener)
{
    cgm_listener_close(listener);
    cgm_lock_give(&listener->lock);
}
