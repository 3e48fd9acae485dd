/* Enqueueing one rank's part of a launch, and how the ranks' queues keep off each other's memory.
 *
 * Every copy is a push: from the rank that has the data, on its communication queue, to the place
 * where the peer wants it. Four rules, each with its flag on every rank, hold an algorithm
 * together:
 *
 *   begun    the compute queue is through with every earlier job: from here on peers may write this
 *            rank's outputs, user buffer and scratch. A push waits for the peer's.
 *   source   what this rank pushes next is there. The first push waits for it, or for this rank's
 *            own `begun` when the launch finds the source there.
 *   arrived  [peer] the push from that peer is complete. Whoever uses it waits for it.
 *   sent     every push of this rank has left: its operands and user buffer are free again. The
 *            compute queue waits for it last, so that the job's end covers both queues.
 *
 * A launch that is quiet needs no `begun`.
 *
 * The two queues of a rank may be enqueued in any order; enqueueing takes time, so the first push
 * and the first product come before everything that is needed later, and of the two first what
 * takes longer as a whole.
 *
 * Values grow with the launch's epoch, and inside a launch with the step. */
#ifndef CGM_EMIT_H
#define CGM_EMIT_H

#include "daemon/executor/algorithm.h"

enum cgm_emit_flag {
    CGM_EMIT_BEGUN,
    CGM_EMIT_SOURCE,
    CGM_EMIT_SENT,
    CGM_EMIT_ARRIVED, /* one for each peer from here on */
};

enum cgm_emit_queue { CGM_EMIT_COMPUTE, CGM_EMIT_COMM };

/* Steps of one flag in one launch: 1 to this - 1. */
#define CGM_EMIT_STEPS 128

/* What a queue waits for before its next operation: enqueued with that, all at once. */
struct cgm_emit_waits {
    struct cgm_wait wait[CGM_FLAGS_AT_ONCE];
    uint32_t count;
};

/* Pushes that go off together, and the flags that tell their arrival. */
struct cgm_emit_pushes {
    struct cgm_copy copy[CGM_COPIES_AT_ONCE];
    struct cgm_flag_value arrival[CGM_COPIES_AT_ONCE];
    uint32_t count, n_arrivals; /* without rows nothing is copied */
};

struct cgm_emit {
    const struct cgm_launch *launch;
    const struct cgm_plan_rank *self;
    uint32_t rank, world;
    bool serial;        /* nothing overlaps: pushes go off together, on the compute queue */
    int status;         /* the first failure; what comes after it is left out */
    bool uses_comm;     /* something is on the communication queue */
    uint32_t published; /* the last step of the source */
    uint64_t met;       /* by peer: that it has begun was awaited by the queue that pushes */
    struct cgm_emit_waits waits[CGM_EMIT_COMM + 1];
    struct cgm_emit_pushes pushes;
};

/* cgm_algorithm.flags of every algorithm that pushes. */
uint32_t cgm_emit_flags(const struct cgm_spec *spec);

struct cgm_emit cgm_emit_begin(const struct cgm_launch *launch, uint32_t rank);
/* Where nothing overlaps. */
struct cgm_emit cgm_emit_begin_serial(const struct cgm_launch *launch, uint32_t rank);
/* Enqueues what is still awaited and joins the communication queue where it was used; returns the
 * status. */
int cgm_emit_end(struct cgm_emit *emit);

/* The distance-th peer in this rank's own order: staggered, so that no two ranks push to the same
 * peer at a time. The peer of distance d receives from this rank as its source of distance d. */
uint32_t cgm_emit_target(const struct cgm_emit *emit, uint32_t distance);
uint32_t cgm_emit_source(const struct cgm_emit *emit, uint32_t distance);

/* On the compute queue: the source of step `step` is there. On the communication queue: wait. */
void cgm_emit_publish(struct cgm_emit *emit, uint32_t step);
void cgm_emit_await_source(struct cgm_emit *emit, uint32_t step);
/* On the communication queue, instead of both: the source was there before the launch. */
void cgm_emit_await_start(struct cgm_emit *emit);

/* On the communication queue, to a peer; the peer sees `step` when it has arrived. Where nothing
 * overlaps it is one queue, and sources need not be published to it. */
void cgm_emit_push(struct cgm_emit *emit, const struct cgm_view *src, const struct cgm_view *dst,
                   uint32_t peer, uint32_t chunk, uint32_t step);
/* On the compute queue. */
/* What the compute queue has stored at every peer has arrived there. */
void cgm_emit_announce(struct cgm_emit *emit, uint32_t step);
void cgm_emit_await_arrival(struct cgm_emit *emit, uint32_t peer, uint32_t step);

/* For parts of flagged products. What cgm_emit_await_arrival waits for: */
struct cgm_flag_value cgm_emit_arrival(const struct cgm_emit *emit, uint32_t peer, uint32_t step);
/* Flags of `owner` behind those of cgm_emit_flags, from 0; one step a launch. */
struct cgm_flag_value cgm_emit_block(const struct cgm_emit *emit, uint32_t owner, uint32_t block);
/* Waits for a block of this rank. */
void cgm_emit_await_block(struct cgm_emit *emit, enum cgm_emit_queue queue, uint32_t block,
                          uint32_t chunk, uint32_t peer);
/* On the compute queue: the peer's memory may be written from here on. */
void cgm_emit_await_begun(struct cgm_emit *emit, uint32_t peer);

/* Within this rank; a copy onto itself is left out. */
void cgm_emit_copy(struct cgm_emit *emit, enum cgm_emit_queue queue, const struct cgm_view *src,
                   const struct cgm_view *dst, uint32_t chunk);

/* On the compute queue. */
void cgm_emit_gemm(struct cgm_emit *emit, const struct cgm_gemm *gemm, uint32_t chunk);
void cgm_emit_reduce(struct cgm_emit *emit, const struct cgm_reduce *reduce, uint32_t chunk);

/* On the compute queue: a product whose parts await and publish flags. */
void cgm_emit_flagged_gemm(struct cgm_emit *emit, const struct cgm_flagged_gemm *flagged);

/* On the compute queue; also after a failure, since the other ranks' parts wait for this one. */
void cgm_emit_collective(struct cgm_emit *emit, const struct cgm_collective *collective);

/* ---- what a launch works on -------------------------------------------------------------------
 */

const struct cgm_view *cgm_launch_operand(const struct cgm_launch *launch, uint32_t rank,
                                          enum cgm_operand_index operand);
bool cgm_launch_accumulates(const struct cgm_launch *launch);

/* Rows first ... first + count - 1 of a matrix that is stored transposed or not. */
struct cgm_view cgm_view_band(const struct cgm_view *view, bool transposed, uint64_t first,
                              uint64_t count);

/* Chunk `chunk` of a rank's user buffer, cut to the launch's rows. */
struct cgm_view cgm_launch_chunk(const struct cgm_launch *launch, uint32_t rank, uint32_t chunk);

#endif
