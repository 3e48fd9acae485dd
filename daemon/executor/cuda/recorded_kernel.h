/* A flagged product in a recording: one kernel node of its graph. The values of its flags, its
 * counters and the word that makes it give up are among the kernel's arguments, and other ones in
 * every replay: they are set ahead of it. */
#ifndef CGM_CUDA_RECORDED_KERNEL_H
#define CGM_CUDA_RECORDED_KERNEL_H

#include "daemon/executor/cuda/cuda.h"
#include "kernels/flagged_gemm.h"

struct cgm_recorded_kernel;

/* Launches the product on the stand-in's stream, which captures it. NOT_SUPPORTED: more parts than
 * there are words with a flag. Mapping thread. */
int cgm_recorded_kernel_new(struct cgm_queue *stand_in, const struct cgm_flagged_gemm *flagged,
                            struct cgm_kernel_flagged_gemm *gemm,
                            struct cgm_recorded_kernel **ret_kernel);
void cgm_recorded_kernel_free(struct cgm_recorded_kernel *kernel);

/* The next replay, on this queue, is with values that are higher by `raise`. */
int cgm_recorded_kernel_set(struct cgm_recorded_kernel *kernel, struct cgm_queue *queue,
                            cudaGraphExec_t exec, uint64_t raise);

/* That replay comes next, and has been enqueued. */
void cgm_recorded_kernel_begin(const struct cgm_recorded_kernel *kernel, struct cgm_queue *queue);
void cgm_recorded_kernel_end(struct cgm_recorded_kernel *kernel);

/* Whether the kernel itself waits for something. */
bool cgm_recorded_kernel_waits(const struct cgm_recorded_kernel *kernel);

#endif
