/* memfds: host memory that the devices read and write in place. */
#include <fcntl.h>
#include <sys/mman.h>

#include "daemon/executor/cuda/import.h"
#include "daemon/executor/host/holes.h"
#include "proto/status.h"

typedef unsigned long long ull;

bool cgm_import_is_memfd(int fd)
{
    return fcntl(fd, F_GET_SEALS) >= 0;
}

static int map(const struct cgm_importing *i, struct cgm_mem *mem)
{
    int protection = mem->read_only ? PROT_READ : PROT_READ | PROT_WRITE;
    mem->range =
        cgm_segments_map(i->segments, i->n_segments, mem->range_bytes, protection, MAP_SHARED);
    return mem->range ? CGM_OK : CGM_NO_MEMORY;
}

/* Not every system can pin what a process may only read. Where the client could have let it be
 * written, it is pinned like that, and only the views of jobs keep it from being written. */
static cudaError_t register_range(struct cgm_mem *mem)
{
    unsigned flags = cudaHostRegisterMapped | cudaHostRegisterPortable;
    if (mem->read_only) {
        cudaError_t error =
            cudaHostRegister(mem->range, mem->range_bytes, flags | cudaHostRegisterReadOnly);
        if (error == cudaSuccess ||
            mprotect(mem->range, mem->range_bytes, PROT_READ | PROT_WRITE) != 0)
            return error;
        cudaGetLastError();
    }
    return cudaHostRegister(mem->range, mem->range_bytes, flags);
}

static cudaError_t pin(struct cgm_mem *mem)
{
    cudaError_t error = register_range(mem);
    if (error != cudaSuccess)
        return error;
    mem->n_parts = 1;
    for (uint32_t d = 0; d < mem->backend->n_devices && error == cudaSuccess; d++) {
        void *at = NULL;
        cgm_device_use(d);
        error = cudaHostGetDevicePointer(&at, mem->range, 0);
        mem->at[d] = at;
    }
    return error;
}

/* The client's pages are pinned, and none is made that it does not have, where that can be watched:
 * not of what may only be read. */
static cudaError_t pin_watched(struct cgm_mem *mem)
{
    struct cgm_hole_watch *watch = cgm_holes_watch(mem->range, mem->range_bytes);
    cudaError_t error = pin(mem);
    cgm_holes_unwatch(watch);
    return error;
}

int cgm_import_host(const struct cgm_importing *i, struct cgm_mem *mem)
{
    int status = CGM_OK;
    for (uint32_t n = 0; n < i->n_segments && status == CGM_OK; n++) {
        status = cgm_segment_check(&i->segments[n], n, mem->read_only, i->detail, i->detail_bytes);
        mem->range_bytes += i->segments[n].length;
    }
    if (status == CGM_OK)
        status = cgm_segments_check_holes(i->segments, i->n_segments, i->detail, i->detail_bytes);
    if (status != CGM_OK)
        return status;
    status = map(i, mem);
    if (status != CGM_OK)
        return CGM_REFUSE(i, status, "%llu bytes of host memory could not be mapped",
                          (ull)mem->range_bytes);
    cudaError_t error = pin_watched(mem);
    status = cgm_cuda_try(error, "cudaHostRegister", mem->device);
    if (status != CGM_OK)
        return CGM_REFUSE(i, status,
                          "%llu bytes of host memory could not be pinned for the devices (%s); "
                          "%llu of them may be holes (see fallocate); see the limit on locked "
                          "memory, too",
                          (ull)mem->range_bytes, cudaGetErrorName(error),
                          (ull)cgm_segments_missing(i->segments, i->n_segments));
    mem->bytes = mem->range_bytes;
    return CGM_OK;
}

void cgm_import_host_free(struct cgm_mem *mem)
{
    if (mem->n_parts > 0)
        cgm_cuda_check(cudaHostUnregister(mem->range), "cudaHostUnregister", mem->device);
    if (mem->range)
        munmap(mem->range, mem->range_bytes);
}
