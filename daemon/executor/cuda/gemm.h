/* Products: what running them (gemm.c) and choosing their code (gemm_prepare.c) share. */
#ifndef CGM_CUDA_GEMM_H
#define CGM_CUDA_GEMM_H

#include "daemon/executor/cuda/gemm_table.h"
#include "kernels/device_kernels.h"
#include "kernels/flagged_gemm.h"

#define CGM_GEMM_ALIGN_MAX 16u
/* Behind cuBLASLt's workspace: a bias that is not aligned as it wants is copied there. */
#define CGM_GEMM_BIAS_BYTES (1ull << 20)
/* And behind that: the counters of flagged products, and their meetings. */
#define CGM_GEMM_COUNTER_BYTES                                                                     \
    (CGM_GEMM_PARTS_MAX * sizeof(uint64_t) + CGM_KERNEL_MEETINGS_MAX * sizeof(uint32_t))

/* A product that a device's thread has enqueued. */
struct cgm_last_product {
    const struct cgm_stream *stream; /* NULL: none yet */
    struct cgm_gemm_key key;
    struct cgm_kernel_gemm g;
};

/* Shapes and types. */
bool cgm_gemm_fits(const struct cgm_kernel_gemm *g);
/* What cuBLASLt cannot do whatever the shape. */
bool cgm_gemm_is_odd(const struct cgm_kernel_gemm *g);
/* `gemm` is what g was made of. */
struct cgm_gemm_key cgm_gemm_key_of(const struct cgm_device *device, const struct cgm_gemm *gemm,
                                    const struct cgm_kernel_gemm *g);
/* Whether so many multiprocessors can be spared. */
bool cgm_gemm_spares_few(const struct cgm_device *device, const struct cgm_gemm *gemm);
/* Allocates the stream's workspace unless it is there. */
int cgm_gemm_need_workspace(struct cgm_queue *queue);
/* Enqueues it with the entry's algorithm. */
int cgm_gemm_multiply(const struct cgm_device *device, const struct cgm_stream *stream,
                      const struct cgm_kernel_gemm *g, const struct cgm_gemm_entry *entry);

#endif
