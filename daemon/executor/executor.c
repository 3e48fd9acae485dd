#include "daemon/executor/executor.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "daemon/executor/control.h"
#include "daemon/executor/warmth.h"
#include "proto/log_line.h"
#include "proto/log_sink.h"
#include "proto/messages.h"
#include "proto/status.h"
#include "proto/step.h"

/* How long the broker may take to end a stuck process in a way that harms nobody else. */
#define STUCK_PATIENCE_S 10u

static _Atomic int log_level = 6;

void cgm_executor_set_log_level(int level)
{
    atomic_store(&log_level, level);
}

void cgm_executor_log(int level, const char *format, ...)
{
    va_list arguments;
    if (level > atomic_load(&log_level))
        return;
    va_start(arguments, format);
    cgm_log_line_write(level, "executor: ", format, arguments);
    va_end(arguments);
}

uint64_t cgm_now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000ull + (uint64_t)now.tv_nsec;
}

void cgm_executor_describe_room(const struct cgm_executor *executor, uint32_t device,
                                char ret_text[CGM_EXECUTOR_ROOM])
{
    struct cgm_device_info info;
    int status = executor->ops->device_info(executor->backend, device, &info);
    if (status == CGM_NO_MEMORY)
        snprintf(ret_text, CGM_EXECUTOR_ROOM,
                 "the executor has no file descriptor or memory left to read how much is free");
    else if (status != CGM_OK)
        snprintf(ret_text, CGM_EXECUTOR_ROOM, "how much is free cannot be read");
    else if (info.limit[0])
        snprintf(ret_text, CGM_EXECUTOR_ROOM, "%s", info.limit);
    else
        snprintf(ret_text, CGM_EXECUTOR_ROOM, "%llu of its %llu are free",
                 (unsigned long long)info.bytes_free, (unsigned long long)info.bytes_total);
}

static void wake_poller(void *context)
{
    cgm_poller_wake(context);
}

void cgm_executor_end(struct cgm_executor *executor, enum cgm_trouble trouble, const char *why)
{
    static atomic_flag told = ATOMIC_FLAG_INIT;
    Cgm__ExecutorTrouble event = CGM__EXECUTOR_TROUBLE__INIT;
    if (atomic_flag_test_and_set(&told)) /* another thread is at it */
        for (;;)
            pause();
    event.trouble = trouble;
    event.detail = (char *)(uintptr_t)why;
    cgm_executor_log(3, "%s: the executor ends", why);
    cgm_packet_send(executor->link, CGM_MSG_EXECUTOR_TROUBLE, 0, &event.base, NULL, 0);
    if (trouble == CGM_TROUBLE_STUCK)
        sleep(STUCK_PATIENCE_S);
    abort();
}

static void end_for_backend(void *context, bool stuck, const char *why)
{
    cgm_executor_end(context, stuck ? CGM_TROUBLE_STUCK : CGM_TROUBLE_DEVICE_LOST, why);
}

static int map_journal(struct cgm_executor *executor, int fd)
{
    struct stat st;
    if (fd < 0 || fstat(fd, &st) < 0 || (size_t)st.st_size < sizeof(struct cgm_journal))
        return CGM_BAD_MESSAGE;
    void *base = mmap(NULL, sizeof(struct cgm_journal), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (base == MAP_FAILED)
        return cgm_status_of_errno(errno);
    executor->journal = base;
    if (executor->journal->magic != CGM_JOURNAL_MAGIC ||
        executor->journal->version != CGM_JOURNAL_VERSION)
        return CGM_VERSION;
    return CGM_OK;
}

static int send_hello(struct cgm_executor *executor, uint32_t serial)
{
    Cgm__ExecutorHello hello = CGM__EXECUTOR_HELLO__INIT;
    char platform[256] = "";
    struct cgm_device_info *info = executor->info;
    char **uuids = calloc(executor->n_devices, sizeof(*uuids));
    char **names = calloc(executor->n_devices, sizeof(*names));
    uint64_t *bytes = calloc(executor->n_devices, sizeof(*bytes));
    int status = uuids && names && bytes ? CGM_OK : CGM_NO_MEMORY;
    for (uint32_t i = 0; status == CGM_OK && i < executor->n_devices; i++) {
        uuids[i] = info[i].uuid;
        names[i] = info[i].name;
        bytes[i] = info[i].bytes_total;
    }
    hello.version = CGM_PROTOCOL_MAX;
    hello.backend = (char *)(uintptr_t)executor->ops->name;
    hello.n_device_uuid = hello.n_device_name = hello.n_device_bytes = executor->n_devices;
    hello.device_uuid = uuids;
    hello.device_name = names;
    hello.device_bytes = bytes;
    if (executor->ops->describe)
        executor->ops->describe(executor->backend, platform, sizeof(platform));
    hello.platform = platform[0] ? platform : NULL;
    if (status == CGM_OK)
        status =
            cgm_packet_send(executor->link, CGM_MSG_EXECUTOR_HELLO, serial, &hello.base, NULL, 0);
    free(uuids);
    free(names);
    free(bytes);
    return status;
}

static int start_threads(struct cgm_executor *executor)
{
    char name[16];
    int status = cgm_worker_start(&executor->mapper, "cgm-mapper", 0);
    if (status == CGM_OK)
        status = cgm_worker_start(&executor->sweeper, "cgm-sweeper", 0);
    cgm_turns_init(&executor->steps, &executor->mapper);
    cgm_turns_init(&executor->slices, &executor->mapper);
    cgm_sweeps_init(&executor->sweeps);
    if (status == CGM_OK)
        status = cgm_sweeps_start(&executor->sweeps);
    cgm_wishes_init(&executor->wishes);
    cgm_reclaims_init(&executor->reclaims, executor);
    executor->devices = calloc(executor->n_devices, sizeof(*executor->devices));
    executor->launches = calloc(executor->n_devices, sizeof(*executor->launches));
    executor->warmth = cgm_warmth_new(executor);
    if (!executor->devices || !executor->launches || !executor->warmth)
        return CGM_NO_MEMORY;
    for (uint32_t i = 0; i < executor->n_devices && status == CGM_OK; i++) {
        snprintf(name, sizeof(name), "cgm-device%u", i % 1000);
        status = cgm_worker_start(&executor->devices[i], name, executor->limits.spin_ns);
        cgm_turns_init(&executor->launches[i], &executor->devices[i]);
    }
    return status;
}

static int open_backend(struct cgm_executor *executor, const Cgm__ExecutorSetup *m, char *detail,
                        size_t bytes)
{
    struct cgm_backend_options options = {
        .devices = m->devices,
        .test_delay_us = m->test_delay_us,
        .log_level = atomic_load(&log_level),
        .spin_ns = m->spin_ns,
        .wake = wake_poller,
        .wake_context = &executor->poller,
        .end = end_for_backend,
        .end_context = executor,
    };
    int status = executor->ops->open(&options, detail, bytes, &executor->backend);
    if (status != CGM_OK)
        return status;
    executor->n_devices = executor->ops->device_count(executor->backend);
    executor->info = calloc(executor->n_devices, sizeof(*executor->info));
    status = executor->info ? CGM_OK : CGM_NO_MEMORY;
    for (uint32_t i = 0; status == CGM_OK && i < executor->n_devices; i++)
        status = executor->ops->device_info(executor->backend, i, &executor->info[i]);
    return status;
}

static int set_up(struct cgm_executor *executor, const Cgm__ExecutorSetup *m,
                  struct cgm_packet *packet, char *detail, size_t bytes)
{
    int journal = cgm_packet_take_fd(packet, 0);
    executor->life = m->life;
    executor->limits = (struct cgm_limits){
        m->spin_ns,        m->join_timeout_ns, m->ready_timeout_ns, m->job_timeout_ns,
        m->import_idle_ns, m->tune_ns,         m->graphs_from};
    if (m->test_steps)
        cgm_step_open(m->test_steps);
    if (executor->limits.spin_ns < executor->ops->spin_min_ns)
        executor->limits.spin_ns = executor->ops->spin_min_ns;
    if (m->has_log_level)
        cgm_executor_set_log_level((int)m->log_level);
    if (m->version < CGM_PROTOCOL_MIN || m->version > CGM_PROTOCOL_MAX)
        return cgm_detail(detail, bytes, CGM_VERSION, "version: %u; the executor speaks %u to %u",
                          m->version, CGM_PROTOCOL_MIN, CGM_PROTOCOL_MAX);
    int status = map_journal(executor, journal);
    if (journal >= 0)
        close(journal);
    if (status != CGM_OK)
        return cgm_detail(detail, bytes, status, "journal: it cannot be mapped");
    /* The poller first: queues may wake it as soon as they exist. */
    status = cgm_poller_start(&executor->poller, executor);
    if (status == CGM_OK)
        status = open_backend(executor, m, detail, bytes);
    if (status == CGM_OK)
        status = start_threads(executor);
    if (status == CGM_NO_MEMORY && !detail[0])
        cgm_detail(detail, bytes, status,
                   "threads or memory to begin with cannot be had; what limits them: ulimit -u and "
                   "-v, TasksMax= and MemoryMax=");
    return status;
}

static int first_message(struct cgm_executor *executor)
{
    char detail[256] = "";
    struct cgm_packet *packet = malloc(sizeof(*packet));
    int status = packet ? cgm_packet_recv(executor->link, 0, packet) : CGM_NO_MEMORY;
    ProtobufCMessage *message = status == CGM_OK ? cgm_packet_unpack(packet) : NULL;
    if (message && packet->header.type == CGM_MSG_EXECUTOR_SETUP)
        status =
            set_up(executor, (const Cgm__ExecutorSetup *)message, packet, detail, sizeof(detail));
    else if (status == CGM_OK)
        status = CGM_BAD_MESSAGE;
    if (message && status == CGM_OK)
        status = send_hello(executor, packet->header.serial);
    if (message && status != CGM_OK) {
        Cgm__Error error = CGM__ERROR__INIT;
        error.status = status;
        error.detail = detail[0] ? detail : (char *)(uintptr_t)cgm_status_text(status);
        cgm_packet_send(executor->link, CGM_MSG_ERROR, packet->header.serial, &error.base, NULL, 0);
        cgm_executor_log(7, "set-up: %s: %s", cgm_status_text(status), error.detail);
    }
    if (packet && status == CGM_OK)
        cgm_packet_close_fds(packet);
    cgm_message_free(message);
    free(packet);
    return status;
}

/* Where memory runs out somebody is killed: not the broker, which has the named buffers. To make
 * oneself more likely is always allowed. */
#define OOM_PATH "/proc/self/oom_score_adj"
#define OOM_MORE 500
#define OOM_MOST 1000

static void go_first(void)
{
    char text[16] = "";
    int fd = open(OOM_PATH, O_RDWR | O_CLOEXEC);
    if (fd < 0)
        return;
    if (pread(fd, text, sizeof(text) - 1, 0) > 0) {
        int adj = atoi(text) + OOM_MORE;
        int length = snprintf(text, sizeof(text), "%d", adj < OOM_MOST ? adj : OOM_MOST);
        if (pwrite(fd, text, (size_t)length, 0) < 0)
            cgm_executor_log(6,
                             "%s cannot be written: where memory runs out the broker may be "
                             "the one that is killed",
                             OOM_PATH);
    }
    close(fd);
}

int cgm_executor_serve(const struct cgm_backend_ops *ops, int link)
{
    /* Threads use it until the very end of the process, hence not on this stack. */
    static struct cgm_executor executor;
    cgm_log_sink_open();
    go_first();
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN); /* memory that a client asks for is a file, too */
    executor.ops = ops;
    executor.link = link;
    int status = first_message(&executor);
    if (status != CGM_OK)
        return cgm_status_exit(status);
    cgm_control_run(&executor);
    /* The broker is gone: jobs in flight end with this process, and it has nobody to answer to. */
    _exit(CGM_EXIT_OK);
}
