// A product of int8 in int32: any layout, strides and alignment; for what cuBLASLt does not take.
// A block makes 64 x 64 results, a thread 4 x 4 of them, with four products to an instruction.
#include "kernels/device_numbers.cuh"

namespace
{

constexpr unsigned tile = 64;          // rows and columns of a block; bytes of depth at a time
constexpr unsigned words = tile / 4;   // of four steps of depth
constexpr unsigned side = 16;          // threads
constexpr unsigned each = tile / side; // rows and columns of a thread
constexpr uint64_t grid_limit = 32768;

struct operand {
    const int8_t *data;
    uint64_t line_stride, step_stride; // a line is a row of op(a), a column of op(b)
    uint64_t lines, depth;
};

// Beyond the edges there are zeros.
__device__ uint32_t word_at(const operand &from, uint64_t line, uint64_t step)
{
    if (line >= from.lines || step >= from.depth)
        return 0;
    const int8_t *at = from.data + line * from.line_stride + step * from.step_stride;
    if (from.step_stride == 1 && step + 4 <= from.depth &&
        reinterpret_cast<uintptr_t>(at) % sizeof(uint32_t) == 0)
        return *reinterpret_cast<const uint32_t *>(at);
    uint32_t word = 0;
    for (unsigned i = 0; i < 4 && step + i < from.depth; i++)
        word |= static_cast<uint32_t>(static_cast<uint8_t>(at[i * from.step_stride])) << 8 * i;
    return word;
}

// Neighbouring threads take what lies side by side: steps of one line, or lines at one step.
__device__ void load_tile(const operand &from, uint64_t line0, uint64_t step0,
                          uint32_t (*to)[words + 1])
{
    const unsigned thread = threadIdx.y * side + threadIdx.x;
    for (unsigned item = thread; item < tile * words; item += side * side) {
        const unsigned line = from.step_stride == 1 ? item / words : item % tile;
        const unsigned word = from.step_stride == 1 ? item % words : item / tile;
        to[line][word] = word_at(from, line0 + line, step0 + word * 4);
    }
}

__device__ void multiply_tile(const uint32_t (*a)[words + 1], const uint32_t (*b)[words + 1],
                              int32_t (*sums)[each])
{
#pragma unroll
    for (unsigned word = 0; word < words; word++) {
        int left[each], right[each];
#pragma unroll
        for (unsigned i = 0; i < each; i++) {
            left[i] = static_cast<int>(a[threadIdx.y + i * side][word]);
            right[i] = static_cast<int>(b[threadIdx.x + i * side][word]);
        }
#pragma unroll
        for (unsigned i = 0; i < each; i++)
#pragma unroll
            for (unsigned j = 0; j < each; j++)
                sums[i][j] = __dp4a(left[i], right[j], sums[i][j]);
    }
}

__device__ void store_tile(const cgm_kernel_matrix &out, uint64_t row0, uint64_t col0,
                           const int32_t (*sums)[each])
{
#pragma unroll
    for (unsigned i = 0; i < each; i++)
#pragma unroll
        for (unsigned j = 0; j < each; j++) {
            const uint64_t row = row0 + threadIdx.y + i * side, col = col0 + threadIdx.x + j * side;
            if (row < out.rows && col < out.cols)
                static_cast<int32_t *>(out.data)[row * out.stride + col] = sums[i][j];
        }
}

__global__ void __launch_bounds__(side *side)
    gemm_int8(const __grid_constant__ cgm_kernel_gemm gemm)
{
    __shared__ uint32_t a_tile[tile][words + 1], b_tile[tile][words + 1];
    const uint64_t depth = gemm.transa ? gemm.a.rows : gemm.a.cols;
    const operand a = {static_cast<const int8_t *>(gemm.a.data), gemm.transa ? 1 : gemm.a.stride,
                       gemm.transa ? gemm.a.stride : 1, gemm.out.rows, depth};
    const operand b = {static_cast<const int8_t *>(gemm.b.data), gemm.transb ? gemm.b.stride : 1,
                       gemm.transb ? 1 : gemm.b.stride, gemm.out.cols, depth};
    for (uint64_t row0 = static_cast<uint64_t>(blockIdx.y) * tile; row0 < gemm.out.rows;
         row0 += static_cast<uint64_t>(gridDim.y) * tile)
        for (uint64_t col0 = static_cast<uint64_t>(blockIdx.x) * tile; col0 < gemm.out.cols;
             col0 += static_cast<uint64_t>(gridDim.x) * tile) {
            int32_t sums[each][each] = {};
            for (uint64_t step = 0; step < depth; step += tile) {
                load_tile(a, row0, step, a_tile);
                load_tile(b, col0, step, b_tile);
                __syncthreads();
                multiply_tile(a_tile, b_tile, sums);
                __syncthreads();
            }
            store_tile(gemm.out, row0, col0, sums);
        }
}

unsigned tiles(uint64_t length)
{
    const uint64_t count = (length + tile - 1) / tile;
    return static_cast<unsigned>(count < grid_limit ? count : grid_limit);
}

} // namespace

extern "C" cudaError_t cgm_kernel_gemm_int8_launch(const cgm_kernel_gemm *gemm, cudaStream_t stream)
{
    const dim3 grid(tiles(gemm->out.cols), tiles(gemm->out.rows)), block(side, side);
    gemm_int8<<<grid, block, 0, stream>>>(*gemm);
    return cudaGetLastError();
}

CGM_KERNEL_ANCHOR(gemm_int8, gemm_int8)
