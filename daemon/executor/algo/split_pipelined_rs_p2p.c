/* One GEMM for each owner's rows of the partial product, the next rank's first and the own last; a
 * finished block goes straight to its owner, who sums all in rank order.
 *
 * Partial products are kept and sent in buffer_dtype, by default the output's type: half the bytes
 * of fp32 on the links, for one rounding of each partial product. */
#include "daemon/executor/algo/collective.h"
#include "daemon/executor/algo/cost.h"
#include "daemon/executor/algo/product.h"
#include "daemon/executor/algo/table.h"

static int enqueue(const struct cgm_launch *launch, uint32_t rank)
{
    struct cgm_emit emit = cgm_emit_begin(launch, rank);
    uint64_t rows = launch->rows / emit.world;
    for (uint32_t distance = 1; distance <= emit.world; distance++) {
        uint32_t owner = cgm_emit_target(&emit, distance);
        cgm_product_partial(&emit, owner * rows, rows, owner);
        cgm_emit_publish(&emit, distance);
        if (owner == rank)
            break;
        cgm_emit_await_source(&emit, distance);
        cgm_scatter_push(&emit, owner);
    }
    cgm_scatter_reduce(&emit, cgm_launch_operand(launch, rank, CGM_OPERAND_OUT));
    return cgm_emit_end(&emit);
}

static double estimate(const struct cgm_spec *spec)
{
    double gemm = cgm_cost_gemm(spec);
    double compute = gemm + cgm_cost_cutting(spec);
    double transfer = gemm / spec->world + cgm_cost_transfer(spec);
    return compute > transfer ? compute : transfer;
}

const struct cgm_algorithm cgm_split_pipelined_rs_p2p = {
    .number = CGM_ALGO_SPLIT_PIPELINED_RS_P2P,
    .name = "split_pipelined_rs_p2p",
    .ops = 1u << CGM_OP_GEMM_RS,
    .method = CGM_METHOD_RING_EXCHANGE,
    .summary = "one GEMM a chunk, each sent to its owner when done, summed there in rank order",
    .parameters = CGM_PARAMETERS_OF_DEVICES,
    .estimate = estimate,
    .scratch_bytes = cgm_scatter_bytes,
    .flags = cgm_emit_flags,
    .enqueue = enqueue,
};
