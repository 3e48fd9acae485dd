/* What LD_PRELOAD puts between a program and the C library; see failing_calls.h. */
#include "tests/fault/failing_calls.h"

#include <dlfcn.h>
#include <errno.h>
#include <execinfo.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

#define EXPORTED __attribute__((visibility("default")))

static struct failing_page *page;
static enum failing_who who;
static __thread bool inside; /* this file's own calls are not counted */

static enum failing_who who_am_i(void)
{
    const char *name = program_invocation_short_name;
    if (strcmp(name, "commgemmd") == 0)
        return FAILING_BROKER;
    return strncmp(name, "commgemm-executor", 17) == 0 ? FAILING_EXECUTOR : FAILING_CLIENT;
}

static void find_nexts(void);

__attribute__((constructor(102))) static void start(void)
{
    const char *path = getenv("CGM_FAILING_CALLS");
    void *frames[2];
    inside = true;
    backtrace(frames, 2); /* loads what it needs */
    find_nexts();
    int fd = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
    void *base =
        fd < 0 ? MAP_FAILED : mmap(NULL, sizeof(*page), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (fd >= 0)
        close(fd);
    who = who_am_i();
    if (base != MAP_FAILED)
        page = base;
    inside = false;
}

static void note_stack(void)
{
    void *frames[18];
    int depth = backtrace(frames, 18) - 2;
    for (int i = 0; i < depth && i < 16; i++) {
        Dl_info info = {0};
        dladdr(frames[i + 2], &info);
        const char *slash = info.dli_fname ? strrchr(info.dli_fname, '/') : NULL;
        snprintf(page->stack[i], sizeof(page->stack[i]), "%.40s+0x%lx %.32s",
                 slash ? slash + 1 : "?",
                 (unsigned long)((char *)frames[i + 2] - (char *)info.dli_fbase),
                 info.dli_sname ? info.dli_sname : "");
    }
    page->depth = depth > 0 ? (uint32_t)depth : 0;
}

/* True when this call is the one. */
static bool fails(enum failing_family family, const char *call)
{
    if (!page || inside)
        return false;
    uint64_t number = atomic_fetch_add(&page->calls[who][family], 1) + 1;
    if (number != atomic_load(&page->at) || page->who != who || page->family != family ||
        atomic_exchange(&page->fired, 1))
        return false;
    inside = true;
    snprintf(page->call, sizeof(page->call), "%s", call);
    note_stack();
    inside = false;
    return true;
}

/* ---- memory ------------------------------------------------------------------------------------
 */

#ifdef FAILING_CALLS_OF_MEMORY
void *__libc_malloc(size_t size);
void *__libc_calloc(size_t count, size_t size);
void *__libc_realloc(void *block, size_t size);
void *__libc_memalign(size_t alignment, size_t size);
void __libc_free(void *block);

static void *counted(void *block)
{
    if (block && page && !inside)
        atomic_fetch_add(&page->blocks[who], 1);
    return block;
}

static bool no_memory(const char *call)
{
    if (!fails(FAILING_MEMORY, call))
        return false;
    errno = ENOMEM;
    return true;
}

EXPORTED void *malloc(size_t size)
{
    return no_memory("malloc") ? NULL : counted(__libc_malloc(size));
}

EXPORTED void *calloc(size_t count, size_t size)
{
    return no_memory("calloc") ? NULL : counted(__libc_calloc(count, size));
}

EXPORTED void *realloc(void *block, size_t size)
{
    if (no_memory("realloc"))
        return NULL;
    return block ? __libc_realloc(block, size) : counted(__libc_realloc(block, size));
}

EXPORTED void *memalign(size_t alignment, size_t size)
{
    return no_memory("memalign") ? NULL : counted(__libc_memalign(alignment, size));
}

EXPORTED void *aligned_alloc(size_t alignment, size_t size)
{
    return no_memory("aligned_alloc") ? NULL : counted(__libc_memalign(alignment, size));
}

EXPORTED int posix_memalign(void **ret_block, size_t alignment, size_t size)
{
    void *block = no_memory("posix_memalign") ? NULL : counted(__libc_memalign(alignment, size));
    if (!block)
        return ENOMEM;
    *ret_block = block;
    return 0;
}

EXPORTED void free(void *block)
{
    if (block && page && !inside)
        atomic_fetch_sub(&page->blocks[who], 1);
    __libc_free(block);
}
#endif

/* ---- the system --------------------------------------------------------------------------------
 */

/* dlsym takes a lock of the loader: whatever is asked for is asked for in `start`, through these.
 */
#define NEXT_MAX 64
static struct next {
    const char *name;
    void **function;
} nexts[NEXT_MAX];
static unsigned n_nexts;

static void find_nexts(void)
{
    for (unsigned i = 0; i < n_nexts; i++)
        *nexts[i].function = dlsym(RTLD_NEXT, nexts[i].name);
}

/* The C library runs this before `start`, which has a later priority. */
#define NEXT(type, name, parameters)                                                               \
    static type(*next_##name) parameters;                                                          \
    __attribute__((constructor(101))) static void add_##name(void)                                 \
    {                                                                                              \
        nexts[n_nexts++] = (struct next){#name, (void **)&next_##name};                            \
    }

#define FORWARD(name, arguments)                                                                   \
    if (!next_##name)                                                                              \
        *(void **)&next_##name = dlsym(RTLD_NEXT, #name);                                          \
    return next_##name arguments;

#define FAILING_CALL(type, name, parameters, arguments, failure, number)                           \
    NEXT(type, name, parameters)                                                                   \
    EXPORTED type name parameters                                                                  \
    {                                                                                              \
        if (fails(FAILING_SYSTEM, #name)) {                                                        \
            errno = (number);                                                                      \
            return (failure);                                                                      \
        }                                                                                          \
        FORWARD(name, arguments)                                                                   \
    }

FAILING_CALL(int, memfd_create, (const char *name, unsigned flags), (name, flags), -1, EMFILE)
FAILING_CALL(int, ftruncate, (int fd, off_t size), (fd, size), -1, ENOSPC)
FAILING_CALL(int, ftruncate64, (int fd, off64_t size), (fd, size), -1, ENOSPC)
FAILING_CALL(void *, mmap, (void *at, size_t size, int prot, int flags, int fd, off_t offset),
             (at, size, prot, flags, fd, offset), MAP_FAILED, ENOMEM)
FAILING_CALL(void *, mmap64, (void *at, size_t size, int prot, int flags, int fd, off64_t offset),
             (at, size, prot, flags, fd, offset), MAP_FAILED, ENOMEM)
FAILING_CALL(int, eventfd, (unsigned value, int flags), (value, flags), -1, EMFILE)
FAILING_CALL(int, socket, (int domain, int type, int protocol), (domain, type, protocol), -1,
             EMFILE)
FAILING_CALL(int, socketpair, (int domain, int type, int protocol, int pair[2]),
             (domain, type, protocol, pair), -1, EMFILE)
FAILING_CALL(int, bind, (int fd, const struct sockaddr *address, socklen_t size),
             (fd, address, size), -1, ENOMEM)
FAILING_CALL(int, listen, (int fd, int backlog), (fd, backlog), -1, EADDRINUSE)
FAILING_CALL(int, connect, (int fd, const struct sockaddr *address, socklen_t size),
             (fd, address, size), -1, ENOMEM)
FAILING_CALL(int, accept4, (int fd, struct sockaddr *address, socklen_t *size, int flags),
             (fd, address, size, flags), -1, EMFILE)
FAILING_CALL(int, getsockopt, (int fd, int level, int name, void *value, socklen_t *size),
             (fd, level, name, value, size), -1, ENOBUFS)
FAILING_CALL(ssize_t, sendmsg, (int fd, const struct msghdr *message, int flags),
             (fd, message, flags), -1, ENOBUFS)
FAILING_CALL(ssize_t, recvmsg, (int fd, struct msghdr *message, int flags), (fd, message, flags),
             -1, ENOMEM)
FAILING_CALL(ssize_t, send, (int fd, const void *bytes, size_t size, int flags),
             (fd, bytes, size, flags), -1, ENOBUFS)
FAILING_CALL(int, epoll_create1, (int flags), (flags), -1, EMFILE)
FAILING_CALL(int, epoll_ctl, (int epoll, int what, int fd, struct epoll_event *event),
             (epoll, what, fd, event), -1, ENOSPC)
FAILING_CALL(int, epoll_wait, (int epoll, struct epoll_event *events, int most, int timeout),
             (epoll, events, most, timeout), -1, EINTR)
FAILING_CALL(int, epoll_pwait,
             (int epoll, struct epoll_event *events, int most, int timeout, const sigset_t *mask),
             (epoll, events, most, timeout, mask), -1, EINTR)
FAILING_CALL(int, pipe2, (int pair[2], int flags), (pair, flags), -1, EMFILE)
FAILING_CALL(int, dup, (int fd), (fd), -1, EMFILE)
FAILING_CALL(pid_t, fork, (void), (), -1, EAGAIN)
FAILING_CALL(int, posix_spawn,
             (pid_t * ret_pid, const char *path, const posix_spawn_file_actions_t *actions,
              const posix_spawnattr_t *attributes, char *const argv[], char *const env[]),
             (ret_pid, path, actions, attributes, argv, env), EAGAIN, EAGAIN)
FAILING_CALL(int, unshare, (int what), (what), -1, EPERM)
FAILING_CALL(int, flock, (int fd, int what), (fd, what), -1, ENOLCK)
FAILING_CALL(int, chmod, (const char *path, mode_t mode), (path, mode), -1, EROFS)
FAILING_CALL(int, fchmod, (int fd, mode_t mode), (fd, mode), -1, EROFS)
FAILING_CALL(int, mkdir, (const char *path, mode_t mode), (path, mode), -1, ENOSPC)

NEXT(int, pthread_create, (pthread_t *, const pthread_attr_t *, void *(*)(void *), void *))
EXPORTED int pthread_create(pthread_t *ret_thread, const pthread_attr_t *attributes,
                            void *(*start_routine)(void *), void *argument)
{
    if (fails(FAILING_SYSTEM, "pthread_create"))
        return EAGAIN;
    FORWARD(pthread_create, (ret_thread, attributes, start_routine, argument))
}

/* Only what makes an fd, and what seals one. */
static bool fcntl_fails(int command)
{
    if (command != F_DUPFD && command != F_DUPFD_CLOEXEC && command != F_ADD_SEALS)
        return false;
    if (!fails(FAILING_SYSTEM, "fcntl"))
        return false;
    errno = command == F_ADD_SEALS ? EBUSY : EMFILE;
    return true;
}

#define FAILING_FCNTL(name)                                                                        \
    NEXT(int, name, (int, int, ...))                                                               \
    EXPORTED int name(int fd, int command, ...)                                                    \
    {                                                                                              \
        va_list arguments;                                                                         \
        va_start(arguments, command);                                                              \
        void *argument = va_arg(arguments, void *);                                                \
        va_end(arguments);                                                                         \
        if (fcntl_fails(command))                                                                  \
            return -1;                                                                             \
        FORWARD(name, (fd, command, argument))                                                     \
    }

#define FAILING_OPEN(name)                                                                         \
    NEXT(int, name, (const char *, int, ...))                                                      \
    EXPORTED int name(const char *path, int flags, ...)                                            \
    {                                                                                              \
        va_list arguments;                                                                         \
        va_start(arguments, flags);                                                                \
        mode_t mode = flags & O_CREAT ? va_arg(arguments, mode_t) : 0;                             \
        va_end(arguments);                                                                         \
        if (fails(FAILING_SYSTEM, "open")) {                                                       \
            errno = EMFILE;                                                                        \
            return -1;                                                                             \
        }                                                                                          \
        FORWARD(name, (path, flags, mode))                                                         \
    }

FAILING_FCNTL(fcntl)
FAILING_FCNTL(fcntl64)
FAILING_OPEN(open)
FAILING_OPEN(open64)
