#include "daemon/executor/algo/collective.h"

#include "proto/status.h"

#define SLOT_ALIGN 256u

static bool is_there(const struct cgm_view *view)
{
    return view->mem != NULL;
}

/* ---- all-gather -------------------------------------------------------------------------------
 */

struct cgm_view cgm_gather_source(const struct cgm_launch *launch, uint32_t rank)
{
    const struct cgm_view *aux = cgm_launch_operand(launch, rank, CGM_OPERAND_AUX_IN);
    if (launch->spec->op != CGM_OP_BULK_AG)
        return *cgm_launch_operand(launch, rank, CGM_OPERAND_LHS);
    return is_there(aux) ? *aux : cgm_launch_chunk(launch, rank, rank);
}

struct cgm_view cgm_gathered_chunk(const struct cgm_launch *launch, uint32_t rank, uint32_t chunk)
{
    const struct cgm_spec *spec = launch->spec;
    const struct cgm_view *whole = cgm_launch_operand(
        launch, rank, spec->op == CGM_OP_AG ? CGM_OPERAND_OUT : CGM_OPERAND_AUX_OUT);
    bool transposed = spec->op == CGM_OP_AG_GEMM && spec->transa;
    if (!is_there(whole))
        return cgm_launch_chunk(launch, rank, chunk);
    uint64_t rows = (transposed ? whole->cols : whole->rows) / spec->world;
    return cgm_view_band(whole, transposed, chunk * rows, rows);
}

static void push_shard(struct cgm_emit *emit, uint32_t peer)
{
    struct cgm_view src = cgm_gather_source(emit->launch, emit->rank);
    struct cgm_view dst = cgm_gathered_chunk(emit->launch, peer, emit->rank);
    cgm_emit_push(emit, &src, &dst, peer, emit->rank, 1);
}

static uint32_t first_of(const struct cgm_emit *emit, uint32_t first_peer)
{
    bool is_peer = first_peer != emit->rank && first_peer < emit->world;
    return is_peer ? first_peer : cgm_emit_target(emit, 1);
}

void cgm_gather_push_first(struct cgm_emit *emit, uint32_t first_peer)
{
    cgm_emit_await_start(emit);
    if (emit->world > 1)
        push_shard(emit, first_of(emit, first_peer));
}

void cgm_gather_push_rest(struct cgm_emit *emit, uint32_t first_peer)
{
    for (uint32_t distance = 1; distance < emit->world; distance++)
        if (cgm_emit_target(emit, distance) != first_of(emit, first_peer))
            push_shard(emit, cgm_emit_target(emit, distance));
}

void cgm_gather_own(struct cgm_emit *emit, enum cgm_emit_queue queue)
{
    struct cgm_view src = cgm_gather_source(emit->launch, emit->rank);
    struct cgm_view dst = cgm_gathered_chunk(emit->launch, emit->rank, emit->rank);
    cgm_emit_copy(emit, queue, &src, &dst, emit->rank);
}

void cgm_gather_await(struct cgm_emit *emit)
{
    for (uint32_t distance = 1; distance < emit->world; distance++)
        cgm_emit_await_arrival(emit, cgm_emit_source(emit, distance), 1);
}

/* ---- reduce-scatter ---------------------------------------------------------------------------
 */

static void summed_shape(const struct cgm_spec *spec, uint64_t *ret_rows, uint64_t *ret_cols)
{
    bool moved = spec->op == CGM_OP_BULK_RS;
    *ret_rows = moved ? spec->buffer_shape[0] : spec->m;
    *ret_cols = moved ? spec->buffer_shape[1] : spec->n;
}

struct cgm_view cgm_scatter_source(const struct cgm_launch *launch, uint32_t rank)
{
    const struct cgm_spec *spec = launch->spec;
    const struct cgm_view *aux = cgm_launch_operand(launch, rank, CGM_OPERAND_AUX_IN);
    uint64_t rows, cols;
    if (spec->op == CGM_OP_RS || spec->op == CGM_OP_AR)
        return *cgm_launch_operand(launch, rank, CGM_OPERAND_LHS);
    if (spec->op == CGM_OP_BULK_RS && is_there(aux))
        return *aux;
    summed_shape(spec, &rows, &cols);
    rows = spec->op == CGM_OP_BULK_RS ? rows : launch->rows;
    return cgm_view_of(launch->ranks[rank].user, 0, rows, cols, spec->buffer_dtype);
}

struct cgm_view cgm_scatter_target(const struct cgm_launch *launch, uint32_t rank)
{
    const struct cgm_view *aux = cgm_launch_operand(launch, rank, CGM_OPERAND_AUX_OUT);
    if (launch->spec->op != CGM_OP_BULK_RS)
        return *cgm_launch_operand(launch, rank, CGM_OPERAND_OUT);
    return is_there(aux) ? *aux : cgm_launch_chunk(launch, rank, rank);
}

static uint64_t block_begin(const struct cgm_launch *launch, uint64_t rows, uint32_t block)
{
    return rows * block / launch->spec->world;
}

struct cgm_view cgm_scatter_block(const struct cgm_launch *launch, const struct cgm_view *view,
                                  uint32_t block)
{
    uint64_t begin = block_begin(launch, view->rows, block);
    return cgm_view_rows(view, begin, block_begin(launch, view->rows, block + 1) - begin);
}

static uint64_t slot_bytes(const struct cgm_spec *spec)
{
    uint64_t rows, cols;
    summed_shape(spec, &rows, &cols);
    rows = (rows + spec->world - 1) / spec->world;
    uint64_t bytes = rows * cols * cgm_dtype_bytes(spec->buffer_dtype);
    return (bytes + SLOT_ALIGN - 1) / SLOT_ALIGN * SLOT_ALIGN;
}

uint64_t cgm_scatter_bytes(const struct cgm_spec *spec)
{
    return (spec->world - 1) * slot_bytes(spec);
}

struct cgm_view cgm_scatter_slot(const struct cgm_launch *launch, uint32_t owner, uint32_t peer)
{
    const struct cgm_spec *spec = launch->spec;
    uint64_t slot = peer < owner ? peer : peer - 1, rows, cols;
    summed_shape(spec, &rows, &cols);
    rows = spec->op == CGM_OP_BULK_RS ? rows : launch->rows;
    rows = block_begin(launch, rows, owner + 1) - block_begin(launch, rows, owner);
    return cgm_view_of(launch->ranks[owner].scratch, slot * slot_bytes(spec), rows, cols,
                       spec->buffer_dtype);
}

void cgm_scatter_await_source(struct cgm_emit *emit)
{
    int op = emit->launch->spec->op;
    if (op != CGM_OP_GEMM_RS && op != CGM_OP_GEMM_AR) {
        cgm_emit_await_start(emit);
        return;
    }
    cgm_emit_publish(emit, 1);
    cgm_emit_await_source(emit, 1);
}

void cgm_scatter_push_cols(struct cgm_emit *emit, uint32_t peer, uint64_t first, uint64_t cols,
                           uint32_t step)
{
    struct cgm_view source = cgm_scatter_source(emit->launch, emit->rank);
    struct cgm_view block = cgm_scatter_block(emit->launch, &source, peer);
    struct cgm_view slot = cgm_scatter_slot(emit->launch, peer, emit->rank);
    block = cgm_view_cols(&block, first, cols);
    slot = cgm_view_cols(&slot, first, cols);
    cgm_emit_push(emit, &block, &slot, peer, peer, step);
}

void cgm_scatter_push(struct cgm_emit *emit, uint32_t peer)
{
    struct cgm_view source = cgm_scatter_source(emit->launch, emit->rank);
    cgm_scatter_push_cols(emit, peer, 0, source.cols, 1);
}

void cgm_sum_emit(struct cgm_emit *emit, struct cgm_reduce *reduce, uint64_t first, uint32_t chunk)
{
    const struct cgm_launch *launch = emit->launch;
    const struct cgm_view *bias = cgm_launch_operand(launch, emit->rank, CGM_OPERAND_BIAS);
    if (launch->spec->op != CGM_OP_BULK_RS) { /* whose GEMM they belong to */
        reduce->accumulate = cgm_launch_accumulates(launch);
        if (is_there(bias))
            reduce->bias = cgm_view_cols(bias, first, reduce->dst.cols);
    }
    cgm_emit_reduce(emit, reduce, chunk);
}

void cgm_scatter_reduce_cols(struct cgm_emit *emit, const struct cgm_view *dst, uint64_t first,
                             uint64_t cols, uint32_t step)
{
    const struct cgm_launch *launch = emit->launch;
    struct cgm_view source = cgm_scatter_source(launch, emit->rank);
    struct cgm_reduce reduce = {.dst = cgm_view_cols(dst, first, cols), .n_src = emit->world};
    for (uint32_t peer = 0; peer < emit->world; peer++) {
        if (peer != emit->rank)
            cgm_emit_await_arrival(emit, peer, step);
        struct cgm_view block = peer == emit->rank ? cgm_scatter_block(launch, &source, peer)
                                                   : cgm_scatter_slot(launch, emit->rank, peer);
        reduce.src[peer] = cgm_view_cols(&block, first, cols);
    }
    cgm_sum_emit(emit, &reduce, first, emit->rank);
}

void cgm_scatter_reduce(struct cgm_emit *emit, const struct cgm_view *dst)
{
    cgm_scatter_reduce_cols(emit, dst, 0, dst->cols, 1);
}

void cgm_share_blocks(struct cgm_emit *emit)
{
    const struct cgm_launch *launch = emit->launch;
    uint32_t step = emit->published + 1;
    cgm_emit_publish(emit, step);
    cgm_emit_await_source(emit, step);
    const struct cgm_view *out = cgm_launch_operand(launch, emit->rank, CGM_OPERAND_OUT);
    struct cgm_view src = cgm_scatter_block(launch, out, emit->rank);
    for (uint32_t distance = 1; distance < emit->world; distance++) {
        uint32_t peer = cgm_emit_target(emit, distance);
        struct cgm_view dst = cgm_scatter_block(
            launch, cgm_launch_operand(launch, peer, CGM_OPERAND_OUT), emit->rank);
        cgm_emit_push(emit, &src, &dst, peer, emit->rank, 2);
    }
    for (uint32_t distance = 1; distance < emit->world; distance++)
        cgm_emit_await_arrival(emit, cgm_emit_source(emit, distance), 2);
}
