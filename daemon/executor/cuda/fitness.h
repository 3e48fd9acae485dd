/* What a device must be to be of use. No CUDA calls: what is known about it is given. */
#ifndef CGM_CUDA_FITNESS_H
#define CGM_CUDA_FITNESS_H

#include <cuda.h>
#include <stdbool.h>
#include <stddef.h>

/* X(attribute of the device, what it stands for) */
#define CGM_DEVICE_NEEDS(X)                                                                        \
    X(VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, "virtual memory management")                            \
    X(HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED, "memory that is exported as a file descriptor") \
    X(CAN_USE_64_BIT_STREAM_MEM_OPS, "64-bit stream memory operations")                            \
    X(CAN_MAP_HOST_MEMORY, "mapped host memory")

enum cgm_device_need {
#define X(attribute, what) CGM_NEED_##attribute,
    CGM_DEVICE_NEEDS(X)
#undef X
        CGM_NEED_COUNT
};

struct cgm_device_facts {
    const char *name;
    int major, minor; /* compute capability */
    bool has[CGM_NEED_COUNT];
};

/* OK, or NOT_SUPPORTED and a sentence. */
int cgm_device_judge(int device, const struct cgm_device_facts *facts, char *ret_detail,
                     size_t detail_bytes);

#endif
