/* The GEMMs of an operation: the whole of it, or bands of its rows. */
#ifndef CGM_PRODUCT_H
#define CGM_PRODUCT_H

#include "daemon/executor/algo/emit.h"

/* Rows from `first` on of out from `lhs`, which holds these rows as stored; with bias, and added to
 * out where the launch says so. */
void cgm_product_band(struct cgm_emit *emit, const struct cgm_view *lhs, uint64_t first,
                      uint32_t chunk);

/* The same from gathered chunks first ... first + count - 1, which are there: one GEMM where they
 * lie next to each other, else one for each. */
void cgm_product_gathered(struct cgm_emit *emit, uint32_t first, uint32_t count);

/* Rows first ... first + count - 1 of this rank's partial product, into cgm_scatter_source. */
void cgm_product_partial(struct cgm_emit *emit, uint64_t first, uint64_t count, uint32_t chunk);

#endif
