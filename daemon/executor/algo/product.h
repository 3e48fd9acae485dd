/* The GEMMs of an operation: the whole of it, or bands of its rows. */
#ifndef CGM_PRODUCT_H
#define CGM_PRODUCT_H

#include "daemon/executor/algo/emit.h"

/* Where the rank's own product goes: out; for gemm_as its columns of out. */
struct cgm_view cgm_product_view(const struct cgm_launch *launch, uint32_t rank);

/* Rows from `first` on of the product from `lhs`, which holds these rows as stored; with bias, and
 * added to out where the launch says so. */
void cgm_product_band(struct cgm_emit *emit, const struct cgm_view *lhs, uint64_t first,
                      uint32_t chunk);

/* The same from gathered chunks first ... first + count - 1, which are there: one GEMM where they
 * lie next to each other, else one for each. */
void cgm_product_gathered(struct cgm_emit *emit, uint32_t first, uint32_t count);

/* Rows first ... first + count - 1 of this rank's partial product, into cgm_scatter_source. */
void cgm_product_partial(struct cgm_emit *emit, uint64_t first, uint64_t count, uint32_t chunk);

/* Columns first ... first + count - 1 of it. */
void cgm_product_partial_cols(struct cgm_emit *emit, uint64_t first, uint64_t count,
                              uint32_t chunk);

/* ---- products in one piece whose parts await or publish flags ---------------------------------
 */

struct cgm_parts {
    struct cgm_gemm_part part[CGM_GEMM_PARTS_MAX];
    uint32_t count;
};

/* No parts yet. They are large: those that are never added are left as they are. */
static inline void cgm_parts_begin(struct cgm_parts *parts)
{
    parts->count = 0;
}

/* Adds a part: columns of op(b) from `col` on by the rows in `a`, into `out`. For the caller to set
 * its flags; a part without rows is not added: NULL. */
struct cgm_gemm_part *cgm_parts_add(struct cgm_parts *parts, const struct cgm_view *a,
                                    const struct cgm_view *out, uint64_t col, uint32_t chunk);

/* Rows `first` ... of out from `lhs`, which holds these rows as stored, as cgm_product_band. */
struct cgm_gemm_part *cgm_parts_add_band(struct cgm_parts *parts, const struct cgm_emit *emit,
                                         const struct cgm_view *lhs, uint64_t first,
                                         uint32_t chunk);

/* The rows first ... of this rank's partial product that `out` has room for. */
struct cgm_gemm_part *cgm_parts_add_partial(struct cgm_parts *parts, const struct cgm_emit *emit,
                                            uint64_t first, const struct cgm_view *out,
                                            uint32_t chunk);

/* On the compute queue, in this order. Results: out itself, with bias and added to where the launch
 * says so. */
void cgm_parts_multiply_result(struct cgm_emit *emit, const struct cgm_parts *parts);
/* Partial products: nothing is added. */
void cgm_parts_multiply_partial(struct cgm_emit *emit, const struct cgm_parts *parts);
/* The same, all parts side by side. */
void cgm_parts_weave_partial(struct cgm_emit *emit, const struct cgm_parts *parts);

#endif
