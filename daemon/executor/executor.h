/* The process that does all device work. Its parts:
 *
 *   control thread   reads the broker's requests, hands each to the poller
 *   poller           owns sessions, comms, plans, memory objects and jobs (poller.h)
 *   mapper           opens, maps and frees memory, builds comms and plans: whatever may block. Its
 *                    users take turns (turns.h)
 *   sweeper          has what clients have, too, freed in a thread of each user: rings, memory.
 *                    It calls nothing of theirs itself (sweeps.h)
 *   device threads   one a device, enqueue the operations of launched jobs: in the poller's order,
 *                    or each user's in it, a rank of one user's after a rank of the next one's
 *   queues           the backend's own */
#ifndef CGM_EXECUTOR_H
#define CGM_EXECUTOR_H

#include <pthread.h>
#include <stdint.h>

#include "daemon/executor/backend.h"
#include "daemon/executor/poller.h"
#include "daemon/executor/reclaim.h"
#include "daemon/executor/sweeps.h"
#include "daemon/executor/task.h"
#include "daemon/executor/turns.h"
#include "daemon/executor/wishes.h"
#include "proto/journal.h"
#include "proto/messages.h"
#include "proto/packet.h"

struct cgm_copier;
struct cgm_warmth;
struct cgm_transfer;

struct cgm_limits {
    uint64_t spin_ns, join_timeout_ns, ready_timeout_ns, job_timeout_ns; /* 0: no limit */
    uint64_t import_idle_ns;                                             /* 0: imports stay open */
    uint64_t tune_ns; /* of one plan; 0: algorithms are not timed */
    /* From which launch with the same operands on it is enqueued from a recording; 0: never. */
    uint64_t graphs_from;
};

struct cgm_executor {
    const struct cgm_backend_ops *ops;
    struct cgm_backend *backend;
    int link; /* to the broker; any thread sends, the control thread receives */
    uint64_t life;
    struct cgm_journal *journal;
    struct cgm_limits limits;
    uint32_t n_devices;
    struct cgm_device_info *info; /* [n_devices], as they were at the start */
    struct cgm_worker *devices;   /* [n_devices] */
    struct cgm_turns *launches;   /* [n_devices]: parts of launches, where users may take turns */
    struct cgm_warmth *warmth;    /* [n_devices] */
    struct cgm_worker mapper;
    struct cgm_worker sweeper; /* hands to the sweeps what they free */
    struct cgm_turns steps;    /* the mapper's: what users ask for, */
    struct cgm_turns slices;   /* ... and those parts of it that take long */
    struct cgm_sweeps sweeps;  /* of rings, and of memory where the backend lets them */
    struct cgm_wishes wishes;
    struct cgm_reclaims reclaims;
    struct cgm_transfer *idle_transfers; /* transfer.c; the poller's */
    struct cgm_copier *copiers;          /* likewise */
    struct cgm_poller poller;
};

/* Serves the broker at the other end of `link` until it hangs up. Returns the exit status. */
int cgm_executor_serve(const struct cgm_backend_ops *ops, int link);

/* Ends this process; the broker is told why, and ends a stuck one itself. Any thread. */
_Noreturn void cgm_executor_end(struct cgm_executor *executor, enum cgm_trouble trouble,
                                const char *why);

/* Lines above this level are left out from now on. Any thread. */
void cgm_executor_set_log_level(int level);

/* One line on stderr, which the broker's log takes over. level as syslog's: 3 error to 7 debug. */
void cgm_executor_log(int level, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* What a device has left, and where another limit than its own decides that, which one. */
#define CGM_EXECUTOR_ROOM 256u
void cgm_executor_describe_room(const struct cgm_executor *executor, uint32_t device,
                                char ret_text[CGM_EXECUTOR_ROOM]);

/* CLOCK_MONOTONIC. */
uint64_t cgm_now_ns(void);

#endif
