/* The shared-memory layout of one session's ring and timeline: a sealed memfd that the broker
 * creates, and that client, executor and broker map. Everything in it can be overwritten by the
 * client at any time: the executor keeps its own copy of every size, copies an entry once with
 * cgm_ring_load_entry() and looks only at the copy.
 *
 * Who takes a page out of memory that others look at keeps them waiting, for as long as he likes.
 * So the client maps its ring, seals it against that, and only then, with its first wake-up,
 * executor and broker begin to look at it.
 *
 *   header | sq[entries] | cq[entries] | entry[entries] | ready[entries] | done[entries]
 *          | phase[entries][CGM_PHASES_PER_JOB]
 *
 * An entry index ("slot") names an entry, its ready and done words and its phases. The client takes
 * a free slot, fills entry[slot], and pushes the slot number on sq. The slot is free again when its
 * cq record was reaped. Indices are free-running 32-bit counters, masked on use. */
#ifndef CGM_RING_H
#define CGM_RING_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CGM_RING_MAGIC 0x474e5252544d4743ull /* "CGMTRRNG" in memory order */
#define CGM_RING_VERSION 1u
#define CGM_RING_ENTRIES_MIN 2u
/* How far one rank of a comm may be ahead of the slowest one, in its numbers. A power of two, above
 * the largest ring. */
#define CGM_COMM_WINDOW 8192u
#define CGM_RING_ENTRIES_MAX 4096u
#define CGM_RING_ENTRIES_DEFAULT 256u
#define CGM_PHASES_PER_JOB 256u
#define CGM_CACHE_LINE 64

/* X(index, SYMBOL, spelling): every operand of GemmFFI. */
#define CGM_OPERANDS(X)                                                                            \
    X(0, LHS, "lhs")                                                                               \
    X(1, RHS, "rhs")                                                                               \
    X(2, BIAS, "bias")                                                                             \
    X(3, GELU_INPUT, "gelu_input")                                                                 \
    X(4, AUX_IN, "aux_in")                                                                         \
    X(5, OUT, "out")                                                                               \
    X(6, BIAS_GRAD, "bias_grad")                                                                   \
    X(7, PRE_GELU_OUT, "pre_gelu_out")                                                             \
    X(8, AUX_OUT, "aux_out")                                                                       \
    X(9, LHS_SCALE, "lhs_scale")                                                                   \
    X(10, RHS_SCALE, "rhs_scale")                                                                  \
    X(11, OUT_SCALE, "out_scale")

enum cgm_operand_index {
#define X(index, SYMBOL, spelling) CGM_OPERAND_##SYMBOL = (index),
    CGM_OPERANDS(X)
#undef X
        CGM_OPERAND_COUNT = 12,
};
/* Operands that a job writes, as bits. */
#define CGM_OPERANDS_WRITTEN                                                                       \
    (1u << CGM_OPERAND_OUT | 1u << CGM_OPERAND_BIAS_GRAD | 1u << CGM_OPERAND_PRE_GELU_OUT |        \
     1u << CGM_OPERAND_AUX_OUT)

/* id 0: the operand is absent. row_stride 0: rows are contiguous. */
struct cgm_operand {
    uint64_t id;               /* of a buffer or an import */
    uint64_t offset_bytes;     /* of the first element */
    uint64_t row_stride_bytes; /* from one row of the stored matrix to the next */
    uint32_t generation;
    uint32_t reserved; /* 0 */
};

enum cgm_opcode {
    CGM_OPCODE_NOOP = 0,    /* completed by the poller itself; plan, rank and operands unused */
    CGM_OPCODE_RUN = 1,     /* the plan's operation */
    CGM_OPCODE_COPY_IN = 2, /* lhs into the plan's user buffer */
    CGM_OPCODE_BARRIER = 3, /* nothing, as soon as every rank of the plan's comm has come to it */
};

enum cgm_entry_flags {
    CGM_ENTRY_WANT_PHASES = 1u << 0, /* fill phase[slot] */
    CGM_ENTRY_ACCUMULATE = 1u << 1,  /* beta = 1 */
    CGM_ENTRY_FLAGS_ALL = (1u << 2) - 1,
};

struct cgm_entry {
    /* Counts the session's submissions from 1. Stored last, see cgm_entry_begin. */
    _Atomic uint64_t ticket;
    uint64_t plan;        /* the plan's id */
    uint64_t comm_number; /* counts this rank's collective jobs and barriers in the comm from 1;
                             else 0 */
    uint32_t opcode;      /* enum cgm_opcode */
    uint32_t rank;
    uint64_t rows;        /* active rows of the whole product, at most the plan's M */
    uint64_t deadline_ms; /* from submission to launch; 0: the comm's join timeout */
    uint32_t flags;       /* enum cgm_entry_flags */
    uint32_t chunk;       /* COPY_IN: which chunk, UINT32_MAX for the whole user buffer */
    uint64_t submit_ns;   /* CLOCK_MONOTONIC at submission, for the times in the completion */
    uint64_t comm; /* the plan's, so that the number counts where that is gone; 0: not said */
    uint64_t reserved[7]; /* 0 */
    struct cgm_operand operand[CGM_OPERAND_COUNT];
};

#define CGM_CQE_DETAIL 192
struct cgm_cqe {
    uint64_t ticket;
    int32_t status; /* proto/status.h */
    uint32_t slot;
    uint64_t comm_number;
    uint64_t queued_ns;  /* submission until every rank had submitted */
    uint64_t waiting_ns; /* from then until every stream had come and the job was launched */
    uint64_t running_ns; /* launch until done */
    uint16_t algorithm;  /* enum cgm_algo */
    uint16_t n_phases;   /* filled in phase[slot]; at most CGM_PHASES_PER_JOB */
    uint32_t phases_lost;
    uint64_t begin_ns; /* CLOCK_MONOTONIC of the launch; phases count from here */
    /* Only written when status is not OK; NUL-terminated. */
    char detail[CGM_CQE_DETAIL];
};

struct cgm_phase {
    uint64_t begin_ns, end_ns; /* since the launch */
    uint16_t kind;             /* enum cgm_phase_kind */
    uint16_t device;
    uint16_t rank;
    uint16_t queue;        /* 0 compute, 1 communication */
    uint32_t chunk;        /* which chunk it worked on */
    uint32_t peer_or_zero; /* the other rank of a copy */
};
#define CGM_PHASES_BYTES (CGM_PHASES_PER_JOB * sizeof(struct cgm_phase))

/* The status is stored first, then the ticket: who sees the ticket may read the status. */
struct cgm_done {
    _Atomic uint64_t ticket;
    _Atomic int32_t status;
    uint32_t reserved;
};

struct cgm_ring_header {
    /* Written once by the broker before anyone else maps the ring. */
    uint64_t magic;
    uint32_t version;
    uint32_t entries; /* a power of two */
    uint32_t entry_bytes, cqe_bytes, phase_bytes, phases_per_job;
    uint64_t session;
    uint64_t executor_life; /* which executor this ring belongs to, counted from 1 */
    uint64_t bytes;         /* of the whole mapping */
    uint64_t sq_offset, cq_offset, entry_offset, ready_offset, done_offset, phase_offset;

    /* Written by the client. */
    _Alignas(CGM_CACHE_LINE) _Atomic uint32_t sq_tail;
    _Alignas(CGM_CACHE_LINE) _Atomic uint32_t cq_head;
    _Atomic uint32_t cq_need_wakeup; /* a client thread sleeps on the notify socket */

    /* Written by the executor. */
    _Alignas(CGM_CACHE_LINE) _Atomic uint32_t sq_head;
    _Atomic uint32_t sq_need_wakeup; /* the poller sleeps: write the wake eventfd after sq_tail */
    _Alignas(CGM_CACHE_LINE) _Atomic uint32_t cq_tail;

    /* Written by the broker: a status, when no executor serves this ring any more. */
    _Alignas(CGM_CACHE_LINE) _Atomic int32_t dead;
};

_Static_assert(sizeof(struct cgm_operand) == 32, "layout is protocol");
_Static_assert(sizeof(struct cgm_entry) == 128 + 32 * CGM_OPERAND_COUNT, "layout is protocol");
_Static_assert(offsetof(struct cgm_entry, comm) == CGM_CACHE_LINE, "the head is one line");
_Static_assert(sizeof(struct cgm_cqe) == 256, "layout is protocol");
_Static_assert(offsetof(struct cgm_cqe, detail) == CGM_CACHE_LINE, "a success is one line");
_Static_assert(sizeof(struct cgm_phase) == 32, "layout is protocol");
_Static_assert(sizeof(struct cgm_done) == 16, "layout is protocol");
_Static_assert(sizeof(struct cgm_ring_header) == 448, "layout is protocol");
_Static_assert(offsetof(struct cgm_ring_header, sq_tail) == 128, "layout is protocol");
_Static_assert(ATOMIC_LLONG_LOCK_FREE == 2, "shared memory needs lock-free atomics");

/* A process's view of a ring. Plain pointers into the mapping; sizes are the mapper's own copy. */
struct cgm_ring {
    struct cgm_ring_header *header;
    _Atomic uint32_t *sq;
    struct cgm_cqe *cq;
    struct cgm_entry *entry;
    _Atomic uint64_t *ready;
    struct cgm_done *done;
    struct cgm_phase *phase;
    uint32_t entries, mask;
    size_t bytes;
};

/* Bytes of a ring with this many entries; 0 when entries is not a power of two within the limits.
 */
size_t cgm_ring_bytes(uint32_t entries);

/* Creates a memfd, sealed in size, with an initialised header; status. *ret_fd is the caller's. */
int cgm_ring_create(uint32_t entries, uint64_t session, uint64_t executor_life, int *ret_fd);

/* Maps a ring that should have this many entries. Checks fstat, the seals, magic, version and the
 * offsets; BAD_MESSAGE when anything is off. The fd stays the caller's. */
int cgm_ring_map(int fd, uint32_t entries, struct cgm_ring *ret_ring);
void cgm_ring_unmap(struct cgm_ring *ring);

/* As cgm_ring_map, for the client, who is the last to map it: then nobody can make holes in the
 * memory any more (F_SEAL_FUTURE_WRITE). Also the status of the errno with which the seal failed.
 */
int cgm_ring_join(int fd, uint32_t entries, struct cgm_ring *ret_ring);
/* Whether the client has done that. Waits for nobody. */
int cgm_ring_is_sealed(int fd);

/* Copies an entry with loads that the compiler can neither elide nor repeat: all of it, or with
 * `whole` 0 its head, the first cache line, which is everything that a noop needs. */
void cgm_ring_load_entry(const struct cgm_ring *ring, uint32_t slot, int whole,
                         struct cgm_entry *ret_entry);

/* What lies behind the head, for who has copied that before: together each word is read once. */
void cgm_ring_load_rest(const struct cgm_ring *ring, uint32_t slot, struct cgm_entry *ret_entry);

/* Stores status, then ticket (release; pairs with the acquire in cgm_ring_done). */
void cgm_ring_set_done(struct cgm_ring *ring, uint32_t slot, uint64_t ticket, int32_t status);

/* True when the slot's ticket has ended; *ret_status is set then. */
int cgm_ring_done(const struct cgm_ring *ring, uint32_t slot, uint64_t ticket, int32_t *ret_status);

/* For the executor: sets the done word. False, and nothing is changed, when somebody else has ended
 * the ticket or the ring is dead; the job has no record then. */
bool cgm_ring_complete(struct cgm_ring *ring, uint32_t slot, uint64_t ticket, int32_t status);

/* For those who end what no executor will: sets the done word unless the ticket has ended. The
 * status with which it has now. */
int32_t cgm_ring_end(struct cgm_ring *ring, uint32_t slot, uint64_t ticket, int32_t status);

/* For the writer of an entry, which may have been another job's: begun before the rest is written,
 * ended after it. In between nobody takes the entry for either job's. */
static inline void cgm_entry_begin(struct cgm_entry *entry)
{
    atomic_store_explicit(&entry->ticket, 0, memory_order_relaxed);
    atomic_thread_fence(memory_order_release);
}

static inline void cgm_entry_end(struct cgm_entry *entry, uint64_t ticket)
{
    atomic_store_explicit(&entry->ticket, ticket, memory_order_release);
}

/* Calls visit with a copy of the head of every entry that has a ticket, and of all of those that
 * have a number. fd: the ring's. Allocates nothing for entries that nobody has written. Of one that
 * is written meanwhile perhaps not; but whoever stores something for its writer to see, and then a
 * seq_cst fence, before this, finds the entry or is seen by the writer. */
void cgm_ring_each_entry(const struct cgm_ring *ring, int fd,
                         void (*visit)(void *context, uint32_t slot, const struct cgm_entry *entry),
                         void *context);

/* Ends every job of a ring whose executor is gone: marks the ring dead, then releases every slot
 * whose entry has a ticket that has not ended. Called by the broker, which has the fd. Safe to call
 * twice. */
void cgm_ring_kill(struct cgm_ring *ring, int fd, int32_t status);
/* Before that: the job of this comm and number ended well on all ranks. */
void cgm_ring_end_well(struct cgm_ring *ring, int fd, uint64_t comm, uint64_t number);
/* Marks it dead, once, and ends nothing: for the library, which knows its jobs. */
void cgm_ring_declare_dead(struct cgm_ring *ring, int32_t status);

#endif
