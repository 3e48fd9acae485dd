/* CUDA kernels, started from C. Matrices lie in memory that the current device can reach; every
 * launcher only enqueues on the stream. The formats are those of kernels/number_format.h; numbers
 * are added in fp32 and rounded once. */
#ifndef CGM_DEVICE_KERNELS_H
#define CGM_DEVICE_KERNELS_H

#include <cuda_runtime_api.h>
#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define CGM_KERNEL_SOURCES_MAX 64
#define CGM_KERNEL_RAISES_MAX 64
#define CGM_KERNEL_COPIES_MAX 8
#define CGM_KERNEL_ALSO_MAX 7

struct cgm_kernel_matrix {
    void *data;                  /* NULL: absent; else aligned to its elements */
    uint64_t rows, cols, stride; /* in elements */
    int format;                  /* enum cgm_format */
};

/* dst = src[0] + src[1] + ... in this order [+ dst] [+ bias], and the same into each of `also`;
 * bias is one row. */
struct cgm_kernel_reduce {
    struct cgm_kernel_matrix dst, bias, also[CGM_KERNEL_ALSO_MAX];
    uint32_t n_also;
    struct cgm_kernel_matrix src[CGM_KERNEL_SOURCES_MAX];
    uint32_t n_src;
    bool accumulate;
};

/* out = op(a) * op(b) [+ out] [+ bias]: any types, strides and alignment, and slow. Of int8 a and b
 * out is int32, without accumulation and bias. */
struct cgm_kernel_gemm {
    struct cgm_kernel_matrix a, b, out, bias;
    bool transa, transb, accumulate;
};

/* out in place: GELU, or with `backward` multiplied by GELU's derivative at input. Of GELU input is
 * where out's former elements go, or absent. Both have one shape. */
struct cgm_kernel_activation {
    struct cgm_kernel_matrix out, input;
    bool backward;
};

/* dst, one row: the sums of src's columns, or with `across` of its rows, in an order that the shape
 * alone decides. */
struct cgm_kernel_sum {
    struct cgm_kernel_matrix dst, src;
    bool across;
};

struct cgm_kernel_copy {
    struct cgm_kernel_matrix dst, src;
};

/* Each counter becomes its value unless it is above that already. */
struct cgm_kernel_raises {
    uint64_t *counter[CGM_KERNEL_RAISES_MAX];
    uint64_t value[CGM_KERNEL_RAISES_MAX];
    uint32_t count;
};

/* dst = src of each copy, of one shape and format, by `blocks` blocks of 512 threads in all, at
 * least one each. Accesses are as wide as all addresses, rows and row distances allow, up to 16
 * bytes. count: 1 to CGM_KERNEL_COPIES_MAX. */
cudaError_t cgm_kernel_copies_launch(const struct cgm_kernel_copy *copies, uint32_t count,
                                     uint32_t blocks, cudaStream_t stream);
cudaError_t cgm_kernel_reduce_launch(const struct cgm_kernel_reduce *reduce, cudaStream_t stream);
cudaError_t cgm_kernel_gemm_launch(const struct cgm_kernel_gemm *gemm, cudaStream_t stream);
/* Of int8: what the former calls. */
cudaError_t cgm_kernel_gemm_int8_launch(const struct cgm_kernel_gemm *gemm, cudaStream_t stream);
cudaError_t cgm_kernel_activate_launch(const struct cgm_kernel_activation *activation,
                                       cudaStream_t stream);
cudaError_t cgm_kernel_sum_launch(const struct cgm_kernel_sum *sum, cudaStream_t stream);
/* Every element NaN, or the lowest integer. */
cudaError_t cgm_kernel_poison_launch(const struct cgm_kernel_matrix *matrix, cudaStream_t stream);
/* Numbers that look random, for the times of products: zeros would be faster. */
cudaError_t cgm_kernel_noise_launch(const struct cgm_kernel_matrix *matrix, cudaStream_t stream);
cudaError_t cgm_kernel_raise_launch(const struct cgm_kernel_raises *raises, cudaStream_t stream);
/* Holds the stream for about this long. */
cudaError_t cgm_kernel_delay_launch(uint64_t ns, cudaStream_t stream);

/* Every file of kernels has this line, with its name without .cu and any of its kernels: by it a
 * device's module of the file is found and loaded as a whole before it is needed. */
#define CGM_KERNEL_ANCHOR(file, ...)                                                               \
    extern "C" const void *cgm_kernel_anchor_##file(void)                                          \
    {                                                                                              \
        return reinterpret_cast<const void *>(&__VA_ARGS__);                                       \
    }

#ifdef __cplusplus
}
#endif

#endif
