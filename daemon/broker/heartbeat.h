/* Whether the executor still answers. While it serves, it gets a Ping in every quarter of
 * executor_timeout, and in 7.5 s at the latest; one that leaves a ping unanswered for the whole of
 * it is given up. Periods are counted, not time: a broker that was stopped itself finds the answers
 * before it counts on. */
#ifndef CGM_HEARTBEAT_H
#define CGM_HEARTBEAT_H

#include <stdbool.h>
#include <uv.h>

struct cgm_broker;

struct cgm_heartbeat {
    uv_timer_t timer;
    bool awaited;    /* a ping is not answered */
    unsigned missed; /* periods that ended meanwhile */
};

void cgm_heartbeat_init(struct cgm_broker *broker);

/* An executor has begun to serve; it is lost. */
void cgm_heartbeat_start(struct cgm_broker *broker);
void cgm_heartbeat_stop(struct cgm_broker *broker);

#endif
