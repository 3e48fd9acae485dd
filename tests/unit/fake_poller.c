#include "tests/unit/fake_poller.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "proto/status.h"
#include "tests/unit/fake_broker.h"

void fake_failed(const char *file, int line)
{
    fprintf(stderr, "%s:%d: a call of the fake broker failed\n", file, line);
    abort();
}

static uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static void complain(struct fake_poller *poller, const char *what)
{
    pthread_mutex_lock(&poller->lock);
    snprintf(poller->complaint, sizeof(poller->complaint), "%s", what);
    pthread_mutex_unlock(&poller->lock);
}

static void fill_phases(struct fake_poller *poller, uint32_t slot)
{
    struct cgm_phase *phase = poller->ring.phase + (size_t)slot * CGM_PHASES_PER_JOB;
    for (uint32_t i = 0; i < FAKE_PHASES; i++)
        phase[i] = (struct cgm_phase){.begin_ns = i, .end_ns = 2 * i + 1, .kind = 1, .chunk = i};
}

static void send_byte(struct fake_poller *poller)
{
    atomic_thread_fence(memory_order_seq_cst);
    if (atomic_load_explicit(&poller->ring.header->cq_need_wakeup, memory_order_relaxed) &&
        atomic_exchange(&poller->ring.header->cq_need_wakeup, 0))
        send(poller->executor_end, "", 1, MSG_DONTWAIT | MSG_NOSIGNAL);
}

static void push_cqe(struct fake_poller *poller, const struct cgm_cqe *cqe)
{
    struct cgm_ring *ring = &poller->ring;
    memcpy(&ring->cq[poller->cq_tail & ring->mask], cqe,
           cqe->status ? sizeof(*cqe) : offsetof(struct cgm_cqe, detail));
    atomic_store_explicit(&ring->header->cq_tail, ++poller->cq_tail, memory_order_release);
    send_byte(poller);
}

static void end_job(struct fake_poller *poller, uint32_t slot, int status)
{
    struct cgm_entry entry;
    cgm_ring_load_entry(&poller->ring, slot, 0, &entry);
    struct cgm_cqe cqe = {.ticket = entry.ticket, .slot = slot, .comm_number = entry.comm_number};
    cqe.status = status;
    if (entry.flags & CGM_ENTRY_WANT_PHASES) {
        fill_phases(poller, slot);
        cqe.n_phases = FAKE_PHASES;
    }
    cqe.running_ns = 7;
    if (entry.rows == FAKE_FAIL_ROWS) {
        cqe.status = CGM_MISMATCH;
        snprintf(cqe.detail, sizeof(cqe.detail), "rows are %u", FAKE_FAIL_ROWS);
    }
    cgm_ring_set_done(&poller->ring, slot, entry.ticket, cqe.status);
    push_cqe(poller, &cqe);
    atomic_fetch_add(&poller->jobs, 1);
}

static void keep(struct fake_poller *poller, const struct cgm_entry *entry, uint32_t slot)
{
    pthread_mutex_lock(&poller->lock);
    poller->last_entry = *entry;
    cgm_ring_load_entry(&poller->ring, slot, 1, &poller->last_entry);
    pthread_mutex_unlock(&poller->lock);
}

static bool is_ready(struct fake_poller *poller, const struct cgm_entry *entry, uint32_t slot)
{
    uint64_t ready = atomic_load_explicit(&poller->ring.ready[slot], memory_order_acquire);
    if (ready > entry->ticket)
        complain(poller, "ready is ahead of the ticket");
    return ready == entry->ticket;
}

/* A noop is the fast path: nothing is kept of it. */
static void accept_entry(struct fake_poller *poller, uint32_t slot)
{
    struct cgm_entry entry;
    if (slot >= poller->ring.entries) {
        complain(poller, "slot out of range");
        return;
    }
    cgm_ring_load_entry(&poller->ring, slot, 0, &entry);
    if (entry.ticket != poller->last_ticket + 1)
        complain(poller, "ticket is not the last one plus 1");
    poller->last_ticket = entry.ticket;
    if (entry.opcode != CGM_OPCODE_NOOP)
        keep(poller, &entry, slot);
    if (!is_ready(poller, &entry, slot) || entry.deadline_ms == FAKE_HOLD_MS ||
        (poller->shuffle && rand_r(&poller->seed) % 2))
        poller->held[poller->n_held++] = slot;
    else
        end_job(poller, slot, CGM_OK);
}

static bool accept_all(struct fake_poller *poller)
{
    struct cgm_ring *ring = &poller->ring;
    uint32_t tail = atomic_load_explicit(&ring->header->sq_tail, memory_order_acquire);
    bool any = tail != poller->sq_head;
    if (tail - poller->sq_head > ring->entries)
        complain(poller, "sq overflow");
    while (poller->sq_head != tail) {
        uint32_t slot =
            atomic_load_explicit(&ring->sq[poller->sq_head & ring->mask], memory_order_relaxed);
        poller->sq_head++;
        accept_entry(poller, slot);
    }
    if (any)
        atomic_store_explicit(&ring->header->sq_head, poller->sq_head, memory_order_release);
    return any;
}

static void end_held(struct fake_poller *poller, uint32_t i, int status)
{
    uint32_t slot = poller->held[i];
    poller->held[i] = poller->held[--poller->n_held];
    end_job(poller, slot, status);
}

/* Ends what the test holds when it lets go, what a stream was awaited for when that has come, and
 * what is cancelled. Returns how many still wait for their streams. */
static uint32_t end_some(struct fake_poller *poller)
{
    bool release = atomic_exchange(&poller->release, false);
    uint64_t cancel = atomic_load(&poller->cancel);
    uint32_t waiting = 0;
    for (uint32_t i = poller->n_held; i-- > 0;) {
        struct cgm_entry entry;
        cgm_ring_load_entry(&poller->ring, poller->held[i], 0, &entry);
        if (entry.ticket == cancel)
            end_held(poller, i, CGM_CANCELLED);
        else if (!is_ready(poller, &entry, poller->held[i]))
            waiting++;
        else if (release || (entry.deadline_ms != FAKE_HOLD_MS &&
                             (!poller->shuffle || rand_r(&poller->seed) % 2)))
            end_held(poller, i, CGM_OK);
    }
    if (cancel)
        atomic_store(&poller->cancel, 0);
    return waiting;
}

static void sleep_until_woken(struct fake_poller *poller)
{
    struct cgm_ring_header *header = poller->ring.header;
    struct pollfd wake = {.fd = poller->wake_fd, .events = POLLIN};
    uint64_t count;
    atomic_store_explicit(&header->sq_need_wakeup, 1, memory_order_relaxed);
    atomic_thread_fence(memory_order_seq_cst);
    if (atomic_load_explicit(&header->sq_tail, memory_order_relaxed) == poller->sq_head &&
        !poller->stop && !poller->release && !poller->cancel &&
        !(poller->shuffle && poller->n_held) && poll(&wake, 1, 1000) == 1 &&
        read(poller->wake_fd, &count, sizeof(count)) < 0)
        complain(poller, "wake eventfd");
    atomic_store(&header->sq_need_wakeup, 0);
}

static void *poller_main(void *argument)
{
    struct fake_poller *poller = argument;
    uint64_t idle_since = now_ns();
    while (!atomic_load_explicit(&poller->stop, memory_order_relaxed)) {
        bool any = accept_all(poller);
        if (end_some(poller) > 0 || any)
            idle_since = now_ns();
        else if (now_ns() - idle_since > poller->spin_ns)
            sleep_until_woken(poller);
    }
    return NULL;
}

void fake_poller_start(struct fake_poller *poller, uint32_t entries, uint64_t life,
                       uint64_t spin_ns, bool shuffle)
{
    int pair[2];
    memset(poller, 0, sizeof(*poller));
    poller->life = life;
    poller->spin_ns = spin_ns;
    poller->shuffle = shuffle;
    poller->seed = (unsigned)rand();
    poller->held = calloc(entries, sizeof(uint32_t));
    pthread_mutex_init(&poller->lock, NULL);
    must(cgm_ring_create(entries, 1, life, &poller->ring_fd) == CGM_OK);
    must(cgm_ring_map(poller->ring_fd, entries, &poller->ring) == CGM_OK);
    poller->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    must(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) == 0);
    poller->client_end = pair[0];
    poller->executor_end = pair[1];
    must(pthread_create(&poller->thread, NULL, poller_main, poller) == 0);
}

void fake_poller_stop(struct fake_poller *poller)
{
    static const uint64_t one = 1;
    atomic_store(&poller->stop, true);
    must(write(poller->wake_fd, &one, sizeof(one)) == sizeof(one));
    pthread_join(poller->thread, NULL);
    close(poller->executor_end);
}

void fake_poller_free(struct fake_poller *poller)
{
    close(poller->client_end);
    close(poller->wake_fd);
    close(poller->ring_fd);
    cgm_ring_unmap(&poller->ring);
    pthread_mutex_destroy(&poller->lock);
    free(poller->held);
}
