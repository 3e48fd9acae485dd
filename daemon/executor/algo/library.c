#include "daemon/executor/algo/library.h"

#include "daemon/executor/algo/collective.h"
#include "proto/status.h"

static bool is_dense(const struct cgm_view *view)
{
    return view->rows <= 1 || view->stride == view->cols;
}

static uint64_t bytes_of(const struct cgm_view *view)
{
    return view->rows * view->cols * cgm_dtype_bytes(view->dtype);
}

/* Every chunk of this rank behind the one before, and the shard in its own place or elsewhere. */
static bool gathers(const struct cgm_launch *launch, uint32_t rank)
{
    struct cgm_view shard = cgm_gather_source(launch, rank);
    struct cgm_view first = cgm_gathered_chunk(launch, rank, 0);
    if (!is_dense(&shard))
        return false;
    for (uint32_t i = 0; i < launch->spec->world; i++) {
        struct cgm_view chunk = cgm_gathered_chunk(launch, rank, i);
        if (!is_dense(&chunk) || chunk.offset_bytes != first.offset_bytes + i * bytes_of(&chunk))
            return false;
    }
    return true;
}

/* Of a sum that the library cannot write to out, a reduction of one source makes what is wanted;
 * for ar there is no memory to keep it in. */
static bool sums(const struct cgm_launch *launch, uint32_t rank)
{
    struct cgm_view source = cgm_scatter_source(launch, rank);
    return is_dense(&source) && (launch->spec->op != CGM_OP_AR ||
                                 is_dense(cgm_launch_operand(launch, rank, CGM_OPERAND_OUT)));
}

bool cgm_library_takes(const struct cgm_launch *launch)
{
    int op = launch->spec->op;
    bool gathering = op == CGM_OP_AG || op == CGM_OP_AG_GEMM || op == CGM_OP_BULK_AG;
    if (launch->spec->world == 1 || cgm_spec_wants_copies(launch->spec))
        return false;
    for (uint32_t rank = 0; rank < launch->spec->world; rank++)
        if (!launch->ranks[rank].group || !(gathering ? gathers(launch, rank) : sums(launch, rank)))
            return false;
    return true;
}

void cgm_library_gather(struct cgm_emit *emit)
{
    const struct cgm_launch *launch = emit->launch;
    struct cgm_collective collective = {
        .kind = CGM_COLLECTIVE_GATHER,
        .dst = cgm_gathered_chunk(launch, emit->rank, 0),
        .src = cgm_gather_source(launch, emit->rank),
    };
    collective.dst.stride = collective.dst.cols;
    collective.dst.rows *= emit->world;
    cgm_emit_collective(emit, &collective);
}

/* Whether the library can write dst itself: nothing is added, and dst is no part of the source. */
static bool is_final(const struct cgm_emit *emit, const struct cgm_view *dst,
                     const struct cgm_view *source)
{
    bool plain = emit->launch->spec->op == CGM_OP_BULK_RS ||
                 (!cgm_launch_operand(emit->launch, emit->rank, CGM_OPERAND_BIAS)->mem &&
                  !cgm_launch_accumulates(emit->launch));
    return plain && is_dense(dst) && dst->dtype == source->dtype && dst->mem != emit->self->user;
}

/* dst = sum [+ bias] [+ dst], converted and laid out as dst is. */
static void finish(struct cgm_emit *emit, const struct cgm_view *sum, const struct cgm_view *dst)
{
    struct cgm_reduce reduce = {.dst = *dst, .src = {*sum}, .n_src = 1};
    cgm_sum_emit(emit, &reduce, 0, emit->rank);
}

/* Sums into `sum` where dst itself cannot be written. */
static void sum_and_finish(struct cgm_emit *emit, enum cgm_collective_kind kind,
                           const struct cgm_view *source, const struct cgm_view *sum,
                           const struct cgm_view *dst)
{
    bool final = is_final(emit, dst, source);
    struct cgm_collective collective = {.kind = kind, .dst = final ? *dst : *sum, .src = *source};
    cgm_emit_collective(emit, &collective);
    if (!final)
        finish(emit, sum, dst);
}

/* The scratch has room for at least one block. */
void cgm_library_scatter(struct cgm_emit *emit, const struct cgm_view *dst)
{
    struct cgm_view source = cgm_scatter_source(emit->launch, emit->rank);
    struct cgm_view sum =
        cgm_view_of(emit->self->scratch, 0, source.rows / emit->world, source.cols, source.dtype);
    sum_and_finish(emit, CGM_COLLECTIVE_SCATTER, &source, &sum, dst);
}

/* A partial product may be overwritten by the sum. */
void cgm_library_reduce(struct cgm_emit *emit)
{
    struct cgm_view source = cgm_scatter_source(emit->launch, emit->rank);
    const struct cgm_view *out = cgm_launch_operand(emit->launch, emit->rank, CGM_OPERAND_OUT);
    sum_and_finish(emit, CGM_COLLECTIVE_REDUCE, &source, &source, out);
}
