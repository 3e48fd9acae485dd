#include "daemon/broker/broker.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <time.h>

#include "daemon/broker/admission.h"
#include "daemon/broker/buffer.h"
#include "daemon/broker/comm.h"
#include "daemon/broker/log.h"
#include "daemon/broker/notify.h"
#include "daemon/broker/plan.h"
#include "daemon/broker/session.h"
#include "proto/journal.h"
#include "proto/messages.h"
#include "proto/status.h"
#include "proto/step.h"
#include "proto/thread.h"

#define END_PATIENCE_MS 10000u /* for launched jobs, then the executor is killed */
/* Clients come and go thousands of times a second, and each word about it is work of process 1. */
#define STATUS_AFTER_MS 1000u
#define FILES_ENOUGH 1048576u
#define STACK_BYTES_ENOUGH (8u << 20)
#define STACK_BYTES_MIN (256u << 10)

static uint64_t ns_of(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

uint64_t cgm_clock_ns(void)
{
    return ns_of(CLOCK_MONOTONIC);
}

uint64_t cgm_spent_ns(void)
{
    return ns_of(CLOCK_THREAD_CPUTIME_ID);
}

static void on_status_timer(uv_timer_t *timer)
{
    struct cgm_broker *broker = timer->data;
    const struct cgm_executor *executor = &broker->executor;
    if (!broker->ending && cgm_executor_is_ready(executor))
        cgm_notify_status("%s%zu sessions, backend %s, executor %d",
                          broker->draining ? "draining, " : "", broker->sessions.count,
                          executor->backend, executor->pid);
    else if (!broker->ending)
        cgm_notify_status("%zu sessions, no executor: %s", broker->sessions.count,
                          cgm_executor_why_not(executor));
    if (!cgm_notify_settle())
        cgm_broker_tell_status(broker);
}

void cgm_broker_tell_status(struct cgm_broker *broker)
{
    if (cgm_notify_is_active() && !uv_is_active((uv_handle_t *)&broker->status_timer))
        uv_timer_start(&broker->status_timer, on_status_timer, STATUS_AFTER_MS, 0);
}

void cgm_broker_on_settled(struct cgm_broker *broker)
{
    if (broker->ending)
        return;
    int status = cgm_listener_start(&broker->listener, &broker->loop, cgm_session_accept,
                                    cgm_admission_drop, broker);
    if (status != CGM_OK) {
        cgm_log_error("socket %s: cannot listen: %s", broker->listener.path,
                      cgm_status_text(status));
        broker->failed = true;
        cgm_broker_end(broker);
        return;
    }
    cgm_log_info("socket %s: ready", broker->listener.path);
    cgm_notify_ready();
    cgm_broker_tell_status(broker);
}

/* ---- the end ----------------------------------------------------------------------------------
 */

void cgm_broker_end_sessions(struct cgm_broker *broker)
{
    uint64_t at = 0;
    struct cgm_session *session;
    while ((session = cgm_registry_next(&broker->sessions, &at)))
        cgm_session_end(session, "the daemon ends");
}

static void on_end_timer(uv_timer_t *timer)
{
    struct cgm_broker *broker = timer->data;
    cgm_log_warning("executor: launched jobs do not end, it is killed");
    cgm_executor_kill(broker);
}

void cgm_broker_end(struct cgm_broker *broker)
{
    if (broker->ending)
        return;
    broker->ending = true;
    cgm_notify_stopping();
    cgm_broker_tell_status(broker);
    cgm_log_info("daemon: ends");
    cgm_listener_close(&broker->listener);
    cgm_executor_shut_down(broker);
    cgm_tools_end(broker);
    uv_timer_start(&broker->end_timer, on_end_timer, END_PATIENCE_MS, 0);
}

static void reload_log_level(struct cgm_broker *broker)
{
    char detail[512];
    struct cgm_config fresh;
    if (!broker->config_path)
        return;
    cgm_config_init(&fresh);
    if (cgm_config_load(&fresh, broker->config_path, detail, sizeof(detail)) != CGM_OK) {
        cgm_log_error("configuration: not reread: %s", detail);
        return;
    }
    broker->config.log_level = fresh.log_level;
    cgm_log_set_level((enum cgm_log_level)fresh.log_level);
    cgm_log_info("configuration: log_level was reread");
}

static void on_signal(uv_signal_t *handle, int number)
{
    struct cgm_broker *broker = handle->data;
    if (number == SIGCHLD)
        cgm_executor_on_child(broker);
    else if (number == SIGHUP)
        reload_log_level(broker);
    else if (!broker->ending)
        cgm_broker_end(broker);
    else
        cgm_executor_kill(broker);
}

static void on_watchdog(uv_timer_t *timer)
{
    (void)timer;
    cgm_notify_watchdog();
}

/* ---- init and fini ----------------------------------------------------------------------------
 */

/* As far as whoever started the daemon lets it. */
static void raise_limit(int resource, rlim_t enough)
{
    struct rlimit limit;
    if (getrlimit(resource, &limit) != 0 || limit.rlim_cur >= enough)
        return;
    limit.rlim_cur = limit.rlim_max < enough ? limit.rlim_max : enough;
    setrlimit(resource, &limit);
}

/* Packets are on it, at the executor as well, and its libraries' threads have so much. */
static int check_stack(char *ret_detail, size_t size)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_STACK, &limit) != 0 || limit.rlim_cur >= STACK_BYTES_MIN)
        return CGM_OK;
    return cgm_detail(ret_detail, size, CGM_NOT_SUPPORTED,
                      "the limit of the stack is %ju bytes; it must be at least %u (ulimit -s, "
                      "LimitSTACK=)",
                      (uintmax_t)limit.rlim_cur, STACK_BYTES_MIN);
}

/* From before there is a socket until they are handled, and from when they no longer are: whoever
 * sees the socket may tell the daemon to end, which leaves none and is no failure. */
static void hold_signals(int how)
{
    sigset_t set = cgm_thread_signals();
    pthread_sigmask(how, &set, NULL);
}

static void start_timers_and_signals(struct cgm_broker *broker)
{
    static const int numbers[CGM_SIGNAL_COUNT] = {SIGTERM, SIGINT, SIGHUP, SIGCHLD};
    uv_timer_t *timers[] = {&broker->join_timer,  &broker->watchdog_timer, &broker->end_timer,
                            &broker->hello_timer, &broker->save_timer,     &broker->status_timer,
                            &broker->ghost_timer};
    uint64_t watchdog_ms = cgm_notify_watchdog_ms();
    for (size_t i = 0; i < sizeof(timers) / sizeof(timers[0]); i++) {
        uv_timer_init(&broker->loop, timers[i]);
        timers[i]->data = broker;
    }
    cgm_standstill_init(broker);
    cgm_linger_init(broker);
    for (int i = 0; i < CGM_SIGNAL_COUNT; i++) {
        uv_signal_init(&broker->loop, &broker->signals[i]);
        broker->signals[i].data = broker;
        uv_signal_start(&broker->signals[i], on_signal, numbers[i]);
    }
    if (watchdog_ms)
        uv_timer_start(&broker->watchdog_timer, on_watchdog, watchdog_ms, watchdog_ms);
}

static void close_handle(uv_handle_t *handle, void *unused)
{
    (void)unused;
    if (!uv_is_closing(handle))
        uv_close(handle, NULL);
}

/* Sessions and executor have ended; what is left of the loop are timers and signals. What keeps
 * this process from ending then, which may be a client, keeps no other daemon from its start. */
static void broker_fini(struct cgm_broker *broker)
{
    hold_signals(SIG_BLOCK);
    cgm_timings_close(&broker->timings);
    cgm_listener_fini(&broker->listener);
    cgm_linger_fini(broker);
    cgm_closer_fini(broker);
    uv_walk(&broker->loop, close_handle, NULL);
    uv_run(&broker->loop, UV_RUN_DEFAULT);
    uv_loop_close(&broker->loop);
    cgm_plan_free_all(broker);
    cgm_comm_free_all(broker);
    cgm_buffer_free_all(broker);
    cgm_executor_fini(broker);
    cgm_indices_fini(&broker->buffer_indices);
    cgm_indices_fini(&broker->comm_indices);
    cgm_registry_fini(&broker->sessions);
    cgm_quota_fini(broker);
    free(broker->wire);
}

int cgm_broker_init(struct cgm_broker *broker, const struct cgm_config *config,
                    const char *config_path, char *ret_detail, size_t size)
{
    memset(broker, 0, sizeof(*broker));
    broker->config = *config;
    broker->config_path = config_path;
    broker->started_ns = cgm_clock_ns();
    cgm_listener_init(&broker->listener);
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN); /* memory that a client asks for is a file, too */
    raise_limit(RLIMIT_NOFILE, FILES_ENOUGH);
    raise_limit(RLIMIT_STACK, STACK_BYTES_ENOUGH);
    if (check_stack(ret_detail, size) != CGM_OK)
        return CGM_NOT_SUPPORTED;
    cgm_quota_init(broker);
    cgm_admission_init(broker);
    if (config->test_steps[0] && cgm_step_open(config->test_steps) != CGM_OK)
        return cgm_detail(ret_detail, size, CGM_INVALID_ARGUMENT,
                          "test_steps is '%s'; it must be a file of at least %zu bytes",
                          config->test_steps, sizeof(struct cgm_step_page));
    hold_signals(SIG_BLOCK);
    int status = cgm_listener_bind(&broker->listener, config, ret_detail, size);
    if (status != CGM_OK) {
        cgm_listener_fini(&broker->listener);
        return status;
    }
    int error = uv_loop_init(&broker->loop);
    if (error) {
        cgm_listener_fini(&broker->listener);
        return cgm_detail(ret_detail, size, CGM_NO_MEMORY, "cannot make the event loop: %s",
                          uv_strerror(error));
    }
    cgm_timings_open(&broker->timings, config->state_dir);
    broker->wire = calloc(1, sizeof(*broker->wire));
    status = broker->wire ? cgm_closer_init(broker) : CGM_NO_MEMORY;
    if (status == CGM_OK && getrandom(broker->plan_key, sizeof(broker->plan_key), 0) < 0)
        status = CGM_NO_MEMORY;
    if (status == CGM_OK)
        status = cgm_indices_init(&broker->buffer_indices, CGM_JOURNAL_BUFFERS);
    if (status == CGM_OK)
        status = cgm_indices_init(&broker->comm_indices, CGM_JOURNAL_COMMS);
    if (status != CGM_OK)
        cgm_detail(ret_detail, size, status, "no memory to start");
    else
        status = cgm_executor_init(broker, ret_detail, size);
    if (status == CGM_OK) {
        start_timers_and_signals(broker);
        hold_signals(SIG_UNBLOCK);
        return CGM_OK;
    }
    broker_fini(broker);
    return status;
}

static bool is_over(const struct cgm_broker *broker)
{
    return broker->ending && broker->sessions.count == 0 && broker->closing_sessions == 0 &&
           !broker->tools && cgm_executor_has_ended(&broker->executor);
}

static void turn(struct cgm_broker *broker)
{
    if (broker->ending && cgm_executor_runs_nothing(&broker->executor))
        cgm_broker_end_sessions(broker);
    uv_run(&broker->loop, UV_RUN_ONCE);
}

int cgm_broker_run(struct cgm_broker *broker)
{
    cgm_executor_start(broker);
    for (; !is_over(broker); broker->turn++)
        turn(broker);
    broker_fini(broker);
    cgm_log_info("daemon: ended");
    return broker->failed ? CGM_INTERNAL : CGM_OK;
}
