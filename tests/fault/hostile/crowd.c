/* Attacks within the rules: as many rings as a user may have, always full, and what lies there. */
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "tests/fault/hostile/hostile.h"

#define RINGS 128u
#define ENTRIES 128u
#define ROUND_S 0.5
#define WAITING_RINGS 12u
#define ASKERS 60u

/* A session with a ring. */
struct mouth {
    struct line line;
    struct cgm_ring ring;
    int wake_fd;
    uint32_t tail;
};

static double now_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static bool mouth_open(struct hostile *hostile, struct mouth *mouth, uint32_t entries)
{
    int fds[CGM_PACKET_FDS_MAX];
    unsigned n_fds = 0;
    Cgm__RingSetup setup = CGM__RING_SETUP__INIT;
    *mouth = (struct mouth){.wake_fd = -1};
    if (!line_open(hostile, &mouth->line))
        return false;
    setup.entries = entries;
    line_send(hostile, &mouth->line, CGM_MSG_RING_SETUP, &setup.base, NULL, 0);
    cgm_message_free(line_reply(hostile, &mouth->line, CGM_MSG_RING, fds, &n_fds));
    if (n_fds == 3 && cgm_ring_join(fds[0], entries, &mouth->ring) == 0)
        mouth->wake_fd = dup(fds[1]);
    while (n_fds > 0)
        close(fds[--n_fds]);
    if (mouth->wake_fd >= 0)
        return true;
    cgm_ring_unmap(&mouth->ring);
    line_close(&mouth->line);
    return false;
}

static void mouth_close(struct mouth *mouth)
{
    cgm_ring_unmap(&mouth->ring);
    close(mouth->wake_fd);
    line_close(&mouth->line);
}

/* As many as it gets. */
static unsigned open_all(struct hostile *hostile, struct mouth *mouths, unsigned most,
                         uint32_t entries)
{
    unsigned n = 0;
    while (n < most && mouth_open(hostile, &mouths[n], entries))
        n++;
    return n;
}

static void close_all(struct mouth *mouths, unsigned n)
{
    while (n > 0)
        mouth_close(&mouths[--n]);
}

/* Reaps what there is, and fills the ring; the streams of noops do not come. */
static void fill(struct mouth *mouth, uint32_t opcode)
{
    struct cgm_ring_header *header = mouth->ring.header;
    uint32_t done = atomic_load(&header->cq_tail);
    uint64_t one = 1;
    atomic_store(&header->cq_head, done);
    for (; mouth->tail - done < mouth->ring.entries; mouth->tail++) {
        uint32_t slot = mouth->tail & mouth->ring.mask;
        mouth->ring.entry[slot] =
            (struct cgm_entry){.ticket = mouth->tail + 1ull, .opcode = opcode, .plan = UINT64_MAX};
        atomic_store_explicit(&mouth->ring.sq[slot], slot, memory_order_relaxed);
    }
    atomic_store(&header->sq_tail, mouth->tail);
    if (atomic_exchange(&header->sq_need_wakeup, 0))
        (void)!write(mouth->wake_fd, &one, sizeof(one));
}

/* Many rings, full of what is refused. */
void attack_feed(struct hostile *hostile)
{
    static struct mouth mouths[RINGS];
    unsigned n = open_all(hostile, mouths, RINGS, ENTRIES);
    uint64_t one = 1;
    for (unsigned i = 0; i < n; i++) /* they begin */
        (void)!write(mouths[i].wake_fd, &one, sizeof(one));
    for (double end = now_s() + ROUND_S; now_s() < end;)
        for (unsigned i = 0; i < n; i++)
            fill(&mouths[i], CGM_OPCODE_RUN);
    close_all(mouths, n);
}

/* Many jobs that wait, and their listing for all who ask. */
void attack_listings(struct hostile *hostile)
{
    static struct mouth mouths[WAITING_RINGS];
    static struct line askers[ASKERS];
    Cgm__Query query = CGM__QUERY__INIT;
    unsigned n = open_all(hostile, mouths, WAITING_RINGS, CGM_RING_ENTRIES_MAX), n_askers = 0;
    uint64_t one = 1;
    query.what = CGM_QUERY_JOBS;
    for (unsigned i = 0; i < n; i++) {
        fill(&mouths[i], CGM_OPCODE_NOOP);
        (void)!write(mouths[i].wake_fd, &one, sizeof(one));
    }
    while (n_askers < ASKERS && line_open(hostile, &askers[n_askers]))
        n_askers++;
    for (double end = now_s() + ROUND_S; now_s() < end; usleep(1000))
        for (unsigned i = 0; i < n_askers; i++)
            if (askers[i].fd >= 0 &&
                !(line_send(hostile, &askers[i], CGM_MSG_QUERY, &query.base, NULL, 0) &&
                  line_drain(hostile, &askers[i], NULL, NULL)))
                line_close(&askers[i]);
    while (n_askers > 0)
        line_close(&askers[--n_askers]);
    close_all(mouths, n);
}
