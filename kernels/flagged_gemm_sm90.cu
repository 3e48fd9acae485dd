// The host's side of the persistent product: what it can do, its tensor maps, its launch.
#include "kernels/flagged_gemm_kernel.cuh"

#include <cudaTypedefs.h>
#include <string.h>

namespace
{

using encode = PFN_cuTensorMapEncodeTiled_v12000;

encode find_encode()
{
    void *function = nullptr;
    cudaDriverEntryPointQueryResult result;
    const cudaError_t error = cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function,
                                                               12000, cudaEnableDefault, &result);
    cudaGetLastError();
    return error == cudaSuccess && result == cudaDriverEntryPointSuccess
               ? reinterpret_cast<encode>(function)
               : nullptr;
}

encode encode_tiled()
{
    static const encode found = find_encode();
    return found;
}

// A matrix of 16-bit numbers in boxes that are 128 bytes wide and so many rows high; beyond its
// edges there are zeros.
bool encode_matrix(CUtensorMap *map, const cgm_kernel_matrix *matrix, uint32_t box_rows)
{
    const cuuint64_t sizes[] = {matrix->cols, matrix->rows}, strides[] = {matrix->stride * 2};
    const cuuint32_t box[] = {swizzle_lines, box_rows}, ones[] = {1, 1};
    return encode_tiled()(map,
                          matrix->format == CGM_FORMAT_BF16 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16
                                                            : CU_TENSOR_MAP_DATA_TYPE_FLOAT16,
                          2, matrix->data, sizes, strides, box, ones, CU_TENSOR_MAP_INTERLEAVE_NONE,
                          CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                          CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}

struct known_map {
    uint64_t rows, cols, stride;
    void *data;
    uint32_t format, box_rows; // box_rows 0: nothing is known
    CUtensorMap map;
};

// A map depends on nothing else, and the same operands come again and again: each thread keeps its
// latest ones.
bool map_matrix(CUtensorMap *map, const cgm_kernel_matrix *matrix, uint32_t box_rows)
{
    constexpr unsigned places = 64;
    static thread_local known_map known[places];
    const uint64_t at = reinterpret_cast<uintptr_t>(matrix->data) / 16;
    known_map &place = known[(at ^ at >> 6 ^ at >> 12 ^ at >> 18 ^ box_rows / 64) % places];
    if (place.box_rows != box_rows || place.data != matrix->data || place.rows != matrix->rows ||
        place.cols != matrix->cols || place.stride != matrix->stride ||
        place.format != static_cast<uint32_t>(matrix->format)) {
        place.box_rows = 0;
        if (!encode_matrix(&place.map, matrix, box_rows))
            return false;
        place = {matrix->rows,
                 matrix->cols,
                 matrix->stride,
                 matrix->data,
                 static_cast<uint32_t>(matrix->format),
                 box_rows,
                 place.map};
    }
    *map = place.map;
    return true;
}

uint32_t tiles_of(uint64_t length, uint32_t tile)
{
    return static_cast<uint32_t>((length + tile - 1) / tile);
}

// Parts that read the same rows share a map.
template <unsigned parts>
bool map_a(arguments<parts> &gemm, const cgm_kernel_flagged_gemm *asked, uint32_t index)
{
    const cgm_kernel_matrix *a = &asked->parts[index].a;
    gemm.part[index].a_map = index;
    for (uint32_t i = 0; i < index; i++)
        if (memcmp(a, &asked->parts[i].a, sizeof(*a)) == 0) {
            gemm.part[index].a_map = i;
            return true;
        }
    return map_matrix(&gemm.a[index], a, asked->transa ? tile_depth : tile_rows);
}

bool by_bulk_copies(const cgm_kernel_part *part)
{
    return part->out.format != CGM_FORMAT_FP32;
}

// `first`: the first one that is free; goes on to the next one.
template <unsigned parts>
bool map_outs(arguments<parts> &gemm, const cgm_kernel_flagged_gemm *asked, uint32_t index,
              uint32_t *first)
{
    const cgm_kernel_part *from = &asked->parts[index];
    part *to = &gemm.part[index];
    to->out_map = *first;
    to->n_outs = by_bulk_copies(from) ? 1 + from->n_also : 0;
    bool mapped = to->n_outs == 0 || map_matrix(&gemm.out[*first], &from->out, piece_rows);
    for (uint32_t i = 1; i < to->n_outs && mapped; i++)
        mapped = map_matrix(&gemm.out[*first + i], &from->also[i - 1], piece_rows);
    *first += to->n_outs;
    return mapped;
}

template <unsigned parts, unsigned cols>
void add_part(arguments<parts> &gemm, const cgm_kernel_flagged_gemm *asked, uint32_t index)
{
    const cgm_kernel_part *from = &asked->parts[index];
    part *to = &gemm.part[index];
    to->first_tile = gemm.tiles;
    to->row_tiles = tiles_of(from->out.rows, tile_rows);
    to->col_tiles = tiles_of(from->out.cols, cols);
    to->rows = static_cast<uint32_t>(from->out.rows);
    to->cols = static_cast<uint32_t>(from->out.cols);
    to->col = static_cast<uint32_t>(from->col);
    to->stride = from->out.stride;
    to->out = from->out.data;
    to->await = from->await;
    to->await_value = from->await_value;
    to->publish = from->publish;
    to->publish_value = from->publish_value;
    const uint32_t tiles = to->row_tiles * to->col_tiles;
    if (!asked->woven)
        gemm.tiles += tiles;
    else if (gemm.tiles < tiles * asked->n_parts)
        gemm.tiles = tiles * asked->n_parts;
    if (from->publish) // each warpgroup counts its half of a tile
        asked->expected[index] += static_cast<uint64_t>(to->row_tiles) * to->col_tiles * consumers;
    to->counted = asked->expected[index];
}

uint32_t steps_of(const cgm_kernel_flagged_gemm *gemm)
{
    const cgm_kernel_matrix *a = &gemm->parts[0].a;
    return tiles_of(gemm->transa ? a->rows : a->cols, tile_depth);
}

// Woven parts have as many tiles as the longest one, some of which do not exist.
uint32_t count_tiles(const cgm_kernel_flagged_gemm *gemm, uint32_t cols)
{
    uint32_t all = 0, most = 0;
    for (uint32_t i = 0; i < gemm->n_parts; i++) {
        const cgm_kernel_matrix *out = &gemm->parts[i].out;
        const uint32_t tiles = tiles_of(out->rows, tile_rows) * tiles_of(out->cols, cols);
        all += tiles;
        most = tiles > most ? tiles : most;
    }
    return gemm->woven ? most * gemm->n_parts : all;
}

struct division {
    uint32_t whole, slices; // arguments.whole, arguments.slices
    uint64_t cost;          // in steps of one block
};

// What sharing a tile costs beside its products, in the time of so many steps: once, and for each
// slice, whose sums the last block adds up. A slice has this many steps at least.
constexpr uint64_t meeting_cost = 6, slice_cost = 7, slice_steps = 4;

bool can_share(const cgm_kernel_flagged_gemm *gemm, uint32_t tiles, uint32_t slices, uint32_t cols)
{
    return gemm->partials && tiles * slices <= gemm->blocks &&
           tiles * consumers <= CGM_KERNEL_MEETINGS_MAX &&
           static_cast<uint64_t>(tiles) * slices * tile_rows * cols * sizeof(float) <=
               gemm->partial_bytes;
}

division divide(const cgm_kernel_flagged_gemm *gemm, uint32_t cols)
{
    const uint32_t tiles = count_tiles(gemm, cols), steps = steps_of(gemm);
    const uint32_t rest = tiles % gemm->blocks;
    const uint64_t waves = tiles / gemm->blocks;
    division best = {tiles, 1, (waves + (rest > 0)) * steps};
    for (uint32_t slices = 2; rest > 0 && slices * slice_steps <= steps; slices++) {
        const uint64_t cost = waves * steps + tiles_of(steps, slices) + meeting_cost +
                              static_cast<uint64_t>(slices) * slice_cost;
        if (!can_share(gemm, rest, slices, cols))
            break;
        if (cost < best.cost)
            best = {tiles - rest, slices, cost};
    }
    return best;
}

template <unsigned parts>
void share_last_tiles(arguments<parts> &gemm, const cgm_kernel_flagged_gemm *asked, uint32_t cols)
{
    const division division = divide(asked, cols);
    gemm.whole = division.whole;
    gemm.slices = division.slices;
    gemm.units = division.whole + (gemm.tiles - division.whole) * division.slices;
    gemm.partials = static_cast<float4 *>(asked->partials);
    gemm.meetings = asked->meetings;
}

template <unsigned parts, unsigned cols, bool bf16, bool transa, bool transb>
cudaError_t launch(const cgm_kernel_flagged_gemm *asked, cudaStream_t stream)
{
    arguments<parts> gemm;
    gemm.n_parts = asked->n_parts;
    gemm.tiles = 0;
    gemm.steps = steps_of(asked);
    gemm.counters = asked->counters;
    gemm.give_up = asked->give_up;
    gemm.bias = asked->bias;
    gemm.format = asked->parts[0].out.format;
    gemm.accumulate = asked->accumulate;
    gemm.woven = asked->woven;
    bool mapped = map_matrix(&gemm.b, &asked->b, transb ? cols : tile_depth);
    uint32_t outs = 0;
    for (uint32_t i = 0; i < asked->n_parts && mapped; i++)
        mapped = map_a(gemm, asked, i) && map_outs(gemm, asked, i, &outs);
    if (!mapped)
        return cudaErrorInvalidValue;
    for (uint32_t i = 0; i < asked->n_parts; i++)
        add_part<parts, cols>(gemm, asked, i);
    share_last_tiles(gemm, asked, cols);
    const uint32_t blocks = gemm.units < asked->blocks ? gemm.units : asked->blocks;
    flagged_gemm<parts, cols, bf16, transa, transb>
        <<<blocks, threads, shared_bytes, stream>>>(gemm);
    return cudaGetLastError();
}

template <unsigned parts, unsigned cols, bool bf16, bool transa, bool transb> cudaError_t load()
{
    return cudaFuncSetAttribute(flagged_gemm<parts, cols, bf16, transa, transb>,
                                cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes);
}

struct variant {
    cudaError_t (*launch)(const cgm_kernel_flagged_gemm *asked, cudaStream_t stream);
    cudaError_t (*load)();
};

template <unsigned parts, unsigned cols, bool bf16, bool transa, bool transb>
constexpr variant variant_of()
{
    return {launch<parts, cols, bf16, transa, transb>, load<parts, cols, bf16, transa, transb>};
}

template <unsigned parts, unsigned cols, bool bf16> struct layouts {
    static constexpr variant of[2][2] = {{variant_of<parts, cols, bf16, false, false>(),
                                          variant_of<parts, cols, bf16, false, true>()},
                                         {variant_of<parts, cols, bf16, true, false>(),
                                          variant_of<parts, cols, bf16, true, true>()}};
};

enum kind { few_wide, many_wide, few_narrow, kinds };

// [kind][bf16]
constexpr const variant (*const variants[kinds][2])[2] = {
    {layouts<few, wide, false>::of, layouts<few, wide, true>::of},
    {layouts<many, wide, false>::of, layouts<many, wide, true>::of},
    {layouts<few, narrow, false>::of, layouts<few, narrow, true>::of}};

bool is_aligned(const cgm_kernel_matrix *matrix)
{
    const uint64_t element = matrix->format == CGM_FORMAT_FP32 ? 4 : 2;
    return reinterpret_cast<uintptr_t>(matrix->data) % 16 == 0 &&
           matrix->stride * element % 16 == 0;
}

bool device_can()
{
    int device, major = 0, minor = 0;
    return cudaGetDevice(&device) == cudaSuccess &&
           cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device) ==
               cudaSuccess &&
           cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device) ==
               cudaSuccess &&
           major == 9 && minor == 0 && encode_tiled();
}

} // namespace

extern "C" cudaError_t cgm_kernel_flagged_gemm_load(bool *ret_can)
{
    cudaError_t error = cudaSuccess;
    *ret_can = device_can();
    if (!*ret_can)
        return error;
    for (unsigned i = 0; i < kinds * 8 && error == cudaSuccess; i++)
        error = variants[i >> 3][i >> 2 & 1][i >> 1 & 1][i & 1].load();
    return error;
}

namespace
{

uint32_t count_outs(const cgm_kernel_flagged_gemm *gemm)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < gemm->n_parts; i++)
        count += 1 + gemm->parts[i].n_also;
    return count;
}

// Others go on with what is stored.
bool is_awaited(const cgm_kernel_flagged_gemm *gemm)
{
    bool awaited = false;
    for (uint32_t i = 0; i < gemm->n_parts; i++)
        awaited |= gemm->parts[i].publish || gemm->parts[i].n_also > 0;
    return awaited;
}

// A narrow tile takes so many hundredths of the time of a wide one. Where tiles come in one or two
// waves, and others go on with them, what is stored earlier is worth a little.
constexpr uint64_t narrow_cost = 54, early_worth = 10, few_waves = 2;

bool wants_narrow(const cgm_kernel_flagged_gemm *gemm)
{
    if (gemm->tile_cols)
        return gemm->tile_cols == narrow;
    const bool is_short = count_tiles(gemm, wide) <= few_waves * gemm->blocks;
    const uint64_t worth = is_short && is_awaited(gemm) ? early_worth : 0;
    return divide(gemm, narrow).cost * narrow_cost < divide(gemm, wide).cost * (100 + worth);
}

kind kind_of(const cgm_kernel_flagged_gemm *gemm)
{
    if (gemm->n_parts > few || count_outs(gemm) > few)
        return many_wide;
    return wants_narrow(gemm) ? few_narrow : few_wide;
}

bool can_also(const cgm_kernel_part *part)
{
    bool can = part->n_also == 0 || by_bulk_copies(part);
    for (uint32_t i = 0; i < part->n_also && can; i++)
        can = part->also[i].format == part->out.format && is_aligned(&part->also[i]);
    return can;
}

} // namespace

extern "C" bool cgm_kernel_flagged_gemm_can(const cgm_kernel_flagged_gemm *gemm)
{
    const int format = gemm->b.format, out = gemm->parts[0].out.format;
    bool can = (format == CGM_FORMAT_FP16 || format == CGM_FORMAT_BF16) &&
               (out == format || out == CGM_FORMAT_FP32) && is_aligned(&gemm->b) &&
               count_outs(gemm) <= many;
    for (uint32_t i = 0; i < gemm->n_parts && can; i++) {
        const cgm_kernel_part *part = &gemm->parts[i];
        can = part->a.format == format && part->out.format == out && is_aligned(&part->a) &&
              is_aligned(&part->out) && can_also(part) &&
              (gemm->transb || part->col % box_unit == 0);
    }
    return can;
}

extern "C" cudaError_t cgm_kernel_flagged_gemm_launch(const cgm_kernel_flagged_gemm *gemm,
                                                      cudaStream_t stream)
{
    const bool bf16 = gemm->b.format == CGM_FORMAT_BF16;
    return variants[kind_of(gemm)][bf16][gemm->transa][gemm->transb].launch(gemm, stream);
}

namespace
{

template <unsigned parts>
void repeat_argument(const void *captured, const cgm_kernel_flagged_repeat *repeat,
                     void *ret_argument)
{
    auto *gemm = static_cast<arguments<parts> *>(ret_argument);
    memcpy(gemm, captured, sizeof(*gemm));
    gemm->give_up = repeat->give_up;
    for (uint32_t i = 0; i < gemm->n_parts; i++) {
        gemm->part[i].await_value += repeat->raise;
        gemm->part[i].publish_value += repeat->raise;
        gemm->part[i].counted *= repeat->launches;
    }
}

} // namespace

extern "C" size_t cgm_kernel_flagged_gemm_bytes(const struct cgm_kernel_flagged_gemm *gemm)
{
    return kind_of(gemm) == many_wide ? sizeof(arguments<many>) : sizeof(arguments<few>);
}

extern "C" void cgm_kernel_flagged_gemm_repeat(const void *captured, size_t bytes,
                                               const struct cgm_kernel_flagged_repeat *repeat,
                                               void *ret_argument)
{
    if (bytes == sizeof(arguments<many>))
        repeat_argument<many>(captured, repeat, ret_argument);
    else
        repeat_argument<few>(captured, repeat, ret_argument);
}

CGM_KERNEL_ANCHOR(flagged_gemm_sm90, flagged_gemm<few, wide, true, false, false>)
