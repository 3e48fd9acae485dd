/* A recording: a graph of what a stand-in captured. Its flags are nodes of their own, put between
 * what is captured, because their values are other ones at every launch; those of flagged products
 * are set in their kernels' nodes. */
#include "daemon/executor/cuda/recording.h"

#include <stdlib.h>
#include <string.h>

#include "daemon/executor/cuda/flag.h"
#include "daemon/executor/cuda/queue.h"
#include "daemon/executor/cuda/recorded_kernel.h"
#include "proto/status.h"

#define BATCHES_AT_FIRST 16u
/* A launch has one; what has more is enqueued as usual. */
#define KERNELS_MAX 4u

/* What a queue waits for, or signals, at once. */
struct batch {
    CUgraphNode node;
    bool waits;
    uint32_t count;
    struct cgm_flag_value flags[CGM_FLAGS_AT_ONCE]; /* values as they were recorded */
    CUstreamBatchMemOpParams calls[CGM_FLAGS_AT_ONCE];
};

struct cgm_recording {
    struct cgm_stream stream; /* what captures, with the workspace of the queue's own stream */
    CUcontext context;
    cudaGraph_t graph;
    cudaGraphExec_t exec; /* NULL: nothing was enqueued */
    struct batch *batches;
    uint32_t n_batches, capacity;
    struct cgm_recorded_kernel *kernels[KERNELS_MAX];
    uint32_t n_kernels;
    uint64_t raised; /* by so much the values in exec are higher than those recorded */
};

/* ---- recording ------------------------------------------------------------------------------ */

static int begin_capture(struct cgm_recording *recording, const struct cgm_queue *queue)
{
    uint32_t device = queue->device->index;
    cudaStream_t *stream = &recording->stream.handle;
    int status =
        cgm_driver_check(cgm_driver.CtxGetCurrent(&recording->context), "cuCtxGetCurrent", device);
    if (status == CGM_OK)
        status = cgm_cuda_check(
            cudaStreamCreateWithPriority(stream, cudaStreamNonBlocking, queue->stream->priority),
            "cudaStreamCreateWithPriority", device);
    return status == CGM_OK
               ? cgm_cuda_check(cudaStreamBeginCapture(*stream, cudaStreamCaptureModeRelaxed),
                                "cudaStreamBeginCapture", device)
               : status;
}

int cgm_cuda_record_begin(struct cgm_queue *queue, struct cgm_queue **ret_stand_in)
{
    struct cgm_queue *stand_in = calloc(1, sizeof(*stand_in));
    struct cgm_recording *recording = calloc(1, sizeof(*recording));
    int status = stand_in && recording ? CGM_OK : CGM_NO_MEMORY;
    cgm_device_use(queue->device->index);
    if (status == CGM_OK) {
        recording->stream = *queue->stream;
        recording->stream.handle = NULL;
        status = begin_capture(recording, queue);
    }
    if (status != CGM_OK) {
        if (recording)
            cgm_cuda_recording_free(recording);
        free(stand_in);
        return status;
    }
    stand_in->backend = queue->backend;
    stand_in->device = queue->device;
    stand_in->stream = &recording->stream;
    stand_in->recording = recording;
    *ret_stand_in = stand_in;
    return CGM_OK;
}

static int make_exec(struct cgm_recording *recording, uint32_t device)
{
    size_t nodes = 0;
    int status = cgm_cuda_check(cudaGraphGetNodes(recording->graph, NULL, &nodes),
                                "cudaGraphGetNodes", device);
    if (status != CGM_OK || nodes == 0)
        return status;
    status = cgm_cuda_check(cudaGraphInstantiate(&recording->exec, recording->graph, 0),
                            "cudaGraphInstantiate", device);
    return status == CGM_OK
               ? cgm_cuda_check(cudaGraphUpload(recording->exec, recording->stream.handle),
                                "cudaGraphUpload", device)
               : status;
}

int cgm_cuda_record_end(struct cgm_queue *stand_in, struct cgm_recording **ret_recording)
{
    struct cgm_recording *recording = stand_in->recording;
    uint32_t device = stand_in->device->index;
    cgm_device_use(device);
    int status = cgm_cuda_check(cudaStreamEndCapture(recording->stream.handle, &recording->graph),
                                "cudaStreamEndCapture", device);
    if (status == CGM_OK)
        status = make_exec(recording, device);
    cgm_cuda_check(cudaStreamDestroy(recording->stream.handle), "cudaStreamDestroy", device);
    recording->stream.handle = NULL;
    free(stand_in);
    if (status == CGM_OK)
        *ret_recording = recording;
    else
        cgm_cuda_recording_free(recording);
    return status;
}

void cgm_cuda_recording_free(struct cgm_recording *recording)
{
    if (recording->exec)
        cgm_cuda_check(cudaGraphExecDestroy(recording->exec), "cudaGraphExecDestroy", 0);
    if (recording->graph)
        cgm_cuda_check(cudaGraphDestroy(recording->graph), "cudaGraphDestroy", 0);
    if (recording->stream.handle)
        cgm_cuda_check(cudaStreamDestroy(recording->stream.handle), "cudaStreamDestroy", 0);
    for (uint32_t i = 0; i < recording->n_kernels; i++)
        cgm_recorded_kernel_free(recording->kernels[i]);
    free(recording->batches);
    free(recording);
}

/* ---- flags ---------------------------------------------------------------------------------- */

static struct batch *new_batch(struct cgm_recording *recording)
{
    uint32_t capacity = recording->capacity ? recording->capacity * 2 : BATCHES_AT_FIRST;
    if (recording->n_batches == recording->capacity) {
        struct batch *batches = realloc(recording->batches, capacity * sizeof(*batches));
        if (!batches)
            return NULL;
        recording->batches = batches;
        recording->capacity = capacity;
    }
    return &recording->batches[recording->n_batches];
}

static CUDA_BATCH_MEM_OP_NODE_PARAMS params_of(const struct cgm_recording *recording,
                                               struct batch *batch)
{
    return (CUDA_BATCH_MEM_OP_NODE_PARAMS){
        .ctx = recording->context, .count = batch->count, .paramArray = batch->calls};
}

/* A node behind what the stream has captured so far; what it captures next comes behind the node.
 */
static int add_node(struct cgm_recording *recording, struct batch *batch, uint32_t device)
{
    enum cudaStreamCaptureStatus capturing;
    cudaGraph_t graph;
    const cudaGraphNode_t *before;
    size_t n_before;
    cudaStream_t stream = recording->stream.handle;
    const CUDA_BATCH_MEM_OP_NODE_PARAMS params = params_of(recording, batch);
    int status = cgm_cuda_check(
        cudaStreamGetCaptureInfo(stream, &capturing, NULL, &graph, &before, NULL, &n_before),
        "cudaStreamGetCaptureInfo", device);
    if (status == CGM_OK && capturing != cudaStreamCaptureStatusActive)
        status = CGM_NOT_SUPPORTED;
    if (status == CGM_OK)
        status = cgm_driver_check(
            cgm_driver.GraphAddBatchMemOpNode(&batch->node, graph, before, n_before, &params),
            "cuGraphAddBatchMemOpNode", device);
    if (status != CGM_OK)
        return status;
    return cgm_cuda_check(cudaStreamUpdateCaptureDependencies(stream, &batch->node, NULL, 1,
                                                              cudaStreamSetCaptureDependencies),
                          "cudaStreamUpdateCaptureDependencies", device);
}

int cgm_recording_add(struct cgm_recording *recording, bool waits,
                      const struct cgm_flag_value *flags, const CUstreamBatchMemOpParams *calls,
                      uint32_t count, uint32_t device)
{
    struct batch *batch = new_batch(recording);
    if (!batch)
        return CGM_NO_MEMORY;
    batch->waits = waits;
    batch->count = count;
    memcpy(batch->flags, flags, count * sizeof(*flags));
    memcpy(batch->calls, calls, count * sizeof(*calls));
    int status = add_node(recording, batch, device);
    recording->n_batches += status == CGM_OK;
    return status;
}

int cgm_recording_add_kernel(struct cgm_queue *stand_in, const struct cgm_flagged_gemm *flagged,
                             struct cgm_kernel_flagged_gemm *gemm)
{
    struct cgm_recording *recording = stand_in->recording;
    if (recording->n_kernels == KERNELS_MAX)
        return CGM_NOT_SUPPORTED;
    int status =
        cgm_recorded_kernel_new(stand_in, flagged, gemm, &recording->kernels[recording->n_kernels]);
    recording->n_kernels += status == CGM_OK;
    return status;
}

/* ---- replaying ------------------------------------------------------------------------------ */

static int raise_batch(struct cgm_recording *recording, struct batch *batch, uint64_t raise,
                       uint32_t device)
{
    const CUDA_BATCH_MEM_OP_NODE_PARAMS params = params_of(recording, batch);
    for (uint32_t i = 0; i < batch->count; i++) {
        uint64_t value = batch->flags[i].value + raise;
        if (batch->waits)
            batch->calls[i].waitValue.value64 = value;
        else
            batch->calls[i].writeValue.value64 = value;
    }
    return cgm_driver_check(
        cgm_driver.GraphExecBatchMemOpNodeSetParams(recording->exec, batch->node, &params),
        "cuGraphExecBatchMemOpNodeSetParams", device);
}

static int raise_batches(struct cgm_recording *recording, uint64_t raise, uint32_t device)
{
    int status = CGM_OK;
    if (recording->raised == raise)
        return CGM_OK;
    for (uint32_t i = 0; i < recording->n_batches && status == CGM_OK; i++)
        status = raise_batch(recording, &recording->batches[i], raise, device);
    recording->raised = status == CGM_OK ? raise : UINT64_MAX; /* some are, some are not */
    return status;
}

static int raise_all(struct cgm_queue *queue, struct cgm_recording *recording, uint64_t raise)
{
    int status = raise_batches(recording, raise, queue->device->index);
    for (uint32_t i = 0; i < recording->n_kernels && status == CGM_OK; i++)
        status = cgm_recorded_kernel_set(recording->kernels[i], queue, recording->exec, raise);
    return status;
}

static void note_flags(struct cgm_queue *queue, const struct cgm_recording *recording, bool waits)
{
    for (uint32_t i = 0; i < recording->n_batches; i++) {
        const struct batch *batch = &recording->batches[i];
        for (uint32_t j = 0; j < batch->count && batch->waits == waits; j++) {
            struct cgm_flag_value is = {batch->flags[j].flag,
                                        batch->flags[j].value + recording->raised};
            if (waits)
                cgm_queue_remember(queue, &is, 0, 0);
            else
                cgm_flag_will_be(is.flag, is.value);
        }
    }
}

int cgm_cuda_replay(struct cgm_queue *queue, struct cgm_recording *recording, uint64_t raise)
{
    uint32_t device = queue->device->index;
    if (!recording->exec)
        return CGM_OK;
    /* Also in a failed run, whose outputs are poisoned later. */
    cgm_queue_begin(queue, "a graph");
    int status = raise_all(queue, recording, raise);
    if (status != CGM_OK)
        return status;
    note_flags(queue, recording, true);
    for (uint32_t i = 0; i < recording->n_kernels; i++)
        cgm_recorded_kernel_begin(recording->kernels[i], queue);
    status = cgm_cuda_check(cudaGraphLaunch(recording->exec, queue->stream->handle),
                            "cudaGraphLaunch", device);
    if (status != CGM_OK)
        return status;
    note_flags(queue, recording, false);
    for (uint32_t i = 0; i < recording->n_kernels; i++)
        cgm_recorded_kernel_end(recording->kernels[i]);
    return CGM_OK;
}

void cgm_cuda_foresee(struct cgm_queue *queue, struct cgm_recording *recording, uint64_t raise)
{
    cgm_device_use(queue->device->index);
    if (recording->exec)
        raise_all(queue, recording, raise);
}

bool cgm_cuda_recording_is_outdated(const struct cgm_backend *backend,
                                    const struct cgm_recording *recording)
{
    bool waits = false;
    for (uint32_t i = 0; i < recording->n_kernels; i++)
        waits |= cgm_recorded_kernel_waits(recording->kernels[i]);
    return waits && cgm_streams_are_shared(backend);
}
