#include "daemon/broker/standstill.h"

#include "daemon/broker/broker.h"
#include "daemon/broker/log.h"

#define LATE_NS 200000000ull  /* neither wait nor work: sooner no deadline is missed by it */
#define TOLD_NS 1000000000ull /* from so much on the log says it */
#define RENEWALS_MAX 3u
#define NS_PER_MS 1000000ull

static void look(struct cgm_broker *broker, uint64_t now_ns)
{
    struct cgm_standstill *still = &broker->standstill;
    uint64_t spent_ns = cgm_spent_ns();
    uint64_t passed_ns = still->seen_ns ? now_ns - still->seen_ns : 0;
    uint64_t used_ns = spent_ns - still->spent_ns;
    uint64_t idle_ns = passed_ns > used_ns ? passed_ns - used_ns : 0;
    uint64_t late_ns = idle_ns > still->wait_ns ? idle_ns - still->wait_ns : 0;
    still->seen_ns = now_ns;
    still->spent_ns = spent_ns;
    still->wait_ns = 0;
    if (late_ns < LATE_NS)
        return;
    still->total_ns += passed_ns;
    if (late_ns >= TOLD_NS)
        cgm_log_info("daemon: stood still for %ju ms; deadlines are put off",
                     (uintmax_t)(late_ns / NS_PER_MS));
}

/* Until the first of the timers that are known here; UINT64_MAX: none runs. */
static uint64_t longest_wait_ms(const struct cgm_broker *broker)
{
    const uv_timer_t *timers[] = {
        &broker->join_timer,  &broker->watchdog_timer, &broker->end_timer,
        &broker->hello_timer, &broker->save_timer,     &broker->status_timer,
        &broker->ghost_timer, &broker->executor.timer, &broker->executor.heartbeat.timer};
    uint64_t least_ms = cgm_tools_due_ms(broker);
    for (size_t i = 0; i < sizeof(timers) / sizeof(timers[0]); i++) {
        bool runs = uv_is_active((const uv_handle_t *)timers[i]);
        uint64_t due_ms = runs ? uv_timer_get_due_in(timers[i]) : UINT64_MAX;
        least_ms = due_ms < least_ms ? due_ms : least_ms;
    }
    return least_ms;
}

/* With descriptors that it does not watch yet libuv says 0, and waits nevertheless. */
static uint64_t wait_ms(const struct cgm_broker *broker)
{
    int told_ms = uv_backend_timeout(&broker->loop);
    if (told_ms < 0)
        return UINT64_MAX;
    return told_ms > 0 ? (uint64_t)told_ms : longest_wait_ms(broker);
}

static void on_before_wait(uv_prepare_t *prepare)
{
    struct cgm_broker *broker = prepare->data;
    look(broker, cgm_clock_ns());
    uint64_t ms = wait_ms(broker);
    broker->standstill.wait_ns = ms == UINT64_MAX ? UINT64_MAX : ms * NS_PER_MS;
}

void cgm_standstill_init(struct cgm_broker *broker)
{
    uv_prepare_init(&broker->loop, &broker->standstill.before_wait);
    broker->standstill.before_wait.data = broker;
    uv_prepare_start(&broker->standstill.before_wait, on_before_wait);
}

uint64_t cgm_lived_ns(struct cgm_broker *broker)
{
    uint64_t now_ns = cgm_clock_ns();
    look(broker, now_ns);
    return now_ns - broker->standstill.total_ns;
}

void cgm_patience_begin(struct cgm_broker *broker, struct cgm_patience *patience)
{
    look(broker, cgm_clock_ns());
    uv_update_time(&broker->loop); /* a timer that is started now runs from now on */
    *patience = (struct cgm_patience){.stood_ns = broker->standstill.total_ns};
}

bool cgm_patience_is_renewed(struct cgm_broker *broker, struct cgm_patience *patience)
{
    look(broker, cgm_clock_ns());
    if (patience->stood_ns == broker->standstill.total_ns || patience->renewed == RENEWALS_MAX)
        return false;
    patience->stood_ns = broker->standstill.total_ns;
    patience->renewed++;
    return true;
}
