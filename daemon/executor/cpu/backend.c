#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#include "daemon/executor/cpu/cpu.h"
#include "daemon/executor/cpu/gemm.h"
#include "kernels/openblas.h"
#include "proto/log_line.h"
#include "proto/messages.h"
#include "proto/room.h"
#include "proto/status.h"
#include "proto/system.h"

/* As a GPU has it, and without effect: so that queues of several priorities are used everywhere. */
#define PRIORITY_GREATEST (-5)
#define MIB (1ull << 20)
#define WARNING 4

static void warn(const struct cgm_backend_options *options, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static void warn(const struct cgm_backend_options *options, const char *format, ...)
{
    va_list arguments;
    if (options->log_level > 0 && options->log_level < WARNING)
        return;
    va_start(arguments, format);
    cgm_log_line_write(WARNING, "executor: ", format, arguments);
    va_end(arguments);
}

/* Either counts what is only mapped. */
static const struct {
    int resource;
    const char *words;
} limits[] = {{RLIMIT_AS, "ulimit -v or LimitAS"}, {RLIMIT_DATA, "ulimit -d or LimitDATA"}};

/* Why no more threads can compute at a time, and what helps. */
static void address_limit_words(char *ret_text, size_t size)
{
    struct rlimit least = {.rlim_cur = RLIM_INFINITY}, limit;
    const char *words = NULL;
    for (size_t i = 0; i < sizeof(limits) / sizeof(limits[0]); i++)
        if (getrlimit(limits[i].resource, &limit) == 0 && limit.rlim_cur < least.rlim_cur) {
            least = limit;
            words = limits[i].words;
        }
    if (words)
        snprintf(ret_text, size, "the limit, %s, is %llu MiB: raise it", words,
                 (unsigned long long)(least.rlim_cur / MIB));
    else
        snprintf(ret_text, size,
                 "ulimit -v is unlimited: see vm.overcommit_memory and vm.max_map_count");
}

/* Products have all address space that they will ever need before there are any. */
static int reserve_seats(const struct cgm_backend_options *options, char *ret_detail,
                         size_t detail_bytes, unsigned *ret_most)
{
    char why[128];
    unsigned most = cgm_openblas_reserve(CGM_SEATS);
    address_limit_words(why, sizeof(why));
    if (most == 0)
        return cgm_detail(ret_detail, detail_bytes, CGM_NO_MEMORY,
                          "too little address space to compute: %llu MiB must be left over; %s",
                          CGM_OPENBLAS_MARGIN_BYTES / MIB, why);
    if (most < CGM_SEATS)
        warn(options, "address space lets %u of %u threads compute at a time; %s", most, CGM_SEATS,
             why);
    *ret_most = most;
    return CGM_OK;
}

static int backend_open(const struct cgm_backend_options *options, char *ret_detail,
                        size_t detail_bytes, struct cgm_backend **ret_backend)
{
    unsigned most_seats = 0;
    uint32_t devices = options->devices ? options->devices : CGM_CPU_DEVICES_DEFAULT;
    if (devices > CGM_CPU_DEVICES_MAX)
        return cgm_detail(ret_detail, detail_bytes, CGM_INVALID_ARGUMENT,
                          "devices is %u; the CPU backend has 1 to %u", devices,
                          CGM_CPU_DEVICES_MAX);
    if (cgm_openblas_load(1, ret_detail, detail_bytes))
        return CGM_NOT_SUPPORTED;
    int status = reserve_seats(options, ret_detail, detail_bytes, &most_seats);
    if (status != CGM_OK)
        return status;
    struct cgm_backend *backend = calloc(1, sizeof(*backend));
    if (!backend)
        return cgm_detail(ret_detail, detail_bytes, CGM_NO_MEMORY, "no memory for the CPU backend");
    backend->options = *options;
    backend->devices = devices;
    backend->panels = cgm_gemm_panels_new(most_seats);
    if (!backend->panels) {
        free(backend);
        return cgm_detail(ret_detail, detail_bytes, CGM_NO_MEMORY,
                          "too little address space for the CPU backend");
    }
    cgm_holes_open();
    cgm_park_open();
    cgm_seats_init(&backend->seats, most_seats, cgm_seats_share(most_seats));
    *ret_backend = backend;
    return CGM_OK;
}

static void backend_close(struct cgm_backend *backend)
{
    cgm_gemm_panels_free(backend->panels, backend->seats.most);
    cgm_seats_fini(&backend->seats);
    free(backend);
}

static uint32_t backend_device_count(struct cgm_backend *backend)
{
    return backend->devices;
}

/* Of a limit of the daemon's memory what is kept of it is not free. */
static int memory_info(struct cgm_device_info *ret_info)
{
    struct cgm_room room;
    int status = cgm_room_find(CGM_ROOM_OF_DAEMON, &room);
    if (status != CGM_OK)
        return status;
    bool limited = room.file != NULL;
    ret_info->bytes_total = room.total_bytes;
    ret_info->bytes_free = limited ? cgm_room_left(&room) : room.available_bytes;
    if (limited)
        cgm_room_words(&room, ret_info->limit, sizeof(ret_info->limit));
    return CGM_OK;
}

static int backend_device_info(struct cgm_backend *backend, uint32_t device,
                               struct cgm_device_info *ret_info)
{
    if (device >= backend->devices)
        return CGM_INVALID_ARGUMENT;
    *ret_info = (struct cgm_device_info){.priority_greatest = PRIORITY_GREATEST};
    snprintf(ret_info->uuid, sizeof(ret_info->uuid), "CPU-%u", device);
    snprintf(ret_info->name, sizeof(ret_info->name), "CPU device %u", device);
    return memory_info(ret_info);
}

static void backend_describe(struct cgm_backend *backend, char *ret_text, size_t text_bytes)
{
    char model[128];
    cgm_system_processor(model, sizeof(model));
    snprintf(ret_text, text_bytes, "%s, %ld processors, %u devices, %s", model,
             sysconf(_SC_NPROCESSORS_ONLN), backend->devices, cgm_openblas.release);
}

/* Nothing allocates after a queue was created. */
static uint64_t backend_allocations(struct cgm_backend *backend)
{
    (void)backend;
    return 0;
}

const struct cgm_backend_ops cgm_backend_cpu = {
    .name = "cpu",
    .open = backend_open,
    .close = backend_close,
    .device_count = backend_device_count,
    .device_info = backend_device_info,
    .mem_alloc = cgm_cpu_mem_alloc,
    .mem_export = cgm_cpu_mem_export,
    .mem_adopt = cgm_cpu_mem_adopt,
    .mem_import = cgm_cpu_mem_import,
    .mem_has_holes = cgm_cpu_mem_has_holes,
    .launches_in_any_order = true,
    .runs_are_alike = true,
    .mem_bytes = cgm_cpu_mem_bytes,
    .mem_free = cgm_cpu_mem_free,
    .mem_fill = cgm_cpu_mem_fill,
    .mem_drain = cgm_cpu_mem_drain,
    .mem_freed_anywhere = true,
    .queue_new = cgm_cpu_queue_new,
    .queue_free = cgm_cpu_queue_free,
    .queue_count = cgm_cpu_queue_count,
    .queue_worked_ns = cgm_cpu_queue_worked_ns,
    .flag_new = cgm_cpu_flag_new,
    .flag_read = cgm_cpu_flag_read,
    .flag_free = cgm_cpu_flag_free,
    .set_run = cgm_cpu_set_run,
    .copy = cgm_cpu_copy,
    .gemm = cgm_cpu_gemm,
    .flagged_gemm = cgm_cpu_flagged_gemm,
    .reduce = cgm_cpu_reduce,
    .activate = cgm_cpu_activate,
    .sum = cgm_cpu_sum,
    .poison = cgm_cpu_poison,
    .signal = cgm_cpu_signal,
    .wait = cgm_cpu_wait,
    .wait_all = cgm_cpu_wait_all,
    .signal_all = cgm_cpu_signal_all,
    .allocations = backend_allocations,
    .describe = backend_describe,
    .record_begin = cgm_cpu_record_begin,
    .record_end = cgm_cpu_record_end,
    .replay = cgm_cpu_replay,
    .recording_free = cgm_cpu_recording_free,
};
