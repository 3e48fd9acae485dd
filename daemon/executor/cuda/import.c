#include "daemon/executor/cuda/import.h"

#include <stdlib.h>

#include "daemon/executor/cuda/range.h"
#include "proto/status.h"

typedef unsigned long long ull;

/* All segments of one kind, none empty, together not too long. */
static int check(const struct cgm_importing *i)
{
    uint64_t bytes = 0;
    if (i->n_segments < 1 || i->n_segments > CGM_IMPORT_SEGMENTS_MAX)
        return CGM_REFUSE(i, CGM_INVALID_ARGUMENT, "%u segments; an import has 1 to %u",
                          i->n_segments, CGM_IMPORT_SEGMENTS_MAX);
    for (uint32_t n = 0; n < i->n_segments; n++) {
        const struct cgm_memory_segment *s = &i->segments[n];
        if (s->kind != CGM_SEGMENT_FD && s->kind != CGM_SEGMENT_CUDA_IPC)
            return CGM_REFUSE(i, CGM_INVALID_ARGUMENT,
                              "segment %u: kind is %u; it must be 1 (fd) or 2 (cudaIpc handle)", n,
                              s->kind);
        if (s->kind != i->segments[0].kind)
            return CGM_REFUSE(i, CGM_INVALID_ARGUMENT,
                              "segment %u: kind is %u and that of segment 0 is %u; they must agree",
                              n, s->kind, i->segments[0].kind);
        if (s->length == 0 || s->length > CGM_BUFFER_BYTES_MAX || s->offset > CGM_BUFFER_BYTES_MAX)
            return CGM_REFUSE(i, CGM_INVALID_ARGUMENT,
                              "segment %u: offset %llu and length %llu; length is 1 to %llu", n,
                              (ull)s->offset, (ull)s->length, CGM_BUFFER_BYTES_MAX);
        bytes += s->length;
        if (bytes > CGM_BUFFER_BYTES_MAX)
            return CGM_REFUSE(i, CGM_INVALID_ARGUMENT,
                              "segment %u: together they have more than %llu bytes", n,
                              CGM_BUFFER_BYTES_MAX);
    }
    return CGM_OK;
}

static int import(const struct cgm_importing *i, struct cgm_mem *mem)
{
    if (i->segments[0].kind == CGM_SEGMENT_CUDA_IPC) {
        mem->kind = CGM_MEM_OPENED;
        return cgm_import_ipc(i, mem);
    }
    if (cgm_import_is_memfd(i->segments[0].fd)) {
        mem->kind = CGM_MEM_HOST;
        return cgm_import_host(i, mem);
    }
    mem->kind = CGM_MEM_VMM;
    return cgm_import_vmm(i, mem);
}

int cgm_cuda_mem_import(struct cgm_backend *backend, uint32_t device,
                        const struct cgm_memory_segment *segments, uint32_t n_segments,
                        bool read_only, char *ret_detail, size_t detail_bytes,
                        struct cgm_mem **ret_mem)
{
    const struct cgm_importing importing = {segments, n_segments, ret_detail, detail_bytes};
    if (device >= backend->n_devices)
        return CGM_REFUSE(&importing, CGM_INVALID_ARGUMENT, "device is %u; there are 0 to %u",
                          device, backend->n_devices - 1);
    int status = check(&importing);
    if (status != CGM_OK)
        return status;
    cgm_device_use(device);
    struct cgm_mem *mem = calloc(1, sizeof(*mem));
    if (!mem)
        return CGM_REFUSE(&importing, CGM_NO_MEMORY, "no host memory for an import");
    mem->backend = backend;
    mem->device = device;
    mem->read_only = read_only;
    *ret_mem = mem;
    return import(&importing, mem);
}

/* Seen with driver 580.159: cudaHostUnregister, cudaIpcCloseMemHandle, cudaFree and cudaFreeHost
 * wait until all streams of the context are through, with a lock that every copy and launch needs.
 * cuMemUnmap, cuMemRelease and whatever makes memory do neither. */
bool cgm_cuda_mem_holds_up(const struct cgm_mem *mem)
{
    return mem->kind == CGM_MEM_IPC || mem->kind == CGM_MEM_OPENED || mem->kind == CGM_MEM_HOST;
}

void cgm_cuda_mem_free(struct cgm_mem *mem)
{
    cgm_device_use(mem->device);
    switch (mem->kind) {
    case CGM_MEM_DURABLE:
        cgm_range_free(mem);
        cgm_driver_check(cgm_driver.MemRelease(mem->handle), "cuMemRelease", mem->device);
        break;
    case CGM_MEM_IPC:
        cgm_cuda_check(cudaFree(mem->at[mem->device]), "cudaFree", mem->device);
        break;
    case CGM_MEM_VMM:
        cgm_range_free(mem);
        break;
    case CGM_MEM_OPENED:
        cgm_import_ipc_close(mem);
        break;
    case CGM_MEM_HOST:
        cgm_import_host_free(mem);
        break;
    }
    free(mem);
}

/* ---- VMM memory ----------------------------------------------------------------------------- */

static int vmm_part(const struct cgm_importing *i, uint32_t n, struct cgm_mem *mem)
{
    const struct cgm_memory_segment *s = &i->segments[n];
    CUmemGenericAllocationHandle handle;
    CUmemAllocationProp properties;
    uint64_t bytes = 0;
    if (cgm_driver.MemImportFromShareableHandle(&handle, (void *)(uintptr_t)s->fd,
                                                CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) !=
        CUDA_SUCCESS)
        return CGM_REFUSE(i, CGM_INVALID_ARGUMENT,
                          "segment %u: its fd is neither a memfd nor exported CUDA memory", n);
    int status = cgm_range_round(mem->device, s->offset + s->length, &bytes);
    if (cgm_driver.MemGetAllocationPropertiesFromHandle(&properties, handle) == CUDA_SUCCESS &&
        (properties.location.type != CU_MEM_LOCATION_TYPE_DEVICE ||
         properties.location.id != (int)mem->device))
        status = CGM_REFUSE(i, CGM_INVALID_ARGUMENT,
                            "segment %u: its memory is on device %d, and the import is for device "
                            "%u",
                            n, properties.location.id, mem->device);
    if (status == CGM_OK && cgm_range_map(mem, handle, bytes) != CUDA_SUCCESS)
        status = CGM_REFUSE(i, CGM_INVALID_ARGUMENT,
                            "segment %u: offset %llu and length %llu do not end where its memory "
                            "does; an import takes all of it",
                            n, (ull)s->offset, (ull)s->length);
    /* The mapping keeps the memory. */
    cgm_driver_check(cgm_driver.MemRelease(handle), "cuMemRelease", mem->device);
    return status;
}

/* Lengths of segments that others follow must be whole: addresses go on without a gap. */
static int vmm_layout(const struct cgm_importing *i, struct cgm_mem *mem, uint64_t *ret_usable)
{
    *ret_usable = 0;
    for (uint32_t n = 0; n < i->n_segments; n++) {
        const struct cgm_memory_segment *s = &i->segments[n];
        uint64_t whole = 0;
        int status = cgm_range_round(mem->device, s->offset + s->length, &whole);
        if (status != CGM_OK)
            return status;
        if (s->offset % CGM_IMPORT_ALIGN)
            return CGM_REFUSE(i, CGM_INVALID_ARGUMENT,
                              "segment %u: offset is %llu; it must be a multiple of %u", n,
                              (ull)s->offset, CGM_IMPORT_ALIGN);
        if ((n > 0 && s->offset > 0) || (n + 1 < i->n_segments && whole != s->offset + s->length))
            return CGM_REFUSE(i, CGM_INVALID_ARGUMENT,
                              "segment %u: offset %llu and length %llu leave a gap between "
                              "segments",
                              n, (ull)s->offset, (ull)s->length);
        mem->range_bytes += whole;
        *ret_usable += s->length;
    }
    return CGM_OK;
}

int cgm_import_vmm(const struct cgm_importing *i, struct cgm_mem *mem)
{
    uint64_t usable = 0;
    int status = vmm_layout(i, mem, &usable);
    if (status == CGM_OK && cgm_range_reserve(mem) != CGM_OK)
        status = CGM_REFUSE(i, CGM_NO_MEMORY, "%llu bytes of addresses could not be reserved",
                            (ull)mem->range_bytes);
    for (uint32_t n = 0; n < i->n_segments && status == CGM_OK; n++)
        status = vmm_part(i, n, mem);
    if (status == CGM_OK && cgm_range_open(mem, i->segments[0].offset, usable) != CGM_OK)
        status =
            CGM_REFUSE(i, CGM_NOT_SUPPORTED, "access to %llu bytes of device %u could not be had",
                       (ull)mem->range_bytes, mem->device);
    return status;
}
