/* Flags: 64-bit counters in memory that every device can write. */
#ifndef CGM_CUDA_FLAG_H
#define CGM_CUDA_FLAG_H

#include "daemon/executor/cuda/cuda.h"

struct cgm_flag {
    struct cgm_backend *backend;
    struct cgm_flag_slab *slab;
    uint32_t device, index; /* index: in the slab */
    enum cgm_flag_kind kind;
    /* The highest value of a signal that is in some queue. Written by the thread that enqueues the
     * signals, read by the poller. */
    _Atomic uint64_t enqueued;
};

/* So many words of memory come with a flag: the first one is the flag, the others are 0 at first.
 */
#define CGM_FLAG_WORDS 8u

/* A signal of this value is in some queue. */
void cgm_flag_will_be(struct cgm_flag *flag, uint64_t value);

/* Where it lies for a device, or 0 when that device cannot reach it. */
CUdeviceptr cgm_flag_at(const struct cgm_flag *flag, uint32_t device);

#endif
