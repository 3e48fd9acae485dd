/* Times of operations: an event before and one behind each, read when the run is through. Until
 * then a phase's begin_ns holds the address of its span. */
#include <stdlib.h>

#include "daemon/executor/cuda/queue.h"
#include "proto/status.h"
#include "proto/types.h"

/* An event's time is a float of milliseconds since the reference: one that is not older than this
 * keeps it below a microsecond. */
#define REFERENCE_AGE_NS 1000000000ull
/* A wait that did not hold its queue is no phase. */
#define WAIT_NS_MIN 3000u

static struct cgm_span *span_new(struct cgm_queue *queue)
{
    uint32_t device = queue->device->index;
    struct cgm_span *span = calloc(1, sizeof(*span));
    atomic_fetch_add_explicit(&queue->backend->allocations, 1, memory_order_relaxed);
    if (!span)
        return NULL;
    span->queue = queue;
    if (cgm_cuda_check(cudaEventCreate(&span->begin), "cudaEventCreate", device) == CGM_OK &&
        cgm_cuda_check(cudaEventCreate(&span->end), "cudaEventCreate", device) == CGM_OK)
        return span;
    if (span->begin)
        cudaEventDestroy(span->begin);
    free(span);
    return NULL;
}

static struct cgm_span *span_take(struct cgm_queue *queue)
{
    pthread_mutex_lock(&queue->lock);
    struct cgm_span *span = queue->spans;
    if (span)
        queue->spans = span->next;
    pthread_mutex_unlock(&queue->lock);
    return span ? span : span_new(queue);
}

static void span_give(struct cgm_span *span)
{
    struct cgm_queue *queue = span->queue;
    pthread_mutex_lock(&queue->lock);
    span->next = queue->spans;
    queue->spans = span;
    pthread_mutex_unlock(&queue->lock);
}

void cgm_spans_free(struct cgm_queue *queue)
{
    while (queue->spans) {
        struct cgm_span *span = queue->spans;
        queue->spans = span->next;
        cudaEventDestroy(span->begin);
        cudaEventDestroy(span->end);
        free(span);
    }
}

struct cgm_span *cgm_span_begin(struct cgm_queue *queue, int kind, const struct cgm_label *label)
{
    struct cgm_run *run = queue->run;
    if (!run || !run->phases)
        return NULL;
    uint32_t index = atomic_fetch_add(&run->n_phases, 1);
    if (index >= run->phases_max)
        return NULL;
    struct cgm_span *span = span_take(queue);
    run->phases[index] = (struct cgm_phase){
        .begin_ns = (uintptr_t)span,
        .kind = (uint16_t)kind,
        .device = (uint16_t)queue->device->index,
        .rank = label->rank,
        .queue = label->queue,
        .chunk = label->chunk,
        .peer_or_zero = label->peer,
    };
    if (span)
        cgm_cuda_check(cudaEventRecord(span->begin, queue->stream->handle), "cudaEventRecord",
                       queue->device->index);
    return span;
}

void cgm_span_end(struct cgm_span *span)
{
    if (span)
        cgm_cuda_check(cudaEventRecord(span->end, span->queue->stream->handle), "cudaEventRecord",
                       span->queue->device->index);
}

/* ---- when the run is through ---------------------------------------------------------------- */

static void refresh_reference(struct cgm_device *device)
{
    uint64_t before_ns = cgm_cuda_now_ns();
    if (device->reference_ns && before_ns - device->reference_ns < REFERENCE_AGE_NS)
        return;
    cgm_cuda_check(cudaEventRecord(device->reference, device->rescue), "cudaEventRecord",
                   device->index);
    cgm_cuda_check(cudaEventSynchronize(device->reference), "cudaEventSynchronize", device->index);
    device->reference_ns = before_ns + (cgm_cuda_now_ns() - before_ns) / 2;
}

/* Nanoseconds since the launch. */
static uint64_t event_time(const struct cgm_device *device, cudaEvent_t event,
                           const struct cgm_run *run)
{
    float ms = 0;
    cgm_cuda_check(cudaEventElapsedTime(&ms, device->reference, event), "cudaEventElapsedTime",
                   device->index);
    int64_t at_ns = (int64_t)(device->reference_ns - run->begin_ns) + (int64_t)((double)ms * 1e6);
    return at_ns > 0 ? (uint64_t)at_ns : 0;
}

static void finish_phase(struct cgm_run *run, struct cgm_phase *phase)
{
    struct cgm_span *span = (struct cgm_span *)(uintptr_t)phase->begin_ns;
    phase->begin_ns = phase->end_ns = 0;
    if (!span)
        return;
    struct cgm_device *device = span->queue->device;
    cgm_device_use(device->index);
    refresh_reference(device);
    cgm_cuda_check(cudaEventSynchronize(span->end), "cudaEventSynchronize", device->index);
    phase->begin_ns = event_time(device, span->begin, run);
    phase->end_ns = event_time(device, span->end, run);
    span_give(span);
}

static bool is_no_phase(const struct cgm_phase *phase)
{
    return phase->kind == CGM_PHASE_WAIT && phase->end_ns - phase->begin_ns < WAIT_NS_MIN;
}

void cgm_cuda_finish_phases(struct cgm_backend *backend, struct cgm_run *run)
{
    uint32_t counted = atomic_load(&run->n_phases), kept = 0;
    uint32_t stored = counted < run->phases_max ? counted : run->phases_max;
    (void)backend;
    for (uint32_t i = 0; i < stored; i++)
        finish_phase(run, &run->phases[i]);
    if (counted > run->phases_max)
        return;
    for (uint32_t i = 0; i < stored; i++)
        if (!is_no_phase(&run->phases[i]))
            run->phases[kept++] = run->phases[i];
    atomic_store(&run->n_phases, kept);
}
