#include "daemon/executor/cuda/recorded_kernel.h"

#include <stdlib.h>
#include <string.h>

#include "daemon/executor/cuda/flag.h"
#include "daemon/executor/cuda/queue.h"
#include "proto/status.h"

struct cgm_recorded_kernel {
    cudaGraphNode_t node;
    struct cudaKernelNodeParams params; /* with the argument below */
    void *captured, *argument;
    size_t bytes; /* of each of both */
    /* A flag that is none: its words count the finished tiles of each part. They are the kernel's
     * own, because what else its stream multiplies between two replays is not known when the
     * argument is set. */
    struct cgm_flag *counters;
    uint32_t n_parts;
    struct cgm_flag_value awaits[CGM_FLAG_WORDS], publishes[CGM_FLAG_WORDS]; /* as recorded */

    /* What the argument was set for. */
    uint64_t launches; /* that were made before */
    uint64_t raise;    /* UINT64_MAX: it was not, or is used up */
    struct cgm_give_up give_up;
};

/* ---- recording ------------------------------------------------------------------------------ */

/* The one node that the stream would wait for next. */
static int find_node(cudaStream_t stream, uint32_t device, cudaGraphNode_t *ret_node)
{
    enum cudaStreamCaptureStatus capturing;
    const cudaGraphNode_t *last;
    size_t n_last;
    int status = cgm_cuda_check(
        cudaStreamGetCaptureInfo(stream, &capturing, NULL, NULL, &last, NULL, &n_last),
        "cudaStreamGetCaptureInfo", device);
    if (status == CGM_OK && (capturing != cudaStreamCaptureStatusActive || n_last != 1))
        status = CGM_NOT_SUPPORTED;
    if (status == CGM_OK)
        *ret_node = last[0];
    return status;
}

/* The graph's copy of the argument is left alone. */
static int take_argument(struct cgm_recorded_kernel *kernel, uint32_t device)
{
    int status = cgm_cuda_check(cudaGraphKernelNodeGetParams(kernel->node, &kernel->params),
                                "cudaGraphKernelNodeGetParams", device);
    if (status != CGM_OK)
        return status;
    kernel->captured = malloc(kernel->bytes);
    kernel->argument = malloc(kernel->bytes);
    if (!kernel->captured || !kernel->argument)
        return CGM_NO_MEMORY;
    memcpy(kernel->captured, kernel->params.kernelParams[0], kernel->bytes);
    kernel->params.kernelParams = &kernel->argument;
    return CGM_OK;
}

static int capture(struct cgm_recorded_kernel *kernel, struct cgm_queue *stand_in,
                   struct cgm_kernel_flagged_gemm *gemm)
{
    uint64_t expected[CGM_KERNEL_PARTS_MAX] = {0};
    cudaStream_t stream = stand_in->stream->handle;
    uint32_t device = stand_in->device->index;
    gemm->counters = (uint64_t *)(uintptr_t)cgm_flag_at(kernel->counters, device);
    gemm->expected = expected;
    kernel->bytes = cgm_kernel_flagged_gemm_bytes(gemm);
    int status =
        cgm_cuda_check(cgm_kernel_flagged_gemm_launch(gemm, stream), "flagged product", device);
    if (status == CGM_OK)
        status = find_node(stream, device, &kernel->node);
    return status == CGM_OK ? take_argument(kernel, device) : status;
}

static void note_parts(struct cgm_recorded_kernel *kernel, const struct cgm_flagged_gemm *flagged,
                       const struct cgm_kernel_flagged_gemm *gemm)
{
    kernel->n_parts = flagged->n_parts;
    kernel->raise = UINT64_MAX;
    for (uint32_t i = 0; i < flagged->n_parts; i++) {
        kernel->publishes[i] = flagged->parts[i].publish;
        if (gemm->parts[i].await) /* else the stream waits */
            kernel->awaits[i] = flagged->parts[i].await;
    }
}

int cgm_recorded_kernel_new(struct cgm_queue *stand_in, const struct cgm_flagged_gemm *flagged,
                            struct cgm_kernel_flagged_gemm *gemm,
                            struct cgm_recorded_kernel **ret_kernel)
{
    if (flagged->n_parts > CGM_FLAG_WORDS)
        return CGM_NOT_SUPPORTED;
    struct cgm_recorded_kernel *kernel = calloc(1, sizeof(*kernel));
    if (!kernel)
        return CGM_NO_MEMORY;
    int status = cgm_cuda_flag_new(stand_in->backend, stand_in->device->index, CGM_FLAG_DEVICE,
                                   &kernel->counters);
    if (status == CGM_OK)
        status = capture(kernel, stand_in, gemm);
    if (status != CGM_OK) {
        cgm_recorded_kernel_free(kernel);
        return status;
    }
    note_parts(kernel, flagged, gemm);
    *ret_kernel = kernel;
    return CGM_OK;
}

void cgm_recorded_kernel_free(struct cgm_recorded_kernel *kernel)
{
    if (kernel->counters)
        cgm_cuda_flag_free(kernel->counters);
    free(kernel->captured);
    free(kernel->argument);
    free(kernel);
}

bool cgm_recorded_kernel_waits(const struct cgm_recorded_kernel *kernel)
{
    for (uint32_t i = 0; i < kernel->n_parts; i++)
        if (kernel->awaits[i].flag)
            return true;
    return false;
}

/* ---- replaying ------------------------------------------------------------------------------ */

int cgm_recorded_kernel_set(struct cgm_recorded_kernel *kernel, struct cgm_queue *queue,
                            cudaGraphExec_t exec, uint64_t raise)
{
    if (kernel->raise == raise && cgm_queue_has_give_up(queue, &kernel->give_up))
        return CGM_OK;
    kernel->raise = UINT64_MAX;
    int status = cgm_queue_take_give_up(queue, &kernel->give_up);
    if (status != CGM_OK)
        return status;
    const struct cgm_kernel_flagged_repeat repeat = {
        .raise = raise,
        .launches = kernel->launches + 1,
        .give_up = (const uint64_t *)(uintptr_t)kernel->give_up.at};
    cgm_kernel_flagged_gemm_repeat(kernel->captured, kernel->bytes, &repeat, kernel->argument);
    status = cgm_cuda_check(cudaGraphExecKernelNodeSetParams(exec, kernel->node, &kernel->params),
                            "cudaGraphExecKernelNodeSetParams", queue->device->index);
    if (status == CGM_OK)
        kernel->raise = raise;
    return status;
}

void cgm_recorded_kernel_begin(const struct cgm_recorded_kernel *kernel, struct cgm_queue *queue)
{
    for (uint32_t i = 0; i < kernel->n_parts; i++) {
        const struct cgm_flag_value *await = &kernel->awaits[i];
        if (await->flag)
            cgm_queue_remember(queue,
                               &(struct cgm_flag_value){await->flag, await->value + kernel->raise},
                               kernel->give_up.index, 1ull << i);
    }
}

void cgm_recorded_kernel_end(struct cgm_recorded_kernel *kernel)
{
    for (uint32_t i = 0; i < kernel->n_parts; i++) {
        const struct cgm_flag_value *publish = &kernel->publishes[i];
        if (publish->flag)
            cgm_flag_will_be(publish->flag, publish->value + kernel->raise);
    }
    kernel->launches++;
    kernel->raise = UINT64_MAX;
}
