/* What moves without a sum and without a gathered copy: blocks of any size between any two ranks,
 * and columns of a product to all. */
#ifndef CGM_EXCHANGE_H
#define CGM_EXCHANGE_H

#include "daemon/executor/algo/emit.h"

/* a2av: the rows of lhs that the plan's counts send to each rank, into that rank's out, where they
 * lie in the order of their senders. Until all that come here have come. */
void cgm_exchange(struct cgm_emit *emit);

/* gemm_as: rows first ... first + count - 1 of this rank's columns of out, which are there, into
 * every peer's out; `step` arrives. */
void cgm_spread_push(struct cgm_emit *emit, uint64_t first, uint64_t count, uint32_t step);

/* gemm_as: owner's columns of rank's out. */
struct cgm_view cgm_spread_place(const struct cgm_launch *launch, uint32_t owner, uint32_t rank);

/* Until `step` of every peer has arrived. */
void cgm_spread_await(struct cgm_emit *emit, uint32_t step);

#endif
