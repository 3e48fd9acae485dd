// Poison, noise, counters and delays.
#include "kernels/device_numbers.cuh"

namespace
{

constexpr unsigned threads = 256;

// A NaN of every format has all its bits set; the lowest integer has only the highest.
template <typename Word>
__global__ void __launch_bounds__(threads)
    poison(Word *data, uint64_t rows, uint64_t cols, uint64_t stride, Word word)
{
    const uint64_t items = rows * cols, step = static_cast<uint64_t>(gridDim.x) * threads;
    for (uint64_t item = static_cast<uint64_t>(blockIdx.x) * threads + threadIdx.x; item < items;
         item += step)
        data[item / cols * stride + item % cols] = word;
}

// Numbers in [-1, 1), integers up to 127, that look random: the same ones for the same matrix.
__global__ void __launch_bounds__(threads) noise(const __grid_constant__ cgm_kernel_matrix matrix)
{
    const uint64_t items = matrix.rows * matrix.cols;
    const uint64_t step = static_cast<uint64_t>(gridDim.x) * threads;
    for (uint64_t item = static_cast<uint64_t>(blockIdx.x) * threads + threadIdx.x; item < items;
         item += step) {
        uint64_t bits = (item + 1) * 0x9e3779b97f4a7c15ull;
        bits = (bits ^ bits >> 32) * 0xd6e8feb86659fd93ull;
        float value = static_cast<float>(static_cast<int32_t>(bits >> 32)) * 0x1p-31f;
        if (matrix.format == CGM_FORMAT_INT8 || matrix.format == CGM_FORMAT_INT32)
            value *= 127.0f;
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

template <typename Word> void fill(const cgm_kernel_matrix &matrix, Word word, cudaStream_t stream)
{
    const unsigned blocks = cgm::blocks_for(matrix.rows * matrix.cols, threads);
    poison<<<blocks, threads, 0, stream>>>(static_cast<Word *>(matrix.data), matrix.rows,
                                           matrix.cols, matrix.stride, word);
}

} // namespace

extern "C" cudaError_t cgm_kernel_poison_launch(const cgm_kernel_matrix *matrix,
                                                cudaStream_t stream)
{
    switch (matrix->format) {
    case CGM_FORMAT_INT8:
        fill<uint8_t>(*matrix, 0x80, stream);
        break;
    case CGM_FORMAT_INT32:
        fill<uint32_t>(*matrix, 0x80000000u, stream);
        break;
    case CGM_FORMAT_FP32:
        fill<uint32_t>(*matrix, UINT32_MAX, stream);
        break;
    default:
        fill<uint16_t>(*matrix, UINT16_MAX, stream);
    }
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
