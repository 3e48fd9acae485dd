/* One GEMM that computes the owners' blocks of the partial product one after the other, the next
 * rank's first and the own last; when all tiles of a block are stored a counter says so, and the
 * block goes to its owner, who sums all in rank order. */
#include "daemon/executor/algo/collective.h"
#include "daemon/executor/algo/flagged.h"
#include "daemon/executor/algo/product.h"
#include "daemon/executor/algo/table.h"

static uint32_t flags(const struct cgm_spec *spec)
{
    return cgm_emit_flags(spec) + spec->world;
}

static int enqueue(const struct cgm_launch *launch, uint32_t rank)
{
    struct cgm_emit emit = cgm_emit_begin(launch, rank);
    struct cgm_parts parts;
    struct cgm_view product = cgm_scatter_source(launch, rank);
    uint64_t rows = launch->rows / emit.world;
    cgm_parts_begin(&parts);
    for (uint32_t distance = 1; distance <= emit.world; distance++) {
        uint32_t owner = cgm_emit_target(&emit, distance);
        struct cgm_view block = cgm_scatter_block(launch, &product, owner);
        struct cgm_gemm_part *part =
            cgm_parts_add_partial(&parts, &emit, owner * rows, &block, owner);
        if (owner != rank)
            part->publish = cgm_emit_block(&emit, rank, owner);
    }
    cgm_parts_multiply_partial(&emit, &parts);
    for (uint32_t distance = 1; distance < emit.world; distance++) {
        uint32_t owner = cgm_emit_target(&emit, distance);
        cgm_emit_await_block(&emit, CGM_EMIT_COMM, owner, owner, owner);
        cgm_scatter_push(&emit, owner);
    }
    cgm_scatter_reduce(&emit, cgm_launch_operand(launch, rank, CGM_OPERAND_OUT));
    return cgm_emit_end(&emit);
}

const struct cgm_algorithm cgm_atomic_gemm_rs_p2p = {
    .number = CGM_ALGO_ATOMIC_GEMM_RS_P2P,
    .name = "atomic_gemm_rs_p2p",
    .ops = 1u << CGM_OP_GEMM_RS,
    .method = CGM_METHOD_RING_EXCHANGE,
    .atomic = true,
    .summary = "one GEMM that counts finished chunks, each sent to its owner, summed in rank order",
    .parameters = CGM_PARAMETERS_OF_DEVICES,
    .flagged = true,
    .estimate = cgm_publishing_estimate,
    .scratch_bytes = cgm_scatter_bytes,
    .flags = flags,
    .enqueue = enqueue,
};
