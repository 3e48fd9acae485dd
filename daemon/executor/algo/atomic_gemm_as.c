/* The rank's columns of the product as one GEMM that computes num_splits bands of rows one after
 * the other; when all tiles of a band are stored a counter says so, and it goes into every peer's
 * out. */
#include "daemon/executor/algo/cost.h"
#include "daemon/executor/algo/exchange.h"
#include "daemon/executor/algo/flagged.h"
#include "daemon/executor/algo/pieces.h"
#include "daemon/executor/algo/product.h"
#include "daemon/executor/algo/table.h"

static uint32_t band_count(const struct cgm_launch *launch)
{
    return cgm_piece_count(launch->spec, launch->rows);
}

static uint64_t band_begin(const struct cgm_launch *launch, uint32_t band)
{
    return cgm_piece_begin(launch->rows, band_count(launch), band);
}

static uint32_t flags(const struct cgm_spec *spec)
{
    return cgm_emit_flags(spec) + cgm_piece_count(spec, spec->m);
}

static void multiply(struct cgm_emit *emit)
{
    const struct cgm_launch *launch = emit->launch;
    const struct cgm_view *lhs = cgm_launch_operand(launch, emit->rank, CGM_OPERAND_LHS);
    struct cgm_parts parts;
    cgm_parts_begin(&parts);
    for (uint32_t i = 0; i < band_count(launch); i++) {
        uint64_t first = band_begin(launch, i), count = band_begin(launch, i + 1) - first;
        struct cgm_view band = cgm_view_band(lhs, launch->spec->transa, first, count);
        cgm_parts_add_band(&parts, emit, &band, first, i)->publish =
            cgm_emit_block(emit, emit->rank, i);
    }
    cgm_parts_multiply_result(emit, &parts);
}

static int enqueue(const struct cgm_launch *launch, uint32_t rank)
{
    struct cgm_emit emit = cgm_emit_begin(launch, rank);
    uint32_t bands = band_count(launch);
    multiply(&emit);
    for (uint32_t i = 0; i < bands && emit.world > 1; i++) {
        uint64_t first = band_begin(launch, i), count = band_begin(launch, i + 1) - first;
        cgm_emit_await_block(&emit, CGM_EMIT_COMM, i, i, rank);
        cgm_spread_push(&emit, first, count, i + 1);
    }
    cgm_spread_await(&emit, bands);
    return cgm_emit_end(&emit);
}

static int check(const struct cgm_spec *spec, char *ret_detail, size_t detail_bytes)
{
    return cgm_piece_check(spec, "m", spec->m, ret_detail, detail_bytes);
}

const struct cgm_algorithm cgm_atomic_gemm_as = {
    .number = CGM_ALGO_ATOMIC_GEMM_AS,
    .name = "atomic_gemm_as",
    .ops = 1u << CGM_OP_GEMM_AS,
    .method = CGM_METHOD_PIPELINE,
    .atomic = true,
    .summary = "one GEMM that counts finished bands of rows (num_splits), each then sent to all",
    .parameters = CGM_PARAMETERS_OF_DEVICES | 1u << CGM_PARAMETER_NUM_SPLITS,
    .flagged = true,
    .check = check,
    .estimate = cgm_publishing_estimate,
    .flags = flags,
    .enqueue = enqueue,
};
