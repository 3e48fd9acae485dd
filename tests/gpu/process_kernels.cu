#include "tests/gpu/process_kernels.h"

namespace
{

__global__ void spin(unsigned long long cycles)
{
    const long long begin = clock64();
    while (static_cast<unsigned long long>(clock64() - begin) < cycles)
        ;
}

__global__ void write_nowhere(int *at)
{
    at[threadIdx.x] = 1;
}

} // namespace

extern "C" cudaError_t gpu_process_spin(cudaStream_t stream)
{
    spin<<<1, 32, 0, stream>>>(60ull * 2000000000ull);
    return cudaGetLastError();
}

extern "C" cudaError_t gpu_process_write_nowhere(cudaStream_t stream)
{
    write_nowhere<<<1, 32, 0, stream>>>(reinterpret_cast<int *>(64));
    return cudaGetLastError();
}
