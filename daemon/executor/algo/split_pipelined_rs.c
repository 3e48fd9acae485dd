/* The partial product in num_splits strips of columns. A finished strip is scattered while the next
 * one is multiplied; the sums follow behind the last GEMM, or with rs_overlap_first_gemm each
 * behind the GEMM of the strip after it. */
#include "daemon/executor/algo/collective.h"
#include "daemon/executor/algo/cost.h"
#include "daemon/executor/algo/pieces.h"
#include "daemon/executor/algo/product.h"
#include "daemon/executor/algo/table.h"

struct strip {
    uint64_t first, cols;
    uint32_t step;
};

static struct strip strip_of(const struct cgm_spec *spec, uint32_t piece)
{
    uint32_t pieces = cgm_piece_count(spec, spec->n);
    uint64_t first = cgm_piece_begin(spec->n, pieces, piece);
    return (struct strip){first, cgm_piece_begin(spec->n, pieces, piece + 1) - first, piece + 1};
}

static void multiply_strip(struct cgm_emit *emit, uint32_t piece)
{
    struct strip strip = strip_of(emit->launch->spec, piece);
    cgm_product_partial_cols(emit, strip.first, strip.cols, piece);
    cgm_emit_publish(emit, strip.step);
}

static void scatter_strip(struct cgm_emit *emit, uint32_t piece)
{
    struct strip strip = strip_of(emit->launch->spec, piece);
    cgm_emit_await_source(emit, strip.step);
    for (uint32_t distance = 1; distance < emit->world; distance++)
        cgm_scatter_push_cols(emit, cgm_emit_target(emit, distance), strip.first, strip.cols,
                              strip.step);
}

static void reduce_strip(struct cgm_emit *emit, uint32_t piece)
{
    struct strip strip = strip_of(emit->launch->spec, piece);
    const struct cgm_view *out = cgm_launch_operand(emit->launch, emit->rank, CGM_OPERAND_OUT);
    cgm_scatter_reduce_cols(emit, out, strip.first, strip.cols, strip.step);
}

/* Each push is enqueued behind the product after its own: there is always one to work on. */
static int enqueue(const struct cgm_launch *launch, uint32_t rank)
{
    const struct cgm_spec *spec = launch->spec;
    struct cgm_emit emit = cgm_emit_begin(launch, rank);
    uint32_t pieces = cgm_piece_count(spec, spec->n), reduced = 0;
    for (uint32_t i = 0; i <= pieces; i++) {
        if (i < pieces)
            multiply_strip(&emit, i);
        if (i > 0 && emit.world > 1)
            scatter_strip(&emit, i - 1);
        if (i > 0 && i < pieces && spec->rs_overlap_first_gemm)
            reduce_strip(&emit, reduced++);
    }
    while (reduced < pieces)
        reduce_strip(&emit, reduced++);
    return cgm_emit_end(&emit);
}

static int check(const struct cgm_spec *spec, char *ret_detail, size_t detail_bytes)
{
    return cgm_piece_check(spec, "n", spec->n, ret_detail, detail_bytes);
}

static double estimate(const struct cgm_spec *spec)
{
    uint32_t pieces = cgm_piece_count(spec, spec->n);
    return cgm_cost_pipeline(spec, pieces, cgm_cost_transfer(spec));
}

const struct cgm_algorithm cgm_split_pipelined_rs = {
    .number = CGM_ALGO_SPLIT_PIPELINED_RS,
    .name = "split_pipelined_rs",
    .ops = 1u << CGM_OP_GEMM_RS,
    .method = CGM_METHOD_PIPELINE,
    .summary = "num_splits strips of columns, each scattered when it is done, summed in rank order",
    .parameters = CGM_PARAMETERS_OF_DEVICES | 1u << CGM_PARAMETER_NUM_SPLITS |
                  1u << CGM_PARAMETER_RS_OVERLAP_FIRST_GEMM,
    .check = check,
    .estimate = estimate,
    .scratch_bytes = cgm_scatter_bytes,
    .flags = cgm_emit_flags,
    .enqueue = enqueue,
};
