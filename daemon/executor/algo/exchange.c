#include "daemon/executor/algo/exchange.h"

/* Of rank `from` for rank `to`: as it lies in from's lhs, and in to's out. */
static struct cgm_view sent_block(const struct cgm_launch *launch, uint32_t from, uint32_t to)
{
    const struct cgm_spec *spec = launch->spec;
    return cgm_view_rows(cgm_launch_operand(launch, from, CGM_OPERAND_LHS),
                         cgm_operation_sent_before(spec, from, to),
                         spec->counts[from * spec->world + to]);
}

static struct cgm_view received_block(const struct cgm_launch *launch, uint32_t from, uint32_t to)
{
    const struct cgm_spec *spec = launch->spec;
    return cgm_view_rows(cgm_launch_operand(launch, to, CGM_OPERAND_OUT),
                         cgm_operation_received_before(spec, to, from),
                         spec->counts[from * spec->world + to]);
}

void cgm_exchange(struct cgm_emit *emit)
{
    const struct cgm_launch *launch = emit->launch;
    uint32_t rank = emit->rank;
    cgm_emit_await_start(emit);
    for (uint32_t distance = 1; distance < emit->world; distance++) {
        uint32_t peer = cgm_emit_target(emit, distance);
        struct cgm_view src = sent_block(launch, rank, peer);
        struct cgm_view dst = received_block(launch, rank, peer);
        cgm_emit_push(emit, &src, &dst, peer, rank, 1);
    }
    struct cgm_view src = sent_block(launch, rank, rank), dst = received_block(launch, rank, rank);
    cgm_emit_copy(emit, CGM_EMIT_COMPUTE, &src, &dst, rank);
    for (uint32_t distance = 1; distance < emit->world; distance++)
        cgm_emit_await_arrival(emit, cgm_emit_source(emit, distance), 1);
}

static struct cgm_view own_columns(const struct cgm_launch *launch, uint32_t owner, uint32_t rank,
                                   uint64_t first, uint64_t count)
{
    const struct cgm_view *out = cgm_launch_operand(launch, rank, CGM_OPERAND_OUT);
    uint64_t cols = out->cols / launch->spec->world;
    struct cgm_view band = cgm_view_rows(out, first, count);
    return cgm_view_cols(&band, owner * cols, cols);
}

struct cgm_view cgm_spread_place(const struct cgm_launch *launch, uint32_t owner, uint32_t rank)
{
    return own_columns(launch, owner, rank, 0, launch->rows);
}

void cgm_spread_push(struct cgm_emit *emit, uint64_t first, uint64_t count, uint32_t step)
{
    struct cgm_view src = own_columns(emit->launch, emit->rank, emit->rank, first, count);
    for (uint32_t distance = 1; distance < emit->world; distance++) {
        uint32_t peer = cgm_emit_target(emit, distance);
        struct cgm_view dst = own_columns(emit->launch, emit->rank, peer, first, count);
        cgm_emit_push(emit, &src, &dst, peer, emit->rank, step);
    }
}

void cgm_spread_await(struct cgm_emit *emit, uint32_t step)
{
    for (uint32_t distance = 1; distance < emit->world; distance++)
        cgm_emit_await_arrival(emit, cgm_emit_source(emit, distance), step);
}
