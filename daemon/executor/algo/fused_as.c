/* The rank's columns of the product as one GEMM that stores each tile in every rank's out. */
#include "daemon/executor/algo/cost.h"
#include "daemon/executor/algo/exchange.h"
#include "daemon/executor/algo/flagged.h"
#include "daemon/executor/algo/product.h"
#include "daemon/executor/algo/table.h"
#include "proto/status.h"

static void multiply(struct cgm_emit *emit)
{
    const struct cgm_launch *launch = emit->launch;
    struct cgm_parts parts;
    cgm_parts_begin(&parts);
    struct cgm_gemm_part *part = cgm_parts_add_band(
        &parts, emit, cgm_launch_operand(launch, emit->rank, CGM_OPERAND_LHS), 0, 0);
    for (uint32_t distance = 1; distance < emit->world; distance++) {
        uint32_t peer = cgm_emit_target(emit, distance);
        cgm_emit_await_begun(emit, peer);
        part->also[part->n_also++] = cgm_spread_place(launch, emit->rank, peer);
    }
    cgm_parts_multiply_result(emit, &parts);
}

static int enqueue(const struct cgm_launch *launch, uint32_t rank)
{
    struct cgm_emit emit = cgm_emit_begin(launch, rank);
    multiply(&emit);
    cgm_emit_announce(&emit, 1);
    cgm_spread_await(&emit, 1);
    return cgm_emit_end(&emit);
}

static int check(const struct cgm_spec *spec, char *ret_detail, size_t detail_bytes)
{
    return cgm_everywhere_check(spec, "split_as", ret_detail, detail_bytes);
}

static double estimate(const struct cgm_spec *spec)
{
    double gemm = cgm_cost_flagged(spec), transfer = cgm_cost_transfer(spec);
    return (gemm > transfer ? gemm : transfer) + cgm_cost_step();
}

const struct cgm_algorithm cgm_fused_as = {
    .number = CGM_ALGO_FUSED_AS,
    .name = "fused_as",
    .ops = 1u << CGM_OP_GEMM_AS,
    .method = CGM_METHOD_AUTO,
    .summary = "one GEMM that stores each tile in every rank's out",
    .parameters = CGM_PARAMETERS_OF_DEVICES,
    .flagged = true,
    .stores = true,
    .check = check,
    .estimate = estimate,
    .flags = cgm_emit_flags,
    .enqueue = enqueue,
};
