#include "daemon/executor/cuda/queue.h"

#include <stdlib.h>
#include <string.h>

#include "kernels/device_kernels.h"
#include "proto/status.h"

/* ---- streams --------------------------------------------------------------------------------
 *
 * All of this is the mapping thread's. A queue gets a stream of its priority that no other queue
 * has; with all of them made and taken it shares the one that was taken longest ago, if it can be
 * one of its priority. */

static int make_stream(struct cgm_device *device, struct cgm_stream *stream, int priority)
{
    stream->priority = priority;
    return cgm_cuda_check(
        cudaStreamCreateWithPriority(&stream->handle, cudaStreamNonBlocking, priority),
        "cudaStreamCreateWithPriority", device->index);
}

/* An idle stream of another priority makes room for one of this. Its workspace stays. */
static int remake_stream(struct cgm_device *device, struct cgm_stream *stream, int priority)
{
    int status =
        cgm_cuda_check(cudaStreamDestroy(stream->handle), "cudaStreamDestroy", device->index);
    stream->handle = NULL;
    return status == CGM_OK ? make_stream(device, stream, priority) : status;
}

/* The one taken longest ago; NULL: none. */
static struct cgm_stream *find_stream(struct cgm_device *device, bool idle, bool this_priority,
                                      int priority)
{
    struct cgm_stream *found = NULL;
    for (uint32_t i = 0; i < device->n_streams; i++) {
        struct cgm_stream *stream = &device->streams[i];
        if ((!idle || stream->n_queues == 0) && (!this_priority || stream->priority == priority) &&
            (!found || stream->taken < found->taken))
            found = stream;
    }
    return found;
}

static bool may_share(const struct cgm_device *device, const struct cgm_stream *stream,
                      uint32_t beside)
{
    return stream && stream->taken + beside <= device->taken;
}

/* Rather one of another priority than none: a priority is a wish, and who has all streams of one
 * may be somebody else. */
static int share_stream(struct cgm_device *device, int priority, uint32_t beside,
                        struct cgm_stream **ret_stream)
{
    *ret_stream = find_stream(device, false, true, priority);
    if (!may_share(device, *ret_stream, beside))
        *ret_stream = find_stream(device, false, false, priority);
    if (!may_share(device, *ret_stream, beside))
        return CGM_NOT_SUPPORTED;
    if ((*ret_stream)->priority != priority && !device->has_lent) {
        device->has_lent = true;
        cgm_cuda_log(6,
                     "device %u: all %u streams are in use, too few of them with priority %d: "
                     "from now on some of its queues may have another one",
                     device->index, CGM_CUDA_STREAMS, priority);
    }
    return CGM_OK;
}

static int choose_stream(struct cgm_device *device, int priority, uint32_t beside,
                         struct cgm_stream **ret_stream)
{
    if ((*ret_stream = find_stream(device, true, true, priority)))
        return CGM_OK;
    if (device->n_streams < CGM_CUDA_STREAMS) {
        int status = make_stream(device, &device->streams[device->n_streams], priority);
        if (status == CGM_OK)
            *ret_stream = &device->streams[device->n_streams++];
        return status;
    }
    if ((*ret_stream = find_stream(device, true, false, priority)))
        return remake_stream(device, *ret_stream, priority);
    return share_stream(device, priority, beside, ret_stream);
}

static int take_stream(struct cgm_device *device, int priority, uint32_t beside,
                       struct cgm_stream **ret_stream)
{
    int greatest = device->priority_greatest;
    priority = priority > 0 ? 0 : priority < greatest ? greatest : priority;
    int status = choose_stream(device, priority, beside, ret_stream);
    if (status != CGM_OK)
        return status;
    (*ret_stream)->taken = ++device->taken;
    if ((*ret_stream)->n_queues++ > 0)
        atomic_fetch_add(&device->n_sharing, 1);
    return CGM_OK;
}

bool cgm_streams_are_shared(const struct cgm_backend *backend)
{
    for (uint32_t i = 0; i < backend->n_devices; i++)
        if (atomic_load_explicit(&backend->devices[i].n_sharing, memory_order_relaxed) > 0)
            return true;
    return false;
}

/* ---- queues --------------------------------------------------------------------------------- */

static void list_add(struct cgm_queue *queue)
{
    struct cgm_backend *backend = queue->backend;
    pthread_mutex_lock(&backend->lock);
    queue->next = backend->queues;
    backend->queues = queue;
    pthread_mutex_unlock(&backend->lock);
}

static void list_remove(struct cgm_queue *queue)
{
    struct cgm_backend *backend = queue->backend;
    pthread_mutex_lock(&backend->lock);
    struct cgm_queue **link = &backend->queues;
    while (*link != queue)
        link = &(*link)->next;
    *link = queue->next;
    pthread_mutex_unlock(&backend->lock);
}

static int give_ups_alloc(struct cgm_queue *queue)
{
    void *words = NULL;
    if (queue->give_ups_at)
        return CGM_OK;
    int status = cgm_cuda_check(cudaMalloc(&words, sizeof(queue->give_ups)), "cudaMalloc",
                                queue->device->index);
    queue->give_ups_at = (CUdeviceptr)(uintptr_t)words;
    return status;
}

static int give_ups_zero(struct cgm_queue *queue)
{
    uint32_t device = queue->device->index;
    cudaStream_t stream = queue->device->service;
    int status = cgm_cuda_check(
        cudaMemsetAsync((void *)(uintptr_t)queue->give_ups_at, 0, sizeof(queue->give_ups), stream),
        "cudaMemsetAsync", device);
    return status == CGM_OK
               ? cgm_cuda_check(cudaStreamSynchronize(stream), "zeroing of words", device)
               : status;
}

/* One that was here before, or a new one. */
static struct cgm_queue *queue_take(struct cgm_backend *backend, struct cgm_device *device)
{
    struct cgm_queue *queue = device->spare;
    if (queue)
        device->spare = queue->next;
    else
        queue = calloc(1, sizeof(*queue));
    if (!queue)
        return NULL;
    queue->next = NULL;
    queue->backend = backend;
    queue->device = device;
    queue->delay_state = (uintptr_t)queue;
    return queue;
}

/* cudaFree of its words would hold up what is being launched: they stay for the next one. */
static void queue_leave(struct cgm_queue *queue)
{
    struct cgm_device *device = queue->device;
    CUdeviceptr words = queue->give_ups_at;
    memset(queue, 0, sizeof(*queue));
    queue->give_ups_at = words;
    queue->next = device->spare;
    device->spare = queue;
}

void cgm_queues_close(struct cgm_device *device)
{
    while (device->spare) {
        struct cgm_queue *queue = device->spare;
        device->spare = queue->next;
        if (queue->give_ups_at)
            cgm_cuda_check(cudaFree((void *)(uintptr_t)queue->give_ups_at), "cudaFree",
                           device->index);
        free(queue);
    }
}

int cgm_cuda_queue_new(struct cgm_backend *backend, uint32_t device, int priority, uint32_t beside,
                       struct cgm_queue **ret_queue)
{
    if (device >= backend->n_devices)
        return CGM_INVALID_ARGUMENT;
    struct cgm_queue *queue = queue_take(backend, &backend->devices[device]);
    if (!queue)
        return CGM_NO_MEMORY;
    cgm_device_use(device);
    int status = cgm_cuda_check(cudaEventCreateWithFlags(&queue->through, cudaEventDisableTiming),
                                "cudaEventCreate", device);
    if (status == CGM_OK)
        status = give_ups_alloc(queue);
    if (status == CGM_OK)
        status = give_ups_zero(queue);
    if (status == CGM_OK)
        status = take_stream(queue->device, priority, beside, &queue->stream);
    if (status != CGM_OK) {
        if (queue->through)
            cudaEventDestroy(queue->through);
        queue_leave(queue);
        return status;
    }
    pthread_mutex_init(&queue->lock, NULL);
    list_add(queue);
    *ret_queue = queue;
    return CGM_OK;
}

/* The stream stays: others may be using it, and the next queue will. */
void cgm_cuda_queue_free(struct cgm_queue *queue)
{
    uint32_t device = queue->device->index;
    cgm_device_use(device);
    cgm_cuda_check(cudaEventRecord(queue->through, queue->stream->handle), "cudaEventRecord",
                   device);
    cgm_cuda_check(cudaEventSynchronize(queue->through), "cudaEventSynchronize", device);
    list_remove(queue);
    if (--queue->stream->n_queues > 0)
        atomic_fetch_sub(&queue->device->n_sharing, 1);
    cgm_spans_free(queue);
    cgm_cuda_check(cudaEventDestroy(queue->through), "cudaEventDestroy", device);
    pthread_mutex_destroy(&queue->lock);
    queue_leave(queue);
}

void cgm_cuda_set_run(struct cgm_queue *queue, struct cgm_run *run)
{
    queue->run = run;
}

/* xorshift64. */
static uint64_t delay_ns(struct cgm_queue *queue)
{
    uint64_t x = queue->delay_state;
    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;
    queue->delay_state = x;
    return x % (queue->backend->options.test_delay_us * 1000ull);
}

uint32_t cgm_cuda_queue_count(const struct cgm_queue *queue)
{
    return queue->n_begun;
}

bool cgm_queue_begin(struct cgm_queue *queue, const char *doing)
{
    queue->n_begun++;
    cgm_device_use(queue->device->index);
    atomic_store_explicit(&queue->doing, doing, memory_order_relaxed);
    if (queue->backend->options.test_delay_us)
        cgm_cuda_check(cgm_kernel_delay_launch(delay_ns(queue), queue->stream->handle), "delay",
                       queue->device->index);
    return !queue->run || atomic_load_explicit(&queue->run->status, memory_order_relaxed) == CGM_OK;
}

/* ---- health --------------------------------------------------------------------------------- */

static void log_doings(struct cgm_backend *backend)
{
    pthread_mutex_lock(&backend->lock);
    for (struct cgm_queue *queue = backend->queues; queue; queue = queue->next) {
        const char *doing = atomic_load_explicit(&queue->doing, memory_order_relaxed);
        if (doing)
            cgm_cuda_log(3, "device %u: a queue's last operation was %s", queue->device->index,
                         doing);
    }
    pthread_mutex_unlock(&backend->lock);
}

/* A query of an idle stream succeeds as long as the context lives. */
void cgm_cuda_health(struct cgm_backend *backend)
{
    cgm_groups_check(backend);
    for (uint32_t i = 0; i < backend->n_devices; i++) {
        cgm_device_use(i);
        cudaError_t error = cudaStreamQuery(backend->devices[i].rescue);
        if (error == cudaSuccess || error == cudaErrorNotReady)
            continue;
        log_doings(backend);
        cgm_cuda_check(error, "while jobs were running", i);
    }
}
