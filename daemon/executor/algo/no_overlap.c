/* The collective, then the GEMM, or the reverse: what every other algorithm is compared with. Also
 * the operations that have nothing to overlap. */
#include "daemon/executor/algo/collective.h"
#include "daemon/executor/algo/cost.h"
#include "daemon/executor/algo/exchange.h"
#include "daemon/executor/algo/library.h"
#include "daemon/executor/algo/table.h"
#include "daemon/executor/algo/product.h"
#include "proto/status.h"

static int gemm(const struct cgm_launch *launch, uint32_t rank)
{
    struct cgm_emit emit = cgm_emit_begin(launch, rank);
    if (cgm_launch_operand(launch, rank, CGM_OPERAND_AUX_OUT)->mem)
        cgm_gather_own(&emit, CGM_EMIT_COMPUTE);
    cgm_product_band(&emit, cgm_launch_operand(launch, rank, CGM_OPERAND_LHS), 0, 0);
    return emit.status;
}

/* Where no product reads the own chunk it may go another way, beside the pushes. */
static bool has_own_way(const struct cgm_emit *emit)
{
    return emit->launch->spec->op != CGM_OP_AG_GEMM && emit->launch->spec->use_ce;
}

/* By the device's library where the launch allows it: one call instead of flags and copies, and
 * everything on the compute queue. */
static void gather(struct cgm_emit *emit)
{
    if (cgm_library_takes(emit->launch)) {
        cgm_library_gather(emit);
        return;
    }
    cgm_gather_push_first(emit, emit->rank);
    cgm_gather_push_rest(emit, emit->rank);
    cgm_gather_own(emit, has_own_way(emit) ? CGM_EMIT_COMM : CGM_EMIT_COMPUTE);
    cgm_gather_await(emit);
}

static int ag(const struct cgm_launch *launch, uint32_t rank)
{
    struct cgm_emit emit = cgm_emit_begin_serial(launch, rank);
    gather(&emit);
    return cgm_emit_end(&emit);
}

static int ag_gemm(const struct cgm_launch *launch, uint32_t rank)
{
    if (launch->spec->world == 1)
        return gemm(launch, rank);
    struct cgm_emit emit = cgm_emit_begin_serial(launch, rank);
    gather(&emit);
    cgm_product_gathered(&emit, 0, emit.world);
    return cgm_emit_end(&emit);
}

static void scatter(struct cgm_emit *emit, const struct cgm_view *dst)
{
    if (cgm_library_takes(emit->launch)) {
        cgm_library_scatter(emit, dst);
        return;
    }
    cgm_scatter_await_source(emit);
    for (uint32_t distance = 1; distance < emit->world; distance++)
        cgm_scatter_push(emit, cgm_emit_target(emit, distance));
    cgm_scatter_reduce(emit, dst);
}

static int rs(const struct cgm_launch *launch, uint32_t rank)
{
    struct cgm_emit emit = cgm_emit_begin_serial(launch, rank);
    scatter(&emit, cgm_launch_operand(launch, rank, CGM_OPERAND_OUT));
    return cgm_emit_end(&emit);
}

static void reduce_all(struct cgm_emit *emit)
{
    if (cgm_library_takes(emit->launch)) {
        cgm_library_reduce(emit);
        return;
    }
    struct cgm_view block = cgm_scatter_block(
        emit->launch, cgm_launch_operand(emit->launch, emit->rank, CGM_OPERAND_OUT), emit->rank);
    scatter(emit, &block);
    cgm_share_blocks(emit);
}

static int ar(const struct cgm_launch *launch, uint32_t rank)
{
    struct cgm_emit emit = cgm_emit_begin_serial(launch, rank);
    reduce_all(&emit);
    return cgm_emit_end(&emit);
}

static int gemm_rs(const struct cgm_launch *launch, uint32_t rank)
{
    if (launch->spec->world == 1)
        return gemm(launch, rank);
    struct cgm_emit emit = cgm_emit_begin_serial(launch, rank);
    cgm_product_partial(&emit, 0, launch->rows, 0);
    scatter(&emit, cgm_launch_operand(launch, rank, CGM_OPERAND_OUT));
    return cgm_emit_end(&emit);
}

static int gemm_ar(const struct cgm_launch *launch, uint32_t rank)
{
    if (launch->spec->world == 1)
        return gemm(launch, rank);
    struct cgm_emit emit = cgm_emit_begin_serial(launch, rank);
    cgm_product_partial(&emit, 0, launch->rows, 0);
    reduce_all(&emit);
    return cgm_emit_end(&emit);
}

static int gemm_as(const struct cgm_launch *launch, uint32_t rank)
{
    if (launch->spec->world == 1)
        return gemm(launch, rank);
    struct cgm_emit emit = cgm_emit_begin_serial(launch, rank);
    cgm_product_band(&emit, cgm_launch_operand(launch, rank, CGM_OPERAND_LHS), 0, 0);
    cgm_emit_publish(&emit, 1);
    cgm_emit_await_source(&emit, 1);
    cgm_spread_push(&emit, 0, launch->rows, 1);
    cgm_spread_await(&emit, 1);
    return cgm_emit_end(&emit);
}

static int bulk_ag(const struct cgm_launch *launch, uint32_t rank)
{
    struct cgm_emit emit = cgm_emit_begin_serial(launch, rank);
    gather(&emit);
    cgm_product_band(&emit, cgm_launch_operand(launch, rank, CGM_OPERAND_LHS), 0, 0);
    return cgm_emit_end(&emit);
}

static int bulk_rs(const struct cgm_launch *launch, uint32_t rank)
{
    struct cgm_emit emit = cgm_emit_begin_serial(launch, rank);
    struct cgm_view target = cgm_scatter_target(launch, rank);
    scatter(&emit, &target);
    cgm_product_band(&emit, cgm_launch_operand(launch, rank, CGM_OPERAND_LHS), 0, 0);
    return cgm_emit_end(&emit);
}

static int a2av(const struct cgm_launch *launch, uint32_t rank)
{
    struct cgm_emit emit = cgm_emit_begin_serial(launch, rank);
    cgm_exchange(&emit);
    return cgm_emit_end(&emit);
}

static const struct {
    int op;
    bool sums; /* needs slots for the peers' blocks */
    int (*enqueue)(const struct cgm_launch *launch, uint32_t rank);
} recipes[] = {
    {CGM_OP_GEMM, false, gemm},
    {CGM_OP_AG_GEMM, false, ag_gemm},
    {CGM_OP_GEMM_RS, true, gemm_rs},
    {CGM_OP_GEMM_AR, true, gemm_ar},
    {CGM_OP_GEMM_AS, false, gemm_as},
    {CGM_OP_BULK_AG, false, bulk_ag},
    {CGM_OP_BULK_RS, true, bulk_rs},
    {CGM_OP_AG, false, ag},
    {CGM_OP_RS, true, rs},
    {CGM_OP_AR, true, ar},
    {CGM_OP_A2AV, false, a2av},
};
#define RECIPE_COUNT (sizeof(recipes) / sizeof(recipes[0]))

static uint64_t scratch_bytes(const struct cgm_spec *spec)
{
    for (size_t i = 0; i < RECIPE_COUNT; i++)
        if (recipes[i].op == spec->op)
            return recipes[i].sums ? cgm_scatter_bytes(spec) : 0;
    return 0;
}

static int enqueue(const struct cgm_launch *launch, uint32_t rank)
{
    for (size_t i = 0; i < RECIPE_COUNT; i++)
        if (recipes[i].op == launch->spec->op)
            return recipes[i].enqueue(launch, rank);
    return CGM_INTERNAL;
}

static double estimate(const struct cgm_spec *spec)
{
    bool local = !cgm_op_is_collective(spec->op);
    bool twice = spec->op == CGM_OP_AR || spec->op == CGM_OP_GEMM_AR;
    if (local)
        return cgm_cost_gemm(spec);
    return cgm_cost_gemm(spec) + cgm_cost_transfer(spec) + (twice ? 2 : 1) * cgm_cost_step();
}

#define GROUP_OPS                                                                                  \
    (1u << CGM_OP_AG_GEMM | 1u << CGM_OP_GEMM_RS | 1u << CGM_OP_GEMM_AR | 1u << CGM_OP_BULK_AG |   \
     1u << CGM_OP_BULK_RS | 1u << CGM_OP_AG | 1u << CGM_OP_RS | 1u << CGM_OP_AR)

const struct cgm_algorithm cgm_no_overlap = {
    .number = CGM_ALGO_NO_OVERLAP,
    .name = "no_overlap",
    .ops = 1u << CGM_OP_GEMM | 1u << CGM_OP_GEMM_AS | 1u << CGM_OP_A2AV | GROUP_OPS,
    .method = CGM_METHOD_NONE,
    .summary = "the collective, then the GEMM, or the reverse",
    .group_ops = GROUP_OPS,
    .parameters = CGM_PARAMETERS_OF_DEVICES & ~(1u << CGM_PARAMETER_COMM_PRIORITY),
    .estimate = estimate,
    .scratch_bytes = scratch_bytes,
    .flags = cgm_emit_flags,
    .enqueue = enqueue,
};
