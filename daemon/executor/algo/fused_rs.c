/* One GEMM whose tiles go straight into the slots of their owners, in turn; each owner
 * sums its rows in rank order, band by band. */
#include "daemon/executor/algo/collective.h"
#include "daemon/executor/algo/direct.h"
#include "daemon/executor/algo/flagged.h"
#include "daemon/executor/algo/table.h"

static int enqueue(const struct cgm_launch *launch, uint32_t rank)
{
    struct cgm_emit emit = cgm_emit_begin(launch, rank);
    const struct cgm_view *out = cgm_launch_operand(launch, rank, CGM_OPERAND_OUT);
    cgm_direct_multiply(&emit);
    for (uint32_t band = 0; band < cgm_direct_bands(launch->spec, launch->rows); band++)
        cgm_direct_sum(&emit, out, band, false);
    return cgm_emit_end(&emit);
}

const struct cgm_algorithm cgm_fused_rs = {
    .number = CGM_ALGO_FUSED_RS,
    .name = "fused_rs",
    .ops = 1u << CGM_OP_GEMM_RS,
    .method = CGM_METHOD_AUTO,
    .summary = "one GEMM that stores each tile at its owner, who sums in rank order",
    .parameters = CGM_PARAMETERS_OF_DEVICES | 1u << CGM_PARAMETER_NUM_SPLITS,
    .flagged = true,
    .stores = true,
    .check = cgm_direct_check,
    .estimate = cgm_publishing_estimate,
    .scratch_bytes = cgm_scatter_bytes,
    .flags = cgm_direct_flags,
    .enqueue = enqueue,
};
