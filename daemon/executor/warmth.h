/* A device's thread that polls for a millisecond finds the code and the data of its library gone
 * from the processor's caches: a product is enqueued in 20 to 60 us instead of 8, and the device
 * stands idle meanwhile. So as long as a job that every rank has submitted awaits its streams, the
 * threads of its devices now and then do what comes close to enqueueing it (backend.h: warm_up). */
#ifndef CGM_WARMTH_H
#define CGM_WARMTH_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "daemon/executor/task.h"

struct cgm_executor;
struct cgm_gang;

struct cgm_warmth {
    struct cgm_task task; /* the device's thread's while asked */
    struct cgm_executor *executor;
    uint32_t device;
    uint64_t next_ns; /* not before; the poller's */
    _Atomic bool asked;
};

/* One for each device of an executor whose backend is open; NULL: out of memory. */
struct cgm_warmth *cgm_warmth_new(struct cgm_executor *executor);

/* Of a gang that awaits streams, as often as it is looked at. Poller. */
void cgm_warmth_keep(const struct cgm_gang *gang, uint64_t now_ns);

#endif
