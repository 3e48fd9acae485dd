/* Signals and waits: stream memory operations on flags. A stream cannot look at a run's status, so
 * every wait is remembered; when a run has failed and the signal of a wait was never enqueued, the
 * flag is raised from outside. A wait whose signal is in some queue is left to it: what it keeps
 * apart stays apart. */
#include <string.h>

#include "daemon/executor/cuda/flag.h"
#include "daemon/executor/cuda/queue.h"
#include "daemon/executor/cuda/recording.h"
#include "kernels/device_kernels.h"
#include "proto/status.h"
#include "proto/types.h"

void cgm_flag_will_be(struct cgm_flag *flag, uint64_t value)
{
    if (value > atomic_load_explicit(&flag->enqueued, memory_order_relaxed))
        atomic_store_explicit(&flag->enqueued, value, memory_order_release);
}

int cgm_cuda_signal(struct cgm_queue *queue, struct cgm_flag *flag, uint64_t value)
{
    uint32_t device = queue->device->index;
    CUdeviceptr at = cgm_flag_at(flag, device);
    if (!at)
        return CGM_NOT_SUPPORTED;
    if (queue->recording)
        return cgm_cuda_signal_all(queue, &(struct cgm_flag_value){flag, value}, 1);
    cgm_queue_begin(queue, "a signal");
    int status = cgm_driver_check(cgm_driver.StreamWriteValue64(queue->stream->handle, at, value,
                                                                CU_STREAM_WRITE_VALUE_DEFAULT),
                                  "cuStreamWriteValue64", device);
    if (status == CGM_OK)
        cgm_flag_will_be(flag, value);
    return status;
}

void cgm_queue_remember(struct cgm_queue *queue, const struct cgm_flag_value *awaited,
                        uint32_t give_up, uint64_t bit)
{
    if (!queue->run)
        return;
    pthread_mutex_lock(&queue->lock);
    queue->waits[queue->n_waits++ % CGM_QUEUE_WAITS] =
        (struct cgm_wait_record){.run = queue->run,
                                 .run_begin_ns = queue->run->begin_ns,
                                 .flag = awaited->flag,
                                 .value = awaited->value,
                                 .give_up = give_up,
                                 .bit = bit};
    pthread_mutex_unlock(&queue->lock);
}

int cgm_cuda_wait(struct cgm_queue *queue, struct cgm_flag *flag, uint64_t value,
                  const struct cgm_label *label)
{
    uint32_t device = queue->device->index;
    CUdeviceptr at = cgm_flag_at(flag, device);
    if (!at)
        return CGM_NOT_SUPPORTED;
    if (queue->recording)
        return cgm_cuda_wait_all(queue, &(struct cgm_wait){{flag, value}, *label}, 1);
    /* Also in a failed run: what its waits keep apart may belong to others. */
    cgm_queue_begin(queue, "a wait");
    cgm_queue_remember(queue, &(struct cgm_flag_value){flag, value}, 0, 0);
    struct cgm_span *span = cgm_span_begin(queue, CGM_PHASE_WAIT, label);
    int status = cgm_driver_check(
        cgm_driver.StreamWaitValue64(queue->stream->handle, at, value, CU_STREAM_WAIT_VALUE_GEQ),
        "cuStreamWaitValue64", device);
    cgm_span_end(span);
    return status;
}

/* In one call: each call costs a microsecond here and another on the device. */
static int call_all(struct cgm_queue *queue, CUstreamBatchMemOpParams *calls, uint32_t count)
{
    return cgm_driver_check(cgm_driver.StreamBatchMemOp(queue->stream->handle, count, calls, 0),
                            "cuStreamBatchMemOp", queue->device->index);
}

int cgm_cuda_signal_all(struct cgm_queue *queue, const struct cgm_flag_value *signals,
                        uint32_t count)
{
    CUstreamBatchMemOpParams calls[CGM_FLAGS_AT_ONCE];
    if (count < 1 || count > CGM_FLAGS_AT_ONCE)
        return CGM_INVALID_ARGUMENT;
    memset(calls, 0, count * sizeof(calls[0]));
    for (uint32_t i = 0; i < count; i++) {
        struct CUstreamMemOpWriteValueParams_st *call = &calls[i].writeValue;
        call->operation = CU_STREAM_MEM_OP_WRITE_VALUE_64;
        call->address = cgm_flag_at(signals[i].flag, queue->device->index);
        call->value64 = signals[i].value;
        call->flags = CU_STREAM_WRITE_VALUE_DEFAULT;
        if (!call->address)
            return CGM_NOT_SUPPORTED;
    }
    if (queue->recording)
        return cgm_recording_add(queue->recording, false, signals, calls, count,
                                 queue->device->index);
    cgm_queue_begin(queue, "several signals");
    int status = call_all(queue, calls, count);
    for (uint32_t i = 0; i < count && status == CGM_OK; i++)
        cgm_flag_will_be(signals[i].flag, signals[i].value);
    return status;
}

int cgm_cuda_wait_all(struct cgm_queue *queue, const struct cgm_wait *waits, uint32_t count)
{
    CUstreamBatchMemOpParams calls[CGM_FLAGS_AT_ONCE];
    struct cgm_flag_value untils[CGM_FLAGS_AT_ONCE];
    uint32_t device = queue->device->index;
    if (count < 1 || count > CGM_FLAGS_AT_ONCE)
        return CGM_INVALID_ARGUMENT;
    memset(calls, 0, count * sizeof(calls[0]));
    for (uint32_t i = 0; i < count; i++) {
        struct CUstreamMemOpWaitValueParams_st *call = &calls[i].waitValue;
        call->operation = CU_STREAM_MEM_OP_WAIT_VALUE_64;
        call->address = cgm_flag_at(waits[i].until.flag, device);
        call->value64 = waits[i].until.value;
        call->flags = CU_STREAM_WAIT_VALUE_GEQ;
        untils[i] = waits[i].until;
        if (!call->address)
            return CGM_NOT_SUPPORTED;
    }
    if (queue->recording)
        return cgm_recording_add(queue->recording, true, untils, calls, count, device);
    cgm_queue_begin(queue, "several waits");
    for (uint32_t i = 0; i < count; i++)
        cgm_queue_remember(queue, &waits[i].until, 0, 0);
    struct cgm_span *span = cgm_span_begin(queue, CGM_PHASE_WAIT, &waits[count - 1].label);
    int status = call_all(queue, calls, count);
    cgm_span_end(span);
    return status;
}

/* ---- letting go ----------------------------------------------------------------------------- */

static void raises_launch(struct cgm_device *device, struct cgm_kernel_raises *raises)
{
    if (raises->count == 0)
        return;
    cgm_device_use(device->index);
    cgm_cuda_check(cgm_kernel_raise_launch(raises, device->rescue), "raising of flags",
                   device->index);
    raises->count = 0;
}

static CUdeviceptr give_up_at(const struct cgm_queue *queue, uint32_t index)
{
    return queue->give_ups_at + index * sizeof(queue->give_ups[0]);
}

int cgm_queue_take_give_up(struct cgm_queue *queue, struct cgm_give_up *ret_give_up)
{
    uint32_t turn = queue->n_give_ups++, index = turn % CGM_QUEUE_WAITS;
    CUdeviceptr at = give_up_at(queue, index);
    pthread_mutex_lock(&queue->lock);
    bool was_used = queue->give_ups[index] != 0;
    queue->give_ups[index] = 0;
    pthread_mutex_unlock(&queue->lock);
    *ret_give_up = (struct cgm_give_up){.index = index, .turn = turn, .at = at};
    return was_used ? cgm_driver_check(cgm_driver.StreamWriteValue64(queue->stream->handle, at, 0,
                                                                     CU_STREAM_WRITE_VALUE_DEFAULT),
                                       "cuStreamWriteValue64", queue->device->index)
                    : CGM_OK;
}

bool cgm_queue_has_give_up(const struct cgm_queue *queue, const struct cgm_give_up *give_up)
{
    return queue->n_give_ups - give_up->turn < CGM_QUEUE_WAITS / 2;
}

/* By the stream and not by a kernel: the one that waits may have all multiprocessors. */
static void tell_to_give_up(struct cgm_queue *queue, const struct cgm_wait_record *wait)
{
    struct cgm_device *device = queue->device;
    queue->give_ups[wait->give_up] |= wait->bit;
    cgm_device_use(device->index);
    cgm_driver_check(cgm_driver.StreamWriteValue64(
                         (CUstream)device->rescue, give_up_at(queue, wait->give_up),
                         queue->give_ups[wait->give_up], CU_STREAM_WRITE_VALUE_DEFAULT),
                     "cuStreamWriteValue64", device->index);
}

static void raise_for(struct cgm_queue *queue, const struct cgm_wait_record *wait,
                      struct cgm_kernel_raises *raises)
{
    struct cgm_backend *backend = queue->backend;
    struct cgm_flag *flag = wait->flag;
    struct cgm_kernel_raises *own = &raises[flag->device];
    if (atomic_load_explicit(&flag->enqueued, memory_order_acquire) >= wait->value)
        return;
    if (wait->bit) {
        tell_to_give_up(queue, wait);
        return;
    }
    own->counter[own->count] = (uint64_t *)(uintptr_t)cgm_flag_at(flag, flag->device);
    own->value[own->count++] = wait->value;
    if (own->count == CGM_KERNEL_RAISES_MAX)
        raises_launch(&backend->devices[flag->device], own);
}

static void raise_queue(struct cgm_queue *queue, const struct cgm_run *run,
                        struct cgm_kernel_raises *raises)
{
    pthread_mutex_lock(&queue->lock);
    uint32_t count = queue->n_waits < CGM_QUEUE_WAITS ? queue->n_waits : CGM_QUEUE_WAITS;
    for (uint32_t i = 0; i < count; i++)
        if (queue->waits[i].run == run && queue->waits[i].run_begin_ns == run->begin_ns)
            raise_for(queue, &queue->waits[i], raises);
    pthread_mutex_unlock(&queue->lock);
}

bool cgm_cuda_release_waits(struct cgm_backend *backend, const struct cgm_run *run)
{
    struct cgm_kernel_raises raises[CGM_CUDA_DEVICES_MAX];
    for (uint32_t i = 0; i < CGM_CUDA_DEVICES_MAX; i++)
        raises[i].count = 0;
    pthread_mutex_lock(&backend->lock);
    for (struct cgm_queue *queue = backend->queues; queue; queue = queue->next)
        raise_queue(queue, run, raises);
    pthread_mutex_unlock(&backend->lock);
    for (uint32_t i = 0; i < backend->n_devices; i++)
        raises_launch(&backend->devices[i], &raises[i]);
    return cgm_groups_release(backend, run);
}
