// Elements of every format as fp32 values; an int32 may be rounded on the way.
#ifndef CGM_DEVICE_NUMBERS_CUH
#define CGM_DEVICE_NUMBERS_CUH

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "kernels/device_kernels.h"
#include "kernels/number_format.h"

namespace cgm
{

__device__ inline float to_float(float value)
{
    return value;
}
__device__ inline float to_float(__half value)
{
    return __half2float(value);
}
__device__ inline float to_float(__nv_bfloat16 value)
{
    return __bfloat162float(value);
}

template <typename T> __device__ inline T from_float(float value);
template <> __device__ inline float from_float(float value)
{
    return value;
}
template <> __device__ inline __half from_float(float value)
{
    return __float2half_rn(value);
}
template <> __device__ inline __nv_bfloat16 from_float(float value)
{
    return __float2bfloat16_rn(value);
}

__device__ inline float load_element(const void *data, uint64_t index, int format)
{
    switch (format) {
    case CGM_FORMAT_FP16:
        return to_float(static_cast<const __half *>(data)[index]);
    case CGM_FORMAT_BF16:
        return to_float(static_cast<const __nv_bfloat16 *>(data)[index]);
    case CGM_FORMAT_INT8:
        return static_cast<float>(static_cast<const int8_t *>(data)[index]);
    case CGM_FORMAT_INT32:
        return static_cast<float>(static_cast<const int32_t *>(data)[index]);
    default:
        return static_cast<const float *>(data)[index];
    }
}

__device__ inline void store_element(void *data, uint64_t index, int format, float value)
{
    switch (format) {
    case CGM_FORMAT_FP16:
        static_cast<__half *>(data)[index] = from_float<__half>(value);
        break;
    case CGM_FORMAT_BF16:
        static_cast<__nv_bfloat16 *>(data)[index] = from_float<__nv_bfloat16>(value);
        break;
    case CGM_FORMAT_INT8:
        static_cast<int8_t *>(data)[index] =
            static_cast<int8_t>(fminf(fmaxf(rintf(value), -128.0f), 127.0f));
        break;
    case CGM_FORMAT_INT32:
        static_cast<int32_t *>(data)[index] = __float2int_rn(value);
        break;
    default:
        static_cast<float *>(data)[index] = value;
    }
}

// As many blocks as there is work for, and no more than the index of a grid takes.
inline unsigned blocks_for(uint64_t items, unsigned threads)
{
    const uint64_t most = 1u << 20;
    uint64_t blocks = (items + threads - 1) / threads;
    return static_cast<unsigned>(blocks < most ? blocks : most);
}

} // namespace cgm

#endif
