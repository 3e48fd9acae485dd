#include "daemon/executor/algo/collective.h"

#include "proto/status.h"

#define SLOT_ALIGN 256u

struct cgm_view cgm_gathered_chunk(const struct cgm_launch *launch, uint32_t rank, uint32_t chunk)
{
    bool alone = launch->spec->op == CGM_OP_AG;
    const struct cgm_view *whole =
        cgm_launch_operand(launch, rank, alone ? CGM_OPERAND_OUT : CGM_OPERAND_AUX_OUT);
    uint64_t rows = launch->rows / launch->spec->world;
    if (!whole->mem)
        return cgm_launch_chunk(launch, rank, chunk);
    return cgm_view_band(whole, launch->spec->transa, chunk * rows, rows);
}

static void push_shard(struct cgm_emit *emit, uint32_t peer)
{
    const struct cgm_view *lhs = cgm_launch_operand(emit->launch, emit->rank, CGM_OPERAND_LHS);
    struct cgm_view dst = cgm_gathered_chunk(emit->launch, peer, emit->rank);
    cgm_emit_push(emit, lhs, &dst, peer, emit->rank, 1);
}

void cgm_gather_push(struct cgm_emit *emit, uint32_t first_peer)
{
    cgm_emit_publish(emit, 1);
    cgm_emit_await_source(emit, 1);
    if (first_peer != emit->rank && first_peer < emit->world)
        push_shard(emit, first_peer);
    for (uint32_t distance = 1; distance < emit->world; distance++)
        if (cgm_emit_target(emit, distance) != first_peer)
            push_shard(emit, cgm_emit_target(emit, distance));
}

void cgm_gather_own(struct cgm_emit *emit, enum cgm_emit_queue queue)
{
    const struct cgm_view *lhs = cgm_launch_operand(emit->launch, emit->rank, CGM_OPERAND_LHS);
    struct cgm_view dst = cgm_gathered_chunk(emit->launch, emit->rank, emit->rank);
    cgm_emit_copy(emit, queue, lhs, &dst, emit->rank);
}

struct cgm_view cgm_scatter_source(const struct cgm_launch *launch, uint32_t rank)
{
    const struct cgm_spec *spec = launch->spec;
    if (spec->op == CGM_OP_RS || spec->op == CGM_OP_AR)
        return *cgm_launch_operand(launch, rank, CGM_OPERAND_LHS);
    return cgm_view_of(launch->ranks[rank].user, 0, launch->rows, spec->n, spec->buffer_dtype);
}

static uint64_t block_begin(const struct cgm_launch *launch, uint32_t block)
{
    return launch->rows * block / launch->spec->world;
}

struct cgm_view cgm_scatter_block(const struct cgm_launch *launch, const struct cgm_view *view,
                                  uint32_t block)
{
    uint64_t begin = block_begin(launch, block), end = block_begin(launch, block + 1);
    return cgm_view_rows(view, begin, end - begin);
}

static uint64_t slot_bytes(const struct cgm_spec *spec)
{
    uint64_t rows = (spec->m + spec->world - 1) / spec->world;
    uint64_t bytes = rows * spec->n * cgm_dtype_bytes(spec->buffer_dtype);
    return (bytes + SLOT_ALIGN - 1) / SLOT_ALIGN * SLOT_ALIGN;
}

uint64_t cgm_scatter_bytes(const struct cgm_spec *spec)
{
    return (spec->world - 1) * slot_bytes(spec);
}

struct cgm_view cgm_scatter_slot(const struct cgm_launch *launch, uint32_t owner, uint32_t peer)
{
    const struct cgm_spec *spec = launch->spec;
    uint64_t slot = peer < owner ? peer : peer - 1;
    uint64_t rows = block_begin(launch, owner + 1) - block_begin(launch, owner);
    return cgm_view_of(launch->ranks[owner].scratch, slot * slot_bytes(spec), rows, spec->n,
                       spec->buffer_dtype);
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
    cgm_scatter_push_cols(emit, peer, 0, emit->launch->spec->n, 1);
}

void cgm_scatter_reduce_cols(struct cgm_emit *emit, const struct cgm_view *dst, uint64_t first,
                             uint64_t cols, uint32_t step)
{
    const struct cgm_launch *launch = emit->launch;
    struct cgm_view source = cgm_scatter_source(launch, emit->rank);
    struct cgm_reduce reduce = {
        .dst = cgm_view_cols(dst, first, cols),
        .bias = *cgm_launch_operand(launch, emit->rank, CGM_OPERAND_BIAS),
        .n_src = emit->world,
        .accumulate = cgm_launch_accumulates(launch),
    };
    if (reduce.bias.mem)
        reduce.bias = cgm_view_cols(&reduce.bias, first, cols);
    for (uint32_t peer = 0; peer < emit->world; peer++) {
        if (peer != emit->rank)
            cgm_emit_await_arrival(emit, peer, step);
        struct cgm_view block = peer == emit->rank ? cgm_scatter_block(launch, &source, peer)
                                                   : cgm_scatter_slot(launch, emit->rank, peer);
        reduce.src[peer] = cgm_view_cols(&block, first, cols);
    }
    cgm_emit_reduce(emit, &reduce, emit->rank);
}

void cgm_scatter_reduce(struct cgm_emit *emit, const struct cgm_view *dst)
{
    cgm_scatter_reduce_cols(emit, dst, 0, emit->launch->spec->n, 1);
}

void cgm_share_blocks(struct cgm_emit *emit)
{
    const struct cgm_launch *launch = emit->launch;
    cgm_emit_publish(emit, 2);
    cgm_emit_await_source(emit, 2);
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
