#include "daemon/broker/heartbeat.h"

#include <stdio.h>

#include "daemon/broker/broker.h"
#include "daemon/broker/log.h"
#include "proto/messages.h"
#include "proto/status.h"

#define PERIODS 4u /* of a ping, in executor_timeout */
#define PERIOD_MAX_MS 7500u

static void on_answer(struct cgm_broker *broker, const struct cgm_call *call,
                      const struct cgm_result *result)
{
    struct cgm_heartbeat *heartbeat = &broker->executor.heartbeat;
    (void)call;
    if (result->status == CGM_EXECUTOR_LOST)
        return;
    heartbeat->awaited = false;
    heartbeat->missed = 0;
}

static void give_up(struct cgm_broker *broker)
{
    char why[128];
    snprintf(why, sizeof(why), "process %d has not answered for %ju s (executor_timeout)",
             broker->executor.pid, (uintmax_t)broker->config.executor_timeout);
    cgm_executor_give_up(broker, why);
}

static uint64_t patience_ms(const struct cgm_broker *broker)
{
    uint64_t timeout_s = broker->config.executor_timeout;
    return timeout_s ? timeout_s * 1000 : UINT64_MAX;
}

static void on_period(uv_timer_t *timer)
{
    struct cgm_broker *broker = timer->data;
    struct cgm_heartbeat *heartbeat = &broker->executor.heartbeat;
    struct cgm_call call = {.done = on_answer};
    Cgm__Ping ping = CGM__PING__INIT;
    ping.has_log_level = 1;
    ping.log_level = (uint32_t)cgm_log_syslog_level((enum cgm_log_level)broker->config.log_level);
    cgm_left_behind_reap(&broker->executor.left);
    cgm_listener_look(&broker->listener);
    if (!heartbeat->awaited)
        heartbeat->awaited =
            cgm_call_executor(broker, CGM_MSG_PING, &ping.base, NULL, 0, &call) == CGM_OK;
    else if (++heartbeat->missed * uv_timer_get_repeat(timer) >= patience_ms(broker))
        give_up(broker);
}

void cgm_heartbeat_init(struct cgm_broker *broker)
{
    struct cgm_heartbeat *heartbeat = &broker->executor.heartbeat;
    uv_timer_init(&broker->loop, &heartbeat->timer);
    heartbeat->timer.data = broker;
}

void cgm_heartbeat_start(struct cgm_broker *broker)
{
    struct cgm_heartbeat *heartbeat = &broker->executor.heartbeat;
    uint64_t period_ms = patience_ms(broker) / PERIODS;
    heartbeat->awaited = false;
    heartbeat->missed = 0;
    if (period_ms > PERIOD_MAX_MS)
        period_ms = PERIOD_MAX_MS;
    uv_timer_start(&heartbeat->timer, on_period, period_ms, period_ms);
}

void cgm_heartbeat_stop(struct cgm_broker *broker)
{
    uv_timer_stop(&broker->executor.heartbeat.timer);
}
