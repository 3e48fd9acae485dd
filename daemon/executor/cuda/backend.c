#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/executor/cuda/cuda.h"
#include "daemon/executor/cuda/doctor.h"
#include "daemon/executor/cuda/platform.h"
#include "daemon/executor/host/holes.h"
#include "proto/status.h"

struct opening {
    pthread_t thread;
    struct cgm_backend *backend;
    struct cgm_device *device;
    int (*step)(struct cgm_backend *backend, struct cgm_device *device);
    int status;
};

static void *opening_main(void *argument)
{
    struct opening *opening = argument;
    opening->status = opening->step(opening->backend, opening->device);
    return NULL;
}

/* Side by side: a device's kernels take more than a second to load. */
static int on_every_device(struct cgm_backend *backend,
                           int (*step)(struct cgm_backend *backend, struct cgm_device *device))
{
    struct opening openings[CGM_CUDA_DEVICES_MAX];
    uint32_t started = 0;
    int status = CGM_OK;
    for (; started < backend->n_devices; started++) {
        struct opening *opening = &openings[started];
        *opening = (struct opening){
            .backend = backend, .device = &backend->devices[started], .step = step};
        if (pthread_create(&opening->thread, NULL, opening_main, opening) != 0) {
            status = CGM_NO_MEMORY;
            break;
        }
    }
    for (uint32_t i = 0; i < started; i++) {
        pthread_join(openings[i].thread, NULL);
        status = status != CGM_OK ? status : openings[i].status;
    }
    return status;
}

static int open_device(struct cgm_backend *backend, struct cgm_device *device)
{
    (void)backend;
    return cgm_device_open(device);
}

static void backend_close(struct cgm_backend *backend)
{
    cgm_flag_slabs_free(backend);
    for (uint32_t i = 0; i < backend->n_devices; i++)
        cgm_device_close(&backend->devices[i]);
    pthread_mutex_destroy(&backend->lock);
    free(backend);
}

static int backend_open(const struct cgm_backend_options *options, char *ret_detail,
                        size_t detail_bytes, struct cgm_backend **ret_backend)
{
    uint32_t count = 0;
    uint64_t at_ns = cgm_cuda_now_ns();
    cgm_cuda_reports_init(options);
    cgm_holes_open();
    int status = cgm_devices_find(options, ret_detail, detail_bytes, &count);
    if (status != CGM_OK)
        return status;
    cgm_cuda_log_step("driver and devices found", -1, &at_ns);
    status = cgm_blas_load(ret_detail, detail_bytes);
    if (status != CGM_OK)
        return status;
    cgm_cuda_log_step("cuBLASLt loaded", -1, &at_ns);
    struct cgm_backend *backend = calloc(1, sizeof(*backend));
    if (!backend)
        return cgm_detail(ret_detail, detail_bytes, CGM_NO_MEMORY,
                          "no memory for the CUDA backend");
    backend->options = *options;
    backend->n_devices = count;
    for (uint32_t i = 0; i < count; i++)
        backend->devices[i].index = i;
    pthread_mutex_init(&backend->lock, NULL);
    status = on_every_device(backend, open_device);
    cgm_cuda_log_step("all devices opened", -1, &at_ns);
    if (status == CGM_OK)
        status = on_every_device(backend, cgm_device_connect);
    cgm_cuda_log_step("all devices connected", -1, &at_ns);
    if (status != CGM_OK) {
        cgm_detail(ret_detail, detail_bytes, status, "a CUDA device cannot be set up: %s",
                   cgm_status_text(status));
        backend_close(backend);
        return status;
    }
    *ret_backend = backend;
    return CGM_OK;
}

static uint32_t backend_device_count(struct cgm_backend *backend)
{
    return backend->n_devices;
}

static void write_uuid(const struct cudaDeviceProp *properties, char *ret_text, size_t size)
{
    unsigned char b[16];
    memcpy(b, properties->uuid.bytes, sizeof(b));
    snprintf(ret_text, size,
             "GPU-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", b[0], b[1],
             b[2], b[3], b[4], b[5], b[6], b[7], b[8], b[9], b[10], b[11], b[12], b[13], b[14],
             b[15]);
}

static int backend_device_info(struct cgm_backend *backend, uint32_t device,
                               struct cgm_device_info *ret_info)
{
    struct cudaDeviceProp properties;
    size_t free_bytes = 0, total_bytes = 0;
    if (device >= backend->n_devices)
        return CGM_INVALID_ARGUMENT;
    cgm_device_use(device);
    int status = cgm_cuda_check(cudaGetDeviceProperties(&properties, (int)device),
                                "cudaGetDeviceProperties", device);
    if (status == CGM_OK)
        status =
            cgm_cuda_check(cudaMemGetInfo(&free_bytes, &total_bytes), "cudaMemGetInfo", device);
    if (status != CGM_OK)
        return status;
    *ret_info = (struct cgm_device_info){
        .bytes_total = total_bytes,
        .bytes_free = free_bytes,
        .sms = (uint32_t)backend->devices[device].kind[CGM_KIND_SMS],
        .priority_greatest = backend->devices[device].priority_greatest,
    };
    write_uuid(&properties, ret_info->uuid, sizeof(ret_info->uuid));
    snprintf(ret_info->name, sizeof(ret_info->name), "%.63s", properties.name);
    return CGM_OK;
}

static uint64_t backend_allocations(struct cgm_backend *backend)
{
    return atomic_load_explicit(&backend->allocations, memory_order_relaxed) +
           atomic_load_explicit(&backend->unprepared, memory_order_relaxed);
}

static bool backend_reaches(const struct cgm_backend *backend, uint32_t device, uint32_t other)
{
    return backend->devices[device].reaches[other];
}

const struct cgm_backend_ops cgm_backend_cuda = {
    .name = "cuda",
    .open = backend_open,
    .close = backend_close,
    .device_count = backend_device_count,
    .device_info = backend_device_info,
    .mem_alloc = cgm_cuda_mem_alloc,
    .mem_export = cgm_cuda_mem_export,
    .mem_adopt = cgm_cuda_mem_adopt,
    .mem_import = cgm_cuda_mem_import,
    .mem_bytes = cgm_cuda_mem_bytes,
    .mem_free = cgm_cuda_mem_free,
    .mem_holds_up = cgm_cuda_mem_holds_up,
    .queue_new = cgm_cuda_queue_new,
    .queue_free = cgm_cuda_queue_free,
    .queue_count = cgm_cuda_queue_count,
    .flag_new = cgm_cuda_flag_new,
    .flag_read = cgm_cuda_flag_read,
    .flag_free = cgm_cuda_flag_free,
    .set_run = cgm_cuda_set_run,
    .copy = cgm_cuda_copy,
    .gemm = cgm_cuda_gemm,
    .flagged_gemm = cgm_cuda_flagged_gemm,
    .reduce = cgm_cuda_reduce,
    .activate = cgm_cuda_activate,
    .sum = cgm_cuda_sum,
    .poison = cgm_cuda_poison,
    .signal = cgm_cuda_signal,
    .wait = cgm_cuda_wait,
    .wait_all = cgm_cuda_wait_all,
    .signal_all = cgm_cuda_signal_all,
    .copy_all = cgm_cuda_copy_all,
    .allocations = backend_allocations,
    .host_flags_need_polling = true,
    .spin_min_ns = 100000000,
    .has_tf32 = true,
    .describe = cgm_cuda_describe,
    .queues_max = CGM_CUDA_STREAMS,
    .reaches = backend_reaches,
    .mem_ipc_handle = cgm_cuda_mem_ipc_handle,
    .prepare_gemm = cgm_cuda_prepare_gemm,
    .prepare_flagged_gemm = cgm_cuda_prepare_flagged_gemm,
    .group_new = cgm_cuda_group_new,
    .group_free = cgm_cuda_group_free,
    .collective = cgm_cuda_collective,
    .release_waits = cgm_cuda_release_waits,
    .abort_waits = cgm_cuda_abort_waits,
    .warm_up = cgm_cuda_warm_up,
    .record_begin = cgm_cuda_record_begin,
    .record_end = cgm_cuda_record_end,
    .replay = cgm_cuda_replay,
    .foresee = cgm_cuda_foresee,
    .recording_is_outdated = cgm_cuda_recording_is_outdated,
    .recording_free = cgm_cuda_recording_free,
    .finish_phases = cgm_cuda_finish_phases,
    .check = cgm_cuda_health,
    .doctor = cgm_cuda_doctor,
};
