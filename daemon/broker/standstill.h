/* Times in which the daemon stood still: it was stopped, as a process or with its container, or got
 * no processor. What clients and the executor owed it then lies unread, or they stood still with
 * it: their deadlines are put off. */
#ifndef CGM_STANDSTILL_H
#define CGM_STANDSTILL_H

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

struct cgm_broker;

struct cgm_standstill {
    uv_prepare_t before_wait;
    uint64_t seen_ns, spent_ns; /* when it did not stand still last, on both clocks; 0: never */
    uint64_t wait_ns;           /* that the loop means to wait from then on */
    uint64_t total_ns;
};

/* The loop says how long it means to wait. */
void cgm_standstill_init(struct cgm_broker *broker);

/* CLOCK_MONOTONIC, less all these times: what deadlines are told by. Where the loop was late, the
 * whole of its wait is one of them, as nobody knows when it began. */
uint64_t cgm_lived_ns(struct cgm_broker *broker);

/* Whether there was one since the last call with this mark, which holds total_ns of then. */
bool cgm_standstill_since(struct cgm_broker *broker, uint64_t *mark_ns);

#endif
