/* What the driver knows of a device pointer, and how its memory is given to another process. */
#ifndef CGM_CLIENT_CUDA_POINTER_H
#define CGM_CLIENT_CUDA_POINTER_H

#include <stdbool.h>

#include "client/include/commgemm.h"
#include "client/lib/cuda_driver.h"
#include "proto/messages.h"

#define CGM_CUDA_UUID_TEXT 48

/* A piece of memory that the driver allocated at once. */
struct cgm_cuda_part {
    uint64_t base, bytes;
    uint64_t identity; /* never that of another piece in this process, also at the same address */
};

/* The allocation that a pointer lies in, or for VMM memory the mappings that its range touches. */
struct cgm_cuda_memory {
    void *context; /* NULL for VMM memory */
    bool is_vmm;
    char uuid[CGM_CUDA_UUID_TEXT]; /* of its device */
    uint32_t n_parts;              /* 1 unless it is VMM memory */
    struct cgm_cuda_part parts[CGM_IMPORT_SEGMENTS_MAX];
};

/* Finds it, or says why it cannot be exported: NOT_SUPPORTED; INVALID_ARGUMENT when the range is
 * not all of device memory. */
int cgm_cuda_memory_find(const struct cgm_cuda_driver *driver, uint64_t pointer, uint64_t bytes,
                         struct cgm_cuda_memory *ret_memory);

/* One segment a part. The fds are the caller's; cgm_cuda_segments_close. */
int cgm_cuda_memory_export(const struct cgm_cuda_driver *driver,
                           const struct cgm_cuda_memory *memory,
                           struct commgemm_segment *ret_segments);
void cgm_cuda_segments_close(struct commgemm_segment *segments, uint32_t n_segments);

/* Identity of what lies at this address now; 0: nothing. Takes no lock and no context. */
uint64_t cgm_cuda_identity(const struct cgm_cuda_driver *driver, uint64_t pointer);

#endif
