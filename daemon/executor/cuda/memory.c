/* The executor's own memory: durable buffers, which outlive it by their fd, and cudaMalloc memory
 * for those who only know cudaIpc handles. */
#include <stdlib.h>

#include "daemon/executor/cuda/range.h"
#include "proto/status.h"

static int zero(struct cgm_mem *mem)
{
    struct cgm_device *device = &mem->backend->devices[mem->device];
    int status =
        cgm_cuda_check(cudaMemsetAsync(mem->at[mem->device], 0, mem->bytes, device->service),
                       "cudaMemsetAsync", mem->device);
    return status == CGM_OK ? cgm_cuda_check(cudaStreamSynchronize(device->service),
                                             "zeroing of memory", mem->device)
                            : status;
}

/* Takes the handle. */
static int durable_new(struct cgm_backend *backend, uint32_t device, uint64_t bytes,
                       CUmemGenericAllocationHandle handle, struct cgm_mem **ret_mem)
{
    struct cgm_mem *mem = calloc(1, sizeof(*mem));
    int status = mem ? CGM_OK : CGM_NO_MEMORY;
    if (mem) {
        *mem = (struct cgm_mem){.backend = backend,
                                .kind = CGM_MEM_DURABLE,
                                .device = device,
                                .range_bytes = bytes,
                                .handle = handle};
        status = cgm_range_reserve(mem);
    }
    if (status == CGM_OK)
        status = cgm_cuda_try((cudaError_t)cgm_range_map(mem, handle, bytes), "cuMemMap", device);
    if (status == CGM_OK)
        status = cgm_range_open(mem, 0, bytes);
    if (status == CGM_OK) {
        *ret_mem = mem;
        return CGM_OK;
    }
    if (mem)
        cgm_range_free(mem);
    cgm_driver_check(cgm_driver.MemRelease(handle), "cuMemRelease", device);
    free(mem);
    return status;
}

static int durable_alloc(struct cgm_backend *backend, uint32_t device, uint64_t bytes,
                         struct cgm_mem **ret_mem)
{
    CUmemAllocationProp properties = cgm_range_properties(device);
    CUmemGenericAllocationHandle handle;
    CUresult result = cgm_driver.MemCreate(&handle, bytes, &properties, 0);
    int status = cgm_cuda_try((cudaError_t)result, "cuMemCreate", device);
    return status == CGM_OK ? durable_new(backend, device, bytes, handle, ret_mem) : status;
}

static int ipc_alloc(struct cgm_backend *backend, uint32_t device, uint64_t bytes,
                     struct cgm_mem **ret_mem)
{
    void *data = NULL;
    struct cgm_mem *mem = calloc(1, sizeof(*mem));
    int status = mem ? cgm_cuda_try(cudaMalloc(&data, bytes), "cudaMalloc", device) : CGM_NO_MEMORY;
    if (status != CGM_OK) {
        free(mem);
        return status;
    }
    *mem =
        (struct cgm_mem){.backend = backend, .kind = CGM_MEM_IPC, .device = device, .bytes = bytes};
    for (uint32_t d = 0; d < backend->n_devices; d++)
        mem->at[d] = backend->devices[d].reaches[device] ? data : NULL;
    *ret_mem = mem;
    return CGM_OK;
}

/* In one piece, however large: what was asked for is one cuMemCreate, whose fd a client maps, and
 * it holds the driver's locks whichever thread calls it. Zeroing goes at the memory's own speed. */
int cgm_cuda_mem_alloc(struct cgm_backend *backend, uint32_t device, uint64_t bytes, uint32_t flags,
                       struct cgm_mem **ret_mem)
{
    struct cgm_mem *mem = NULL;
    if (device >= backend->n_devices)
        return CGM_INVALID_ARGUMENT;
    cgm_device_use(device);
    int status = cgm_range_round(device, bytes, &bytes);
    if (status == CGM_OK)
        status = flags & CGM_MEMORY_IPC ? ipc_alloc(backend, device, bytes, &mem)
                                        : durable_alloc(backend, device, bytes, &mem);
    if (status != CGM_OK)
        return status;
    status = zero(mem);
    if (status == CGM_OK)
        *ret_mem = mem;
    else
        cgm_cuda_mem_free(mem);
    return status;
}

int cgm_cuda_mem_export(struct cgm_mem *mem, int *ret_fd)
{
    if (mem->kind != CGM_MEM_DURABLE)
        return CGM_NOT_SUPPORTED;
    cgm_device_use(mem->device);
    return cgm_driver_check(cgm_driver.MemExportToShareableHandle(
                                ret_fd, mem->handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
                            "cuMemExportToShareableHandle", mem->device);
}

int cgm_cuda_mem_ipc_handle(struct cgm_mem *mem, uint8_t *ret_handle)
{
    if (mem->kind != CGM_MEM_IPC)
        return CGM_NOT_SUPPORTED;
    cgm_device_use(mem->device);
    return cgm_cuda_check(
        cudaIpcGetMemHandle((cudaIpcMemHandle_t *)(void *)ret_handle, mem->at[mem->device]),
        "cudaIpcGetMemHandle", mem->device);
}

int cgm_cuda_mem_adopt(struct cgm_backend *backend, uint32_t device, int fd, uint64_t bytes,
                       struct cgm_mem **ret_mem)
{
    CUmemGenericAllocationHandle handle;
    if (device >= backend->n_devices || fd < 0)
        return CGM_INVALID_ARGUMENT;
    cgm_device_use(device);
    int status = cgm_range_round(device, bytes, &bytes);
    if (status == CGM_OK)
        status = cgm_driver_check(
            cgm_driver.MemImportFromShareableHandle(&handle, (void *)(uintptr_t)fd,
                                                    CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR),
            "cuMemImportFromShareableHandle", device);
    return status == CGM_OK ? durable_new(backend, device, bytes, handle, ret_mem) : status;
}

uint64_t cgm_cuda_mem_bytes(const struct cgm_mem *mem)
{
    return mem->bytes;
}
