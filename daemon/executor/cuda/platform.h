/* What this machine's CUDA consists of. */
#ifndef CGM_CUDA_PLATFORM_H
#define CGM_CUDA_PLATFORM_H

#include <stddef.h>

struct cgm_backend;

/* "580.95.05", or "?". */
void cgm_cuda_driver_release(char *ret_release, size_t size);

/* "4 x NVIDIA H200, driver 580.95.05, CUDA 13.0, cuBLASLt 13.1.0, NCCL 2.28.3, NVLink"; of one
 * device without the last two. */
void cgm_cuda_describe(struct cgm_backend *backend, char *ret_text, size_t text_bytes);

#endif
