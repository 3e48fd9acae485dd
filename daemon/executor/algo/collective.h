/* Collectives made of copies and reductions. Their sums run in rank order in fp32 and are rounded
 * once, so that a result does not depend on who came first.
 *
 * Rows are divided into one block for each rank: block r begins at row r * rows / world. */
#ifndef CGM_COLLECTIVE_H
#define CGM_COLLECTIVE_H

#include "daemon/executor/algo/emit.h"

/* ---- all-gather: every rank's shard to every rank ---------------------------------------------
 */

/* The shard: lhs; for bulk_ag aux_in, or without one the rank's own chunk of the user buffer. */
struct cgm_view cgm_gather_source(const struct cgm_launch *launch, uint32_t rank);

/* Where chunk `chunk` lies on `rank` when it is gathered: in out for ag; for ag_gemm and bulk_ag in
 * aux_out, or without one in the user buffer. */
struct cgm_view cgm_gathered_chunk(const struct cgm_launch *launch, uint32_t rank, uint32_t chunk);

/* Pushes the shard to every peer, to `first_peer` before the others unless that is this rank or
 * beyond the world; step 1 arrives. In two steps, for what is to be enqueued as soon as the first
 * push is. */
void cgm_gather_push_first(struct cgm_emit *emit, uint32_t first_peer);
void cgm_gather_push_rest(struct cgm_emit *emit, uint32_t first_peer);

/* Copies this rank's own chunk to its place, unless it lies there already. */
void cgm_gather_own(struct cgm_emit *emit, enum cgm_emit_queue queue);

/* Until every peer's chunk is there. */
void cgm_gather_await(struct cgm_emit *emit);

/* ---- reduce-scatter and all-reduce ------------------------------------------------------------
 */

/* What the reduction sums: lhs; for bulk_rs aux_in, or without one the user buffer; for an
 * operation with a product the partial product, which lies at the front of the user buffer. */
struct cgm_view cgm_scatter_source(const struct cgm_launch *launch, uint32_t rank);

/* Where the sum of this rank's block goes: out; for bulk_rs aux_out, or without one the rank's own
 * chunk of the user buffer. */
struct cgm_view cgm_scatter_target(const struct cgm_launch *launch, uint32_t rank);

/* Rows of block `block` of a matrix. */
struct cgm_view cgm_scatter_block(const struct cgm_launch *launch, const struct cgm_view *view,
                                  uint32_t block);

/* Scratch on each rank: one slot for the block from each peer, of the source's type. */
uint64_t cgm_scatter_bytes(const struct cgm_spec *spec);

/* Where the block of `owner` that comes from `peer` waits for the reduction. */
struct cgm_view cgm_scatter_slot(const struct cgm_launch *launch, uint32_t owner, uint32_t peer);

/* On the communication queue, until the source is there: in one piece, by the product before it, or
 * since before the launch. */
void cgm_scatter_await_source(struct cgm_emit *emit);

/* Pushes block `peer` of the source to its owner; step 1 arrives. */
void cgm_scatter_push(struct cgm_emit *emit, uint32_t peer);

/* dst = sum over all ranks of this rank's block [+ bias] [+ dst], when all have arrived. */
void cgm_scatter_reduce(struct cgm_emit *emit, const struct cgm_view *dst);

/* The same in parts, for sources whose rows or columns arrive one part after the other: what every
 * peer pushes of columns first ... of its source, with `step`; and their sum. */
void cgm_scatter_push_cols(struct cgm_emit *emit, uint32_t peer, uint64_t first, uint64_t cols,
                           uint32_t step);
void cgm_scatter_reduce_cols(struct cgm_emit *emit, const struct cgm_view *dst, uint64_t first,
                             uint64_t cols, uint32_t step);

/* A sum whose dst and sources are set; dst is columns `first` ... of the result. Adds what the plan
 * adds to a result. */
void cgm_sum_emit(struct cgm_emit *emit, struct cgm_reduce *reduce, uint64_t first, uint32_t chunk);

/* The second half of an all-reduce: this rank's block of out, which is there, to every peer's out;
 * waits for theirs. */
void cgm_share_blocks(struct cgm_emit *emit);

#endif
