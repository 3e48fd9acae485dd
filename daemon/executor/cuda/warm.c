/* Warming up. Most of what enqueueing costs a thread that comes cold to it is on the processor's
 * side of a product and a copy: so the last product is enqueued again, and a copy, into a graph
 * that is thrown away. The product's operands may be gone by now; nothing runs. The rest is on the
 * way to the device: a graph that does nothing and a signal that nobody awaits, where they do not
 * take the device away from other processes. */
#include "daemon/executor/cuda/gemm.h"
#include "kernels/device_kernels.h"
#include "proto/status.h"

static int capture_nothing(struct cgm_device *device)
{
    cudaGraph_t graph = NULL;
    int status =
        cgm_cuda_check(cudaStreamBeginCapture(device->warm, cudaStreamCaptureModeThreadLocal),
                       "cudaStreamBeginCapture", device->index);
    if (status != CGM_OK)
        return status;
    cgm_cuda_check(cgm_kernel_delay_launch(0, device->warm), "warming up", device->index);
    status = cgm_cuda_check(cudaStreamEndCapture(device->warm, &graph), "cudaStreamEndCapture",
                            device->index);
    if (status == CGM_OK)
        status = cgm_cuda_check(cudaGraphInstantiate(&device->warm_graph, graph, 0),
                                "cudaGraphInstantiate", device->index);
    if (graph)
        cudaGraphDestroy(graph);
    return status;
}

int cgm_warm_open(struct cgm_device *device)
{
    uint32_t d = device->index;
    int status = cgm_cuda_check(cudaStreamCreateWithFlags(&device->warm, cudaStreamNonBlocking),
                                "cudaStreamCreate", d);
    if (status == CGM_OK)
        status = cgm_cuda_check(cudaMalloc((void **)&device->warm_memory, CGM_CUDA_WARM_BYTES),
                                "cudaMalloc", d);
    return status == CGM_OK ? capture_nothing(device) : status;
}

void cgm_warm_close(struct cgm_device *device)
{
    if (device->warm_graph)
        cudaGraphExecDestroy(device->warm_graph);
    if (device->warm)
        cudaStreamDestroy(device->warm);
    if (device->warm_memory)
        cudaFree(device->warm_memory);
}

static void enqueue_last(struct cgm_device *device)
{
    const struct cgm_last_product *last = device->last;
    if (!last->stream)
        return;
    const struct cgm_gemm_entry *entry = cgm_gemm_table_lock(device->gemms, &last->key);
    const struct cgm_stream stream = {.handle = device->warm, .workspace = last->stream->workspace};
    if (entry && !entry->plain)
        cgm_gemm_multiply(device, &stream, &last->g, entry);
    cgm_gemm_table_unlock(device->gemms);
}

static void enqueue_copy(struct cgm_device *device)
{
    const size_t half = CGM_CUDA_WARM_BYTES / 2;
    cgm_cuda_check(cudaMemcpyAsync(device->warm_memory + half, device->warm_memory, half,
                                   cudaMemcpyDefault, device->warm),
                   "warming up", device->index);
}

static int enqueue_for_device(struct cgm_device *device)
{
    int status = cgm_cuda_check(cudaGraphLaunch(device->warm_graph, device->warm), "warming up",
                                device->index);
    if (status != CGM_OK)
        return status;
    return cgm_driver_check(
        cgm_driver.StreamWriteValue64(device->warm, (CUdeviceptr)(uintptr_t)device->warm_memory, 1,
                                      CU_STREAM_WRITE_VALUE_DEFAULT),
        "warming up", device->index);
}

static int capture(struct cgm_device *device)
{
    cudaGraph_t graph = NULL;
    int status =
        cgm_cuda_check(cudaStreamBeginCapture(device->warm, cudaStreamCaptureModeThreadLocal),
                       "cudaStreamBeginCapture", device->index);
    if (status != CGM_OK)
        return status;
    enqueue_last(device);
    enqueue_copy(device);
    status = cgm_cuda_check(cudaStreamEndCapture(device->warm, &graph), "cudaStreamEndCapture",
                            device->index);
    return status == CGM_OK
               ? cgm_cuda_check(cudaGraphDestroy(graph), "cudaGraphDestroy", device->index)
               : status;
}

void cgm_cuda_warm_up(struct cgm_backend *backend, uint32_t index)
{
    struct cgm_device *device = &backend->devices[index];
    if (!device->warms_up)
        return;
    cgm_device_use(index);
    int status = capture(device);
    /* One at a time: it may have to wait until a client's kernel makes room. */
    if (status == CGM_OK && device->beside_others && cudaStreamQuery(device->warm) == cudaSuccess)
        status = enqueue_for_device(device);
    device->warms_up = status == CGM_OK;
}
