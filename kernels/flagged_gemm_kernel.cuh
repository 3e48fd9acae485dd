// A persistent product of tiles of 128 x 256, or 128 x 128. One warp brings tiles of 64 steps of
// the depth into a ring of stages in shared memory; two warpgroups multiply half a tile each and
// put it, piece by piece, into shared memory again, from where a warp for each of them sends it off
// by bulk copies: stores of single threads reach other devices slowly, and the warpgroups would
// wait for them. Tiles that are left when all blocks have had as many as each other are shared, a
// slice of the depth a block. Built for sm_90a alone; code for other devices is empty and never
// started.
#ifndef CGM_FLAGGED_GEMM_KERNEL_CUH
#define CGM_FLAGGED_GEMM_KERNEL_CUH

#include "kernels/device_numbers.cuh"
#include "kernels/flagged_gemm_arguments.cuh"
#include "kernels/sm90.cuh"

namespace
{

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

// Tiles of neighbouring blocks share their operands in the L2 cache: this many rows of tiles are
// gone through column by column.
constexpr unsigned rows_of_tiles = 16;
constexpr unsigned looks_per_give_up = 64;
constexpr unsigned consumer_warps = consumers * group / 32;

struct place {
    uint32_t part, row, col; // of the part, in elements
    bool exists;
};

// In a part, its tile `rest`.
template <unsigned cols> __device__ place place_in(const part &of, uint32_t part, uint32_t rest)
{
    const uint32_t row_tiles = of.row_tiles, col_tiles = of.col_tiles;
    const uint32_t band = rest / (rows_of_tiles * col_tiles) * rows_of_tiles;
    const uint32_t height = min(rows_of_tiles, row_tiles - band);
    const uint32_t in_band = rest - band * col_tiles;
    return {part, (band + in_band % height) * tile_rows, in_band / height * cols, true};
}

// `part`: where to look from on.
template <unsigned parts, unsigned cols>
__device__ place place_of(const arguments<parts> &gemm, uint32_t tile, uint32_t part)
{
    if (gemm.woven) {
        part = tile % gemm.n_parts;
        const uint32_t rest = tile / gemm.n_parts;
        if (rest >= gemm.part[part].row_tiles * gemm.part[part].col_tiles)
            return {0, 0, 0, false};
        return place_in<cols>(gemm.part[part], part, rest);
    }
    while (part + 1 < gemm.n_parts && tile >= gemm.part[part + 1].first_tile)
        part++;
    return place_in<cols>(gemm.part[part], part, tile - gemm.part[part].first_tile);
}

// What a block does at a time: a tile, or a slice of one.
struct unit {
    place at;
    uint32_t first_step, end_step, shared, slice; // shared: which one of the shared tiles
    bool is_slice;
};

template <unsigned parts, unsigned cols>
__device__ unit unit_of(const arguments<parts> &gemm, uint32_t index, uint32_t part)
{
    if (index < gemm.whole)
        return {place_of<parts, cols>(gemm, index, part), 0, gemm.steps, 0, 0, false};
    const uint32_t shared = (index - gemm.whole) / gemm.slices;
    const uint32_t slice = (index - gemm.whole) % gemm.slices;
    return {place_of<parts, cols>(gemm, gemm.whole + shared, part),
            gemm.steps * slice / gemm.slices,
            gemm.steps * (slice + 1) / gemm.slices,
            shared,
            slice,
            true};
}

// ---- counters ----------------------------------------------------------------------------------

__device__ uint64_t load_acquire(const uint64_t *counter)
{
    uint64_t value;
    asm volatile("ld.acquire.sys.global.u64 %0, [%1];" : "=l"(value) : "l"(counter) : "memory");
    return value;
}

__device__ void store_release(uint64_t *counter, uint64_t value)
{
    asm volatile("st.release.sys.global.u64 [%0], %1;" ::"l"(counter), "l"(value) : "memory");
}

// False: it will never come.
__device__ bool await(const uint64_t *counter, uint64_t value, const uint64_t *give_up,
                      uint32_t part)
{
    for (uint32_t look = 1; load_acquire(counter) < value; look++) {
        if (look % looks_per_give_up == 0 &&
            (*static_cast<const volatile uint64_t *>(give_up) >> part & 1))
            return false;
        __nanosleep(40);
    }
    return true;
}

// After everything that is counted was stored.
__device__ void count(uint64_t *counter, uint64_t counted, uint64_t *publish, uint64_t value)
{
    __threadfence_system();
    const uint64_t before = atomicAdd(reinterpret_cast<unsigned long long *>(counter), 1ull);
    if (before + 1 != counted)
        return;
    __threadfence_system();
    store_release(publish, value);
}

// ---- bringing ----------------------------------------------------------------------------------

// Lines [line, line + lines) of steps [step, step + tile_depth).
template <bool lines_inside, unsigned lines>
__device__ void load_operand(uint32_t to, const CUtensorMap *map, int32_t line, int32_t step,
                             uint32_t barrier)
{
    if constexpr (!lines_inside) {
        cgm::tensor_load(to, map, step, line, barrier);
    } else {
#pragma unroll
        for (unsigned i = 0; i < lines / swizzle_lines; i++)
            cgm::tensor_load(to + i * swizzle_lines * tile_depth * 2, map,
                             line + static_cast<int32_t>(i * swizzle_lines), step, barrier);
    }
}

template <unsigned length> struct ring_of {
    uint32_t data, full, empty; // addresses in shared memory
    uint32_t stage, parity;

    __device__ void advance()
    {
        if (++stage == length) {
            stage = 0;
            parity ^= 1;
        }
    }
};

template <unsigned cols> using ring = ring_of<tile_of<cols>::stages>;
using outgoing = ring_of<places>; // of one warpgroup

template <unsigned parts, unsigned cols, bool transa, bool transb>
__device__ void bring(const arguments<parts> &gemm, ring<cols> ring, volatile int *aborted)
{
    uint32_t awaited = 0, at_part = 0; // the parts before `awaited` are there
    for (uint32_t index = blockIdx.x; index < gemm.units; index += gridDim.x) {
        const unit unit = unit_of<parts, cols>(gemm, index, at_part);
        const place &at = unit.at;
        if (!at.exists)
            continue;
        const part &part = gemm.part[at.part];
        at_part = at.part;
        if (at.part >= awaited) {
            awaited = at.part + 1;
            if (part.await && !await(part.await, part.await_value, gemm.give_up, at.part))
                *aborted = 1;
            cgm::copies_follow();
        }
        for (uint32_t step = unit.first_step; step < unit.end_step; step++) {
            const uint32_t full = ring.full + ring.stage * 8;
            const uint32_t data = ring.data + ring.stage * tile_of<cols>::stage_bytes;
            const int32_t depth = static_cast<int32_t>(step * tile_depth);
            cgm::barrier_wait(ring.empty + ring.stage * 8, ring.parity ^ 1);
            cgm::barrier_expect(full, tile_of<cols>::stage_bytes);
            load_operand<transa, tile_rows>(data, &gemm.a[part.a_map], static_cast<int32_t>(at.row),
                                            depth, full);
            load_operand<!transb, cols>(data + a_bytes, &gemm.b,
                                        static_cast<int32_t>(part.col + at.col), depth, full);
            ring.advance();
        }
    }
}

// ---- multiplying -------------------------------------------------------------------------------

// A matrix in shared memory as wgmma wants it described, swizzled by 128 bytes. Steps inside: eight
// lines are an atom. Lines inside: eight steps are, and 64 lines lie tile_depth such rows apart.
template <bool lines_inside> __device__ uint64_t describe(uint32_t address)
{
    const uint64_t leading = lines_inside ? swizzle_lines * tile_depth * 2 : 16;
    return static_cast<uint64_t>((address & 0x3ffff) >> 4) | (leading >> 4) << 16 |
           static_cast<uint64_t>(atom_bytes >> 4) << 32 | 1ull << 62;
}

// From one 16 steps to the next, in units of 16 bytes.
template <bool lines_inside> __device__ constexpr uint64_t step_of()
{
    return lines_inside ? 16 * swizzle_lines * 2 >> 4 : 16 * 2 >> 4;
}

template <bool bf16, bool transa, bool transb, unsigned count>
__device__ void multiply_stage(float (&sums)[count], uint32_t a, uint32_t b, bool first)
{
    const uint64_t a_matrix = describe<transa>(a), b_matrix = describe<!transb>(b);
    cgm::products_begin();
#pragma unroll
    for (unsigned i = 0; i < tile_depth / 16; i++)
        cgm::product<bf16, transa, !transb>(sums, a_matrix + i * step_of<transa>(),
                                            b_matrix + i * step_of<!transb>(), i > 0 || !first);
    cgm::products_commit();
}

template <unsigned cols, bool bf16, bool transa, bool transb>
__device__ void multiply_tile(float (&sums)[tile_of<cols>::sums], ring<cols> &ring, uint32_t steps,
                              unsigned consumer, bool arrives)
{
    // Either way a warpgroup's 64 rows of a are 64 x 64 numbers in one piece.
    const uint32_t a_offset = consumer * 64 * tile_depth * 2;
    uint32_t before = 0;
    for (uint32_t step = 0; step < steps; step++) {
        const uint32_t data = ring.data + ring.stage * tile_of<cols>::stage_bytes;
        cgm::barrier_wait(ring.full + ring.stage * 8, ring.parity);
        multiply_stage<bf16, transa, transb>(sums, data + a_offset, data + a_bytes, step == 0);
        if (step > 0) {
            cgm::products_wait<1>();
            if (arrives)
                cgm::barrier_arrive(ring.empty + before * 8);
        }
        before = ring.stage;
        ring.advance();
    }
    cgm::products_wait<0>();
    if (arrives)
        cgm::barrier_arrive(ring.empty + before * 8);
}

// ---- slices ------------------------------------------------------------------------------------

// Puts a warpgroup's sums of a slice where the others' are. The one that comes last gets the sums
// of all slices, in the slices' order whatever the order in which they came; it waits for nobody.
// False: others come later. *ret_last: for the thread that sends.
template <unsigned parts, unsigned count>
__device__ bool meet(const arguments<parts> &gemm, const unit &unit, float (&sums)[count],
                     unsigned consumer, volatile int *ret_last)
{
    constexpr unsigned words = count / 4 * group;
    const unsigned thread = threadIdx.x % group;
    const uint32_t meeting = unit.shared * consumers + consumer;
    float4 *first = gemm.partials + static_cast<size_t>(meeting) * gemm.slices * words + thread;
    float4 *own = first + unit.slice * words;
#pragma unroll
    for (unsigned i = 0; i < count / 4; i++)
        __stcg(own + i * group,
               make_float4(sums[i * 4], sums[i * 4 + 1], sums[i * 4 + 2], sums[i * 4 + 3]));
    __threadfence();
    cgm::named_barrier(1 + consumer, group);
    if (thread == 0) // the last one makes it 0 again
        *ret_last = atomicInc(gemm.meetings + meeting, gemm.slices - 1) == gemm.slices - 1;
    cgm::named_barrier(1 + consumer, group);
    if (!*ret_last)
        return false;
    __threadfence();
    for (uint32_t slice = 0; slice < gemm.slices; slice++) {
        const float4 *from = first + slice * words;
#pragma unroll
        for (unsigned i = 0; i < count / 4; i++) {
            const float4 part = __ldcg(from + i * group);
            sums[i * 4] = slice ? sums[i * 4] + part.x : part.x;
            sums[i * 4 + 1] = slice ? sums[i * 4 + 1] + part.y : part.y;
            sums[i * 4 + 2] = slice ? sums[i * 4 + 2] + part.z : part.z;
            sums[i * 4 + 3] = slice ? sums[i * 4 + 3] + part.w : part.w;
        }
    }
    return true;
}

// ---- storing -----------------------------------------------------------------------------------

// Of wgmma's results a thread has two neighbours in each block of 8 columns, and the same 8 rows
// below. Four threads (a quad) have a row's 8.

template <typename T> __device__ uint32_t pack(float low, float high);
template <> __device__ uint32_t pack<__half>(float low, float high)
{
    const __half2 both = __floats2half2_rn(low, high);
    return *reinterpret_cast<const uint32_t *>(&both);
}
template <> __device__ uint32_t pack<__nv_bfloat16>(float low, float high)
{
    const __nv_bfloat162 both = __floats2bfloat162_rn(low, high);
    return *reinterpret_cast<const uint32_t *>(&both);
}

__device__ void exchange(uint32_t &low, uint32_t &high, bool upper, unsigned mask)
{
    const uint32_t got = __shfl_xor_sync(~0u, upper ? low : high, mask);
    if (upper)
        low = got;
    else
        high = got;
}

// Of a quad's four blocks of 8 columns, each thread gets one whole.
__device__ uint4 gather_block(uint4 words, unsigned quad)
{
    exchange(words.x, words.y, quad & 1, 1);
    exchange(words.z, words.w, quad & 1, 1);
    exchange(words.x, words.z, quad & 2, 2);
    exchange(words.y, words.w, quad & 2, 2);
    return words;
}

struct target {
    void *out;
    uint64_t stride;
    uint32_t rows, cols; // that there are from the tile's first on
};

// 64 columns of the warpgroup's half of the tile, swizzled by 128 bytes.
template <typename T, unsigned first_block, unsigned count>
__device__ void put_piece(uint32_t to, const float (&sums)[count], uint32_t row, unsigned quad)
{
#pragma unroll
    for (unsigned below = 0; below < 2; below++)
#pragma unroll
        for (unsigned block = 0; block < 8; block += 4) {
            const float *at = &sums[(first_block + block) * 4 + below * 2];
            const uint4 words = gather_block({pack<T>(at[0], at[1]), pack<T>(at[4], at[5]),
                                              pack<T>(at[8], at[9]), pack<T>(at[12], at[13])},
                                             quad);
            const uint32_t line = row + below * 8, word = (block + quad) ^ line % 8;
            cgm::shared_store(to + line * piece_cols * 2 + word * 16, words);
        }
}

// All of the warpgroup's threads have put theirs.
__device__ void hand_over(outgoing &to, bool arrives)
{
    __syncwarp();
    if (arrives)
        cgm::barrier_arrive(to.full + to.stage * 8);
    to.advance();
}

// A place without a piece, for the sender to go on: of a tile that is counted though nothing is
// stored any more, or of a slice.
__device__ void hand_over_nothing(outgoing &to, bool arrives)
{
    cgm::barrier_wait(to.empty + to.stage * 8, to.parity ^ 1);
    hand_over(to, arrives);
}

template <typename T, unsigned piece, unsigned count>
__device__ void put_pieces(outgoing &to, const float (&sums)[count], uint32_t row, unsigned lane)
{
    cgm::barrier_wait(to.empty + to.stage * 8, to.parity ^ 1);
    put_piece<T, piece * piece_cols / 8>(to.data + to.stage * piece_bytes, sums, row, lane % 4);
    cgm::copies_follow_shared();
    hand_over(to, lane == 0);
    if constexpr ((piece + 1) * piece_cols / 2 < count)
        put_pieces<T, piece + 1>(to, sums, row, lane);
}

template <unsigned count>
__device__ void store_floats(const target &to, const float (&sums)[count], uint32_t row,
                             unsigned quad)
{
#pragma unroll
    for (unsigned below = 0; below < 2; below++) {
        if (row + below * 8 >= to.rows)
            continue;
        float *line = static_cast<float *>(to.out) + (row + below * 8) * to.stride;
#pragma unroll
        for (unsigned block = 0; block < count / 4; block++) {
            const uint32_t col = block * 8 + quad * 2;
            const float *at = &sums[block * 4 + below * 2];
            if (col + 2 <= to.cols)
                *reinterpret_cast<float2 *>(line + col) = make_float2(at[0], at[1]);
            else if (col < to.cols)
                line[col] = at[0];
        }
    }
}

// Adds what is in out, and the bias.
template <unsigned count>
__device__ void add(const target &to, const cgm_kernel_matrix &bias, uint64_t bias_col,
                    bool accumulate, int format, float (&sums)[count], uint32_t row, unsigned quad)
{
#pragma unroll
    for (unsigned i = 0; i < count; i++) {
        const uint32_t col = i / 4 * 8 + quad * 2 + i % 2, line = row + i / 2 % 2 * 8;
        if (line >= to.rows || col >= to.cols)
            continue;
        if (accumulate)
            sums[i] += cgm::load_element(to.out, line * to.stride + col, format);
        if (bias.data)
            sums[i] += cgm::load_element(bias.data, bias_col + col, bias.format);
    }
}

template <unsigned parts, unsigned count>
__device__ void store_tile(const arguments<parts> &gemm, const place &at, float (&sums)[count],
                           outgoing &to, uint32_t row, unsigned lane)
{
    const part &part = gemm.part[at.part];
    const uint64_t element = gemm.format == CGM_FORMAT_FP32 ? 4 : 2;
    const target out = {static_cast<char *>(part.out) + (at.row * part.stride + at.col) * element,
                        part.stride, part.rows - at.row, part.cols - at.col};
    if (gemm.accumulate || gemm.bias.data)
        add(out, gemm.bias, part.col + at.col, gemm.accumulate, gemm.format, sums, row, lane % 4);
    if (gemm.format == CGM_FORMAT_BF16) {
        put_pieces<__nv_bfloat16, 0>(to, sums, row % piece_rows, lane);
    } else if (gemm.format == CGM_FORMAT_FP16) {
        put_pieces<__half, 0>(to, sums, row % piece_rows, lane);
    } else {
        cgm::barrier_wait(to.empty + to.stage * 8, to.parity ^ 1);
        store_floats(out, sums, row, lane % 4);
        hand_over(to, lane == 0);
    }
}

template <unsigned parts, unsigned cols, bool bf16, bool transa, bool transb>
__device__ void consume(const arguments<parts> &gemm, ring<cols> ring, outgoing to,
                        unsigned consumer, const volatile int *aborted, volatile int *ret_last)
{
    const unsigned lane = threadIdx.x % 32, warp = threadIdx.x % group / 32;
    const uint32_t row = consumer * piece_rows + warp * 16 + lane / 4;
    float sums[tile_of<cols>::sums];
    uint32_t at_part = 0;
    for (uint32_t index = blockIdx.x; index < gemm.units; index += gridDim.x) {
        const unit unit = unit_of<parts, cols>(gemm, index, at_part);
        const place &at = unit.at;
        if (!at.exists)
            continue;
        at_part = at.part;
        multiply_tile<cols, bf16, transa, transb>(sums, ring, unit.end_step - unit.first_step,
                                                  consumer, lane == 0);
        if (unit.is_slice) {
            const bool last = meet(gemm, unit, sums, consumer, ret_last);
            hand_over_nothing(to, lane == 0);
            if (!last)
                continue;
        }
        if (*aborted && gemm.format == CGM_FORMAT_FP32)
            hand_over_nothing(to, lane == 0);
        else
            store_tile(gemm, at, sums, to, row, lane);
    }
}

// ---- sending off -------------------------------------------------------------------------------

template <unsigned parts>
__device__ void send_piece(const arguments<parts> &gemm, const part &part, uint32_t from,
                           uint32_t row, uint32_t col)
{
    for (uint32_t i = 0; i < part.n_outs; i++)
        cgm::tensor_store(&gemm.out[part.out_map + i], static_cast<int32_t>(col),
                          static_cast<int32_t>(row), from);
    cgm::stores_commit();
    cgm::stores_wait_read();
}

__device__ void take_back(outgoing &from)
{
    cgm::barrier_arrive(from.empty + from.stage * 8);
    from.advance();
}

// What the warpgroup hands over before the pieces of a shared tile, if it has them.
__device__ bool came_last(outgoing &from, const volatile int *last)
{
    cgm::barrier_wait(from.full + from.stage * 8, from.parity);
    const bool came = *last;
    take_back(from);
    return came;
}

// One thread for each warpgroup: sends its pieces, and counts a tile when all of it is stored.
template <unsigned parts, unsigned cols>
__device__ void send(const arguments<parts> &gemm, outgoing from, unsigned consumer,
                     const volatile int *aborted, const volatile int *last)
{
    uint32_t at_part = 0;
    for (uint32_t index = blockIdx.x; index < gemm.units; index += gridDim.x) {
        const unit unit = unit_of<parts, cols>(gemm, index, at_part);
        const place &at = unit.at;
        if (!at.exists)
            continue;
        const part &part = gemm.part[at.part];
        const uint32_t count_of_pieces = part.n_outs > 0 ? tile_of<cols>::pieces : 1;
        at_part = at.part;
        if (unit.is_slice && !came_last(from, last))
            continue;
        for (uint32_t i = 0; i < count_of_pieces; i++) {
            cgm::barrier_wait(from.full + from.stage * 8, from.parity);
            if (part.n_outs > 0 && !*aborted)
                send_piece(gemm, part, from.data + from.stage * piece_bytes,
                           at.row + consumer * piece_rows, at.col + i * piece_cols);
            take_back(from);
        }
        cgm::stores_wait();
        if (part.publish)
            count(gemm.counters + at.part, part.counted, part.publish, part.publish_value);
    }
}

// ---- the kernel --------------------------------------------------------------------------------

template <unsigned stages> struct barriers {
    uint64_t full[stages], empty[stages];
    uint64_t put[consumers][places], sent[consumers][places];
    int aborted;         // written by the thread that brings, before it brings
    int last[consumers]; // whether the warpgroup came last with its slice; a block has one at most
};

template <unsigned stages> __device__ void barriers_init(barriers<stages> &shared)
{
    for (unsigned i = 0; i < stages; i++) {
        cgm::barrier_init(cgm::shared_address(&shared.full[i]), 1);
        cgm::barrier_init(cgm::shared_address(&shared.empty[i]), consumer_warps);
    }
    for (unsigned i = 0; i < consumers * places; i++) {
        cgm::barrier_init(cgm::shared_address(&shared.put[i / places][i % places]),
                          consumer_warps / consumers);
        cgm::barrier_init(cgm::shared_address(&shared.sent[i / places][i % places]), 1);
    }
    shared.aborted = 0;
    cgm::barriers_publish();
}

template <unsigned stages>
__device__ outgoing outgoing_of(const barriers<stages> &shared, uint32_t begin, unsigned consumer)
{
    return {begin + ring_bytes + consumer * places * piece_bytes,
            cgm::shared_address(shared.put[consumer]), cgm::shared_address(shared.sent[consumer]),
            0, 0};
}

#endif

template <unsigned parts, unsigned cols, bool bf16, bool transa, bool transb>
__global__ void __launch_bounds__(threads, 1)
    flagged_gemm(const __grid_constant__ arguments<parts> gemm)
{
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    extern __shared__ char memory[];
    __shared__ alignas(8) barriers<tile_of<cols>::stages> shared;
    const uint32_t begin = (cgm::shared_address(memory) + atom_bytes - 1) / atom_bytes * atom_bytes;
    const ring<cols> ring = {begin, cgm::shared_address(shared.full),
                             cgm::shared_address(shared.empty), 0, 0};
    const unsigned warp = threadIdx.x / 32;
    if (threadIdx.x == 0) {
        barriers_init(shared);
        cgm::tensor_prefetch(&gemm.b);
    }
    __syncthreads();
    if (threadIdx.x >= group) {
        const unsigned consumer = threadIdx.x / group - 1;
        cgm::registers_take<232>();
        consume<parts, cols, bf16, transa, transb>(gemm, ring, outgoing_of(shared, begin, consumer),
                                                   consumer, &shared.aborted,
                                                   &shared.last[consumer]);
        return;
    }
    cgm::registers_give<40>();
    if (threadIdx.x == 0)
        bring<parts, cols, transa, transb>(gemm, ring, &shared.aborted);
    else if (threadIdx.x % 32 == 0 && warp <= consumers)
        send<parts, cols>(gemm, outgoing_of(shared, begin, warp - 1), warp - 1, &shared.aborted,
                          &shared.last[warp - 1]);
#endif
}

} // namespace

#endif
