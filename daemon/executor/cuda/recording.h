#ifndef CGM_CUDA_RECORDING_H
#define CGM_CUDA_RECORDING_H

#include "daemon/executor/cuda/cuda.h"

/* Of a stand-in: these calls, which await or signal these flags, come next. */
int cgm_recording_add(struct cgm_recording *recording, bool waits,
                      const struct cgm_flag_value *flags, const CUstreamBatchMemOpParams *calls,
                      uint32_t count, uint32_t device);

#endif
