/* One GEMM whose tiles go straight into the slots of their owners, in turn; each owner
 * sums its rows in rank order into everybody's out. */
#include "daemon/executor/algo/collective.h"
#include "daemon/executor/algo/cost.h"
#include "daemon/executor/algo/direct.h"
#include "daemon/executor/algo/flagged.h"
#include "daemon/executor/algo/table.h"
#include "proto/status.h"

static int enqueue(const struct cgm_launch *launch, uint32_t rank)
{
    struct cgm_emit emit = cgm_emit_begin(launch, rank);
    uint32_t bands = cgm_direct_bands(launch->spec, launch->rows);
    struct cgm_view block =
        cgm_scatter_block(launch, cgm_launch_operand(launch, rank, CGM_OPERAND_OUT), rank);
    cgm_direct_multiply(&emit);
    for (uint32_t band = 0; band < bands; band++)
        cgm_direct_sum(&emit, &block, band, true);
    cgm_emit_announce(&emit, 1);
    for (uint32_t distance = 1; distance < emit.world; distance++)
        cgm_emit_await_arrival(&emit, cgm_emit_source(&emit, distance), 1);
    return cgm_emit_end(&emit);
}

static int check(const struct cgm_spec *spec, char *ret_detail, size_t detail_bytes)
{
    int status = cgm_everywhere_check(spec, "two_shot_ar", ret_detail, detail_bytes);
    return status == CGM_OK ? cgm_direct_check(spec, ret_detail, detail_bytes) : status;
}

static double estimate(const struct cgm_spec *spec)
{
    double gemm = cgm_cost_flagged(spec), half = cgm_cost_transfer(spec) / 2;
    return (gemm > half ? gemm : half) + half + cgm_cost_step();
}

const struct cgm_algorithm cgm_fused_ar = {
    .number = CGM_ALGO_FUSED_AR,
    .name = "fused_ar",
    .ops = 1u << CGM_OP_GEMM_AR,
    .method = CGM_METHOD_AUTO,
    .summary = "one GEMM that stores each tile at its owner, who sums into all",
    .parameters = CGM_PARAMETERS_OF_DEVICES | 1u << CGM_PARAMETER_NUM_SPLITS,
    .flagged = true,
    .stores = true,
    .check = check,
    .estimate = estimate,
    .scratch_bytes = cgm_scatter_bytes,
    .flags = cgm_direct_flags,
    .enqueue = enqueue,
};
