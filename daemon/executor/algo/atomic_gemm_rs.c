/* One GEMM that computes num_splits blocks of columns one after the other; when all tiles of a
 * block are stored a counter says so, and its reduce-scatter starts. */
#include "daemon/executor/algo/collective.h"
#include "daemon/executor/algo/flagged.h"
#include "daemon/executor/algo/pieces.h"
#include "daemon/executor/algo/product.h"
#include "daemon/executor/algo/table.h"

/* Splits begin at multiples of the largest of these that leaves something for each. */
static const uint32_t units[] = {256, 64, 8, 1};

static uint32_t split_count(const struct cgm_spec *spec)
{
    return cgm_piece_count(spec, spec->n);
}

static uint64_t split_begin(const struct cgm_spec *spec, uint32_t split)
{
    const uint32_t *unit = units;
    uint32_t count = split_count(spec);
    while (spec->n / *unit < count)
        unit++;
    return split == count ? spec->n : spec->n / *unit * split / count * *unit;
}

static uint32_t flags(const struct cgm_spec *spec)
{
    return cgm_emit_flags(spec) + split_count(spec);
}

static void multiply_splits(struct cgm_emit *emit)
{
    const struct cgm_launch *launch = emit->launch;
    const struct cgm_view *lhs = cgm_launch_operand(launch, emit->rank, CGM_OPERAND_LHS);
    struct cgm_view product = cgm_scatter_source(launch, emit->rank);
    struct cgm_parts parts;
    cgm_parts_begin(&parts);
    for (uint32_t split = 0; split < split_count(launch->spec); split++) {
        uint64_t begin = split_begin(launch->spec, split);
        struct cgm_view out =
            cgm_view_cols(&product, begin, split_begin(launch->spec, split + 1) - begin);
        cgm_parts_add(&parts, lhs, &out, begin, split)->publish =
            cgm_emit_block(emit, emit->rank, split);
    }
    cgm_parts_multiply_partial(emit, &parts);
}

static int enqueue(const struct cgm_launch *launch, uint32_t rank)
{
    const struct cgm_spec *spec = launch->spec;
    const struct cgm_view *out = cgm_launch_operand(launch, rank, CGM_OPERAND_OUT);
    uint32_t splits = split_count(spec);
    struct cgm_emit emit = cgm_emit_begin(launch, rank);
    multiply_splits(&emit);
    for (uint32_t split = 0; split < splits && emit.world > 1; split++) {
        uint64_t begin = split_begin(spec, split), cols = split_begin(spec, split + 1) - begin;
        cgm_emit_await_block(&emit, CGM_EMIT_COMM, split, split, rank);
        for (uint32_t distance = 1; distance < emit.world; distance++)
            cgm_scatter_push_cols(&emit, cgm_emit_target(&emit, distance), begin, cols, split + 1);
    }
    for (uint32_t split = 0; split < splits; split++) {
        uint64_t begin = split_begin(spec, split), cols = split_begin(spec, split + 1) - begin;
        cgm_scatter_reduce_cols(&emit, out, begin, cols, split + 1);
    }
    return cgm_emit_end(&emit);
}

static int check(const struct cgm_spec *spec, char *ret_detail, size_t detail_bytes)
{
    return cgm_piece_check(spec, "n", spec->n, ret_detail, detail_bytes);
}

const struct cgm_algorithm cgm_atomic_gemm_rs = {
    .number = CGM_ALGO_ATOMIC_GEMM_RS,
    .name = "atomic_gemm_rs",
    .ops = 1u << CGM_OP_GEMM_RS,
    .method = CGM_METHOD_PIPELINE,
    .atomic = true,
    .summary = "one GEMM that counts finished blocks of columns (num_splits), each then scattered",
    .parameters = CGM_PARAMETERS_OF_DEVICES | 1u << CGM_PARAMETER_NUM_SPLITS,
    .flagged = true,
    .check = check,
    .estimate = cgm_publishing_estimate,
    .scratch_bytes = cgm_scatter_bytes,
    .flags = flags,
    .enqueue = enqueue,
};
