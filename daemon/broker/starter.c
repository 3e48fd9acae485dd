#include "daemon/broker/starter.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <spawn.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "daemon/broker/own_table.h"
#include "proto/packet.h"
#include "proto/status.h"

/* Above every number that a process gets them at. */
#define FDS_FROM 16
#define TELLS_MAX 100 /* for lack of memory, a millisecond apart */

struct order {
    char path[PATH_MAX];
    int fds[2 * CGM_STARTER_FDS_MAX]; /* as they came, and then as they are lifted */
    unsigned n_fds;
};

struct outcome {
    int error;
    pid_t pid;
};

union fd_control {
    struct cmsghdr header;
    char space[CMSG_SPACE(sizeof(int) * CGM_STARTER_FDS_MAX)];
};

/* ---- in the thread -----------------------------------------------------------------------------
 */

static void collect_fds(struct msghdr *msg, struct order *order)
{
    const struct cmsghdr *c = CMSG_FIRSTHDR(msg);
    order->n_fds = c ? (unsigned)((c->cmsg_len - CMSG_LEN(0)) / sizeof(int)) : 0;
    if (c)
        memcpy(order->fds, CMSG_DATA(c), order->n_fds * sizeof(int));
}

/* False: there will be none. Straight from the system: sanitizers, which look at the library's
 * call, take what comes for fds of the other table. */
static bool receive(int socket, struct order *order)
{
    union fd_control control;
    struct iovec iov = {order->path, sizeof(order->path) - 1};
    struct msghdr msg = {.msg_iov = &iov,
                         .msg_iovlen = 1,
                         .msg_control = control.space,
                         .msg_controllen = sizeof(control.space)};
    long n;
    do
        n = syscall(SYS_recvmsg, socket, &msg, MSG_CMSG_CLOEXEC);
    while (n < 0 && errno == EINTR);
    if (n <= 0)
        return false;
    order->path[n] = '\0';
    collect_fds(&msg, order);
    return true;
}

/* Copies out of the way of the numbers that they get in the process. */
static int lift(struct order *order)
{
    unsigned n_fds = order->n_fds;
    for (unsigned i = 0; i < n_fds; i++) {
        int fd = fcntl(order->fds[i], F_DUPFD_CLOEXEC, FDS_FROM);
        if (fd < 0)
            return errno;
        order->fds[order->n_fds++] = fd;
    }
    return 0;
}

static int add_actions(posix_spawn_file_actions_t *actions, const struct order *order)
{
    int error = posix_spawn_file_actions_addopen(actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    const int *lifted = order->fds + order->n_fds / 2;
    for (unsigned i = 0; i < order->n_fds / 2 && !error; i++)
        error = posix_spawn_file_actions_adddup2(actions, lifted[i], (int)i + 1);
    return error;
}

static int set_signals(posix_spawnattr_t *attributes)
{
    sigset_t set;
    sigemptyset(&set);
    int error = posix_spawnattr_setsigmask(attributes, &set);
    sigfillset(&set);
    if (!error)
        error = posix_spawnattr_setsigdefault(attributes, &set);
    return error ? error
                 : posix_spawnattr_setflags(attributes,
                                            POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
}

static int spawn(struct order *order, pid_t *ret_pid)
{
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    char *arguments[] = {order->path, NULL};
    int error = posix_spawn_file_actions_init(&actions);
    if (error)
        return error;
    error = posix_spawnattr_init(&attributes);
    if (!error) {
        error = add_actions(&actions, order);
        if (!error)
            error = set_signals(&attributes);
        if (!error)
            error = posix_spawn(ret_pid, order->path, &actions, &attributes, arguments, environ);
        posix_spawnattr_destroy(&attributes);
    }
    posix_spawn_file_actions_destroy(&actions);
    return error;
}

static void let_go(const struct cgm_starter *starter, const struct order *order)
{
    if (starter->alone)
        cgm_own_table_clear(starter->thread_end);
    for (unsigned i = 0; i < order->n_fds && !starter->alone; i++)
        close(order->fds[i]);
}

/* Who waits for it must not wait for ever: without it the other end hangs up. */
static void tell(const struct cgm_starter *starter, const struct outcome *outcome)
{
    for (int i = 0; i < TELLS_MAX; i++) {
        if (send(starter->thread_end, outcome, sizeof(*outcome), MSG_NOSIGNAL) >= 0)
            return;
        usleep(1000);
    }
    shutdown(starter->thread_end, SHUT_RDWR);
}

static void carry_out(const struct cgm_starter *starter, struct order *order)
{
    struct outcome outcome = {.error = lift(order)};
    if (!outcome.error)
        outcome.error = spawn(order, &outcome.pid);
    let_go(starter, order);
    tell(starter, &outcome);
}

/* Its own table goes with it. */
static void *starter_main(void *argument)
{
    struct cgm_starter *starter = argument;
    struct order order;
    pthread_setname_np(pthread_self(), "cgm-starter");
    starter->alone = cgm_own_table(starter->thread_end);
    sem_post(&starter->settled);
    while (receive(starter->thread_end, &order))
        carry_out(starter, &order);
    return NULL;
}

/* ---- for the daemon ----------------------------------------------------------------------------
 */

int cgm_starter_init(struct cgm_starter *starter)
{
    int pair[2];
    *starter = (struct cgm_starter){0};
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return errno;
    starter->thread_end = pair[1];
    sem_init(&starter->settled, 0, 0);
    int error = cgm_own_table_start(starter_main, starter, &starter->thread);
    if (error) {
        sem_destroy(&starter->settled);
        close(pair[0]);
        close(pair[1]);
        return error;
    }
    while (sem_wait(&starter->settled) < 0 && errno == EINTR)
        continue;
    if (starter->alone)
        close(pair[1]);
    starter->socket = pair[0];
    starter->runs = true;
    return 0;
}

int cgm_starter_run(struct cgm_starter *starter, const char *path, const int *fds, unsigned n_fds,
                    pid_t *ret_pid)
{
    struct outcome outcome;
    ssize_t n;
    if (strlen(path) >= PATH_MAX)
        return ENAMETOOLONG;
    int status =
        cgm_packet_send_bytes(starter->socket, (const uint8_t *)path, strlen(path), fds, n_fds);
    if (status != CGM_OK)
        return ENOBUFS;
    do
        n = recv(starter->socket, &outcome, sizeof(outcome), 0);
    while (n < 0 && errno == EINTR);
    if (n != sizeof(outcome))
        return EPIPE;
    *ret_pid = outcome.pid;
    return outcome.error;
}

void cgm_starter_fini(struct cgm_starter *starter)
{
    if (!starter->runs)
        return;
    starter->runs = false;
    close(starter->socket);
    pthread_join(starter->thread, NULL);
    if (!starter->alone)
        close(starter->thread_end);
    sem_destroy(&starter->settled);
}
