// A product of any types, strides and alignment: 16 x 16 results a block, one a thread.
#include "kernels/device_numbers.cuh"

namespace
{

constexpr unsigned tile = 16;
constexpr uint64_t grid_limit = 32768;

struct operand {
    const void *data;
    uint64_t line_stride, step_stride;
    int format;
};

__device__ float operand_at(const operand &from, uint64_t line, uint64_t lines, uint64_t step,
                            uint64_t steps)
{
    if (line >= lines || step >= steps)
        return 0;
    return cgm::load_element(from.data, line * from.line_stride + step * from.step_stride,
                             from.format);
}

__device__ float tile_product(const operand &a, const operand &b, uint64_t row, uint64_t col,
                              uint64_t rows, uint64_t cols, uint64_t depth)
{
    __shared__ float a_tile[tile][tile + 1], b_tile[tile][tile + 1];
    float sum = 0;
    for (uint64_t step = 0; step < depth; step += tile) {
        a_tile[threadIdx.y][threadIdx.x] =
            operand_at(a, row + threadIdx.y, rows, step + threadIdx.x, depth);
        b_tile[threadIdx.y][threadIdx.x] =
            operand_at(b, col + threadIdx.x, cols, step + threadIdx.y, depth);
        __syncthreads();
#pragma unroll
        for (unsigned i = 0; i < tile; i++)
            sum = fmaf(a_tile[threadIdx.y][i], b_tile[i][threadIdx.x], sum);
        __syncthreads();
    }
    return sum;
}

__global__ void __launch_bounds__(tile *tile)
    gemm_plain(const __grid_constant__ cgm_kernel_gemm gemm)
{
    const uint64_t depth = gemm.transa ? gemm.a.rows : gemm.a.cols;
    const operand a = {gemm.a.data, gemm.transa ? 1 : gemm.a.stride,
                       gemm.transa ? gemm.a.stride : 1, gemm.a.format};
    const operand b = {gemm.b.data, gemm.transb ? gemm.b.stride : 1,
                       gemm.transb ? 1 : gemm.b.stride, gemm.b.format};
    const uint64_t rows = gemm.out.rows, cols = gemm.out.cols;
    for (uint64_t row0 = static_cast<uint64_t>(blockIdx.y) * tile; row0 < rows;
         row0 += static_cast<uint64_t>(gridDim.y) * tile)
        for (uint64_t col0 = static_cast<uint64_t>(blockIdx.x) * tile; col0 < cols;
             col0 += static_cast<uint64_t>(gridDim.x) * tile) {
            float sum = tile_product(a, b, row0, col0, rows, cols, depth);
            const uint64_t row = row0 + threadIdx.y, col = col0 + threadIdx.x;
            if (row >= rows || col >= cols)
                continue;
            const uint64_t at = row * gemm.out.stride + col;
            if (gemm.accumulate)
                sum += cgm::load_element(gemm.out.data, at, gemm.out.format);
            if (gemm.bias.data)
                sum += cgm::load_element(gemm.bias.data, col, gemm.bias.format);
            cgm::store_element(gemm.out.data, at, gemm.out.format, sum);
        }
}

unsigned tiles(uint64_t length)
{
    uint64_t count = (length + tile - 1) / tile;
    return static_cast<unsigned>(count < grid_limit ? count : grid_limit);
}

} // namespace

extern "C" cudaError_t cgm_kernel_gemm_launch(const cgm_kernel_gemm *gemm, cudaStream_t stream)
{
    if (gemm->a.format == CGM_FORMAT_INT8)
        return cgm_kernel_gemm_int8_launch(gemm, stream);
    dim3 grid(tiles(gemm->out.cols), tiles(gemm->out.rows)), block(tile, tile);
    gemm_plain<<<grid, block, 0, stream>>>(*gemm);
    return cudaGetLastError();
}

CGM_KERNEL_ANCHOR(gemm_plain, gemm_plain)
