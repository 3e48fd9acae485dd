// What is done to a finished matrix: GELU, its derivative, sums of rows and columns.
#include "kernels/device_vectors.cuh"
#include "kernels/gelu.h"

namespace
{

using cgm::load_wide;
using cgm::store_wide;
using cgm::vector;
using cgm::wide;

// ---- GELU -------------------------------------------------------------------------------------

constexpr unsigned threads = 256;

template <typename T, bool backward>
__global__ void __launch_bounds__(threads)
    activate_wide(const __grid_constant__ cgm_kernel_activation activation)
{
    const cgm_kernel_matrix &out = activation.out, &input = activation.input;
    const uint64_t per_row = out.cols / wide, items = per_row * out.rows;
    const uint64_t step = static_cast<uint64_t>(gridDim.x) * threads;
    for (uint64_t item = static_cast<uint64_t>(blockIdx.x) * threads + threadIdx.x; item < items;
         item += step) {
        const uint64_t row = item / per_row, col = item % per_row * wide;
        vector values = load_wide<T>(out.data, row * out.stride + col), at = values;
        if (backward)
            at = load_wide<T>(input.data, row * input.stride + col);
        else if (input.data)
            store_wide<T>(input.data, row * input.stride + col, values);
#pragma unroll
        for (unsigned i = 0; i < wide; i++)
            values.value[i] = backward ? values.value[i] * cgm_gelu_derivative(at.value[i])
                                       : cgm_gelu(values.value[i]);
        store_wide<T>(out.data, row * out.stride + col, values);
    }
}

__global__ void __launch_bounds__(threads)
    activate_plain(const __grid_constant__ cgm_kernel_activation activation)
{
    const cgm_kernel_matrix &out = activation.out, &input = activation.input;
    const uint64_t items = out.rows * out.cols, step = static_cast<uint64_t>(gridDim.x) * threads;
    for (uint64_t item = static_cast<uint64_t>(blockIdx.x) * threads + threadIdx.x; item < items;
         item += step) {
        const uint64_t row = item / out.cols, col = item % out.cols;
        const uint64_t at = row * out.stride + col, beside = row * input.stride + col;
        const float value = cgm::load_element(out.data, at, out.format);
        float result;
        if (activation.backward) {
            result =
                value * cgm_gelu_derivative(cgm::load_element(input.data, beside, input.format));
        } else {
            if (input.data)
                cgm::store_element(input.data, beside, input.format, value);
            result = cgm_gelu(value);
        }
        cgm::store_element(out.data, at, out.format, result);
    }
}

using activation_kernel = void (*)(cgm_kernel_activation);

// [format][backward]
const activation_kernel wide_kernels[CGM_FORMAT_COUNT][2] = {
    {activate_wide<float, false>, activate_wide<float, true>},
    {activate_wide<__half, false>, activate_wide<__half, true>},
    {activate_wide<__nv_bfloat16, false>, activate_wide<__nv_bfloat16, true>},
};

// ---- sums -------------------------------------------------------------------------------------

constexpr unsigned lanes = 32;

// Adds the values of a block's 32 x 32 threads over `y`, always in the same order: halves onto
// halves. The sum is thread y = 0's.
__device__ float sum_lanes(float value)
{
    __shared__ float sums[lanes][lanes + 1];
    sums[threadIdx.y][threadIdx.x] = value;
    for (unsigned half = lanes / 2; half > 0; half /= 2) {
        __syncthreads();
        if (threadIdx.y < half)
            sums[threadIdx.y][threadIdx.x] += sums[threadIdx.y + half][threadIdx.x];
    }
    __syncthreads();
    value = sums[0][threadIdx.x];
    __syncthreads();
    return value;
}

// A block sums 32 columns; its lane y rows y, y + 32, ...
__global__ void __launch_bounds__(lanes *lanes) sum_down(const __grid_constant__ cgm_kernel_sum sum)
{
    const cgm_kernel_matrix &src = sum.src;
    for (uint64_t first = static_cast<uint64_t>(blockIdx.x) * lanes; first < src.cols;
         first += static_cast<uint64_t>(gridDim.x) * lanes) {
        const uint64_t col = first + threadIdx.x;
        float value = 0;
        if (col < src.cols)
#pragma unroll 8
            for (uint64_t row = threadIdx.y; row < src.rows; row += lanes)
                value += cgm::load_element(src.data, row * src.stride + col, src.format);
        value = sum_lanes(value);
        if (threadIdx.y == 0 && col < src.cols)
            cgm::store_element(sum.dst.data, col, sum.dst.format, value);
    }
}

// A warp sums a row: lane x columns x, x + 32, ..., then halves onto halves.
__global__ void __launch_bounds__(lanes *lanes)
    sum_across(const __grid_constant__ cgm_kernel_sum sum)
{
    const cgm_kernel_matrix &src = sum.src;
    for (uint64_t row = static_cast<uint64_t>(blockIdx.x) * lanes + threadIdx.y; row < src.rows;
         row += static_cast<uint64_t>(gridDim.x) * lanes) {
        float value = 0;
#pragma unroll 8
        for (uint64_t col = threadIdx.x; col < src.cols; col += lanes)
            value += cgm::load_element(src.data, row * src.stride + col, src.format);
        for (unsigned half = lanes / 2; half > 0; half /= 2)
            value += __shfl_down_sync(~0u, value, half);
        if (threadIdx.x == 0)
            cgm::store_element(sum.dst.data, row, sum.dst.format, value);
    }
}

} // namespace

extern "C" cudaError_t cgm_kernel_activate_launch(const cgm_kernel_activation *activation,
                                                  cudaStream_t stream)
{
    const cgm_kernel_matrix &out = activation->out, &input = activation->input;
    uint64_t items = out.rows * out.cols;
    activation_kernel chosen = activate_plain;
    if (cgm::is_wide(out, out.format) && (!input.data || cgm::is_wide(input, out.format))) {
        chosen = wide_kernels[out.format][activation->backward];
        items /= wide;
    }
    chosen<<<cgm::blocks_for(items, threads), threads, 0, stream>>>(*activation);
    return cudaGetLastError();
}

extern "C" cudaError_t cgm_kernel_sum_launch(const cgm_kernel_sum *sum, cudaStream_t stream)
{
    const dim3 block(lanes, lanes);
    if (sum->across)
        sum_across<<<cgm::blocks_for(sum->src.rows, lanes), block, 0, stream>>>(*sum);
    else
        sum_down<<<cgm::blocks_for(sum->src.cols, lanes), block, 0, stream>>>(*sum);
    return cudaGetLastError();
}

CGM_KERNEL_ANCHOR(epilogue, sum_down)
