#include "daemon/broker/executor.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "daemon/broker/attached.h"
#include "daemon/broker/broker.h"
#include "daemon/broker/buffer.h"
#include "daemon/broker/comm.h"
#include "daemon/broker/import.h"
#include "daemon/broker/log.h"
#include "daemon/broker/mps.h"
#include "daemon/broker/mps_clients.h"
#include "daemon/broker/session.h"
#include "proto/messages.h"
#include "proto/status.h"
#include "proto/step.h"

#define PROTOCOL_VERSION 1u
#define BACKOFF_MIN_MS 100u
#define BACKOFF_MAX_MS 5000u
#define STABLE_NS 10000000000ull /* a life this long starts the back-off anew */
#define REAP_PATIENCE_MS 5000u   /* between hanging up and being reaped */
#define QUEUED_BYTES_MAX (64u << 20)
#define FD_WEIGHT_BYTES 4096u
#define CLOSER_MS 5u

bool cgm_executor_hears(const struct cgm_executor *executor)
{
    return executor->state == CGM_EXECUTOR_REPLAYING || executor->state == CGM_EXECUTOR_READY;
}

bool cgm_executor_is_ready(const struct cgm_executor *executor)
{
    return executor->state == CGM_EXECUTOR_READY;
}

bool cgm_executor_is_cuda(const struct cgm_executor *executor)
{
    const char *path = executor->candidates[executor->candidate];
    size_t length = strlen(path);
    if (executor->chosen)
        return strcmp(executor->backend, "cuda") == 0;
    return executor->n_candidates > 0 && length > 5 && strcmp(path + length - 5, "-cuda") == 0;
}

bool cgm_executor_has_ended(const struct cgm_executor *executor)
{
    return !executor->process_open && !executor->link_open;
}

/* ---- where executables are --------------------------------------------------------------------
 */

static void add_candidate(struct cgm_executor *executor, const char *path)
{
    if (executor->n_candidates < CGM_EXECUTOR_CANDIDATES_MAX)
        snprintf(executor->candidates[executor->n_candidates++], sizeof(executor->candidates[0]),
                 "%s", path);
}

/* $COMMGEMM_LIBEXEC, the daemon's own folder, ../libexec/commgemm beside that. */
static bool find_executable(const char *backend, char *ret_path, size_t size)
{
    char own[200];
    const char *given = getenv("COMMGEMM_LIBEXEC");
    ssize_t length = readlink("/proc/self/exe", own, sizeof(own) - 1);
    own[length > 0 ? length : 0] = '\0';
    char *slash = strrchr(own, '/');
    if (slash)
        *slash = '\0';
    const char *const folders[][2] = {
        {given ? given : "", ""}, {own, ""}, {own, "/../libexec/commgemm"}};
    for (size_t i = given ? 0 : 1; i < sizeof(folders) / sizeof(folders[0]); i++) {
        int used = snprintf(ret_path, size, "%s%s/commgemm-executor-%s", folders[i][0],
                            folders[i][1], backend);
        if (used > 0 && (size_t)used < size && access(ret_path, X_OK) == 0)
            return true;
    }
    return false;
}

/* auto chooses the CPU where the CUDA executor is missing: it is to be known if there is a GPU. */
static void note_missing_cuda(struct cgm_executor *executor, const struct cgm_config *config)
{
    if (config->backend == CGM_CONFIG_AUTO && access("/dev/nvidiactl", F_OK) == 0)
        snprintf(executor->passed_over, sizeof(executor->passed_over),
                 "commgemm-executor-cuda is not installed, and this machine has an NVIDIA GPU");
}

static void find_candidates(struct cgm_executor *executor, const struct cgm_config *config)
{
    static const char *const names[] = {"cuda", "cpu"};
    char path[256];
    executor->n_candidates = executor->candidate = 0;
    executor->passed_over[0] = '\0';
    if (config->executor[0]) {
        add_candidate(executor, config->executor);
        return;
    }
    for (int i = 0; i < 2; i++) {
        bool wanted =
            config->backend == CGM_CONFIG_AUTO || (config->backend == CGM_CONFIG_CUDA) == (i == 0);
        if (wanted && find_executable(names[i], path, sizeof(path)))
            add_candidate(executor, path);
        else if (wanted && i == 0)
            note_missing_cuda(executor, config);
    }
}

/* ---- the journal ------------------------------------------------------------------------------
 */

static int journal_init(struct cgm_executor *executor, char *ret_detail, size_t size)
{
    executor->journal_fd = memfd_create("commgemm-journal", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (executor->journal_fd < 0 ||
        ftruncate(executor->journal_fd, sizeof(struct cgm_journal)) < 0 ||
        fcntl(executor->journal_fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) < 0)
        return cgm_detail(ret_detail, size, cgm_status_of_errno(errno),
                          "cannot make a memfd for the journal: %s", strerror(errno));
    void *base = mmap(NULL, sizeof(struct cgm_journal), PROT_READ | PROT_WRITE, MAP_SHARED,
                      executor->journal_fd, 0);
    if (base == MAP_FAILED)
        return cgm_detail(ret_detail, size, CGM_NO_MEMORY, "cannot map the journal: %s",
                          strerror(errno));
    executor->journal = base;
    executor->journal->magic = CGM_JOURNAL_MAGIC;
    executor->journal->version = CGM_JOURNAL_VERSION;
    executor->journal->n_buffers = CGM_JOURNAL_BUFFERS;
    executor->journal->n_comms = CGM_JOURNAL_COMMS;
    return CGM_OK;
}

/* The process is reaped: nobody writes any more. */
static void journal_read_and_clear(struct cgm_broker *broker)
{
    struct cgm_journal *journal = broker->executor.journal;
    cgm_buffer_note_tainted(broker);
    cgm_comm_note_burnt(broker);
    uint64_t ended = atomic_load(&journal->jobs_done) + atomic_load(&journal->jobs_failed);
    cgm_journal_count(&journal->jobs_failed, atomic_load(&journal->jobs_accepted) - ended);
    memset((void *)journal->writers, 0, sizeof(journal->writers));
    memset((void *)journal->comm_high, 0, sizeof(journal->comm_high));
}

/* ---- death ------------------------------------------------------------------------------------
 */

static void on_timer(uv_timer_t *timer);

/* True while backend = auto looks for one that starts. */
static bool has_next_candidate(const struct cgm_executor *executor)
{
    return !executor->chosen && executor->candidate + 1 < executor->n_candidates;
}

static void set_why(struct cgm_executor *executor, const char *why)
{
    if (strcmp(executor->why, why) != 0 && has_next_candidate(executor))
        cgm_log_warning("executor: %s; trying the next backend", why);
    else if (strcmp(executor->why, why) != 0)
        cgm_log_error("executor: %s", why);
    snprintf(executor->why, sizeof(executor->why), "%s", why);
}

static void settle(struct cgm_broker *broker)
{
    if (broker->executor.settled)
        return;
    broker->executor.settled = true;
    cgm_broker_on_settled(broker);
}

static void tell_clients_lost(struct cgm_broker *broker, const char *why)
{
    uint64_t at = 0;
    struct cgm_session *session;
    Cgm__ExecutorLost lost = CGM__EXECUTOR_LOST__INIT;
    lost.executor_life = broker->executor.life;
    lost.status = broker->executor.lost_status;
    lost.detail = (char *)(uintptr_t)why;
    while ((session = cgm_registry_next(&broker->sessions, &at))) {
        cgm_session_kill_ring(session, broker->executor.lost_status);
        if (session->greeted)
            cgm_connection_send(&session->connection, CGM_MSG_EXECUTOR_LOST, 0, &lost.base, NULL,
                                0);
    }
}

/* What everybody must know at once; the journal waits until the process is reaped. */
static void lose(struct cgm_broker *broker, const char *why)
{
    struct cgm_executor *executor = &broker->executor;
    cgm_step(CGM_STEP_BROKER, CGM_BROKER_STEP_EXECUTOR_LOST);
    executor->state = CGM_EXECUTOR_DYING;
    executor->deaths += !has_next_candidate(executor); /* who was only tried has not lived */
    cgm_heartbeat_stop(broker);
    if (!broker->ending)
        set_why(executor, why);
    /* Who hung up ends by itself, and then its exit status says why; but not for ever. */
    uv_timer_start(&executor->timer, on_timer, REAP_PATIENCE_MS, 0);
    cgm_connection_close(&executor->link);
    tell_clients_lost(broker, why);
    cgm_calls_fail_all(broker, why);
    cgm_broker_tell_status(broker);
}

static bool is_lost(const struct cgm_executor *executor)
{
    return executor->state == CGM_EXECUTOR_DOWN || executor->state == CGM_EXECUTOR_DYING;
}

static void on_terminated(void *context, enum cgm_mps_part part, const char *note)
{
    struct cgm_broker *broker = context;
    if (part == CGM_MPS_FAILED)
        cgm_log_warning("executor: MPS: %s; it is killed without", note);
    if (broker->executor.terminating && broker->executor.pid != 0)
        uv_process_kill(&broker->executor.process, SIGKILL);
}

/* Killed with a running kernel, a client of MPS takes everybody's work along, unless MPS ended it
 * first. Asked a second time, this waits for MPS no longer. */
static void kill_process(struct cgm_broker *broker)
{
    struct cgm_executor *executor = &broker->executor;
    if (executor->pid == 0)
        return;
    if (executor->under_mps && !executor->terminating && !broker->ending) {
        executor->terminating = true;
        cgm_mps_terminate(broker, executor->pid, on_terminated, broker);
    } else {
        uv_process_kill(&executor->process, SIGKILL);
    }
}

void cgm_executor_give_up(struct cgm_broker *broker, const char *why)
{
    if (is_lost(&broker->executor))
        return;
    lose(broker, why);
    broker->executor.explained = true;
    kill_process(broker);
}

void cgm_executor_doom(struct cgm_broker *broker, const char *why)
{
    if (is_lost(&broker->executor))
        return;
    broker->executor.doom = why;
    uv_timer_start(&broker->executor.timer, on_timer, 0, 0);
}

static void schedule_restart(struct cgm_broker *broker)
{
    struct cgm_executor *executor = &broker->executor;
    uint64_t lived_ns = cgm_clock_ns() - executor->started_ns;
    if (broker->ending)
        return;
    if (has_next_candidate(executor)) {
        snprintf(executor->passed_over, sizeof(executor->passed_over), "%s", executor->why);
        executor->candidate++;
        executor->backoff_ms = 0;
    } else {
        executor->candidate = executor->chosen ? executor->candidate : 0;
        executor->backoff_ms = lived_ns > STABLE_NS || executor->backoff_ms == 0
                                   ? BACKOFF_MIN_MS
                                   : executor->backoff_ms * 2;
        if (executor->backoff_ms > BACKOFF_MAX_MS)
            executor->backoff_ms = BACKOFF_MAX_MS;
        settle(broker);
    }
    if (executor->lost_status == CGM_GPU_LOST)
        cgm_attached_look(broker);
    else
        uv_timer_start(&executor->timer, on_timer, executor->backoff_ms, 0);
}

void cgm_executor_await(struct cgm_broker *broker, const char *what, unsigned look_again_ms)
{
    set_why(&broker->executor, what);
    uv_timer_start(&broker->executor.timer, on_timer, look_again_ms, 0);
}

/* At once, unless the one before it did not live long either. */
void cgm_executor_retry(struct cgm_broker *broker)
{
    struct cgm_executor *executor = &broker->executor;
    executor->lost_status = CGM_EXECUTOR_LOST;
    uv_timer_start(&executor->timer, on_timer,
                   executor->backoff_ms > BACKOFF_MIN_MS ? executor->backoff_ms : 0, 0);
}

/* Process and socket are both gone from the loop. */
static void on_half_closed(struct cgm_broker *broker)
{
    if (!cgm_executor_has_ended(&broker->executor))
        return;
    journal_read_and_clear(broker);
    uv_timer_stop(&broker->executor.timer);
    broker->executor.state = CGM_EXECUTOR_DOWN;
    schedule_restart(broker);
}

static void on_link_closed(void *owner)
{
    struct cgm_broker *broker = owner;
    broker->executor.link_open = false;
    on_half_closed(broker);
}

static void on_process_closed(uv_handle_t *handle)
{
    struct cgm_broker *broker = handle->data;
    broker->executor.process_open = false;
    on_half_closed(broker);
}

static const char *name_of(const struct cgm_executor *executor)
{
    const char *path = executor->candidates[executor->candidate], *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

static void on_process_exit(uv_process_t *process, int64_t exit_status, int term_signal)
{
    struct cgm_broker *broker = process->data;
    struct cgm_executor *executor = &broker->executor;
    char *why = executor->exit_why;
    const char *name = name_of(executor);
    size_t size = sizeof(executor->exit_why);
    if (term_signal)
        snprintf(why, size, "%.64s, process %d, was ended by signal %d (%s)", name, process->pid,
                 term_signal, strsignal(term_signal));
    else
        snprintf(why, size, "%.64s, process %d, ended with status %d", name, process->pid,
                 (int)exit_status);
    executor->pid = 0;
    /* Unless it is lost already, the socket has its last words, then its end. */
    if (!is_lost(executor))
        uv_timer_start(&executor->timer, on_timer, REAP_PATIENCE_MS, 0);
    else if (!broker->ending && !executor->explained)
        set_why(executor, why);
    uv_close((uv_handle_t *)process, on_process_closed);
}

/* ---- its messages -----------------------------------------------------------------------------
 */

/* Without MPS a dead context is the executor's own: the sessions' are sound. */
static void on_trouble(struct cgm_broker *broker, const ProtobufCMessage *message)
{
    const Cgm__ExecutorTrouble *trouble = (const Cgm__ExecutorTrouble *)message;
    struct cgm_executor *executor = &broker->executor;
    if (is_lost(executor))
        return;
    if (trouble->trouble == CGM_TROUBLE_STUCK) {
        cgm_executor_give_up(broker, trouble->detail);
        return;
    }
    if (executor->under_mps)
        executor->lost_status = CGM_GPU_LOST;
    lose(broker, trouble->detail);
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

static void on_packet(void *owner, struct cgm_packet *packet)
{
    struct cgm_broker *broker = owner;
    if (broker->executor.state != CGM_EXECUTOR_READY)
        uv_timer_again(&broker->executor.timer);
    if (packet->header.serial == 0)
        on_event(broker, packet);
    else if (cgm_calls_on_reply(broker, packet) != CGM_OK)
        cgm_executor_give_up(broker, "it answered something that nobody asked");
}

static void on_garbage(void *owner, uint32_t serial)
{
    (void)serial;
    cgm_executor_give_up(owner, "it sent a malformed packet");
}

static void on_link_end(void *owner, const char *why)
{
    struct cgm_broker *broker = owner;
    char text[128];
    snprintf(text, sizeof(text), "process %d %s", broker->executor.pid, why);
    if (!is_lost(&broker->executor))
        lose(broker, broker->executor.exit_why[0] ? broker->executor.exit_why : text);
}

/* Its poller waits when the link is full, and with it everybody's jobs: it goes before all clients.
 */
static const struct cgm_connection_events link_events = {
    .fd_weight_bytes = FD_WEIGHT_BYTES,
    .packets_per_turn = 1024,
    .on_packet = on_packet,
    .on_garbage = on_garbage,
    .on_end = on_link_end,
    .on_closed = on_link_closed,
};

/* ---- start ------------------------------------------------------------------------------------
 */

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
    if (executor->candidate == 0 && executor->n_candidates > 1)
        executor->passed_over[0] = '\0';
    executor->n_devices = (uint32_t)hello->n_device_uuid;
    executor->chosen = true;
    executor->state = CGM_EXECUTOR_REPLAYING;
    cgm_log_info("executor: process %d, backend %s, %u devices", executor->pid, executor->backend,
                 executor->n_devices);
    for (uint32_t i = 0; i < executor->n_devices && i < hello->n_device_name; i++)
        cgm_log_info("device %u: %s, %s", i, hello->device_name[i], hello->device_uuid[i]);
    cgm_replay_start(broker);
}

void cgm_executor_on_replayed(struct cgm_broker *broker)
{
    struct cgm_executor *executor = &broker->executor;
    cgm_step(CGM_STEP_BROKER, CGM_BROKER_STEP_REPLAYED);
    executor->state = CGM_EXECUTOR_READY;
    executor->why[0] = '\0';
    uv_timer_stop(&executor->timer);
    cgm_heartbeat_start(broker);
    settle(broker);
    cgm_broker_tell_status(broker);
}

/* The journal goes with the first message, which is the only one sent before the hello. */
static int send_setup(struct cgm_broker *broker)
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

/* Its end of the socket is fd 3 there. */
static int spawn(struct cgm_broker *broker, int far_end)
{
    struct cgm_executor *executor = &broker->executor;
    char *arguments[] = {executor->candidates[executor->candidate], NULL};
    uv_stdio_container_t stdio[4] = {
        {.flags = UV_IGNORE},
        {.flags = UV_INHERIT_FD, .data.fd = STDERR_FILENO},
        {.flags = UV_INHERIT_FD, .data.fd = STDERR_FILENO},
        {.flags = UV_INHERIT_FD, .data.fd = far_end},
    };
    uv_process_options_t options = {
        .exit_cb = on_process_exit,
        .file = arguments[0],
        .args = arguments,
        .stdio_count = 4,
        .stdio = stdio,
    };
    int error = uv_spawn(&broker->loop, &executor->process, &options);
    executor->process.data = broker;
    executor->process_open = true;
    executor->pid = error ? 0 : executor->process.pid;
    return error;
}

static int open_link(struct cgm_broker *broker, int *ret_far_end)
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
    *ret_far_end = pair[1];
    return CGM_OK;
}

/* It would hang in its first CUDA call, for as long as MPS serves somebody else. */
static bool is_kept_out_by_mps(struct cgm_executor *executor)
{
    char why[256];
    struct cgm_mps mps;
    executor->under_mps = false;
    if (!cgm_executor_is_cuda(executor))
        return false;
    cgm_mps_look(&mps);
    executor->under_mps = mps.on;
    if (!cgm_mps_excludes(&mps, geteuid()))
        return false;
    snprintf(why, sizeof(why),
             "the MPS of %.64s serves uid %u alone, and the daemon runs as uid %u; start it for "
             "all users: nvidia-cuda-mps-control -d -M",
             mps.directory, (unsigned)mps.uid, (unsigned)geteuid());
    set_why(executor, why);
    return true;
}

static void start_candidate(struct cgm_broker *broker)
{
    struct cgm_executor *executor = &broker->executor;
    uint64_t patience_ms = broker->config.executor_start_timeout * 1000;
    char why[384];
    int far_end = -1;
    if (!cgm_closer_hurry(broker)) {
        set_why(executor, "file descriptors of clients are being closed before it starts");
        uv_timer_start(&executor->timer, on_timer, CLOSER_MS, 0);
        return;
    }
    if (is_kept_out_by_mps(executor)) {
        schedule_restart(broker);
        return;
    }
    int status = open_link(broker, &far_end);
    if (status != CGM_OK) {
        set_why(executor, cgm_status_text(status));
        schedule_restart(broker);
        return;
    }
    executor->life++;
    executor->doom = NULL;
    executor->explained = false;
    executor->exit_why[0] = '\0';
    executor->lost_status = CGM_EXECUTOR_LOST;
    executor->terminating = false;
    executor->state = CGM_EXECUTOR_STARTING;
    int error = spawn(broker, far_end);
    close(far_end);
    if (error) {
        snprintf(why, sizeof(why), "cannot start %s: %s", executor->candidates[executor->candidate],
                 uv_strerror(error));
        cgm_executor_give_up(broker, why);
        uv_close((uv_handle_t *)&executor->process, on_process_closed);
        return;
    }
    cgm_step(CGM_STEP_BROKER, CGM_BROKER_STEP_EXECUTOR_START);
    if (send_setup(broker) != CGM_OK)
        cgm_executor_give_up(broker, "no memory to start it");
    else
        uv_timer_start(&executor->timer, on_timer, patience_ms, patience_ms);
}

void cgm_executor_start(struct cgm_broker *broker)
{
    static const char *const wanted[] = {"commgemm-executor-cuda and -cpu", "commgemm-executor-cpu",
                                         "commgemm-executor-cuda"};
    struct cgm_executor *executor = &broker->executor;
    char why[256];
    executor->started_ns = cgm_clock_ns();
    if (!executor->chosen && executor->candidate == 0)
        find_candidates(executor, &broker->config);
    if (executor->n_candidates > 0) {
        start_candidate(broker);
        return;
    }
    snprintf(why, sizeof(why),
             "%s: not found in $COMMGEMM_LIBEXEC, beside commgemmd or in ../libexec/commgemm",
             wanted[broker->config.backend]);
    set_why(executor, why);
    schedule_restart(broker);
}

static void try_again(struct cgm_broker *broker)
{
    if (broker->executor.lost_status == CGM_GPU_LOST)
        cgm_attached_look(broker);
    else
        cgm_executor_start(broker);
}

static void on_timer(uv_timer_t *timer)
{
    struct cgm_broker *broker = timer->data;
    if (broker->executor.state == CGM_EXECUTOR_DOWN)
        try_again(broker);
    else if (broker->executor.state == CGM_EXECUTOR_DYING)
        kill_process(broker);
    else if (broker->executor.doom)
        cgm_executor_give_up(broker, broker->executor.doom);
    else
        cgm_executor_give_up(broker, broker->executor.exit_why[0]
                                         ? broker->executor.exit_why
                                         : "it did not answer in time while it started");
}

int cgm_executor_init(struct cgm_broker *broker, char *ret_detail, size_t size)
{
    struct cgm_executor *executor = &broker->executor;
    memset(executor, 0, sizeof(*executor));
    executor->journal_fd = -1;
    snprintf(executor->why, sizeof(executor->why), "it is starting");
    uv_timer_init(&broker->loop, &executor->timer);
    executor->timer.data = broker;
    cgm_heartbeat_init(broker);
    return journal_init(executor, ret_detail, size);
}

/* ---- end --------------------------------------------------------------------------------------
 */

/* Its launched jobs have ended; it ends by itself when the socket closes. */
static void on_shut_down(struct cgm_broker *broker, const struct cgm_call *call,
                         const struct cgm_result *result)
{
    (void)call;
    if (result->status == CGM_OK)
        lose(broker, "the daemon ends");
    else
        cgm_executor_give_up(broker, "the daemon ends");
}

void cgm_executor_shut_down(struct cgm_broker *broker)
{
    struct cgm_call call = {.done = on_shut_down};
    Cgm__Shutdown shutdown = CGM__SHUTDOWN__INIT;
    uv_timer_stop(&broker->executor.timer);
    if (cgm_call_executor(broker, CGM_MSG_SHUTDOWN, &shutdown.base, NULL, 0, &call) != CGM_OK)
        cgm_executor_give_up(broker, "the daemon ends");
}

void cgm_executor_kill(struct cgm_broker *broker)
{
    cgm_executor_give_up(broker, "the daemon ends");
    kill_process(broker);
}

void cgm_executor_fini(struct cgm_broker *broker)
{
    struct cgm_executor *executor = &broker->executor;
    if (executor->journal)
        munmap(executor->journal, sizeof(*executor->journal));
    if (executor->journal_fd >= 0)
        close(executor->journal_fd);
}
