/* All-reduce in two steps: a reduce-scatter and an all-gather. For gemm_ar one GEMM for each
 * owner's rows, the own last; a finished block goes to its owner while the next one is multiplied,
 * who sums all in rank order and sends the sum to all. */
#include "daemon/executor/algo/collective.h"
#include "daemon/executor/algo/cost.h"
#include "daemon/executor/algo/product.h"
#include "daemon/executor/algo/table.h"

static bool multiplies(const struct cgm_emit *emit)
{
    return emit->launch->spec->op == CGM_OP_GEMM_AR;
}

static void multiply_block(struct cgm_emit *emit, uint32_t distance)
{
    const struct cgm_launch *launch = emit->launch;
    uint32_t owner = cgm_emit_target(emit, distance);
    uint64_t first = launch->rows * owner / emit->world;
    uint64_t count = launch->rows * (owner + 1) / emit->world - first;
    cgm_product_partial(emit, first, count, owner);
    cgm_emit_publish(emit, distance);
}

static void push_block(struct cgm_emit *emit, uint32_t distance)
{
    if (multiplies(emit))
        cgm_emit_await_source(emit, distance);
    cgm_scatter_push(emit, cgm_emit_target(emit, distance));
}

/* Each push is enqueued behind the product after its own: there is always one to work on. */
static int enqueue(const struct cgm_launch *launch, uint32_t rank)
{
    struct cgm_emit emit = cgm_emit_begin(launch, rank);
    if (!multiplies(&emit))
        cgm_emit_await_start(&emit);
    for (uint32_t distance = 1; distance <= emit.world; distance++) {
        if (multiplies(&emit))
            multiply_block(&emit, distance);
        if (distance > 1)
            push_block(&emit, distance - 1);
    }
    struct cgm_view block =
        cgm_scatter_block(launch, cgm_launch_operand(launch, rank, CGM_OPERAND_OUT), rank);
    cgm_scatter_reduce(&emit, &block);
    cgm_share_blocks(&emit);
    return cgm_emit_end(&emit);
}

static double estimate(const struct cgm_spec *spec)
{
    double half = cgm_cost_transfer(spec) / 2;
    return cgm_cost_pipeline(spec, spec->world, half) + half + cgm_cost_step();
}

const struct cgm_algorithm cgm_two_shot_ar = {
    .number = CGM_ALGO_TWO_SHOT_AR,
    .name = "two_shot_ar",
    .ops = 1u << CGM_OP_GEMM_AR | 1u << CGM_OP_AR,
    .method = CGM_METHOD_RING_EXCHANGE,
    .summary = "each owner's rows sent to it when they are done, summed in rank order, sent to all",
    .parameters = CGM_PARAMETERS_OF_DEVICES,
    .estimate = estimate,
    .scratch_bytes = cgm_scatter_bytes,
    .flags = cgm_emit_flags,
    .enqueue = enqueue,
};
