/* Clients' memory: one way in for each kind of segment. Each gives a mem with at[] and bytes set,
 * or a status and a sentence. */
#ifndef CGM_CUDA_IMPORT_H
#define CGM_CUDA_IMPORT_H

#include "daemon/executor/cuda/cuda.h"
#include "daemon/executor/host/segment.h"

/* Where a client's memory may begin in its allocation. */
#define CGM_IMPORT_ALIGN 256u

/* What is to be imported, and where a refusal is written. */
struct cgm_importing {
    const struct cgm_memory_segment *segments;
    uint32_t n_segments;
    char *detail;
    size_t detail_bytes;
};

#define CGM_REFUSE(i, status, ...) cgm_detail((i)->detail, (i)->detail_bytes, status, __VA_ARGS__)

int cgm_import_vmm(const struct cgm_importing *importing, struct cgm_mem *mem);
int cgm_import_ipc(const struct cgm_importing *importing, struct cgm_mem *mem);
int cgm_import_host(const struct cgm_importing *importing, struct cgm_mem *mem);

/* Whether an fd is a memfd: the seals are what only those have. */
bool cgm_import_is_memfd(int fd);

void cgm_import_ipc_close(struct cgm_mem *mem);
void cgm_import_host_free(struct cgm_mem *mem);

#endif
