/* Every rank pushes its shard to all others; one GEMM begins with the rank's own chunk, and its
 * tiles of another chunk wait for the counter of that chunk's arrival. */
#include "daemon/executor/algo/collective.h"
#include "daemon/executor/algo/cost.h"
#include "daemon/executor/algo/flagged.h"
#include "daemon/executor/algo/product.h"
#include "daemon/executor/algo/table.h"

static void multiply(struct cgm_emit *emit)
{
    const struct cgm_launch *launch = emit->launch;
    struct cgm_parts parts;
    uint64_t rows = launch->rows / emit->world;
    cgm_parts_begin(&parts);
    cgm_parts_add_band(&parts, emit, cgm_launch_operand(launch, emit->rank, CGM_OPERAND_LHS),
                       emit->rank * rows, emit->rank);
    for (uint32_t distance = 1; distance < emit->world; distance++) {
        uint32_t source = cgm_emit_source(emit, distance);
        struct cgm_view chunk = cgm_gathered_chunk(launch, emit->rank, source);
        cgm_parts_add_band(&parts, emit, &chunk, source * rows, source)->await =
            cgm_emit_arrival(emit, source, 1);
    }
    cgm_parts_multiply_result(emit, &parts);
}

static int enqueue(const struct cgm_launch *launch, uint32_t rank)
{
    struct cgm_emit emit = cgm_emit_begin(launch, rank);
    bool product_first = cgm_cost_is_product(launch->spec);
    if (product_first)
        multiply(&emit);
    cgm_gather_push_first(&emit, rank);
    if (!product_first)
        multiply(&emit);
    cgm_gather_push_rest(&emit, rank);
    if (cgm_launch_operand(launch, rank, CGM_OPERAND_AUX_OUT)->mem)
        cgm_gather_own(&emit, CGM_EMIT_COMM);
    return cgm_emit_end(&emit);
}

const struct cgm_algorithm cgm_atomic_gemm_ag_p2p = {
    .number = CGM_ALGO_ATOMIC_GEMM_AG_P2P,
    .name = "atomic_gemm_ag_p2p",
    .ops = 1u << CGM_OP_AG_GEMM,
    .method = CGM_METHOD_RING_EXCHANGE,
    .atomic = true,
    .summary = "one GEMM whose tiles wait for the chunk that they read",
    .parameters = CGM_PARAMETERS_OF_DEVICES,
    .flagged = true,
    .check = cgm_awaiting_check,
    .estimate = cgm_awaiting_estimate,
    .flags = cgm_emit_flags,
    .enqueue = enqueue,
};
