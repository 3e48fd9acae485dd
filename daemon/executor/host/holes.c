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

#define PAGE 4096u
#define WATCHES_PER_BLOCK 256u
/* All that map memory wait while pages are taken away: of a large range not all at once. */
#define SLICE (8ull << 20)
/* What is put in place of a hole, and how much of it each thread has at a time. */
#define CHUNK (64ull << 10)
#define CHUNKS 64u

/* Whose memory is at a watch's addresses. Once ours, it stays that. */
enum owner { OF_CLIENT, BETWEEN, OURS };

struct cgm_hole_watch {
    _Atomic uint32_t changes; /* odd: it is being changed */
    _Atomic uintptr_t base;   /* 0: free */
    _Atomic uint64_t bytes;
    _Atomic bool found;
    _Atomic int owner;
};

struct piece {
    uintptr_t base, bytes;
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
    volatile bool begun;
    struct piece made[CHUNKS]; /* in a ring */
    volatile uint64_t n_made;
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

static void give_back(struct piece piece)
{
    syscall(SYS_madvise, piece.base, piece.bytes, MADV_DONTNEED);
}

/* Watched as the client's memory was: the system makes no page of it by itself. */
static bool map(struct piece piece)
{
    struct uffdio_register request = {.range = {piece.base, piece.bytes},
                                      .mode = UFFDIO_REGISTER_MODE_MISSING};
    if (syscall(SYS_mmap, piece.base, piece.bytes, PROT_READ | PROT_WRITE,
                MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0) == -1)
        return false;
    ioctl(uffd, UFFDIO_REGISTER, &request);
    return true;
}

/* In slices, which are one mapping in the end. Others may have touched one before it was watched.
 */
static bool take_place(const struct cgm_hole_watch *watch)
{
    struct piece all = {atomic_load(&watch->base), atomic_load(&watch->bytes)};
    bool mapped = true;
    for (uintptr_t at = 0; mapped && at < all.bytes; at += SLICE)
        mapped =
            map((struct piece){all.base + at, all.bytes - at < SLICE ? all.bytes - at : SLICE});
    give_back(all);
    return mapped;
}

/* One thread does it; others come again. Without room for it the client's memory stays. */
static void become_ours(struct cgm_hole_watch *watch)
{
    int owner = OF_CLIENT;
    if (atomic_compare_exchange_strong(&watch->owner, &owner, BETWEEN))
        atomic_store(&watch->owner, take_place(watch) ? OURS : OF_CLIENT);
    else if (owner == BETWEEN)
        syscall(SYS_sched_yield);
}

/* The oldest goes for it: however much is touched, a thread has only so much. */
static void remember(struct piece piece)
{
    struct piece *place = &work.made[work.n_made % CHUNKS];
    if (!work.begun)
        return;
    if (work.n_made >= CHUNKS)
        give_back(*place);
    *place = piece;
    work.n_made++;
}

/* Zeroes, for what is there already no others. Of the client's memory it makes pages, where there
 * was no room for anything in its place. */
static bool put_zeroes(const struct cgm_hole_watch *watch, uintptr_t address)
{
    uintptr_t end = atomic_load(&watch->base) + atomic_load(&watch->bytes);
    struct piece piece = {address & ~(uintptr_t)(PAGE - 1), CHUNK};
    if (piece.bytes > end - piece.base)
        piece.bytes = end - piece.base;
    struct uffdio_zeropage zeroes = {.range = {piece.base, piece.bytes}};
    remember(piece);
    return ioctl(uffd, UFFDIO_ZEROPAGE, &zeroes) == 0 || errno == EAGAIN || errno == EEXIST ||
           errno == ENOENT;
}

static bool fill(struct cgm_hole_watch *watch, uintptr_t address)
{
    if (atomic_load(&watch->owner) != OURS)
        become_ours(watch);
    return atomic_load(&watch->owner) == BETWEEN || put_zeroes(watch, address);
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
    if (!watch || !fill(watch, address))
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
    struct uffdio_range range = {atomic_load(&watch->base), atomic_load(&watch->bytes)};
    ioctl(uffd, UFFDIO_UNREGISTER, &range);
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
    work.begun = true;
    work.count = count;
    for (uint32_t i = 0; i < count; i++)
        work.watches[i] = watches[i];
    return !cgm_holes_missed();
}

/* Others that are at the same memory find zeroes again. */
bool cgm_holes_end(void)
{
    bool missed = cgm_holes_missed();
    work.begun = false;
    for (uint32_t i = 0; i < work.n_made && i < CHUNKS; i++)
        give_back(work.made[i]);
    work.n_made = 0;
    work.count = 0;
    return missed;
}
