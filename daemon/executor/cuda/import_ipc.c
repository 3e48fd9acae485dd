/* cudaIpc handles: opened once on each device that can reach the memory, for a kernel may only use
 * an address that its own device opened. */
#include <string.h>

#include "daemon/executor/cuda/import.h"
#include "proto/status.h"

typedef unsigned long long ull;

static int open_on(uint32_t device, const struct cgm_memory_segment *segment, char **ret_base,
                   uint64_t *ret_bytes)
{
    cudaIpcMemHandle_t handle;
    CUdeviceptr first = 0;
    size_t bytes = 0;
    void *base = NULL;
    memcpy(&handle, segment->handle, sizeof(handle));
    cgm_device_use(device);
    int status = cgm_cuda_try(cudaIpcOpenMemHandle(&base, handle, cudaIpcMemLazyEnablePeerAccess),
                              "cudaIpcOpenMemHandle", device);
    if (status != CGM_OK)
        return status;
    *ret_base = base;
    status = cgm_driver_check(
        cgm_driver.MemGetAddressRange(&first, &bytes, (CUdeviceptr)(uintptr_t)base),
        "cuMemGetAddressRange", device);
    *ret_bytes = status == CGM_OK ? bytes : 0;
    return CGM_OK;
}

static int check_range(const struct cgm_importing *i, uint64_t bytes)
{
    const struct cgm_memory_segment *s = &i->segments[0];
    if (s->length > bytes || s->offset > bytes - s->length)
        return CGM_REFUSE(i, CGM_INVALID_ARGUMENT,
                          "segment 0: offset %llu and length %llu reach beyond the %llu bytes of "
                          "the allocation",
                          (ull)s->offset, (ull)s->length, (ull)bytes);
    return CGM_OK;
}

int cgm_import_ipc(const struct cgm_importing *i, struct cgm_mem *mem)
{
    struct cgm_backend *backend = mem->backend;
    uint64_t bytes = 0;
    char *base = NULL;
    if (i->n_segments != 1)
        return CGM_REFUSE(i, CGM_NOT_SUPPORTED,
                          "%u cudaIpc handles; an import has one, for their addresses do not go on "
                          "from each other",
                          i->n_segments);
    if (i->segments[0].offset % CGM_IMPORT_ALIGN)
        return CGM_REFUSE(i, CGM_INVALID_ARGUMENT,
                          "segment 0: offset is %llu; it must be a multiple of %u",
                          (ull)i->segments[0].offset, CGM_IMPORT_ALIGN);
    mem->opened_offset = i->segments[0].offset;
    for (uint32_t d = 0; d < backend->n_devices; d++) {
        if (!backend->devices[d].reaches[mem->device])
            continue;
        int status = open_on(d, &i->segments[0], &base, &bytes);
        if (status != CGM_OK)
            return CGM_REFUSE(i, CGM_INVALID_ARGUMENT,
                              "segment 0: the cudaIpc handle cannot be opened on device %u: it is "
                              "no handle, its memory was freed, its process ended, or it is a "
                              "buffer of this daemon, which goes by its id",
                              d);
        mem->at[d] = base + mem->opened_offset;
        status = check_range(i, bytes);
        if (status != CGM_OK)
            return status;
    }
    mem->bytes = i->segments[0].length;
    return CGM_OK;
}

void cgm_import_ipc_close(struct cgm_mem *mem)
{
    for (uint32_t d = 0; d < mem->backend->n_devices; d++) {
        if (!mem->at[d])
            continue;
        cgm_device_use(d);
        cgm_cuda_check(cudaIpcCloseMemHandle(mem->at[d] - mem->opened_offset),
                       "cudaIpcCloseMemHandle", d);
    }
}
