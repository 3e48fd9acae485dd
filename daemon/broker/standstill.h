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

/* With a process that owes the daemon something until a timer runs out. */
struct cgm_patience {
    uint64_t stood_ns; /* total_ns when it began, or was renewed */
    unsigned renewed;
};

void cgm_patience_begin(struct cgm_broker *broker, struct cgm_patience *patience);
/* The timer has run out. True: the daemon has stood still meanwhile, so start it again. A few times
 * at most: where others take all processors it is late always, and what does not answer must be
 * given up nevertheless. */
bool cgm_patience_is_renewed(struct cgm_broker *broker, struct cgm_patience *patience);

#endif
