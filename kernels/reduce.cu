// Sums of matrices. The wide kernel handles eight neighbouring elements at a time with 16-byte
// accesses; the plain one takes any types, strides and alignment.
#include "kernels/device_vectors.cuh"

namespace
{

constexpr unsigned threads = 256;
constexpr unsigned in_flight = 4; // sources that are read before the first is added

using cgm::load_wide;
using cgm::store_wide;
using cgm::vector;
using cgm::wide;

__device__ void add(vector &sum, const vector &value)
{
#pragma unroll
    for (unsigned i = 0; i < wide; i++)
        sum.value[i] += value.value[i];
}

template <typename S>
__device__ vector sum_sources(const cgm_kernel_reduce &reduce, uint64_t row, uint64_t col)
{
    vector sum = load_wide<S>(reduce.src[0].data, row * reduce.src[0].stride + col);
    uint32_t i = 1;
    for (; i + in_flight <= reduce.n_src; i += in_flight) {
        vector values[in_flight];
#pragma unroll
        for (unsigned j = 0; j < in_flight; j++)
            values[j] = load_wide<S>(reduce.src[i + j].data, row * reduce.src[i + j].stride + col);
#pragma unroll
        for (unsigned j = 0; j < in_flight; j++)
            add(sum, values[j]);
    }
    for (; i < reduce.n_src; i++)
        add(sum, load_wide<S>(reduce.src[i].data, row * reduce.src[i].stride + col));
    return sum;
}

// This thread's sums, which it has stored, to another place. One place after the other: with all
// ranks sending to different ones, each link has one sender.
template <typename D>
__device__ void spread(const cgm_kernel_matrix &from, const cgm_kernel_matrix &to, uint64_t first,
                       uint64_t step)
{
    const uint64_t per_row = from.cols / wide, items = per_row * from.rows;
    for (uint64_t item = first; item < items; item += step) {
        const uint64_t row = item / per_row, col = item % per_row * wide;
        store_wide<D>(to.data, row * to.stride + col,
                      load_wide<D>(from.data, row * from.stride + col));
    }
}

template <typename S, typename D>
__global__ void __launch_bounds__(threads)
    reduce_wide(const __grid_constant__ cgm_kernel_reduce reduce)
{
    const uint64_t per_row = reduce.dst.cols / wide, items = per_row * reduce.dst.rows;
    const uint64_t step = static_cast<uint64_t>(gridDim.x) * threads;
    const uint64_t first = static_cast<uint64_t>(blockIdx.x) * threads + threadIdx.x;
    for (uint64_t item = first; item < items; item += step) {
        const uint64_t row = item / per_row, col = item % per_row * wide;
        vector sum = sum_sources<S>(reduce, row, col);
        if (reduce.accumulate)
            add(sum, load_wide<D>(reduce.dst.data, row * reduce.dst.stride + col));
        if (reduce.bias.data)
            add(sum, load_wide<D>(reduce.bias.data, col));
        store_wide<D>(reduce.dst.data, row * reduce.dst.stride + col, sum);
    }
    for (uint32_t i = 0; i < reduce.n_also; i++)
        spread<D>(reduce.dst, reduce.also[i], first, step);
}

__global__ void __launch_bounds__(threads)
    reduce_plain(const __grid_constant__ cgm_kernel_reduce reduce)
{
    const uint64_t items = reduce.dst.rows * reduce.dst.cols;
    const uint64_t step = static_cast<uint64_t>(gridDim.x) * threads;
    for (uint64_t item = static_cast<uint64_t>(blockIdx.x) * threads + threadIdx.x; item < items;
         item += step) {
        const uint64_t row = item / reduce.dst.cols, col = item % reduce.dst.cols;
        float sum = cgm::load_element(reduce.src[0].data, row * reduce.src[0].stride + col,
                                      reduce.src[0].format);
        for (uint32_t i = 1; i < reduce.n_src; i++)
            sum += cgm::load_element(reduce.src[i].data, row * reduce.src[i].stride + col,
                                     reduce.src[i].format);
        const uint64_t at = row * reduce.dst.stride + col;
        if (reduce.accumulate)
            sum += cgm::load_element(reduce.dst.data, at, reduce.dst.format);
        if (reduce.bias.data)
            sum += cgm::load_element(reduce.bias.data, col, reduce.bias.format);
        cgm::store_element(reduce.dst.data, at, reduce.dst.format, sum);
        for (uint32_t i = 0; i < reduce.n_also; i++)
            cgm::store_element(reduce.also[i].data, row * reduce.also[i].stride + col,
                               reduce.dst.format, sum);
    }
}

using cgm::is_wide;

// Modulo 2^32.
__global__ void __launch_bounds__(threads)
    reduce_integers(const __grid_constant__ cgm_kernel_reduce reduce)
{
    const uint64_t items = reduce.dst.rows * reduce.dst.cols;
    const uint64_t step = static_cast<uint64_t>(gridDim.x) * threads;
    uint32_t *const dst = static_cast<uint32_t *>(reduce.dst.data);
    for (uint64_t item = static_cast<uint64_t>(blockIdx.x) * threads + threadIdx.x; item < items;
         item += step) {
        const uint64_t row = item / reduce.dst.cols, col = item % reduce.dst.cols;
        const uint64_t at = row * reduce.dst.stride + col;
        uint32_t sum = reduce.accumulate ? dst[at] : 0;
        for (uint32_t i = 0; i < reduce.n_src; i++)
            sum +=
                static_cast<const uint32_t *>(reduce.src[i].data)[row * reduce.src[i].stride + col];
        dst[at] = sum;
        for (uint32_t i = 0; i < reduce.n_also; i++)
            static_cast<uint32_t *>(reduce.also[i].data)[row * reduce.also[i].stride + col] = sum;
    }
}

bool all_wide(const cgm_kernel_reduce &reduce)
{
    for (uint32_t i = 0; i < reduce.n_src; i++)
        if (!is_wide(reduce.src[i], reduce.src[0].format))
            return false;
    for (uint32_t i = 0; i < reduce.n_also; i++)
        if (!is_wide(reduce.also[i], reduce.dst.format))
            return false;
    return is_wide(reduce.dst, reduce.dst.format) &&
           (!reduce.bias.data || is_wide(reduce.bias, reduce.dst.format));
}

using kernel = void (*)(cgm_kernel_reduce);

// [source][destination], in the numbering of the formats.
const kernel wide_kernels[CGM_FORMAT_COUNT][CGM_FORMAT_COUNT] = {
    {reduce_wide<float, float>, reduce_wide<float, __half>, reduce_wide<float, __nv_bfloat16>},
    {reduce_wide<__half, float>, reduce_wide<__half, __half>, reduce_wide<__half, __nv_bfloat16>},
    {reduce_wide<__nv_bfloat16, float>, reduce_wide<__nv_bfloat16, __half>,
     reduce_wide<__nv_bfloat16, __nv_bfloat16>},
};

} // namespace

extern "C" cudaError_t cgm_kernel_reduce_launch(const cgm_kernel_reduce *reduce,
                                                cudaStream_t stream)
{
    uint64_t items = reduce->dst.rows * reduce->dst.cols;
    kernel chosen = reduce->dst.format == CGM_FORMAT_INT32 ? reduce_integers : reduce_plain;
    if (all_wide(*reduce)) {
        chosen = wide_kernels[reduce->src[0].format][reduce->dst.format];
        items /= wide;
    }
    chosen<<<cgm::blocks_for(items, threads), threads, 0, stream>>>(*reduce);
    return cudaGetLastError();
}

CGM_KERNEL_ANCHOR(reduce, reduce_plain)
