#include "daemon/executor/algo/direct.h"

#include "daemon/executor/algo/collective.h"
#include "daemon/executor/algo/flagged.h"
#include "daemon/executor/algo/pieces.h"
#include "daemon/executor/algo/product.h"

static uint64_t block_rows(const struct cgm_spec *spec, uint64_t rows)
{
    return rows / spec->world;
}

/* Sums wait for the end of the product: more bands than are asked for would only be more calls. */
uint32_t cgm_direct_bands(const struct cgm_spec *spec, uint64_t rows)
{
    return cgm_band_is_asked(spec) ? cgm_band_count(spec, spec->world, block_rows(spec, rows)) : 1;
}

int cgm_direct_check(const struct cgm_spec *spec, char *ret_detail, size_t detail_bytes)
{
    return cgm_band_check(spec, spec->world, block_rows(spec, spec->m), ret_detail, detail_bytes);
}

/* For each peer one for each band; jobs of fewer rows have no more of them. */
uint32_t cgm_direct_flags(const struct cgm_spec *spec)
{
    return cgm_emit_flags(spec) + spec->world * cgm_direct_bands(spec, spec->m);
}

static uint32_t flag_of(const struct cgm_launch *launch, uint32_t source, uint32_t band)
{
    return source * cgm_direct_bands(launch->spec, launch->spec->m) + band;
}

struct cgm_view cgm_direct_band(const struct cgm_launch *launch, const struct cgm_view *block,
                                uint32_t band)
{
    uint32_t bands = cgm_direct_bands(launch->spec, launch->rows);
    uint64_t begin = cgm_piece_begin(block->rows, bands, band);
    return cgm_view_rows(block, begin, cgm_piece_begin(block->rows, bands, band + 1) - begin);
}

/* Where this rank's part of an owner's block goes. */
static struct cgm_view place_of(const struct cgm_launch *launch, uint32_t rank, uint32_t owner)
{
    struct cgm_view product = cgm_scatter_source(launch, rank);
    return owner == rank ? cgm_scatter_block(launch, &product, owner)
                         : cgm_scatter_slot(launch, owner, rank);
}

static void add_block(struct cgm_emit *emit, struct cgm_parts *parts, uint32_t owner)
{
    const struct cgm_launch *launch = emit->launch;
    uint32_t bands = cgm_direct_bands(launch->spec, launch->rows);
    struct cgm_view place = place_of(launch, emit->rank, owner);
    uint64_t first = launch->rows * owner / emit->world;
    for (uint32_t band = 0; band < bands; band++) {
        struct cgm_view out = cgm_direct_band(launch, &place, band);
        struct cgm_gemm_part *part = cgm_parts_add_partial(parts, emit, first, &out, owner);
        if (part && owner != emit->rank)
            part->publish = cgm_emit_block(emit, owner, flag_of(launch, emit->rank, band));
        first += out.rows;
    }
}

void cgm_direct_multiply(struct cgm_emit *emit)
{
    struct cgm_parts parts;
    cgm_parts_begin(&parts);
    for (uint32_t distance = 1; distance <= emit->world; distance++)
        add_block(emit, &parts, cgm_emit_target(emit, distance));
    for (uint32_t distance = 1; distance < emit->world; distance++)
        cgm_emit_await_begun(emit, cgm_emit_target(emit, distance));
    cgm_parts_weave_partial(emit, &parts);
}

/* The band of the same rows of every peer's out. */
static void add_peers(const struct cgm_emit *emit, uint32_t band, struct cgm_reduce *reduce)
{
    const struct cgm_launch *launch = emit->launch;
    for (uint32_t distance = 1; distance < emit->world; distance++) {
        uint32_t peer = cgm_emit_target(emit, distance);
        const struct cgm_view *out = cgm_launch_operand(launch, peer, CGM_OPERAND_OUT);
        struct cgm_view block = cgm_scatter_block(launch, out, emit->rank);
        reduce->also[reduce->n_also++] = cgm_direct_band(launch, &block, band);
    }
}

void cgm_direct_sum(struct cgm_emit *emit, const struct cgm_view *block, uint32_t band,
                    bool everywhere)
{
    const struct cgm_launch *launch = emit->launch;
    struct cgm_view product = cgm_scatter_source(launch, emit->rank);
    struct cgm_reduce reduce = {.dst = cgm_direct_band(launch, block, band), .n_src = emit->world};
    if (reduce.dst.rows == 0)
        return;
    if (everywhere)
        add_peers(emit, band, &reduce);
    for (uint32_t peer = 0; peer < emit->world; peer++) {
        struct cgm_view part = peer == emit->rank ? cgm_scatter_block(launch, &product, peer)
                                                  : cgm_scatter_slot(launch, emit->rank, peer);
        if (peer != emit->rank)
            cgm_emit_await_block(emit, CGM_EMIT_COMPUTE, flag_of(launch, peer, band), peer, peer);
        reduce.src[peer] = cgm_direct_band(launch, &part, band);
    }
    cgm_sum_emit(emit, &reduce, 0, emit->rank);
}
