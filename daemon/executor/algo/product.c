#include "daemon/executor/algo/product.h"

#include <assert.h>

#include "daemon/executor/algo/collective.h"

static uint64_t rows_of(const struct cgm_view *lhs, bool transposed)
{
    return transposed ? lhs->cols : lhs->rows;
}

struct cgm_view cgm_product_view(const struct cgm_launch *launch, uint32_t rank)
{
    const struct cgm_view *out = cgm_launch_operand(launch, rank, CGM_OPERAND_OUT);
    if (launch->spec->op != CGM_OP_GEMM_AS)
        return *out;
    uint64_t cols = out->cols / launch->spec->world;
    return cgm_view_cols(out, rank * cols, cols);
}

void cgm_product_band(struct cgm_emit *emit, const struct cgm_view *lhs, uint64_t first,
                      uint32_t chunk)
{
    const struct cgm_launch *launch = emit->launch;
    const struct cgm_spec *spec = launch->spec;
    struct cgm_view out = cgm_product_view(launch, emit->rank);
    struct cgm_gemm gemm = {
        .a = *lhs,
        .b = *cgm_launch_operand(launch, emit->rank, CGM_OPERAND_RHS),
        .out = cgm_view_rows(&out, first, rows_of(lhs, spec->transa)),
        .bias = *cgm_launch_operand(launch, emit->rank, CGM_OPERAND_BIAS),
        .transa = spec->transa,
        .transb = spec->transb,
        .tf32 = spec->allow_tf32,
        .accumulate = cgm_launch_accumulates(launch),
    };
    cgm_emit_gemm(emit, &gemm, chunk);
}

/* In aux_out the chunks always lie next to each other. In the user buffer they do when each is a
 * full band of rows. */
static bool chunks_are_adjacent(const struct cgm_launch *launch, uint32_t rank)
{
    if (cgm_launch_operand(launch, rank, CGM_OPERAND_AUX_OUT)->mem)
        return true;
    return !launch->spec->transa && launch->rows == launch->spec->m;
}

void cgm_product_gathered(struct cgm_emit *emit, uint32_t first, uint32_t count)
{
    const struct cgm_launch *launch = emit->launch;
    uint64_t rows = launch->rows / emit->world;
    uint32_t together = chunks_are_adjacent(launch, emit->rank) ? count : 1;
    for (uint32_t chunk = first; chunk < first + count; chunk += together) {
        struct cgm_view lhs = cgm_gathered_chunk(launch, emit->rank, chunk);
        if (launch->spec->transa)
            lhs.cols *= together;
        else
            lhs.rows *= together;
        cgm_product_band(emit, &lhs, chunk * rows, chunk);
    }
}

/* The part of this rank's partial product that `out` is, from rows `a` and columns `b`. */
static void multiply_partial(struct cgm_emit *emit, const struct cgm_view *a,
                             const struct cgm_view *b, const struct cgm_view *out, uint32_t chunk)
{
    const struct cgm_spec *spec = emit->launch->spec;
    struct cgm_gemm gemm = {
        .a = *a,
        .b = *b,
        .out = *out,
        .transa = spec->transa,
        .transb = spec->transb,
        .tf32 = spec->allow_tf32,
    };
    cgm_emit_gemm(emit, &gemm, chunk);
}

void cgm_product_partial(struct cgm_emit *emit, uint64_t first, uint64_t count, uint32_t chunk)
{
    const struct cgm_launch *launch = emit->launch;
    const struct cgm_view *lhs = cgm_launch_operand(launch, emit->rank, CGM_OPERAND_LHS);
    struct cgm_view product = cgm_scatter_source(launch, emit->rank);
    struct cgm_view a = cgm_view_band(lhs, launch->spec->transa, first, count);
    struct cgm_view out = cgm_view_rows(&product, first, count);
    multiply_partial(emit, &a, cgm_launch_operand(launch, emit->rank, CGM_OPERAND_RHS), &out,
                     chunk);
}

void cgm_product_partial_cols(struct cgm_emit *emit, uint64_t first, uint64_t count, uint32_t chunk)
{
    const struct cgm_launch *launch = emit->launch;
    const struct cgm_view *rhs = cgm_launch_operand(launch, emit->rank, CGM_OPERAND_RHS);
    struct cgm_view product = cgm_scatter_source(launch, emit->rank);
    struct cgm_view b = cgm_view_band(rhs, !launch->spec->transb, first, count);
    struct cgm_view out = cgm_view_cols(&product, first, count);
    multiply_partial(emit, cgm_launch_operand(launch, emit->rank, CGM_OPERAND_LHS), &b, &out,
                     chunk);
}

/* ---- in one piece ---------------------------------------------------------------------------- */

struct cgm_gemm_part *cgm_parts_add(struct cgm_parts *parts, const struct cgm_view *a,
                                    const struct cgm_view *out, uint64_t col, uint32_t chunk)
{
    if (out->rows == 0 || out->cols == 0)
        return NULL;
    assert(parts->count < CGM_GEMM_PARTS_MAX);
    struct cgm_gemm_part *part = &parts->part[parts->count++];
    *part = (struct cgm_gemm_part){.a = *a, .out = *out, .col = col, .chunk = chunk};
    return part;
}

struct cgm_gemm_part *cgm_parts_add_band(struct cgm_parts *parts, const struct cgm_emit *emit,
                                         const struct cgm_view *lhs, uint64_t first, uint32_t chunk)
{
    struct cgm_view out = cgm_product_view(emit->launch, emit->rank);
    struct cgm_view band = cgm_view_rows(&out, first, rows_of(lhs, emit->launch->spec->transa));
    return cgm_parts_add(parts, lhs, &band, 0, chunk);
}

struct cgm_gemm_part *cgm_parts_add_partial(struct cgm_parts *parts, const struct cgm_emit *emit,
                                            uint64_t first, const struct cgm_view *out,
                                            uint32_t chunk)
{
    const struct cgm_view *lhs = cgm_launch_operand(emit->launch, emit->rank, CGM_OPERAND_LHS);
    struct cgm_view band = cgm_view_band(lhs, emit->launch->spec->transa, first, out->rows);
    return cgm_parts_add(parts, &band, out, 0, chunk);
}

static void multiply(struct cgm_emit *emit, const struct cgm_parts *parts,
                     const struct cgm_view *bias, bool accumulate, bool woven)
{
    const struct cgm_launch *launch = emit->launch;
    struct cgm_flagged_gemm flagged = {
        .gemm = {.b = *cgm_launch_operand(launch, emit->rank, CGM_OPERAND_RHS),
                 .bias = *bias,
                 .transa = launch->spec->transa,
                 .transb = launch->spec->transb,
                 .tf32 = launch->spec->allow_tf32,
                 .accumulate = accumulate},
        .parts = parts->part,
        .n_parts = parts->count,
        .woven = woven,
    };
    cgm_emit_flagged_gemm(emit, &flagged);
}

void cgm_parts_multiply_result(struct cgm_emit *emit, const struct cgm_parts *parts)
{
    multiply(emit, parts, cgm_launch_operand(emit->launch, emit->rank, CGM_OPERAND_BIAS),
             cgm_launch_accumulates(emit->launch), false);
}

void cgm_parts_multiply_partial(struct cgm_emit *emit, const struct cgm_parts *parts)
{
    static const struct cgm_view none;
    multiply(emit, parts, &none, false, false);
}

void cgm_parts_weave_partial(struct cgm_emit *emit, const struct cgm_parts *parts)
{
    static const struct cgm_view none;
    multiply(emit, parts, &none, false, true);
}
