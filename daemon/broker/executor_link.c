#include "daemon/broker/executor_link.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "daemon/broker/broker.h"
#include "daemon/broker/buffer.h"
#include "daemon/broker/closer.h"
#include "daemon/broker/hang_up.h"
#include "daemon/broker/quota.h"
#include "daemon/broker/import.h"
#include "daemon/broker/log.h"
#include "daemon/broker/session.h"
#include "proto/guest.h"
#include "proto/messages.h"
#include "proto/status.h"

#define PROTOCOL_VERSION 1u
#define QUEUED_BYTES_MAX (64u << 20)
#define FD_WEIGHT_BYTES 4096u

/* ---- what it says by itself -------------------------------------------------------------------
 */

/* Without MPS a dead context is the executor's own: the sessions' are sound. It ends by itself. */
static void on_trouble(struct cgm_broker *broker, const ProtobufCMessage *message)
{
    const Cgm__ExecutorTrouble *trouble = (const Cgm__ExecutorTrouble *)message;
    struct cgm_executor *executor = &broker->executor;
    if (cgm_executor_is_lost(executor))
        return;
    if (trouble->trouble == CGM_TROUBLE_STUCK) {
        cgm_executor_give_up(broker, trouble->detail);
        return;
    }
    if (executor->under_mps)
        executor->lost_status = CGM_GPU_LOST;
    cgm_executor_lose(broker, trouble->detail);
    executor->explained = true;
}

static void on_event(struct cgm_broker *broker, struct cgm_packet *packet)
{
    static const struct {
        uint16_t type;
        void (*handle)(struct cgm_broker *broker, const ProtobufCMessage *message);
    } rows[] = {
        {CGM_MSG_COMPLETION_FORWARD, cgm_session_on_completion},
        {CGM_MSG_BUFFER_RESTORED, cgm_buffer_on_restored},
        {CGM_MSG_BUFFER_TAINTED, cgm_buffer_on_tainted},
        {CGM_MSG_SESSION_BAD, cgm_session_on_bad},
        {CGM_MSG_IMPORT_IDLE, cgm_import_on_idle},
        {CGM_MSG_EXECUTOR_TROUBLE, on_trouble},
    };
    ProtobufCMessage *message = cgm_packet_unpack(packet);
    for (size_t i = 0; message && i < sizeof(rows) / sizeof(rows[0]); i++)
        if (rows[i].type == packet->header.type)
            rows[i].handle(broker, message);
    cgm_message_free(message);
}

static void on_spent(void *owner, uint64_t ns)
{
    struct cgm_broker *broker = owner;
    if (broker->executor.payer != CGM_NOBODY)
        cgm_quota_spend(broker, broker->executor.payer, ns);
    broker->executor.payer = CGM_NOBODY;
}

static void on_packet(void *owner, struct cgm_packet *packet)
{
    struct cgm_broker *broker = owner;
    if (packet->header.serial == 0)
        on_event(broker, packet);
    else if (!cgm_executor_is_lost(&broker->executor) &&
             cgm_calls_on_reply(broker, packet) != CGM_OK)
        cgm_executor_give_up(broker, "it answered something that nobody asked");
}

/* What it has made cannot be had: who asked for it is told, and has it removed. */
static void on_cut(void *owner, struct cgm_packet *packet)
{
    if (cgm_calls_on_cut(owner, packet->header.serial) != CGM_OK)
        cgm_executor_give_up(owner, "it sent file descriptors that nobody asked for");
}

static void on_garbage(void *owner, uint32_t serial)
{
    (void)serial;
    cgm_executor_give_up(owner, "it sent a malformed packet");
}

static void on_end(void *owner, const char *why)
{
    struct cgm_broker *broker = owner;
    char text[128];
    snprintf(text, sizeof(text), "process %d %s", broker->executor.pid, why);
    cgm_executor_on_link_end(broker, text);
}

/* With the executor goes what it had: of buffers these may be the last fds. */
static void hang_up(void *owner, int fd)
{
    cgm_hang_up(owner, geteuid(), fd);
}

static void drop_fds(void *owner, const int *fds, unsigned n_fds)
{
    cgm_closer_drop(owner, geteuid(), fds, n_fds);
}

static bool close_fds(void *owner, const int *fds, unsigned n_fds)
{
    drop_fds(owner, fds, n_fds);
    return true;
}

/* Its poller waits when the link is full, and with it everybody's jobs: it goes before all clients.
 */
static const struct cgm_connection_events link_events = {
    .fd_weight_bytes = FD_WEIGHT_BYTES,
    .packets_per_turn = 1024,
    .on_spent = on_spent,
    .on_packet = on_packet,
    .on_cut = on_cut,
    .on_garbage = on_garbage,
    .hang_up = hang_up,
    .close_fds = close_fds,
    .drop_fds = drop_fds,
    .on_end = on_end,
    .on_closed = cgm_executor_on_link_closed,
};

int cgm_executor_link_open(struct cgm_broker *broker, int *ret_far_end)
{
    struct cgm_executor *executor = &broker->executor;
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return cgm_status_of_errno(errno);
    fcntl(pair[0], F_SETFL, O_NONBLOCK);
    int status = cgm_connection_open(&executor->link, &broker->loop, broker->wire, pair[0],
                                     QUEUED_BYTES_MAX, &link_events, broker);
    if (status != CGM_OK) {
        close(pair[0]);
        close(pair[1]);
        return status;
    }
    executor->link_open = true;
    executor->payer = CGM_NOBODY;
    *ret_far_end = pair[1];
    return CGM_OK;
}

/* ---- hello ------------------------------------------------------------------------------------
 */

/* What does not fit is left out. */
static void name_devices(const Cgm__ExecutorHello *hello, char *ret_names, size_t size)
{
    size_t used = 0, i = 0;
    ret_names[0] = '\0';
    while (i < hello->n_device_name && used < size) {
        size_t count = 1;
        char times[24] = "";
        while (i + count < hello->n_device_name &&
               strcmp(hello->device_name[i], hello->device_name[i + count]) == 0)
            count++;
        if (count > 1)
            snprintf(times, sizeof(times), "%zu x ", count);
        used += (size_t)snprintf(ret_names + used, size - used, "%s%s%s", used > 0 ? ", " : "",
                                 times, hello->device_name[i]);
        i += count;
    }
}

static void on_hello(struct cgm_broker *broker, const struct cgm_call *call,
                     const struct cgm_result *result)
{
    struct cgm_executor *executor = &broker->executor;
    const Cgm__ExecutorHello *hello = (const Cgm__ExecutorHello *)result->message;
    (void)call;
    if (result->status != CGM_OK) {
        if (result->status != CGM_EXECUTOR_LOST)
            cgm_executor_give_up(broker, result->detail);
        return;
    }
    if (hello->version != PROTOCOL_VERSION || hello->n_device_uuid < 1) {
        cgm_executor_give_up(broker, "it speaks another version or has no device");
        return;
    }
    snprintf(executor->backend, sizeof(executor->backend), "%s", hello->backend);
    snprintf(executor->platform, sizeof(executor->platform), "%s%s%s",
             hello->platform ? hello->backend : "", hello->platform ? ": " : "",
             hello->platform ? hello->platform : "");
    executor->n_devices = (uint32_t)hello->n_device_uuid;
    name_devices(hello, executor->device_names, sizeof(executor->device_names));
    cgm_candidates_choose(&executor->candidates);
    executor->state = CGM_EXECUTOR_REPLAYING;
    cgm_log_info("executor: process %d, backend %s, %u devices", executor->pid, executor->backend,
                 executor->n_devices);
    for (uint32_t i = 0; i < executor->n_devices && i < hello->n_device_name; i++)
        cgm_log_info("device %u: %s, %s", i, hello->device_name[i], hello->device_uuid[i]);
    cgm_replay_start(broker);
}

/* The journal goes with the first message, which is the only one sent before the hello. */
int cgm_executor_link_set_up(struct cgm_broker *broker)
{
    struct cgm_executor *executor = &broker->executor;
    const struct cgm_config *config = &broker->config;
    struct cgm_call call = {.done = on_hello};
    Cgm__ExecutorSetup setup = CGM__EXECUTOR_SETUP__INIT;
    setup.version = PROTOCOL_VERSION;
    setup.life = executor->life;
    setup.devices = (uint32_t)config->devices;
    setup.spin_ns = config->spin_us * 1000;
    setup.join_timeout_ns = config->join_timeout * 1000000000;
    setup.ready_timeout_ns = config->ready_timeout * 1000000000;
    setup.job_timeout_ns = config->job_timeout * 1000000000;
    setup.has_import_idle_ns = 1;
    setup.import_idle_ns = config->import_idle * 1000000000;
    setup.has_tune_ns = 1;
    setup.tune_ns = config->tune_ms * 1000000;
    setup.has_graphs_from = 1;
    setup.graphs_from = config->graphs_from;
    setup.has_log_level = setup.has_test_delay_us = 1;
    setup.log_level = (uint32_t)cgm_log_syslog_level((enum cgm_log_level)config->log_level);
    setup.test_delay_us = (uint32_t)config->test_delay_us;
    setup.test_steps = config->test_steps[0] ? (char *)(uintptr_t)config->test_steps : NULL;
    executor->state = CGM_EXECUTOR_REPLAYING;
    int status = cgm_call_executor(broker, CGM_MSG_EXECUTOR_SETUP, &setup.base,
                                   &executor->journal_fd, 1, &call);
    executor->state = CGM_EXECUTOR_STARTING;
    return status;
}

/* ---- end --------------------------------------------------------------------------------------
 */

/* Its launched jobs have ended; it ends by itself when the socket closes. */
static void on_shut_down(struct cgm_broker *broker, const struct cgm_call *call,
                         const struct cgm_result *result)
{
    (void)call;
    if (result->status != CGM_OK) {
        cgm_executor_give_up(broker, "the daemon ends");
        return;
    }
    cgm_executor_lose(broker, "the daemon ends");
    cgm_connection_close(&broker->executor.link);
}

void cgm_executor_shut_down(struct cgm_broker *broker)
{
    struct cgm_call call = {.done = on_shut_down};
    Cgm__Shutdown shutdown = CGM__SHUTDOWN__INIT;
    if (broker->executor.state == CGM_EXECUTOR_DYING)
        return; /* its end is waited for already */
    uv_timer_stop(&broker->executor.timer);
    if (cgm_call_executor(broker, CGM_MSG_SHUTDOWN, &shutdown.base, NULL, 0, &call) != CGM_OK)
        cgm_executor_give_up(broker, "the daemon ends");
}
