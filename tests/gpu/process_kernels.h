/* Kernels that misbehave. */
#ifndef GPU_PROCESS_KERNELS_H
#define GPU_PROCESS_KERNELS_H

#include <cuda_runtime_api.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Runs for a minute or so. */
cudaError_t gpu_process_spin(cudaStream_t stream);

/* An illegal address. */
cudaError_t gpu_process_write_nowhere(cudaStream_t stream);

#ifdef __cplusplus
}
#endif
#endif
