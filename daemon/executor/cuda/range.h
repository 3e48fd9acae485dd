/* Ranges of device addresses with VMM memory behind them. */
#ifndef CGM_CUDA_RANGE_H
#define CGM_CUDA_RANGE_H

#include "daemon/executor/cuda/cuda.h"

CUmemAllocationProp cgm_range_properties(uint32_t device);

/* Bytes rounded up to what VMM memory of the device comes in. */
int cgm_range_round(uint32_t device, uint64_t bytes, uint64_t *ret_bytes);

/* Reserves mem->range for range_bytes. */
int cgm_range_reserve(struct cgm_mem *mem);

/* Maps all of the handle's memory behind the parts that are there. The error, unchecked: a wrong
 * size is the giver's fault. */
CUresult cgm_range_map(struct cgm_mem *mem, CUmemGenericAllocationHandle handle, uint64_t bytes);

/* Lets every device that can reach mem->device read and write the range; sets bytes and at[],
 * `offset` bytes into it. */
int cgm_range_open(struct cgm_mem *mem, uint64_t offset, uint64_t usable_bytes);

/* Takes back whatever of the above happened. */
void cgm_range_free(struct cgm_mem *mem);

#endif
