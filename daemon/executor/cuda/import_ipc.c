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

/* What the driver says of an address that the claimed device opened. Where it names another device,
 * the handle is of memory there; it may also name whoever opened it, and then nothing can be said:
 * who claims the wrong device has slower jobs, and harms nobody else. */
static int check_device(const struct cgm_importing *i, const struct cgm_mem *mem, const char *base)
{
    struct cudaPointerAttributes attributes;
    int status = cgm_cuda_check(cudaPointerGetAttributes(&attributes, base),
                                "cudaPointerGetAttributes", mem->device);
    if (status != CGM_OK || attributes.type != cudaMemoryTypeDevice)
        return CGM_OK;
    cgm_cuda_log(7, "a cudaIpc handle for device %u: the driver says device %d", mem->device,
                 attributes.device);
    return attributes.device == (int)mem->device
               ? CGM_OK
               : CGM_REFUSE(i, CGM_INVALID_ARGUMENT,
                            "segment 0: its memory is on device %d, and the import is for device "
                            "%u",
                            attributes.device, mem->device);
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

/* at[] is set as soon as there is something to be closed. */
static int open_for(const struct cgm_importing *i, struct cgm_mem *mem, uint32_t device)
{
    uint64_t bytes = 0;
    char *base = NULL;
    if (open_on(device, &i->segments[0], &base, &bytes) != CGM_OK)
        return CGM_REFUSE(i, CGM_INVALID_ARGUMENT,
                          "segment 0: the cudaIpc handle cannot be opened on device %u: it is "
                          "no handle, its memory was freed, its process ended, or it is a "
                          "buffer of this daemon, which goes by its id",
                          device);
    mem->at[device] = base + mem->opened_offset;
    int status = device == mem->device ? check_device(i, mem, base) : CGM_OK;
    return status == CGM_OK ? check_range(i, bytes) : status;
}

int cgm_import_ipc(const struct cgm_importing *i, struct cgm_mem *mem)
{
    const struct cgm_backend *backend = mem->backend;
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
    int status = open_for(i, mem, mem->device);
    for (uint32_t d = 0; d < backend->n_devices && status == CGM_OK; d++)
        if (d != mem->device && backend->devices[d].reaches[mem->device])
            status = open_for(i, mem, d);
    if (status == CGM_OK)
        mem->bytes = i->segments[0].length;
    return status;
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
