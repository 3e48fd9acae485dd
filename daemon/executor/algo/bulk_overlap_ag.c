/* One whole GEMM beside the all-gather of another buffer. */
#include "daemon/executor/algo/collective.h"
#include "daemon/executor/algo/cost.h"
#include "daemon/executor/algo/product.h"
#include "daemon/executor/algo/table.h"

static int enqueue(const struct cgm_launch *launch, uint32_t rank)
{
    struct cgm_emit emit = cgm_emit_begin(launch, rank);
    cgm_gather_push_first(&emit, rank);
    cgm_product_band(&emit, cgm_launch_operand(launch, rank, CGM_OPERAND_LHS), 0, 0);
    cgm_gather_push_rest(&emit, rank);
    cgm_gather_own(&emit, CGM_EMIT_COMM);
    cgm_gather_await(&emit);
    return cgm_emit_end(&emit);
}

const struct cgm_algorithm cgm_bulk_overlap_ag = {
    .number = CGM_ALGO_BULK_OVERLAP_AG,
    .name = "bulk_overlap_ag",
    .ops = 1u << CGM_OP_BULK_AG,
    .method = CGM_METHOD_BULK,
    .summary = "the GEMM beside the all-gather of another buffer",
    .parameters = CGM_PARAMETERS_OF_DEVICES,
    .estimate = cgm_cost_bulk,
    .flags = cgm_emit_flags,
    .enqueue = enqueue,
};
