#include "daemon/executor/cuda/range.h"

#include "proto/status.h"

CUmemAllocationProp cgm_range_properties(uint32_t device)
{
    return (CUmemAllocationProp){
        .type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = (int)device},
    };
}

int cgm_range_round(uint32_t device, uint64_t bytes, uint64_t *ret_bytes)
{
    CUmemAllocationProp properties = cgm_range_properties(device);
    size_t unit = 0;
    if (bytes == 0 || bytes > CGM_BUFFER_BYTES_MAX)
        return CGM_INVALID_ARGUMENT;
    int status = cgm_driver_check(cgm_driver.MemGetAllocationGranularity(
                                      &unit, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM),
                                  "cuMemGetAllocationGranularity", device);
    if (status == CGM_OK)
        *ret_bytes = (bytes + unit - 1) / unit * unit;
    return status;
}

int cgm_range_reserve(struct cgm_mem *mem)
{
    CUdeviceptr range = 0;
    int status = cgm_driver_check(cgm_driver.MemAddressReserve(&range, mem->range_bytes, 0, 0, 0),
                                  "cuMemAddressReserve", mem->device);
    mem->range = (char *)(uintptr_t)range;
    return status;
}

static uint64_t mapped_bytes(const struct cgm_mem *mem)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < mem->n_parts; i++)
        bytes += mem->part_bytes[i];
    return bytes;
}

CUresult cgm_range_map(struct cgm_mem *mem, CUmemGenericAllocationHandle handle, uint64_t bytes)
{
    CUdeviceptr at = (CUdeviceptr)(uintptr_t)mem->range + mapped_bytes(mem);
    CUresult result = cgm_driver.MemMap(at, bytes, 0, handle, 0);
    if (result == CUDA_SUCCESS)
        mem->part_bytes[mem->n_parts++] = bytes;
    return result;
}

int cgm_range_open(struct cgm_mem *mem, uint64_t offset, uint64_t usable_bytes)
{
    struct cgm_backend *backend = mem->backend;
    CUmemAccessDesc access[CGM_CUDA_DEVICES_MAX];
    size_t count = 0;
    for (uint32_t d = 0; d < backend->n_devices; d++)
        if (backend->devices[d].reaches[mem->device])
            access[count++] = (CUmemAccessDesc){
                .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = (int)d},
                .flags = mem->read_only ? CU_MEM_ACCESS_FLAGS_PROT_READ
                                        : CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
            };
    int status = cgm_driver_check(cgm_driver.MemSetAccess((CUdeviceptr)(uintptr_t)mem->range,
                                                          mem->range_bytes, access, count),
                                  "cuMemSetAccess", mem->device);
    if (status != CGM_OK)
        return status;
    mem->bytes = usable_bytes;
    for (uint32_t d = 0; d < backend->n_devices; d++)
        mem->at[d] = backend->devices[d].reaches[mem->device] ? mem->range + offset : NULL;
    return CGM_OK;
}

void cgm_range_free(struct cgm_mem *mem)
{
    CUdeviceptr at = (CUdeviceptr)(uintptr_t)mem->range;
    if (!mem->range)
        return;
    for (uint32_t i = 0; i < mem->n_parts; i++) {
        cgm_driver_check(cgm_driver.MemUnmap(at, mem->part_bytes[i]), "cuMemUnmap", mem->device);
        at += mem->part_bytes[i];
    }
    cgm_driver_check(
        cgm_driver.MemAddressFree((CUdeviceptr)(uintptr_t)mem->range, mem->range_bytes),
        "cuMemAddressFree", mem->device);
}
