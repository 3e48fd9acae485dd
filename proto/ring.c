#include "proto/ring.h"

#include <fcntl.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <errno.h>

#include "proto/status.h"

#define PAGE 4096u
#define BLOCK 512 /* of st_blocks */
/* What lies before the phases. */
#define BYTES_OF_SLOT                                                                              \
    (sizeof(uint32_t) + sizeof(struct cgm_cqe) + sizeof(struct cgm_entry) + sizeof(uint64_t) +     \
     sizeof(struct cgm_done))
#define PAGES_MAX (1 + CGM_RING_ENTRIES_MAX * BYTES_OF_SLOT / PAGE)
#define SIZE_SEALS (F_SEAL_SHRINK | F_SEAL_GROW)
#define HOLE_SEALS (F_SEAL_FUTURE_WRITE | F_SEAL_SEAL)

struct layout {
    uint64_t sq, cq, entry, ready, done, phase, bytes;
};

static uint64_t layout_take(uint64_t *offset, uint64_t count, uint64_t size)
{
    uint64_t at = *offset;
    *offset = (at + count * size + PAGE - 1) & ~(uint64_t)(PAGE - 1);
    return at;
}

/* Every array starts on a page of its own, so that a session which uses few slots touches little.
 */
static struct layout layout_of(uint32_t entries)
{
    struct layout l;
    uint64_t offset = PAGE;
    l.sq = layout_take(&offset, entries, sizeof(uint32_t));
    l.cq = layout_take(&offset, entries, sizeof(struct cgm_cqe));
    l.entry = layout_take(&offset, entries, sizeof(struct cgm_entry));
    l.ready = layout_take(&offset, entries, sizeof(uint64_t));
    l.done = layout_take(&offset, entries, sizeof(struct cgm_done));
    l.phase =
        layout_take(&offset, (uint64_t)entries * CGM_PHASES_PER_JOB, sizeof(struct cgm_phase));
    l.bytes = offset;
    return l;
}

size_t cgm_ring_bytes(uint32_t entries)
{
    if (entries < CGM_RING_ENTRIES_MIN || entries > CGM_RING_ENTRIES_MAX || entries & (entries - 1))
        return 0;
    return layout_of(entries).bytes;
}

static void header_init(struct cgm_ring_header *h, uint32_t entries, uint64_t session,
                        uint64_t executor_life)
{
    struct layout l = layout_of(entries);
    h->magic = CGM_RING_MAGIC;
    h->version = CGM_RING_VERSION;
    h->entries = entries;
    h->entry_bytes = sizeof(struct cgm_entry);
    h->cqe_bytes = sizeof(struct cgm_cqe);
    h->phase_bytes = sizeof(struct cgm_phase);
    h->phases_per_job = CGM_PHASES_PER_JOB;
    h->session = session;
    h->executor_life = executor_life;
    h->bytes = l.bytes;
    h->sq_offset = l.sq;
    h->cq_offset = l.cq;
    h->entry_offset = l.entry;
    h->ready_offset = l.ready;
    h->done_offset = l.done;
    h->phase_offset = l.phase;
    /* The poller is asleep until it first sees this ring. */
    atomic_store_explicit(&h->sq_need_wakeup, 1, memory_order_relaxed);
}

int cgm_ring_create(uint32_t entries, uint64_t session, uint64_t executor_life, int *ret_fd)
{
    size_t bytes = cgm_ring_bytes(entries);
    if (bytes == 0)
        return CGM_INVALID_ARGUMENT;
    int fd = memfd_create("commgemm-ring", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0)
        return cgm_status_of_errno(errno);
    if (ftruncate(fd, (off_t)bytes) < 0)
        goto fail;
    void *base = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (base == MAP_FAILED)
        goto fail;
    header_init(base, entries, session, executor_life);
    munmap(base, PAGE);
    if (fcntl(fd, F_ADD_SEALS, SIZE_SEALS) < 0)
        goto fail;
    *ret_fd = fd;
    return CGM_OK;
fail:;
    int error = errno;
    close(fd);
    return cgm_status_of_errno(error);
}

static int header_is_right(const struct cgm_ring_header *h, uint32_t entries)
{
    struct layout l = layout_of(entries);
    return h->magic == CGM_RING_MAGIC && h->version == CGM_RING_VERSION && h->entries == entries &&
           h->entry_bytes == sizeof(struct cgm_entry) && h->cqe_bytes == sizeof(struct cgm_cqe) &&
           h->phase_bytes == sizeof(struct cgm_phase) && h->phases_per_job == CGM_PHASES_PER_JOB &&
           h->bytes == l.bytes && h->sq_offset == l.sq && h->cq_offset == l.cq &&
           h->entry_offset == l.entry && h->ready_offset == l.ready && h->done_offset == l.done &&
           h->phase_offset == l.phase;
}

int cgm_ring_map(int fd, uint32_t entries, struct cgm_ring *ret_ring)
{
    struct stat st;
    size_t bytes = cgm_ring_bytes(entries);
    if (bytes == 0)
        return CGM_INVALID_ARGUMENT;
    int seals = fcntl(fd, F_GET_SEALS);
    if (seals < 0 || (seals & SIZE_SEALS) != SIZE_SEALS || fstat(fd, &st) < 0 ||
        (uint64_t)st.st_size != bytes)
        return CGM_BAD_MESSAGE;
    char *base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (base == MAP_FAILED)
        return cgm_status_of_errno(errno);
    if (!header_is_right((struct cgm_ring_header *)base, entries)) {
        munmap(base, bytes);
        return CGM_BAD_MESSAGE;
    }
    struct layout l = layout_of(entries);
    *ret_ring = (struct cgm_ring){
        .header = (struct cgm_ring_header *)base,
        .sq = (_Atomic uint32_t *)(base + l.sq),
        .cq = (struct cgm_cqe *)(base + l.cq),
        .entry = (struct cgm_entry *)(base + l.entry),
        .ready = (_Atomic uint64_t *)(base + l.ready),
        .done = (struct cgm_done *)(base + l.done),
        .phase = (struct cgm_phase *)(base + l.phase),
        .entries = entries,
        .mask = entries - 1,
        .bytes = bytes,
    };
    return CGM_OK;
}

int cgm_ring_is_sealed(int fd)
{
    int seals = fcntl(fd, F_GET_SEALS);
    return seals >= 0 && seals & F_SEAL_FUTURE_WRITE;
}

static int seal_holes(int fd)
{
    if (fcntl(fd, F_ADD_SEALS, HOLE_SEALS) == 0)
        return CGM_OK;
    if (errno != EPERM)
        return cgm_status_of_errno(errno);
    /* No seal can be added any more: this one may be there already. */
    return cgm_ring_is_sealed(fd) ? CGM_OK : CGM_BAD_MESSAGE;
}

int cgm_ring_join(int fd, uint32_t entries, struct cgm_ring *ret_ring)
{
    struct cgm_ring ring = {.header = NULL};
    int status = cgm_ring_map(fd, entries, &ring);
    if (status != CGM_OK)
        return status;
    status = seal_holes(fd);
    if (status == CGM_OK)
        *ret_ring = ring;
    else
        cgm_ring_unmap(&ring);
    return status;
}

void cgm_ring_unmap(struct cgm_ring *ring)
{
    if (ring->header)
        munmap(ring->header, ring->bytes);
    memset(ring, 0, sizeof(*ring));
}

#define HEAD_WORDS (offsetof(struct cgm_entry, reserved) / 8)
#define ENTRY_WORDS (sizeof(struct cgm_entry) / 8)

/* Fields of any type are copied by it. */
typedef uint64_t word __attribute__((may_alias));

static void load_words(const struct cgm_entry *entry, size_t first, size_t end,
                       struct cgm_entry *ret_entry)
{
    const volatile word *from = (const volatile word *)entry;
    word *to = (word *)ret_entry;
    for (size_t i = first; i < end; i++)
        to[i] = from[i];
}

void cgm_ring_load_entry(const struct cgm_ring *ring, uint32_t slot, int whole,
                         struct cgm_entry *ret_entry)
{
    load_words(&ring->entry[slot], 0, whole ? ENTRY_WORDS : HEAD_WORDS, ret_entry);
}

void cgm_ring_load_rest(const struct cgm_ring *ring, uint32_t slot, struct cgm_entry *ret_entry)
{
    load_words(&ring->entry[slot], HEAD_WORDS, ENTRY_WORDS, ret_entry);
}

void cgm_ring_set_done(struct cgm_ring *ring, uint32_t slot, uint64_t ticket, int32_t status)
{
    atomic_store_explicit(&ring->done[slot].status, status, memory_order_relaxed);
    atomic_store_explicit(&ring->done[slot].ticket, ticket, memory_order_release);
}

int cgm_ring_done(const struct cgm_ring *ring, uint32_t slot, uint64_t ticket, int32_t *ret_status)
{
    /* Pairs with the release in cgm_ring_set_done. */
    if (atomic_load_explicit(&ring->done[slot].ticket, memory_order_acquire) < ticket)
        return 0;
    *ret_status = atomic_load_explicit(&ring->done[slot].status, memory_order_relaxed);
    return 1;
}

bool cgm_ring_complete(struct cgm_ring *ring, uint32_t slot, uint64_t ticket, int32_t status)
{
    int32_t ended;
    if (atomic_load_explicit(&ring->header->dead, memory_order_relaxed) ||
        cgm_ring_done(ring, slot, ticket, &ended))
        return false;
    cgm_ring_set_done(ring, slot, ticket, status);
    return true;
}

int32_t cgm_ring_end(struct cgm_ring *ring, uint32_t slot, uint64_t ticket, int32_t status)
{
    int32_t ended;
    if (cgm_ring_done(ring, slot, ticket, &ended))
        return ended;
    cgm_ring_set_done(ring, slot, ticket, status);
    return status;
}

/* ---- all entries ------------------------------------------------------------------------------
 */

/* Whether a page of the file holds anything. Read through the file a page in swap comes back, and a
 * hole stays one. lseek() could tell both apart, but it takes the file's lock, and on some systems
 * the client, who has the file too, can keep that. */
static bool is_written(int fd, off_t at)
{
    uint64_t page[PAGE / sizeof(uint64_t)];
    ssize_t n = pread(fd, page, sizeof(page), at);
    for (size_t i = 0; n == (ssize_t)sizeof(page) && i < PAGE / sizeof(uint64_t); i++)
        if (page[i] != 0)
            return true;
    return false;
}

/* Whether there are more pages than these: the system counts those in swap, too. */
static bool has_more_pages(int fd, const unsigned char *there, size_t n_pages)
{
    struct stat st;
    int64_t more = fstat(fd, &st) == 0 ? (int64_t)st.st_blocks * BLOCK / PAGE : INT64_MAX;
    for (size_t i = 0; i < n_pages; i++)
        more -= there[i] & 1;
    return more > 0;
}

/* A page that nobody has written is not there, and reading it in the mapping would make it. Of one
 * that lies in swap mincore() says the same. */
static void find_pages(const struct cgm_ring *ring, int fd, unsigned char *ret_there)
{
    const char *base = (const char *)ring->header;
    size_t bytes = (size_t)((const char *)ring->phase - base);
    if (sysconf(_SC_PAGESIZE) != PAGE || mincore(ring->header, bytes, ret_there) != 0)
        memset(ret_there, 0, bytes / PAGE);
    if (!has_more_pages(fd, ret_there, bytes / PAGE))
        return;
    for (size_t at = (size_t)((const char *)ring->entry - base);
         at < (size_t)((const char *)ring->ready - base); at += PAGE)
        ret_there[at / PAGE] = ret_there[at / PAGE] & 1 || is_written(fd, (off_t)at);
}

/* False: none was written, or somebody is writing one. Its writer takes the ticket away first and
 * puts the new one there last. */
static bool load_stable(const struct cgm_ring *ring, uint32_t slot, struct cgm_entry *ret_entry)
{
    const _Atomic uint64_t *ticket = &ring->entry[slot].ticket;
    uint64_t before = atomic_load_explicit(ticket, memory_order_acquire);
    if (before == 0)
        return false;
    cgm_ring_load_entry(ring, slot, 0, ret_entry);
    if (ret_entry->comm_number)
        cgm_ring_load_rest(ring, slot, ret_entry);
    atomic_thread_fence(memory_order_acquire);
    return atomic_load_explicit(ticket, memory_order_relaxed) == before &&
           ret_entry->ticket == before;
}

void cgm_ring_each_entry(const struct cgm_ring *ring, int fd,
                         void (*visit)(void *context, uint32_t slot, const struct cgm_entry *entry),
                         void *context)
{
    unsigned char there[PAGES_MAX];
    struct cgm_entry entry;
    const unsigned char *entry_there =
        there + ((const char *)ring->entry - (const char *)ring->header) / PAGE;
    find_pages(ring, fd, there);
    for (uint32_t slot = 0; slot < ring->entries; slot++)
        if (entry_there[slot * sizeof(entry) / PAGE] & 1 && load_stable(ring, slot, &entry))
            visit(context, slot, &entry);
}

struct ending {
    struct cgm_ring *ring;
    int32_t status;
    uint64_t comm, number; /* of which job; number 0: of all */
};

static void end_entry(void *context, uint32_t slot, const struct cgm_entry *entry)
{
    const struct ending *ending = context;
    if (!ending->number || (entry->comm_number == ending->number && entry->comm == ending->comm))
        cgm_ring_end(ending->ring, slot, entry->ticket, ending->status);
}

void cgm_ring_end_well(struct cgm_ring *ring, int fd, uint64_t comm, uint64_t number)
{
    struct ending ending = {ring, CGM_OK, comm, number};
    cgm_ring_each_entry(ring, fd, end_entry, &ending);
}

void cgm_ring_declare_dead(struct cgm_ring *ring, int32_t status)
{
    int32_t alive = 0;
    atomic_compare_exchange_strong(&ring->header->dead, &alive, status);
}

void cgm_ring_kill(struct cgm_ring *ring, int fd, int32_t status)
{
    struct ending ending = {.ring = ring, .status = status};
    cgm_ring_declare_dead(ring, status);
    /* Pairs with the fence in the library's submit: either this scan sees the new entry's ticket,
     * or the submitter sees `dead` and ends the job itself. */
    atomic_thread_fence(memory_order_seq_cst);
    cgm_ring_each_entry(ring, fd, end_entry, &ending);
}
