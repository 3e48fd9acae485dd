// Poison, noise, counters and delays.
#include "kernels/device_numbers.cuh"

namespace
{

constexpr unsigned threads = 256;

// A NaN of every format has all its bits set.
template <typename Word>
__global__ void __launch_bounds__(threads)
    poison(Word *data, uint64_t rows, uint64_t cols, uint64_t stride)
{
    const uint64_t items = rows * cols, step = static_cast<uint64_t>(gridDim.x) * threads;
    for (uint64_t item = static_cast<uint64_t>(blockIdx.x) * threads + threadIdx.x; item < items;
         item += step)
        data[item / cols * stride + item % cols] = static_cast<Word>(~static_cast<Word>(0));
}

// Numbers in [-1, 1) that look random: the same ones for the same matrix.
__global__ void __launch_bounds__(threads) noise(const __grid_constant__ cgm_kernel_matrix matrix)
{
    const uint64_t items = matrix.rows * matrix.cols;
    const uint64_t step = static_cast<uint64_t>(gridDim.x) * threads;
    for (uint64_t item = static_cast<uint64_t>(blockIdx.x) * threads + threadIdx.x; item < items;
         item += step) {
        uint64_t bits = (item + 1) * 0x9e3779b97f4a7c15ull;
        bits = (bits ^ bits >> 32) * 0xd6e8feb86659fd93ull;
        const float value = static_cast<float>(static_cast<int32_t>(bits >> 32)) * 0x1p-31f;
        cgm::store_element(matrix.data, item / matrix.cols * matrix.stride + item % matrix.cols,
                           matrix.format, value);
    }
}

__global__ void raise(const __grid_constant__ cgm_kernel_raises raises)
{
    if (threadIdx.x < raises.count)
        atomicMax_system(reinterpret_cast<unsigned long long *>(raises.counter[threadIdx.x]),
                         static_cast<unsigned long long>(raises.value[threadIdx.x]));
}

__device__ uint64_t timer_ns()
{
    uint64_t now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    return now;
}

__global__ void delay(uint64_t ns)
{
    const uint64_t begin = timer_ns();
    while (timer_ns() - begin < ns)
        __nanosleep(1000);
}

} // namespace

extern "C" cudaError_t cgm_kernel_poison_launch(const cgm_kernel_matrix *matrix,
                                                cudaStream_t stream)
{
    const unsigned blocks = cgm::blocks_for(matrix->rows * matrix->cols, threads);
    if (matrix->format == CGM_FORMAT_FP32)
        poison<<<blocks, threads, 0, stream>>>(static_cast<uint32_t *>(matrix->data), matrix->rows,
                                               matrix->cols, matrix->stride);
    else
        poison<<<blocks, threads, 0, stream>>>(static_cast<uint16_t *>(matrix->data), matrix->rows,
                                               matrix->cols, matrix->stride);
    return cudaGetLastError();
}

extern "C" cudaError_t cgm_kernel_noise_launch(const cgm_kernel_matrix *matrix, cudaStream_t stream)
{
    noise<<<cgm::blocks_for(matrix->rows * matrix->cols, threads), threads, 0, stream>>>(*matrix);
    return cudaGetLastError();
}

extern "C" cudaError_t cgm_kernel_raise_launch(const cgm_kernel_raises *raises, cudaStream_t stream)
{
    raise<<<1, CGM_KERNEL_RAISES_MAX, 0, stream>>>(*raises);
    return cudaGetLastError();
}

extern "C" cudaError_t cgm_kernel_delay_launch(uint64_t ns, cudaStream_t stream)
{
    delay<<<1, 1, 0, stream>>>(ns);
    return cudaGetLastError();
}

CGM_KERNEL_ANCHOR(small_kernels, noise)
