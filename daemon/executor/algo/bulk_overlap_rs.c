/* One whole GEMM beside the reduce-scatter of another buffer; the sum follows behind the GEMM. */
#include "daemon/executor/algo/collective.h"
#include "daemon/executor/algo/cost.h"
#include "daemon/executor/algo/product.h"
#include "daemon/executor/algo/table.h"

static int enqueue(const struct cgm_launch *launch, uint32_t rank)
{
    struct cgm_emit emit = cgm_emit_begin(launch, rank);
    struct cgm_view target = cgm_scatter_target(launch, rank);
    cgm_scatter_await_source(&emit);
    if (emit.world > 1)
        cgm_scatter_push(&emit, cgm_emit_target(&emit, 1));
    cgm_product_band(&emit, cgm_launch_operand(launch, rank, CGM_OPERAND_LHS), 0, 0);
    for (uint32_t distance = 2; distance < emit.world; distance++)
        cgm_scatter_push(&emit, cgm_emit_target(&emit, distance));
    cgm_scatter_reduce(&emit, &target);
    return cgm_emit_end(&emit);
}

const struct cgm_algorithm cgm_bulk_overlap_rs = {
    .number = CGM_ALGO_BULK_OVERLAP_RS,
    .name = "bulk_overlap_rs",
    .ops = 1u << CGM_OP_BULK_RS,
    .method = CGM_METHOD_BULK,
    .summary = "the GEMM beside the reduce-scatter of another buffer, summed in rank order",
    .parameters = CGM_PARAMETERS_OF_DEVICES,
    .estimate = cgm_cost_bulk,
    .scratch_bytes = cgm_scatter_bytes,
    .flags = cgm_emit_flags,
    .enqueue = enqueue,
};
