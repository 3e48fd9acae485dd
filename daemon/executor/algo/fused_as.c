/* The rank's columns of the product as one GEMM that counts finished bands of rows; a finished band
 * goes straight into every peer's out. */
#include "daemon/executor/algo/cost.h"
#include "daemon/executor/algo/exchange.h"
#include "daemon/executor/algo/flagged.h"
#include "daemon/executor/algo/pieces.h"
#include "daemon/executor/algo/product.h"
#include "daemon/executor/algo/table.h"

static uint32_t band_count(const struct cgm_spec *spec, uint64_t rows)
{
    return cgm_band_count(spec, 1, rows);
}

static uint32_t flags(const struct cgm_spec *spec)
{
    return cgm_emit_flags(spec) + band_count(spec, spec->m);
}

static void multiply(struct cgm_emit *emit, uint32_t bands)
{
    const struct cgm_launch *launch = emit->launch;
    const struct cgm_view *lhs = cgm_launch_operand(launch, emit->rank, CGM_OPERAND_LHS);
    struct cgm_parts parts = {.count = 0};
    for (uint32_t band = 0; band < bands; band++) {
        uint64_t first = cgm_piece_begin(launch->rows, bands, band);
        uint64_t count = cgm_piece_begin(launch->rows, bands, band + 1) - first;
        struct cgm_view rows = cgm_view_band(lhs, launch->spec->transa, first, count);
        cgm_parts_add_band(&parts, emit, &rows, first, band)->publish =
            cgm_emit_block(emit, emit->rank, band);
    }
    cgm_parts_multiply_result(emit, &parts);
}

static int enqueue(const struct cgm_launch *launch, uint32_t rank)
{
    struct cgm_emit emit = cgm_emit_begin(launch, rank);
    uint32_t bands = band_count(launch->spec, launch->rows);
    multiply(&emit, bands);
    for (uint32_t band = 0; band < bands && emit.world > 1; band++) {
        uint64_t first = cgm_piece_begin(launch->rows, bands, band);
        cgm_emit_await_block(&emit, CGM_EMIT_COMM, band, band, rank);
        cgm_spread_push(&emit, first, cgm_piece_begin(launch->rows, bands, band + 1) - first,
                        band + 1);
    }
    cgm_spread_await(&emit, bands);
    return cgm_emit_end(&emit);
}

static int check(const struct cgm_spec *spec, char *ret_detail, size_t detail_bytes)
{
    return cgm_band_check(spec, 1, spec->m, ret_detail, detail_bytes);
}

static double estimate(const struct cgm_spec *spec)
{
    double gemm = cgm_cost_flagged(spec), bands = band_count(spec, spec->m);
    double transfer = cgm_cost_transfer(spec);
    double by_gemm = gemm + transfer / bands, by_link = transfer + gemm / bands;
    return by_gemm > by_link ? by_gemm : by_link;
}

const struct cgm_algorithm cgm_fused_as = {
    .number = CGM_ALGO_FUSED_AS,
    .name = "fused_as",
    .ops = 1u << CGM_OP_GEMM_AS,
    .method = CGM_METHOD_AUTO,
    .summary = "one GEMM that counts finished bands of rows, each then sent to all",
    .parameters = CGM_PARAMETERS_OF_DEVICES | 1u << CGM_PARAMETER_NUM_SPLITS,
    .check = check,
    .estimate = estimate,
    .flags = flags,
    .enqueue = enqueue,
};
