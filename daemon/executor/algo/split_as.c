/* The rank's columns of the product in num_splits bands of rows; a finished band goes straight into
 * every peer's out while the next one is multiplied. */
#include "daemon/executor/algo/cost.h"
#include "daemon/executor/algo/exchange.h"
#include "daemon/executor/algo/pieces.h"
#include "daemon/executor/algo/product.h"
#include "daemon/executor/algo/table.h"

static uint64_t band_begin(const struct cgm_launch *launch, uint32_t band)
{
    return cgm_piece_begin(launch->rows, cgm_piece_count(launch->spec, launch->rows), band);
}

static void multiply_band(struct cgm_emit *emit, uint32_t i)
{
    const struct cgm_launch *launch = emit->launch;
    const struct cgm_view *lhs = cgm_launch_operand(launch, emit->rank, CGM_OPERAND_LHS);
    uint64_t first = band_begin(launch, i), count = band_begin(launch, i + 1) - first;
    struct cgm_view band = cgm_view_band(lhs, launch->spec->transa, first, count);
    cgm_product_band(emit, &band, first, i);
    cgm_emit_publish(emit, i + 1);
}

static void send_band(struct cgm_emit *emit, uint32_t i)
{
    uint64_t first = band_begin(emit->launch, i), count = band_begin(emit->launch, i + 1) - first;
    cgm_emit_await_source(emit, i + 1);
    cgm_spread_push(emit, first, count, i + 1);
}

/* Each push is enqueued behind the product after its own: there is always one to work on. */
static int enqueue(const struct cgm_launch *launch, uint32_t rank)
{
    struct cgm_emit emit = cgm_emit_begin(launch, rank);
    uint32_t pieces = cgm_piece_count(launch->spec, launch->rows);
    for (uint32_t i = 0; i <= pieces; i++) {
        if (i < pieces)
            multiply_band(&emit, i);
        if (i > 0 && emit.world > 1)
            send_band(&emit, i - 1);
    }
    cgm_spread_await(&emit, pieces);
    return cgm_emit_end(&emit);
}

static int check(const struct cgm_spec *spec, char *ret_detail, size_t detail_bytes)
{
    return cgm_piece_check(spec, "m", spec->m, ret_detail, detail_bytes);
}

static double estimate(const struct cgm_spec *spec)
{
    uint32_t pieces = cgm_piece_count(spec, spec->m);
    return cgm_cost_pipeline(spec, pieces, cgm_cost_transfer(spec));
}

const struct cgm_algorithm cgm_split_as = {
    .number = CGM_ALGO_SPLIT_AS,
    .name = "split_as",
    .ops = 1u << CGM_OP_GEMM_AS,
    .method = CGM_METHOD_PIPELINE,
    .summary = "num_splits bands of rows, each sent to all when it is done",
    .parameters = CGM_PARAMETERS_OF_DEVICES | 1u << CGM_PARAMETER_NUM_SPLITS,
    .check = check,
    .estimate = estimate,
    .flags = cgm_emit_flags,
    .enqueue = enqueue,
};
