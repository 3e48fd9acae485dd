// Eight neighbouring elements at a time, as fp32 values, with 16-byte accesses.
#ifndef CGM_DEVICE_VECTORS_CUH
#define CGM_DEVICE_VECTORS_CUH

#include "kernels/device_numbers.cuh"

namespace cgm
{

constexpr unsigned wide = 8; // elements

struct vector {
    float value[wide];
};

template <typename T> __device__ inline vector load_wide(const void *data, uint64_t index)
{
    const T *at = static_cast<const T *>(data) + index;
    alignas(16) T elements[wide];
#pragma unroll
    for (unsigned part = 0; part < sizeof(elements) / sizeof(uint4); part++)
        reinterpret_cast<uint4 *>(elements)[part] = reinterpret_cast<const uint4 *>(at)[part];
    vector result;
#pragma unroll
    for (unsigned i = 0; i < wide; i++)
        result.value[i] = to_float(elements[i]);
    return result;
}

template <typename T>
__device__ inline void store_wide(void *data, uint64_t index, const vector &values)
{
    T *at = static_cast<T *>(data) + index;
    alignas(16) T elements[wide];
#pragma unroll
    for (unsigned i = 0; i < wide; i++)
        elements[i] = from_float<T>(values.value[i]);
#pragma unroll
    for (unsigned part = 0; part < sizeof(elements) / sizeof(uint4); part++)
        reinterpret_cast<uint4 *>(at)[part] = reinterpret_cast<const uint4 *>(elements)[part];
}

// Whether every row of a matrix of this format can be read so; of integers it cannot.
inline bool is_wide(const cgm_kernel_matrix &matrix, int format)
{
    if (format == CGM_FORMAT_INT8 || format == CGM_FORMAT_INT32)
        return false;
    const uint64_t bytes = format == CGM_FORMAT_FP32 ? 4 : 2;
    return matrix.format == format && reinterpret_cast<uintptr_t>(matrix.data) % 16 == 0 &&
           matrix.cols % wide == 0 && (matrix.rows == 1 || matrix.stride * bytes % 16 == 0);
}

} // namespace cgm

#endif
