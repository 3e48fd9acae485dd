/* One GEMM whose tiles go straight into the slots of their owners, the own ones last; each owner
 * sums its rows in rank order, band by band, and sends a finished band to all. */
#include "daemon/executor/algo/collective.h"
#include "daemon/executor/algo/cost.h"
#include "daemon/executor/algo/direct.h"
#include "daemon/executor/algo/table.h"

/* This rank's rows of `rank`'s out. */
static struct cgm_view own_block(const struct cgm_emit *emit, uint32_t rank)
{
    return cgm_scatter_block(emit->launch, cgm_launch_operand(emit->launch, rank, CGM_OPERAND_OUT),
                             emit->rank);
}

static void share_band(struct cgm_emit *emit, uint32_t band)
{
    struct cgm_view block = own_block(emit, emit->rank);
    struct cgm_view src = cgm_direct_band(emit->launch, &block, band);
    cgm_emit_await_source(emit, band + 1);
    for (uint32_t distance = 1; distance < emit->world; distance++) {
        uint32_t peer = cgm_emit_target(emit, distance);
        struct cgm_view there = own_block(emit, peer);
        struct cgm_view dst = cgm_direct_band(emit->launch, &there, band);
        cgm_emit_push(emit, &src, &dst, peer, emit->rank, band + 1);
    }
}

static int enqueue(const struct cgm_launch *launch, uint32_t rank)
{
    struct cgm_emit emit = cgm_emit_begin(launch, rank);
    uint32_t bands = cgm_direct_bands(launch->spec, launch->rows);
    struct cgm_view block = own_block(&emit, rank);
    cgm_direct_multiply(&emit);
    for (uint32_t band = 0; band < bands; band++) {
        cgm_direct_sum(&emit, &block, band);
        cgm_emit_publish(&emit, band + 1);
    }
    for (uint32_t band = 0; band < bands && emit.world > 1; band++)
        share_band(&emit, band);
    for (uint32_t distance = 1; distance < emit.world; distance++)
        cgm_emit_await_arrival(&emit, cgm_emit_source(&emit, distance), bands);
    return cgm_emit_end(&emit);
}

static double estimate(const struct cgm_spec *spec)
{
    double gemm = cgm_cost_flagged(spec), half = cgm_cost_transfer(spec) / 2;
    double first = gemm > half + gemm / spec->world ? gemm : half + gemm / spec->world;
    return first + half + cgm_cost_step();
}

const struct cgm_algorithm cgm_fused_ar = {
    .number = CGM_ALGO_FUSED_AR,
    .name = "fused_ar",
    .ops = 1u << CGM_OP_GEMM_AR,
    .method = CGM_METHOD_AUTO,
    .summary = "one GEMM that stores each tile at its owner, who sums and sends to all",
    .parameters = CGM_PARAMETERS_OF_DEVICES | 1u << CGM_PARAMETER_NUM_SPLITS,
    .check = cgm_direct_check,
    .estimate = estimate,
    .scratch_bytes = cgm_scatter_bytes,
    .flags = cgm_direct_flags,
    .enqueue = enqueue,
};
