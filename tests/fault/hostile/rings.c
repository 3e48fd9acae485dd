/* Attacks through shared memory: rings, entries, slots. */
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "proto/types.h"
#include "tests/fault/hostile/hostile.h"

#define SUBMISSIONS 400
#define MEMORY_BYTES 65536u

/* A session with a ring, two buffers and a plan of its own. */
struct victim {
    struct line line;
    struct cgm_ring ring;
    int wake_fd;
    uint64_t plan, buffers[3];
    uint32_t tail;
    uint64_t ticket;
};

static uint64_t get_plan(struct hostile *hostile, struct line *line)
{
    uint64_t comm = 0, plan = 0;
    uint32_t rank = 0;
    Cgm__CommCreate create = CGM__COMM_CREATE__INIT;
    Cgm__CommJoin join = CGM__COMM_JOIN__INIT;
    Cgm__PlanCreate wish = CGM__PLAN_CREATE__INIT;
    create.size = 1;
    line_send(hostile, line, CGM_MSG_COMM_CREATE, &create.base, NULL, 0);
    ProtobufCMessage *reply = line_reply(hostile, line, CGM_MSG_COMM_REPLY, NULL, NULL);
    if (reply)
        comm = ((Cgm__CommReply *)reply)->id;
    cgm_message_free(reply);
    join.has_id = 1;
    join.id = comm;
    join.n_ranks = 1;
    join.ranks = &rank;
    line_send(hostile, line, CGM_MSG_COMM_JOIN, &join.base, NULL, 0);
    cgm_message_free(line_reply(hostile, line, CGM_MSG_COMM_REPLY, NULL, NULL));
    wish.comm = comm;
    wish.op = chance(2) ? CGM_OP_GEMM : CGM_OP_AG_GEMM;
    wish.m = wish.n = wish.k = 16;
    line_send(hostile, line, CGM_MSG_PLAN_CREATE, &wish.base, NULL, 0);
    reply = line_reply(hostile, line, CGM_MSG_PLAN_REPLY, NULL, NULL);
    if (reply)
        plan = ((Cgm__PlanReply *)reply)->id;
    cgm_message_free(reply);
    return plan;
}

static uint64_t get_buffer(struct hostile *hostile, struct line *line)
{
    uint64_t id = 0;
    Cgm__BufferCreate create = CGM__BUFFER_CREATE__INIT;
    create.bytes = MEMORY_BYTES;
    line_send(hostile, line, CGM_MSG_BUFFER_CREATE, &create.base, NULL, 0);
    ProtobufCMessage *reply = line_reply(hostile, line, CGM_MSG_BUFFER_REPLY, NULL, NULL);
    if (reply)
        id = ((Cgm__BufferReply *)reply)->id;
    cgm_message_free(reply);
    return id;
}

static bool victim_open(struct hostile *hostile, struct victim *victim)
{
    int fds[CGM_PACKET_FDS_MAX];
    unsigned n_fds = 0;
    Cgm__RingSetup setup = CGM__RING_SETUP__INIT;
    memset(victim, 0, sizeof(*victim));
    victim->wake_fd = -1;
    if (!line_open(hostile, &victim->line))
        return false;
    setup.entries = 1u << (1 + chance(10));
    line_send(hostile, &victim->line, CGM_MSG_RING_SETUP, &setup.base, NULL, 0);
    cgm_message_free(line_reply(hostile, &victim->line, CGM_MSG_RING, fds, &n_fds));
    if (n_fds == 3 && cgm_ring_join(fds[0], setup.entries, &victim->ring) == 0)
        victim->wake_fd = dup(fds[1]);
    while (n_fds > 0)
        close(fds[--n_fds]);
    if (victim->wake_fd >= 0) {
        victim->plan = get_plan(hostile, &victim->line);
        for (int i = 0; i < 3; i++)
            victim->buffers[i] = get_buffer(hostile, &victim->line);
        return true;
    }
    line_close(&victim->line);
    return false;
}

static void victim_close(struct victim *victim)
{
    cgm_ring_unmap(&victim->ring);
    close(victim->wake_fd);
    line_close(&victim->line);
}

static void wake(const struct victim *victim)
{
    uint64_t most = chance(16) ? 1 : 0xfffffffffffffffeu;
    if (chance(3) == 0) /* makes the writes of others fail, were they blocking they would hang */
        most = 1;
    if (atomic_exchange(&victim->ring.header->sq_need_wakeup, 0) || chance(50) == 0)
        (void)!write(victim->wake_fd, &most, sizeof(most));
}

/* A job that would be right. */
static void fill(const struct victim *victim, struct cgm_entry *entry)
{
    static const int operands[] = {CGM_OPERAND_LHS, CGM_OPERAND_RHS, CGM_OPERAND_OUT};
    memset(entry, 0, sizeof(*entry));
    entry->ticket = victim->ticket;
    entry->opcode = CGM_OPCODE_RUN;
    entry->plan = victim->plan;
    entry->rows = 16;
    for (int i = 0; i < 3; i++)
        entry->operand[operands[i]] =
            (struct cgm_operand){.id = victim->buffers[i], .generation = 1};
}

/* Some of its words are something else. */
static void spoil(struct hostile *hostile, struct cgm_entry *entry)
{
    uint64_t words[sizeof(*entry) / 8];
    memcpy(words, entry, sizeof(words));
    for (uint64_t n = chance(4); n > 0; n--)
        words[1 + chance(sizeof(words) / 8 - 1)] = odd_number(hostile);
    if (chance(3) == 0) /* where most of the arithmetic is */
        entry->operand[chance(CGM_OPERAND_COUNT)].offset_bytes = odd_number(hostile);
    memcpy(entry, words, sizeof(words));
    struct cgm_operand *operand = &entry->operand[chance(CGM_OPERAND_COUNT)];
    if (chance(2))
        *operand = (struct cgm_operand){.id = chance(4) ? odd_number(hostile) : 0,
                                        .generation = (uint32_t)odd_number(hostile),
                                        .offset_bytes = odd_number(hostile),
                                        .row_stride_bytes = odd_number(hostile)};
}

static void push(struct victim *victim, const struct cgm_entry *entry)
{
    struct cgm_ring *ring = &victim->ring;
    uint32_t slot = victim->tail & ring->mask;
    memcpy(&ring->entry[slot], entry, sizeof(*entry));
    atomic_store_explicit(&ring->sq[slot], slot, memory_order_relaxed);
    atomic_store(&ring->ready[slot], chance(16) ? entry->ticket : 0);
    atomic_store(&ring->header->sq_tail, ++victim->tail);
    wake(victim);
}

/* Reaps what there is, whatever it says; waits a little when the ring is full. */
static bool make_room(struct victim *victim)
{
    struct cgm_ring_header *header = victim->ring.header;
    for (int naps = 0; naps < 50; naps++) {
        uint32_t done = atomic_load(&header->cq_tail);
        atomic_store(&header->cq_head, done);
        if (victim->tail - done < victim->ring.entries)
            return true;
        wake(victim);
        usleep(100);
    }
    return false;
}

/* Jobs with odd operands, rows, plans, flags: one after the other, tickets in order. */
void attack_entries(struct hostile *hostile)
{
    struct victim victim;
    struct cgm_entry entry;
    if (!victim_open(hostile, &victim))
        return;
    for (int i = 0; i < SUBMISSIONS && make_room(&victim); i++) {
        victim.ticket++;
        fill(&victim, &entry);
        if (chance(4))
            spoil(hostile, &entry);
        entry.ticket = victim.ticket;
        push(&victim, &entry);
    }
    victim_close(&victim);
}

/* Indices that jump, slots that are not there, tickets that repeat, a header of noise. */
void attack_rings(struct hostile *hostile)
{
    struct victim victim;
    struct cgm_entry entry;
    if (!victim_open(hostile, &victim))
        return;
    struct cgm_ring *ring = &victim.ring;
    for (int i = (int)chance(20); i > 0 && make_room(&victim); i--) {
        victim.ticket++;
        fill(&victim, &entry);
        push(&victim, &entry);
    }
    switch (chance(7)) {
    case 0:
        atomic_store(&ring->header->sq_tail, (uint32_t)odd_number(hostile));
        break;
    case 1:
        atomic_store(&ring->header->cq_head, (uint32_t)odd_number(hostile));
        break;
    case 2:
        atomic_store(&ring->sq[chance(ring->entries)], (uint32_t)odd_number(hostile));
        atomic_fetch_add(&ring->header->sq_tail, ring->entries);
        break;
    case 3:
        victim.ticket = odd_number(hostile);
        fill(&victim, &entry);
        push(&victim, &entry);
        break;
    case 4:
        for (size_t at = 0; at < sizeof(*ring->header); at++)
            ((volatile uint8_t *)ring->header)[at] = (uint8_t)chance(256);
        break;
    case 5:
        atomic_store(&ring->header->cq_tail, (uint32_t)odd_number(hostile));
        atomic_store(&ring->header->sq_head, (uint32_t)odd_number(hostile));
        break;
    default: /* backwards */
        atomic_fetch_sub(&ring->header->sq_tail, 1 + (uint32_t)chance(4));
    }
    wake(&victim);
    usleep(2000);
    victim_close(&victim);
}

struct scribbler {
    struct hostile hostile; /* its own: another thread */
    struct victim *victim;
    _Atomic bool stop;
};

/* Everything behind the header, again and again, while jobs run. */
static void *scribble(void *argument)
{
    struct scribbler *scribbler = argument;
    struct cgm_ring *ring = &scribbler->victim->ring;
    uint64_t noise = 88172645463325252u;
    while (!atomic_load(&scribbler->stop)) {
        noise ^= noise << 13;
        noise ^= noise >> 7;
        noise ^= noise << 17;
        uint32_t slot = (uint32_t)noise & ring->mask;
        volatile uint64_t *words = (volatile uint64_t *)&ring->entry[slot];
        /* All but the ticket, which would end it: the operands change under the copy. */
        words[1 + noise % (sizeof(struct cgm_entry) / 8 - 1)] = noise >> 20;
        atomic_store(&ring->done[slot].ticket, noise);
        atomic_store(&ring->done[slot].status, (int32_t)noise);
        atomic_store(&ring->ready[slot], noise);
        ((volatile uint64_t *)&ring->cq[slot])[noise % (sizeof(struct cgm_cqe) / 8)] = noise;
        atomic_store(&ring->header->cq_need_wakeup, 1);
    }
    return NULL;
}

/* Entries that change while they are read, slots that are overwritten. */
void attack_scribble(struct hostile *hostile)
{
    struct victim victim;
    struct cgm_entry entry;
    struct scribbler scribbler = {.victim = &victim};
    pthread_t thread;
    if (!victim_open(hostile, &victim))
        return;
    bool threaded = pthread_create(&thread, NULL, scribble, &scribbler) == 0;
    for (int i = 0; i < SUBMISSIONS && make_room(&victim); i++) {
        victim.ticket++;
        fill(&victim, &entry);
        push(&victim, &entry);
    }
    atomic_store(&scribbler.stop, true);
    if (threaded)
        pthread_join(thread, NULL);
    victim_close(&victim);
}
