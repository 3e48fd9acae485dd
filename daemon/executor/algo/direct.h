/* Partial products of one GEMM whose tiles are stored straight into the slots of their owners,
 * where they are summed. No copies, and nothing on the communication queue. */
#ifndef CGM_DIRECT_H
#define CGM_DIRECT_H

#include "daemon/executor/algo/emit.h"

/* Into how many bands of rows each owner's block is cut: a band is summed when all have stored it.
 */
uint32_t cgm_direct_bands(const struct cgm_spec *spec, uint64_t rows);
int cgm_direct_check(const struct cgm_spec *spec, char *ret_detail, size_t detail_bytes);
uint32_t cgm_direct_flags(const struct cgm_spec *spec);

/* The rank's partial product, all ranks' blocks side by side. */
void cgm_direct_multiply(struct cgm_emit *emit);

/* Rows of `block`, which is this rank's block of the result, that are band `band`. */
struct cgm_view cgm_direct_band(const struct cgm_launch *launch, const struct cgm_view *block,
                                uint32_t band);

/* The band of block = sum over all ranks [+ what the plan adds], when all have stored it;
 * everywhere: into every peer's out, too. */
void cgm_direct_sum(struct cgm_emit *emit, const struct cgm_view *block, uint32_t band,
                    bool everywhere);

#endif
