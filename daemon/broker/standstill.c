#include "daemon/broker/standstill.h"

#include "daemon/broker/broker.h"
#include "daemon/broker/log.h"

#define LATE_NS 200000000ull  /* neither wait nor work: sooner no deadline is missed by it */
#define TOLD_NS 1000000000ull /* from so much on the log says it */
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

static void on_before_wait(uv_prepare_t *prepare)
{
    struct cgm_broker *broker = prepare->data;
    look(broker, cgm_clock_ns());
    int wait_ms = uv_backend_timeout(&broker->loop);
    broker->standstill.wait_ns = wait_ms < 0 ? UINT64_MAX : (uint64_t)wait_ms * NS_PER_MS;
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

bool cgm_standstill_since(struct cgm_broker *broker, uint64_t *mark_ns)
{
    uint64_t before_ns = *mark_ns;
    look(broker, cgm_clock_ns());
    *mark_ns = broker->standstill.total_ns;
    return *mark_ns != before_ns;
}
