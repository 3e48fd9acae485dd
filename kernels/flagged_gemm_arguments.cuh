// What the host hands to the kernel of flagged_gemm_kernel.cuh, and the sizes that both sides know.
#ifndef CGM_FLAGGED_GEMM_ARGUMENTS_CUH
#define CGM_FLAGGED_GEMM_ARGUMENTS_CUH

#include "kernels/flagged_gemm.h"

#include <cuda.h>
#include <stdint.h>

namespace
{

constexpr unsigned tile_rows = 128, tile_depth = 64;
constexpr unsigned wide = 256, narrow = 128; // columns of a tile
constexpr unsigned ring_bytes = 192 * 1024;  // of stages
constexpr unsigned a_bytes = tile_rows * tile_depth * 2;
constexpr unsigned swizzle_lines = 64; // numbers in a row of a swizzled box: 128 bytes
constexpr unsigned box_unit = 8;       // a box begins at 16 bytes
constexpr unsigned atom_bytes = 1024;  // eight such rows: what is swizzled
constexpr unsigned group = 128;        // threads of a warpgroup
constexpr unsigned consumers = 2;
constexpr unsigned threads = (1 + consumers) * group;
constexpr unsigned piece_rows = tile_rows / consumers, piece_cols = 64; // what is sent off at once
constexpr unsigned places = 2;                                          // for pieces
constexpr unsigned piece_bytes = piece_rows * piece_cols * 2;
constexpr unsigned shared_bytes =
    ring_bytes + consumers * places * piece_bytes + atom_bytes; // to begin at an atom

// A tile of so many columns.
template <unsigned cols> struct tile_of {
    static constexpr unsigned b_bytes = cols * tile_depth * 2;
    static constexpr unsigned stage_bytes = a_bytes + b_bytes;
    static constexpr unsigned stages = ring_bytes / stage_bytes;
    static constexpr unsigned pieces = cols / piece_cols;
    static constexpr unsigned sums = cols / 2; // of each thread that multiplies
};

// Arguments of few parts are quicker to hand over: less than 4 KiB.
constexpr unsigned few = 8, many = CGM_KERNEL_PARTS_MAX;

struct part {
    uint32_t first_tile, row_tiles, col_tiles, a_map;
    uint32_t out_map, n_outs; // by bulk copies; n_outs 0: by single threads, to out
    uint32_t rows, cols, col;
    uint64_t stride;
    void *out;
    const uint64_t *await;
    uint64_t *publish;
    uint64_t await_value, publish_value, counted; // counted: the counter when the part is done
};

template <unsigned parts> struct arguments {
    CUtensorMap b;
    CUtensorMap a[parts];
    CUtensorMap out[parts];
    part part[parts];
    uint32_t n_parts, tiles, steps; // steps: of tile_depth
    // The first tiles are worked on by one block each. The last ones, too few for all blocks, are
    // shared: by so many blocks each, a slice of the depth for each of them. A unit is one or the
    // other.
    uint32_t whole, slices, units;
    float4 *partials;   // [shared tile][consumer][slice][a thread's sums / 4][thread]
    uint32_t *meetings; // [shared tile][consumer]
    uint64_t *counters;
    const uint64_t *give_up;
    cgm_kernel_matrix bias;
    int format;
    bool accumulate, woven; // woven: tile i is of part i % n_parts, where that has so many
};

static_assert(sizeof(arguments<few>) <= 4096, "a launch copies more more slowly");

} // namespace

#endif
