#include "client/bench/yardstick.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdalign.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "client/bench/barrier.h"
#include "client/bench/crew.h"
#include "client/bench/stop.h"
#include "proto/status.h"

#define PATIENCE_NS 20e9
#define POLLS_PER_LOOK (1u << 16) /* then the partner may be waiting for this very processor */

/* The partner sleeps while `active` is 0, so that it takes nobody's core when it is not measured.
 */
struct cgm_ping_pong {
    alignas(64) _Atomic uint32_t active;
    alignas(64) _Atomic uint32_t ping;
    alignas(64) _Atomic uint32_t pong;
};

double cgm_now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

void cgm_pause_us(uint64_t us)
{
    struct timespec wait = {(time_t)(us / 1000000), (long)(us % 1000000) * 1000};
    nanosleep(&wait, NULL);
}

static void answer_socket(int fd)
{
    uint64_t word;
    while (read(fd, &word, sizeof(word)) == sizeof(word))
        if (write(fd, &word, sizeof(word)) != sizeof(word))
            break;
    _exit(0);
}

static void answer_polls(struct cgm_ping_pong *shared)
{
    for (;;) {
        while (!atomic_load_explicit(&shared->active, memory_order_acquire))
            cgm_futex_wait(&shared->active, 0, -1);
        uint32_t ping = atomic_load_explicit(&shared->ping, memory_order_acquire);
        if (ping != atomic_load_explicit(&shared->pong, memory_order_relaxed))
            atomic_store_explicit(&shared->pong, ping, memory_order_release);
    }
}

static pid_t fork_partner(void)
{
    pid_t parent = getpid();
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent)
            _exit(1);
        cgm_stop_forget();
    }
    return pid;
}

int cgm_yardstick_start(struct cgm_yardstick *ret_yardstick)
{
    struct cgm_yardstick *y = ret_yardstick;
    int ends[2];
    memset(y, 0, sizeof(*y));
    y->socket = -1;
    y->shared = cgm_shared_alloc(sizeof(*y->shared));
    if (!y->shared || socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends))
        return CGM_NO_MEMORY;
    y->socket = ends[0];
    y->socket_pid = fork_partner();
    if (y->socket_pid == 0) {
        close(ends[0]);
        answer_socket(ends[1]);
    }
    close(ends[1]);
    y->poll_pid = y->socket_pid < 0 ? -1 : fork_partner();
    if (y->poll_pid == 0) {
        close(ends[0]);
        answer_polls(y->shared);
    }
    return y->socket_pid < 0 || y->poll_pid < 0 ? CGM_NO_MEMORY : CGM_OK;
}

static void end(pid_t pid)
{
    if (pid <= 0)
        return;
    kill(pid, SIGKILL);
    while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
        ;
}

void cgm_yardstick_stop(struct cgm_yardstick *y)
{
    end(y->socket_pid);
    end(y->poll_pid);
    if (y->socket >= 0)
        close(y->socket);
    if (y->shared)
        munmap(y->shared, sizeof(*y->shared));
}

bool cgm_yardstick_socket(const struct cgm_yardstick *y, uint64_t count, uint64_t pause_us,
                          double *ret_ns)
{
    for (uint64_t i = 0; i < count; i++) {
        uint64_t word = i;
        if (pause_us)
            cgm_pause_us(pause_us);
        double begin_ns = cgm_now_ns();
        if (send(y->socket, &word, sizeof(word), MSG_NOSIGNAL) != sizeof(word) ||
            recv(y->socket, &word, sizeof(word), MSG_WAITALL) != sizeof(word))
            return false;
        ret_ns[i] = cgm_now_ns() - begin_ns;
    }
    return true;
}

static bool ping(struct cgm_ping_pong *shared, uint32_t word)
{
    double begin_ns = 0;
    atomic_store_explicit(&shared->ping, word, memory_order_release);
    for (uint32_t polls = 1; atomic_load_explicit(&shared->pong, memory_order_acquire) != word;
         polls++) {
        if (polls % POLLS_PER_LOOK != 0)
            continue;
        if (begin_ns == 0)
            begin_ns = cgm_now_ns();
        if (cgm_now_ns() - begin_ns > PATIENCE_NS)
            return false;
        sched_yield();
    }
    return true;
}

bool cgm_yardstick_poll(const struct cgm_yardstick *y, uint64_t count, double *ret_ns)
{
    struct cgm_ping_pong *shared = y->shared;
    uint32_t word = atomic_load(&shared->ping);
    atomic_store(&shared->active, 1);
    cgm_futex_wake(&shared->active);
    bool there = ping(shared, ++word); /* the partner is awake */
    for (uint64_t i = 0; there && i < count; i++) {
        double begin_ns = cgm_now_ns();
        there = ping(shared, ++word);
        ret_ns[i] = cgm_now_ns() - begin_ns;
    }
    atomic_store(&shared->active, 0);
    return there;
}
