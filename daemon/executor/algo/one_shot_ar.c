/* All-reduce in one step: every rank sends all it has to every other, and each sums all of it. More
 * bytes than in two steps, but only one latency. In num_splits bands of rows: for gemm_ar a
 * finished band is sent while the next one is multiplied; every band is summed when it has come. */
#include "daemon/executor/algo/collective.h"
#include "daemon/executor/algo/cost.h"
#include "daemon/executor/algo/pieces.h"
#include "daemon/executor/algo/product.h"
#include "daemon/executor/algo/table.h"

#define SLOT_ALIGN 256u

struct band {
    uint64_t first, count;
    uint32_t step;
};

static uint64_t slot_bytes(const struct cgm_spec *spec)
{
    uint64_t bytes = spec->m * spec->n * cgm_dtype_bytes(spec->buffer_dtype);
    return (bytes + SLOT_ALIGN - 1) / SLOT_ALIGN * SLOT_ALIGN;
}

static uint64_t scratch_bytes(const struct cgm_spec *spec)
{
    return (spec->world - 1) * slot_bytes(spec);
}

static struct band band_of(const struct cgm_launch *launch, uint32_t pieces, uint32_t piece)
{
    uint64_t first = cgm_piece_begin(launch->rows, pieces, piece);
    return (struct band){first, cgm_piece_begin(launch->rows, pieces, piece + 1) - first,
                         piece + 1};
}

static struct cgm_view source_band(const struct cgm_launch *launch, uint32_t rank,
                                   const struct band *band)
{
    struct cgm_view source = cgm_scatter_source(launch, rank);
    return cgm_view_rows(&source, band->first, band->count);
}

/* Where on `rank` the band of `peer` waits for the sum. */
static struct cgm_view slot_band(const struct cgm_launch *launch, uint32_t rank, uint32_t peer,
                                 const struct band *band)
{
    const struct cgm_spec *spec = launch->spec;
    uint64_t slot = peer < rank ? peer : peer - 1;
    struct cgm_view view = cgm_view_of(launch->ranks[rank].scratch, slot * slot_bytes(spec),
                                       launch->rows, spec->n, spec->buffer_dtype);
    return cgm_view_rows(&view, band->first, band->count);
}

static void push_band(struct cgm_emit *emit, const struct band *band)
{
    struct cgm_view src = source_band(emit->launch, emit->rank, band);
    for (uint32_t distance = 1; distance < emit->world; distance++) {
        uint32_t peer = cgm_emit_target(emit, distance);
        struct cgm_view dst = slot_band(emit->launch, peer, emit->rank, band);
        cgm_emit_push(emit, &src, &dst, peer, band->step - 1, band->step);
    }
}

static void reduce_band(struct cgm_emit *emit, const struct band *band)
{
    const struct cgm_launch *launch = emit->launch;
    const struct cgm_view *out = cgm_launch_operand(launch, emit->rank, CGM_OPERAND_OUT);
    struct cgm_reduce reduce = {.dst = cgm_view_rows(out, band->first, band->count),
                                .n_src = emit->world};
    for (uint32_t peer = 0; peer < emit->world; peer++) {
        if (peer != emit->rank)
            cgm_emit_await_arrival(emit, peer, band->step);
        reduce.src[peer] = peer == emit->rank ? source_band(launch, peer, band)
                                              : slot_band(launch, emit->rank, peer, band);
    }
    cgm_sum_emit(emit, &reduce, 0, band->step - 1);
}

static bool multiplies(const struct cgm_emit *emit)
{
    return emit->launch->spec->op == CGM_OP_GEMM_AR;
}

static void multiply_band(struct cgm_emit *emit, const struct band *band)
{
    cgm_product_partial(emit, band->first, band->count, band->step - 1);
    cgm_emit_publish(emit, band->step);
}

static void send_band(struct cgm_emit *emit, const struct band *band)
{
    if (multiplies(emit))
        cgm_emit_await_source(emit, band->step);
    if (emit->world > 1)
        push_band(emit, band);
}

/* Each push is enqueued behind the product after its own: there is always one to work on. */
static void send_bands(struct cgm_emit *emit, uint32_t pieces)
{
    struct band band = band_of(emit->launch, pieces, 0);
    if (multiplies(emit))
        multiply_band(emit, &band);
    else
        cgm_emit_await_start(emit);
    for (uint32_t i = 1; i < pieces; i++) {
        struct band next = band_of(emit->launch, pieces, i);
        if (multiplies(emit))
            multiply_band(emit, &next);
        send_band(emit, &band);
        band = next;
    }
    send_band(emit, &band);
}

static int enqueue(const struct cgm_launch *launch, uint32_t rank)
{
    struct cgm_emit emit = cgm_emit_begin(launch, rank);
    uint32_t pieces = cgm_piece_count(launch->spec, launch->rows);
    send_bands(&emit, pieces);
    for (uint32_t i = 0; i < pieces; i++) {
        struct band band = band_of(launch, pieces, i);
        reduce_band(&emit, &band);
    }
    return cgm_emit_end(&emit);
}

static int check(const struct cgm_spec *spec, char *ret_detail, size_t detail_bytes)
{
    return cgm_piece_check(spec, "m", spec->m, ret_detail, detail_bytes);
}

static double estimate(const struct cgm_spec *spec)
{
    double transfer = cgm_cost_transfer(spec) * spec->world / 2; /* all, not twice one part */
    return cgm_cost_pipeline(spec, cgm_piece_count(spec, spec->m), transfer);
}

const struct cgm_algorithm cgm_one_shot_ar = {
    .number = CGM_ALGO_ONE_SHOT_AR,
    .name = "one_shot_ar",
    .ops = 1u << CGM_OP_GEMM_AR | 1u << CGM_OP_AR,
    .method = CGM_METHOD_PIPELINE,
    .summary = "num_splits bands of rows, each sent to all, summed by all in rank order",
    .parameters = CGM_PARAMETERS_OF_DEVICES | 1u << CGM_PARAMETER_NUM_SPLITS,
    .check = check,
    .estimate = estimate,
    .scratch_bytes = scratch_bytes,
    .flags = cgm_emit_flags,
    .enqueue = enqueue,
};
