#include "client/lib/lane.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client/lib/error.h"
#include "client/lib/plans.h"

static void slots_init(struct cgm_lane *lane)
{
    for (uint32_t i = 0; i < lane->entries; i++) {
        lane->slots[i].index = i;
        lane->slots[i].lane = lane;
        lane->free[i] = lane->entries - 1 - i;
    }
    lane->n_free = lane->entries;
}

static struct cgm_lane *lane_alloc(uint32_t entries)
{
    struct cgm_lane *lane = calloc(1, sizeof(*lane));
    if (!lane)
        return NULL;
    lane->entries = entries;
    lane->is_fresh = true;
    lane->wake_fd = lane->notify_fd = -1;
    lane->slots = calloc(entries, sizeof(*lane->slots));
    lane->free = calloc(entries, sizeof(*lane->free));
    lane->late = calloc(entries, sizeof(*lane->late));
    if (lane->slots && lane->free && lane->late) {
        slots_init(lane);
        return lane;
    }
    cgm_lane_free(lane);
    return NULL;
}

/* Writing to it neither waits nor raises a signal. */
static bool is_wake(int fd)
{
    struct stat st;
    int flags = fcntl(fd, F_GETFL);
    return flags >= 0 && flags & O_NONBLOCK && fstat(fd, &st) == 0 && !S_ISFIFO(st.st_mode) &&
           !S_ISSOCK(st.st_mode);
}

static int lane_take_fds(struct cgm_lane *lane, const int fds[3])
{
    struct stat st;
    if (!is_wake(fds[1]) || fstat(fds[2], &st) < 0 || !S_ISSOCK(st.st_mode))
        return CGM_BAD_MESSAGE;
    int status = cgm_ring_join(fds[0], lane->entries, &lane->ring);
    if (status != CGM_OK)
        return status;
    close(fds[0]);
    lane->wake_fd = fds[1];
    lane->notify_fd = fds[2];
    return CGM_OK;
}

int cgm_lane_new(uint32_t entries, uint64_t life, const int fds[3], struct cgm_lane **ret_lane)
{
    struct cgm_lane *lane = lane_alloc(entries);
    if (!lane)
        return cgm_fail_plain(CGM_NO_MEMORY);
    lane->life = life;
    int status = fds ? lane_take_fds(lane, fds) : CGM_OK;
    if (status != CGM_OK) {
        cgm_lane_free(lane);
        return cgm_fail(status, "the daemon's ring of %u entries could not be mapped", entries);
    }
    *ret_lane = lane;
    return CGM_OK;
}

void cgm_lane_free(struct cgm_lane *lane)
{
    if (lane->notify_fd >= 0)
        close(lane->notify_fd);
    if (lane->wake_fd >= 0)
        close(lane->wake_fd);
    for (uint32_t i = 0; lane->slots && i < lane->entries; i++)
        free(lane->slots[i].phases);
    cgm_ring_unmap(&lane->ring);
    free(lane->slots);
    free(lane->free);
    free(lane->late);
    free(lane);
}

/* True while a stream may still write the ready word of the ticket that the slot has, or had. */
static bool awaits_stream(const struct cgm_slot *slot)
{
    const struct cgm_ring *ring = &slot->lane->ring;
    return slot->on_stream && atomic_load_explicit(&ring->ready[slot->index],
                                                   memory_order_acquire) < slot->entry_ticket;
}

static void slot_free(struct cgm_slot *slot)
{
    slot->entry_ticket = 0;
    slot->on_stream = false;
    atomic_store_explicit(&slot->state, CGM_SLOT_FREE, memory_order_relaxed);
    slot->lane->free[slot->lane->n_free++] = slot->index;
}

bool cgm_lane_has_room(struct cgm_lane *lane)
{
    for (uint32_t i = 0; lane->n_free == 0 && i < lane->n_late;) {
        struct cgm_slot *slot = &lane->slots[lane->late[i]];
        if (awaits_stream(slot)) {
            i++;
            continue;
        }
        lane->late[i] = lane->late[--lane->n_late];
        slot_free(slot);
    }
    return lane->n_free > 0;
}

/* A free slot means room in sq too, whatever sq_head says yet: the executor has read the sq slots
 * of all jobs that ended, and those of the others are fewer than the entries. */
struct cgm_slot *cgm_lane_take(struct cgm_lane *lane)
{
    if (!cgm_lane_has_room(lane))
        return NULL;
    struct cgm_slot *slot = &lane->slots[lane->free[--lane->n_free]];
    lane->outstanding++;
    atomic_store_explicit(&slot->state, CGM_SLOT_FLIGHT, memory_order_relaxed);
    return slot;
}

void cgm_lane_give(struct cgm_slot *slot)
{
    struct cgm_lane *lane = slot->lane;
    free(slot->phases);
    slot->phases = NULL;
    slot->plan = NULL;
    slot->ticket = 0;
    slot->waiters = 0;
    slot->detached = slot->submitting = false;
    lane->outstanding--;
    if (!awaits_stream(slot)) {
        slot_free(slot);
        return;
    }
    atomic_store_explicit(&slot->state, CGM_SLOT_LATE, memory_order_relaxed);
    lane->late[lane->n_late++] = slot->index;
}

void cgm_lane_push(struct cgm_lane *lane, const struct cgm_slot *slot)
{
    struct cgm_ring *ring = &lane->ring;
    static const uint64_t one = 1;
    _Atomic uint32_t *place = &ring->sq[lane->sq_tail & ring->mask];
    /* A steady load reuses its slots in turn: what is there already need not change hands. */
    if (atomic_load_explicit(place, memory_order_relaxed) != slot->index)
        atomic_store_explicit(place, slot->index, memory_order_relaxed);
    /* Publishes entry, ready and sq slot; pairs with the poller's acquire of sq_tail. */
    atomic_store_explicit(&ring->header->sq_tail, ++lane->sq_tail, memory_order_release);
    /* Pairs with the poller's fence between setting sq_need_wakeup and its last look at sq_tail,
     * and with the fence in cgm_ring_kill: one of the two sides sees what the other one stored. */
    atomic_thread_fence(memory_order_seq_cst);
    if (atomic_load_explicit(&ring->header->sq_need_wakeup, memory_order_relaxed) &&
        atomic_exchange(&ring->header->sq_need_wakeup, 0))
        while (write(lane->wake_fd, &one, sizeof(one)) < 0 && errno == EINTR)
            ;
}

/* What somebody else wrote where a status belongs: none is positive. */
static int status_of(int32_t written)
{
    return written <= 0 ? written : CGM_BAD_MESSAGE;
}

int cgm_lane_dead(const struct cgm_lane *lane)
{
    if (!lane->ring.header)
        return CGM_OK;
    return status_of(atomic_load_explicit(&lane->ring.header->dead, memory_order_acquire));
}

bool cgm_lane_has_news(const struct cgm_lane *lane)
{
    /* The shared cq_head is this side's own; here it is a hint, and read without the lock. */
    const struct cgm_ring_header *header = lane->ring.header;
    return atomic_load_explicit(&header->cq_tail, memory_order_relaxed) !=
           atomic_load_explicit(&header->cq_head, memory_order_relaxed);
}

/* Fields of any type are copied by it. */
typedef uint64_t word __attribute__((may_alias));

/* Each word is loaded once, whatever the other side does to it meanwhile. */
static void copy_words(void *to, const void *from, size_t bytes)
{
    const volatile word *source = from;
    word *target = to;
    for (size_t i = 0; i < bytes / sizeof(word); i++)
        target[i] = source[i];
}

/* The detail travels only with a failure: a success costs one cache line. */
static void load_cqe(const struct cgm_cqe *from, struct cgm_cqe *ret_cqe)
{
    copy_words(ret_cqe, from, offsetof(struct cgm_cqe, detail));
    ret_cqe->detail[0] = '\0';
    if (ret_cqe->status != CGM_OK)
        copy_words(ret_cqe->detail, from->detail, CGM_CQE_DETAIL);
}
_Static_assert(offsetof(struct cgm_cqe, detail) % sizeof(uint64_t) == 0, "copied by words");

void cgm_slot_store_cqe(struct cgm_slot *slot, const struct cgm_cqe *cqe)
{
    slot->cqe = *cqe;
    slot->cqe.status = status_of(cqe->status);
    slot->cqe.detail[CGM_CQE_DETAIL - 1] = '\0';
    if (cqe->n_phases > CGM_PHASES_PER_JOB)
        slot->cqe.n_phases = CGM_PHASES_PER_JOB;
}

struct cgm_slot *cgm_lane_next(struct cgm_lane *lane)
{
    struct cgm_ring *ring = &lane->ring;
    uint32_t tail = atomic_load_explicit(&ring->header->cq_tail, memory_order_acquire);
    if (tail - lane->cq_head > lane->entries)
        cgm_ring_declare_dead(ring, CGM_BAD_MESSAGE);
    while (tail != lane->cq_head && tail - lane->cq_head <= lane->entries) {
        struct cgm_cqe cqe;
        load_cqe(&ring->cq[lane->cq_head & ring->mask], &cqe);
        /* The place is the executor's again; pairs with its acquire of cq_head. */
        atomic_store_explicit(&ring->header->cq_head, ++lane->cq_head, memory_order_release);
        if (cqe.slot >= lane->entries)
            continue;
        struct cgm_slot *slot = &lane->slots[cqe.slot];
        if (slot->entry_ticket != cqe.ticket || !cgm_slot_is_in_flight(slot))
            continue;
        cgm_slot_store_cqe(slot, &cqe);
        return slot;
    }
    return NULL;
}

bool cgm_lane_arm(struct cgm_lane *lane)
{
    struct cgm_ring_header *header = lane->ring.header;
    atomic_store_explicit(&header->cq_need_wakeup, 1, memory_order_relaxed);
    /* Pairs with the executor's fence between cq_tail and its look at cq_need_wakeup: either this
     * side sees the record, or the executor sees the flag and sends a byte. */
    atomic_thread_fence(memory_order_seq_cst);
    return atomic_load_explicit(&header->cq_tail, memory_order_relaxed) == lane->cq_head &&
           !cgm_lane_dead(lane);
}

void cgm_lane_disarm(struct cgm_lane *lane)
{
    atomic_store_explicit(&lane->ring.header->cq_need_wakeup, 0, memory_order_relaxed);
}

void cgm_lane_drain_notify(struct cgm_lane *lane)
{
    char bytes[256];
    ssize_t n;
    do
        n = recv(lane->notify_fd, bytes, sizeof(bytes), MSG_DONTWAIT);
    while (n == (ssize_t)sizeof(bytes) || (n < 0 && errno == EINTR));
    if (n == 0 || (n < 0 && errno != EAGAIN && errno != EWOULDBLOCK))
        lane->hung_up = true;
}

void cgm_slot_store_phases(struct cgm_slot *slot, const void *bytes, size_t size)
{
    size_t count = size / sizeof(struct cgm_phase);
    if (count > CGM_PHASES_PER_JOB)
        count = CGM_PHASES_PER_JOB;
    slot->phases = count ? malloc(count * sizeof(struct cgm_phase)) : NULL;
    if (slot->phases)
        memcpy(slot->phases, bytes, count * sizeof(struct cgm_phase));
    else
        count = 0;
    if (count < slot->cqe.n_phases)
        slot->cqe.phases_lost += slot->cqe.n_phases - (uint32_t)count;
    slot->cqe.n_phases = (uint16_t)count;
}

/* `detail` is of what was declared, and no reason of what the job had ended with before. */
static void tell_why(struct cgm_cqe *cqe, int declared, const char *detail)
{
    const char *why = detail && detail[0] ? detail : cgm_status_cause(declared);
    if (cqe->status == CGM_OK)
        return;
    if (cqe->status == declared)
        snprintf(cqe->detail, sizeof(cqe->detail), "%s", why);
    else
        snprintf(cqe->detail, sizeof(cqe->detail), "the job had ended with %s; why is lost: %s",
                 cgm_status_name(cqe->status), why);
}

void cgm_slot_abandon(struct cgm_slot *slot, int status, const char *detail)
{
    int32_t done = status;
    struct cgm_ring *ring = &slot->lane->ring;
    slot->cqe = (struct cgm_cqe){.ticket = slot->entry_ticket, .slot = slot->index};
    slot->cqe.algorithm = slot->plan ? (uint16_t)slot->plan->algorithm : 0;
    if (ring->header) /* whatever stream waits for it is released */
        done = cgm_ring_end(ring, slot->index, slot->entry_ticket, status);
    slot->cqe.status = status_of(done);
    slot->cqe.comm_number = slot->comm_number;
    tell_why(&slot->cqe, status, detail);
}
