#ifndef CGM_CUDA_RECORDING_H
#define CGM_CUDA_RECORDING_H

#include "daemon/executor/cuda/cuda.h"
#include "kernels/flagged_gemm.h"

/* Of a stand-in: these calls, which await or signal these flags, come next. */
int cgm_recording_add(struct cgm_recording *recording, bool waits,
                      const struct cgm_flag_value *flags, const CUstreamBatchMemOpParams *calls,
                      uint32_t count, uint32_t device);

/* A flagged product comes next; gemm's counters and give_up are not looked at. */
int cgm_recording_add_kernel(struct cgm_queue *stand_in, const struct cgm_flagged_gemm *flagged,
                             struct cgm_kernel_flagged_gemm *gemm);

#endif
