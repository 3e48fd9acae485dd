/* NCCL of the machine that runs: loaded where there is more than one device. */
#ifndef CGM_CUDA_NCCL_H
#define CGM_CUDA_NCCL_H

#include <nccl.h>
#include <stddef.h>

#define CGM_NCCL_FUNCTIONS(X)                                                                      \
    X(GetVersion)                                                                                  \
    X(GetErrorString)                                                                              \
    X(CommInitAll)                                                                                 \
    X(CommDestroy)                                                                                 \
    X(CommAbort)                                                                                   \
    X(CommGetAsyncError)                                                                           \
    X(GroupStart)                                                                                  \
    X(GroupEnd)                                                                                    \
    X(AllGather)                                                                                   \
    X(ReduceScatter)                                                                               \
    X(AllReduce)

struct cgm_nccl {
#define X(name) __typeof__(&nccl##name) name;
    CGM_NCCL_FUNCTIONS(X)
#undef X
};

extern struct cgm_nccl cgm_nccl; /* written by cgm_nccl_load alone */

/* OK with "NCCL 2.28.3", or NOT_SUPPORTED and a sentence. Loads once: before there is any work, or
 * on the mapping thread. */
int cgm_nccl_load(char *ret_text, size_t text_bytes);

#endif
