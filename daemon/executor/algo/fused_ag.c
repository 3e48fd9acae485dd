/* As atomic_gemm_ag_p2p, but shards are pushed in bands of rows, each peer's first ones before
 * anybody's second: tiles wait for a band, not for a chunk. */
#include "daemon/executor/algo/collective.h"
#include "daemon/executor/algo/cost.h"
#include "daemon/executor/algo/flagged.h"
#include "daemon/executor/algo/pieces.h"
#include "daemon/executor/algo/product.h"
#include "daemon/executor/algo/table.h"
#include "proto/status.h"

static uint32_t band_count(const struct cgm_spec *spec, uint64_t rows)
{
    return cgm_band_count(spec, spec->world, rows / spec->world);
}

/* Band `band` of a chunk as it is stored. */
static struct cgm_view band_of(const struct cgm_launch *launch, const struct cgm_view *chunk,
                               uint32_t band)
{
    uint64_t rows = launch->rows / launch->spec->world;
    uint32_t bands = band_count(launch->spec, launch->rows);
    uint64_t first = cgm_piece_begin(rows, bands, band);
    return cgm_view_band(chunk, launch->spec->transa, first,
                         cgm_piece_begin(rows, bands, band + 1) - first);
}

static void push_band(struct cgm_emit *emit, uint32_t band, uint32_t distance)
{
    struct cgm_view shard = cgm_gather_source(emit->launch, emit->rank);
    struct cgm_view src = band_of(emit->launch, &shard, band);
    uint32_t peer = cgm_emit_target(emit, distance);
    struct cgm_view chunk = cgm_gathered_chunk(emit->launch, peer, emit->rank);
    struct cgm_view dst = band_of(emit->launch, &chunk, band);
    cgm_emit_push(emit, &src, &dst, peer, emit->rank, band + 1);
}

static void push_first(struct cgm_emit *emit)
{
    cgm_emit_await_start(emit);
    if (emit->world > 1)
        push_band(emit, 0, 1);
}

static void push_rest(struct cgm_emit *emit)
{
    uint32_t bands = band_count(emit->launch->spec, emit->launch->rows);
    for (uint32_t band = 0; band < bands; band++)
        for (uint32_t distance = band == 0 ? 2 : 1; distance < emit->world; distance++)
            push_band(emit, band, distance);
}

static void add_band(struct cgm_emit *emit, struct cgm_parts *parts, uint32_t source, uint32_t band)
{
    const struct cgm_launch *launch = emit->launch;
    uint64_t rows = launch->rows / emit->world;
    uint64_t first = cgm_piece_begin(rows, band_count(launch->spec, launch->rows), band);
    struct cgm_view chunk = cgm_gathered_chunk(launch, emit->rank, source);
    struct cgm_view lhs = band_of(launch, &chunk, band);
    cgm_parts_add_band(parts, emit, &lhs, source * rows + first, source)->await =
        cgm_emit_arrival(emit, source, band + 1);
}

static void multiply(struct cgm_emit *emit)
{
    const struct cgm_launch *launch = emit->launch;
    struct cgm_parts parts;
    cgm_parts_begin(&parts);
    cgm_parts_add_band(&parts, emit, cgm_launch_operand(launch, emit->rank, CGM_OPERAND_LHS),
                       launch->rows / emit->world * emit->rank, emit->rank);
    for (uint32_t band = 0; band < band_count(launch->spec, launch->rows); band++)
        for (uint32_t distance = 1; distance < emit->world; distance++)
            add_band(emit, &parts, cgm_emit_source(emit, distance), band);
    cgm_parts_multiply_result(emit, &parts);
}

static int enqueue(const struct cgm_launch *launch, uint32_t rank)
{
    struct cgm_emit emit = cgm_emit_begin(launch, rank);
    bool product_first = cgm_cost_is_product(launch->spec);
    if (product_first)
        multiply(&emit);
    push_first(&emit);
    if (!product_first)
        multiply(&emit);
    push_rest(&emit);
    if (cgm_launch_operand(launch, rank, CGM_OPERAND_AUX_OUT)->mem)
        cgm_gather_own(&emit, CGM_EMIT_COMM);
    return cgm_emit_end(&emit);
}

static int check(const struct cgm_spec *spec, char *ret_detail, size_t detail_bytes)
{
    int status = cgm_awaiting_check(spec, ret_detail, detail_bytes);
    if (status != CGM_OK)
        return status;
    return cgm_band_check(spec, spec->world, spec->m / spec->world, ret_detail, detail_bytes);
}

const struct cgm_algorithm cgm_fused_ag = {
    .number = CGM_ALGO_FUSED_AG,
    .name = "fused_ag",
    .ops = 1u << CGM_OP_AG_GEMM,
    .method = CGM_METHOD_AUTO,
    .summary = "one GEMM whose tiles wait for the band of rows that they read",
    .parameters = CGM_PARAMETERS_OF_DEVICES | 1u << CGM_PARAMETER_NUM_SPLITS,
    .flagged = true,
    .check = check,
    .estimate = cgm_awaiting_estimate,
    .flags = cgm_emit_flags,
    .enqueue = enqueue,
};
