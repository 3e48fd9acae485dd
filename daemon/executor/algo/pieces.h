/* Cutting one side of a matrix into num_splits pieces. */
#ifndef CGM_PIECES_H
#define CGM_PIECES_H

#include "daemon/executor/operation.h"

/* How many pieces there are of `total` rows or columns: num_splits, but none without any, and no
 * more than a launch has room for. */
uint32_t cgm_piece_count(const struct cgm_spec *spec, uint64_t total);

/* Where piece `piece` begins; piece = pieces: total. Pieces are nearly equal; where they are large
 * enough they begin at multiples that devices like. */
uint64_t cgm_piece_begin(uint64_t total, uint32_t pieces, uint32_t piece);

/* OK, or INVALID_ARGUMENT when the plan asks for more pieces than its `side` (m, n) has, or than a
 * launch of its world has room for. */
int cgm_piece_check(const struct cgm_spec *spec, const char *side, uint64_t total, char *ret_detail,
                    size_t detail_bytes);

#endif
