/* A flagged product (backend.h) part by part: what every backend can do with its other operations.
 */
#ifndef CGM_FLAGGED_GEMM_H
#define CGM_FLAGGED_GEMM_H

#include "daemon/executor/backend.h"

/* Columns [first, first + cols) of an operand that is stored transposed or not, or of a bias. */
static inline struct cgm_view cgm_flagged_columns(const struct cgm_view *view, bool transposed,
                                                  uint64_t first, uint64_t cols)
{
    struct cgm_view part = *view;
    uint64_t element = cgm_dtype_bytes(view->dtype);
    part.offset_bytes += first * (transposed ? view->stride : 1) * element;
    if (transposed)
        part.rows = cols;
    else
        part.cols = cols;
    return part;
}

static inline bool cgm_flagged_columns_fit(const struct cgm_view *view, bool transposed,
                                           uint64_t first, uint64_t cols)
{
    uint64_t all = transposed ? view->rows : view->cols;
    return !view->mem || (cols <= all && first <= all - cols);
}

/* Whether the parts are as many as there may be and lie inside of b and bias. */
static inline bool cgm_flagged_gemm_fits(const struct cgm_flagged_gemm *flagged)
{
    const struct cgm_gemm *whole = &flagged->gemm;
    bool fits = flagged->n_parts >= 1 && flagged->n_parts <= CGM_GEMM_PARTS_MAX;
    for (uint32_t i = 0; i < flagged->n_parts && fits; i++) {
        const struct cgm_gemm_part *part = &flagged->parts[i];
        fits = part->n_also <= CGM_ALSO_MAX &&
               cgm_flagged_columns_fit(&whole->b, whole->transb, part->col, part->out.cols) &&
               cgm_flagged_columns_fit(&whole->bias, false, part->col, part->out.cols) &&
               !(flagged->woven && part->await.flag);
    }
    return fits;
}

/* One part as a product of its own. */
static inline struct cgm_gemm cgm_flagged_part_gemm(const struct cgm_flagged_gemm *flagged,
                                                    const struct cgm_gemm_part *part)
{
    struct cgm_gemm gemm = flagged->gemm;
    gemm.label.chunk = part->chunk;
    gemm.a = part->a;
    gemm.out = part->out;
    gemm.b = cgm_flagged_columns(&gemm.b, gemm.transb, part->col, part->out.cols);
    if (gemm.bias.mem)
        gemm.bias = cgm_flagged_columns(&gemm.bias, false, part->col, part->out.cols);
    return gemm;
}

/* What brings the part's result to place i of `also`. */
static inline struct cgm_copy cgm_flagged_part_copy(const struct cgm_flagged_gemm *flagged,
                                                    const struct cgm_gemm_part *part, uint32_t i)
{
    struct cgm_copy copy = {.label = flagged->gemm.label, .dst = part->also[i], .src = part->out};
    copy.label.chunk = part->chunk;
    return copy;
}

#endif
