/* Every rank pushes its shard to all others and multiplies the chunks as they arrive: its own
 * first, then the others in the order in which they were sent to it, one by one or, where they
 * arrive faster than they are multiplied, several together: fewer and larger GEMMs. With
 * aggregate_ag it waits for both chunks of a pair (0 and 1, 2 and 3, ...) and multiplies them
 * together, its own pair first: half as many GEMMs of twice the rows. */
#include "daemon/executor/algo/collective.h"
#include "daemon/executor/algo/cost.h"
#include "daemon/executor/algo/product.h"
#include "daemon/executor/algo/table.h"

/* When all would be done with groups of `size` chunks. Some rank's group goes past the last chunk
 * and on with the first: two GEMMs. */
static double finish_time(const struct cgm_spec *spec, uint64_t rows, uint32_t size)
{
    double now = cgm_cost_rows(spec, rows);
    for (uint32_t first = 1; first < spec->world; first += size) {
        uint32_t count = first + size <= spec->world ? size : spec->world - first;
        double arrival = (first + count - 1) * cgm_cost_shard(spec, rows);
        now = now > arrival ? now : arrival;
        now += cgm_cost_rows(spec, rows * (count - count / 2));
        if (count > 1)
            now += cgm_cost_rows(spec, rows * (count / 2));
    }
    return now;
}

static uint32_t group_size(const struct cgm_spec *spec, uint64_t rows)
{
    uint32_t best = 1;
    for (uint32_t size = 2; size < spec->world; size++)
        if (finish_time(spec, rows, size) < finish_time(spec, rows, best))
            best = size;
    return best;
}

/* The chunks of distances first ... first + count - 1, which end at the lowest number. */
static void multiply_group(struct cgm_emit *emit, uint32_t first, uint32_t count)
{
    for (uint32_t distance = first; distance < first + count; distance++)
        cgm_emit_await_arrival(emit, cgm_emit_source(emit, distance), 1);
    uint32_t lowest = cgm_emit_source(emit, first + count - 1);
    uint32_t straight = emit->world - lowest < count ? emit->world - lowest : count;
    cgm_product_gathered(emit, lowest, straight);
    if (straight < count)
        cgm_product_gathered(emit, 0, count - straight);
}

static void multiply_chunks(struct cgm_emit *emit)
{
    uint64_t rows = emit->launch->rows / emit->world;
    uint32_t size = group_size(emit->launch->spec, rows);
    for (uint32_t first = 1; first < emit->world; first += size)
        multiply_group(emit, first, first + size <= emit->world ? size : emit->world - first);
}

static void multiply_own(struct cgm_emit *emit)
{
    uint64_t rows = emit->launch->rows / emit->world;
    const struct cgm_view *lhs = cgm_launch_operand(emit->launch, emit->rank, CGM_OPERAND_LHS);
    cgm_product_band(emit, lhs, emit->rank * rows, emit->rank);
}

static void multiply_pairs(struct cgm_emit *emit)
{
    uint32_t pairs = (emit->world + 1) / 2;
    for (uint32_t distance = 0; distance < pairs; distance++) {
        uint32_t first = (emit->rank / 2 + pairs - distance) % pairs * 2;
        uint32_t count = first + 1 < emit->world ? 2 : 1;
        for (uint32_t chunk = first; chunk < first + count; chunk++)
            if (chunk != emit->rank)
                cgm_emit_await_arrival(emit, chunk, 1);
        cgm_product_gathered(emit, first, count);
    }
}

static int enqueue(const struct cgm_launch *launch, uint32_t rank)
{
    bool pairs = launch->spec->aggregate_ag;
    struct cgm_emit emit = cgm_emit_begin(launch, rank);
    if (pairs) {
        cgm_gather_push_first(&emit, rank ^ 1u);
        cgm_gather_own(&emit, CGM_EMIT_COMPUTE);
        cgm_gather_push_rest(&emit, rank ^ 1u);
        multiply_pairs(&emit);
    } else {
        bool product_first = cgm_cost_is_product(launch->spec);
        if (product_first)
            multiply_own(&emit);
        cgm_gather_push_first(&emit, rank);
        if (!product_first)
            multiply_own(&emit);
        cgm_gather_push_rest(&emit, rank);
        if (cgm_launch_operand(launch, rank, CGM_OPERAND_AUX_OUT)->mem)
            cgm_gather_own(&emit, CGM_EMIT_COMM);
        multiply_chunks(&emit);
    }
    return cgm_emit_end(&emit);
}

static double estimate(const struct cgm_spec *spec)
{
    double gemm = cgm_cost_gemm(spec), cutting = cgm_cost_cutting(spec);
    double transfer = cgm_cost_transfer(spec) + gemm / spec->world;
    double compute = gemm + (spec->aggregate_ag ? cutting / 2 : cutting);
    return compute > transfer ? compute : transfer;
}

const struct cgm_algorithm cgm_split_pipelined_ag_p2p = {
    .number = CGM_ALGO_SPLIT_PIPELINED_AG_P2P,
    .name = "split_pipelined_ag_p2p",
    .ops = 1u << CGM_OP_AG_GEMM,
    .method = CGM_METHOD_RING_EXCHANGE,
    .summary = "GEMMs of one or more chunks (of pairs with aggregate_ag) as they arrive",
    .parameters = CGM_PARAMETERS_OF_DEVICES | 1u << CGM_PARAMETER_AGGREGATE_AG,
    .estimate = estimate,
    .flags = cgm_emit_flags,
    .enqueue = enqueue,
};
