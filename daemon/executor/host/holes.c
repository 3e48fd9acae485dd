#include "daemon/executor/host/holes.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef UFFD_USER_MODE_ONLY /* Linux 5.11 */
#define UFFD_USER_MODE_ONLY 1
#endif

#define WATCHES_PER_BLOCK 256u
/* All that map memory wait while pages are taken away: of a large range not all at once. */
#define SLICE (64ull << 20)

/* Whose memory is at a watch's addresses. Once it is not the client's, it stays that. */
enum owner { OF_CLIENT, BETWEEN, OURS };

struct cgm_hole_watch {
    _Atomic uint32_t changes; /* odd: it is being changed */
    _Atomic uintptr_t base;   /* 0: free */
    _Atomic uint64_t bytes;
    _Atomic bool found;
    _Atomic int owner;
};

/* Blocks are never freed: a handler may be looking through them. */
struct block {
    struct cgm_hole_watch watches[WATCHES_PER_BLOCK];
    struct block *_Atomic next;
};

static struct block first_block;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of who changes watches */
static pthread_once_t once = PTHREAD_ONCE_INIT;
static int uffd = -1;
static struct sigaction before;

/* What this thread is at. */
static _Thread_local struct {
    struct cgm_hole_watch *watches[CGM_HOLES_AT_ONCE];
    uint32_t count;
    uintptr_t seen; /* where it was last in what is ours */
} work;

/* ---- in the handler ---------------------------------------------------------------------------
 */

static bool contains(const struct cgm_hole_watch *watch, uintptr_t address)
{
    uint32_t changes = atomic_load(&watch->changes);
    uintptr_t base = atomic_load(&watch->base);
    uint64_t bytes = atomic_load(&watch->bytes);
    return base && address >= base && address - base < bytes && changes % 2 == 0 &&
           atomic_load(&watch->changes) == changes;
}

static struct cgm_hole_watch *find(uintptr_t address)
{
    for (struct block *block = &first_block; block; block = atomic_load(&block->next))
        for (uint32_t i = 0; i < WATCHES_PER_BLOCK; i++)
            if (contains(&block->watches[i], address))
                return &block->watches[i];
    return NULL;
}

/* What has been written there, or only the way to the client's pages. */
static void leave_pages(uintptr_t base, uint64_t bytes)
{
    for (uint64_t at = 0; at < bytes; at += SLICE)
        syscall(SYS_madvise, base + at, bytes - at < SLICE ? bytes - at : SLICE, MADV_DONTNEED);
}

/* Made elsewhere and moved: where there is no room for it, the client's memory is still there.
 * Bytes here and there are a page each. With its pages gone a mapping is replaced quickly. */
static bool take_place(uintptr_t base, uint64_t bytes)
{
    long place = syscall(SYS_mmap, NULL, bytes, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (place == -1)
        return false;
    syscall(SYS_madvise, place, bytes, MADV_NOHUGEPAGE);
    leave_pages(base, bytes);
    if (syscall(SYS_mremap, place, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, base) != -1)
        return true;
    syscall(SYS_munmap, place, bytes);
    return false;
}

/* Pages are made after all. */
static bool let_go(uintptr_t base, uint64_t bytes)
{
    struct uffdio_range range = {base, bytes};
    return ioctl(uffd, UFFDIO_UNREGISTER, &range) == 0;
}

/* One that came before it was ours comes once. */
static bool is_news(uintptr_t address)
{
    bool news = work.seen != address;
    work.seen = address;
    return news;
}

/* One thread does it; others come again until it is done. */
static bool become_ours(struct cgm_hole_watch *watch, uintptr_t address)
{
    uintptr_t base = atomic_load(&watch->base);
    uint64_t bytes = atomic_load(&watch->bytes);
    int owner = OF_CLIENT;
    if (atomic_compare_exchange_strong(&watch->owner, &owner, BETWEEN)) {
        bool done = take_place(base, bytes) || let_go(base, bytes);
        atomic_store(&watch->owner, OURS);
        return done;
    }
    if (owner == OURS)
        return is_news(address);
    syscall(SYS_sched_yield);
    return true;
}

/* What this returns from is tried again. */
static void on_bus_error(int number, siginfo_t *info, void *context)
{
    int error = errno;
    uintptr_t address = (uintptr_t)info->si_addr;
    struct cgm_hole_watch *watch = find(address);
    (void)number, (void)context;
    if (watch)
        atomic_store(&watch->found, true);
    if (!watch || !become_ours(watch, address))
        sigaction(SIGBUS, &before, NULL);
    errno = error;
}

/* ---- elsewhere --------------------------------------------------------------------------------
 */

static void start(void)
{
    struct uffdio_api api = {.api = UFFD_API,
                             .features = UFFD_FEATURE_SIGBUS | UFFD_FEATURE_MISSING_SHMEM};
    struct sigaction action = {.sa_sigaction = on_bus_error, .sa_flags = SA_SIGINFO};
    int fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | UFFD_USER_MODE_ONLY);
    if (fd < 0)
        return;
    if (ioctl(fd, UFFDIO_API, &api) != 0 || sigaction(SIGBUS, &action, &before) != 0) {
        close(fd);
        return;
    }
    uffd = fd;
}

void cgm_holes_open(void)
{
    pthread_once(&once, start);
}

static void set(struct cgm_hole_watch *watch, uintptr_t base, uint64_t bytes)
{
    atomic_fetch_add(&watch->changes, 1);
    atomic_store(&watch->base, base);
    atomic_store(&watch->bytes, bytes);
    atomic_store(&watch->found, false);
    atomic_store(&watch->owner, OF_CLIENT);
    atomic_fetch_add(&watch->changes, 1);
}

static struct cgm_hole_watch *find_free(void)
{
    struct block *block = &first_block;
    for (;;) {
        for (uint32_t i = 0; i < WATCHES_PER_BLOCK; i++)
            if (atomic_load(&block->watches[i].base) == 0)
                return &block->watches[i];
        if (!atomic_load(&block->next))
            break;
        block = atomic_load(&block->next);
    }
    struct block *more = calloc(1, sizeof(*more));
    if (!more)
        return NULL;
    atomic_store(&block->next, more);
    return &more->watches[0];
}

struct cgm_hole_watch *cgm_holes_watch(char *base, uint64_t bytes)
{
    struct uffdio_register request = {.range = {(uintptr_t)base, bytes},
                                      .mode = UFFDIO_REGISTER_MODE_MISSING};
    cgm_holes_open();
    if (uffd < 0)
        return NULL;
    pthread_mutex_lock(&lock);
    struct cgm_hole_watch *watch = find_free();
    if (watch)
        set(watch, (uintptr_t)base, bytes);
    pthread_mutex_unlock(&lock);
    if (!watch || ioctl(uffd, UFFDIO_REGISTER, &request) == 0)
        return watch;
    cgm_holes_unwatch(watch);
    return NULL;
}

void cgm_holes_unwatch(struct cgm_hole_watch *watch)
{
    if (!watch)
        return;
    let_go(atomic_load(&watch->base), atomic_load(&watch->bytes));
    pthread_mutex_lock(&lock);
    set(watch, 0, 0);
    pthread_mutex_unlock(&lock);
}

bool cgm_holes_found(const struct cgm_hole_watch *watch)
{
    return watch && atomic_load(&watch->found);
}

bool cgm_holes_missed(void)
{
    bool missed = false;
    for (uint32_t i = 0; i < work.count; i++)
        missed |= cgm_holes_found(work.watches[i]);
    return missed;
}

bool cgm_holes_begin(struct cgm_hole_watch *const *watches, uint32_t count)
{
    work.count = count;
    work.seen = 0;
    for (uint32_t i = 0; i < count; i++)
        work.watches[i] = watches[i];
    return !cgm_holes_missed();
}

/* All of it: others may have been at the same memory. */
bool cgm_holes_end(void)
{
    bool missed = false;
    for (uint32_t i = 0; i < work.count; i++) {
        if (!cgm_holes_found(work.watches[i]))
            continue;
        missed = true;
        leave_pages(atomic_load(&work.watches[i]->base), atomic_load(&work.watches[i]->bytes));
    }
    work.count = 0;
    return missed;
}
