/* Views of exported CUDA memory: imported from its fd, as a client would, and copied. */
#include "tests/host_view.h"

#include <stdio.h>
#include <stdlib.h>

#include "daemon/executor/cuda/cuda.h"

#define UNIT (2ull << 20)

static void must(int error, const char *what)
{
    if (error) {
        fprintf(stderr, "host view: %s: error %d\n", what, error);
        abort();
    }
}

static void access_from_first(CUdeviceptr at, size_t bytes)
{
    CUmemAccessDesc access = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0},
                              .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    must((int)cgm_driver.MemSetAccess(at, bytes, &access, 1), "cuMemSetAccess");
}

int host_view_open(struct host_view *view, int fd, size_t bytes)
{
    CUmemGenericAllocationHandle handle;
    CUdeviceptr at = 0;
    char detail[256];
    cgm_device_use(0);
    must((int)cudaFree(NULL), "cudaFree");
    if (!cgm_driver.MemMap)
        must(cgm_driver_load(detail, sizeof(detail)), detail);
    view->bytes = bytes;
    view->device_bytes = (bytes + UNIT - 1) / UNIT * UNIT;
    view->base = calloc(1, bytes);
    if (!view->base || cgm_driver.MemImportFromShareableHandle(
                           &handle, (void *)(size_t)fd, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR))
        return 1;
    must((int)cgm_driver.MemAddressReserve(&at, view->device_bytes, 0, 0, 0), "reserve");
    must((int)cgm_driver.MemMap(at, view->device_bytes, 0, handle, 0), "cuMemMap");
    must((int)cgm_driver.MemRelease(handle), "cuMemRelease");
    access_from_first(at, view->device_bytes);
    view->device = (void *)(size_t)at;
    host_view_pull(view, 0, bytes);
    return 0;
}

void host_view_close(struct host_view *view)
{
    CUdeviceptr at = (CUdeviceptr)(size_t)view->device;
    must((int)cgm_driver.MemUnmap(at, view->device_bytes), "cuMemUnmap");
    must((int)cgm_driver.MemAddressFree(at, view->device_bytes), "cuMemAddressFree");
    free(view->base);
}

void host_view_pull(struct host_view *view, size_t offset, size_t bytes)
{
    cgm_device_use(0);
    must((int)cudaMemcpy(view->base + offset, (char *)view->device + offset, bytes,
                         cudaMemcpyDefault),
         "pull");
}

void host_view_push(struct host_view *view, size_t offset, size_t bytes)
{
    cgm_device_use(0);
    must((int)cudaMemcpy((char *)view->device + offset, view->base + offset, bytes,
                         cudaMemcpyDefault),
         "push");
    /* A copy from pageable memory returns before it has arrived. */
    must((int)cudaStreamSynchronize(cudaStreamLegacy), "push");
}
