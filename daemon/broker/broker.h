/* The broker: one loop, one thread, every object of the daemon. It never touches a device.
 *
 * Objects refer to each other by id wherever an answer of the executor lies in between: a callback
 * looks its objects up again and finds them gone when their session has died. */
#ifndef CGM_BROKER_H
#define CGM_BROKER_H

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#include "daemon/broker/closer.h"
#include "daemon/broker/config.h"
#include "daemon/broker/connection.h"
#include "daemon/broker/executor.h"
#include "daemon/broker/indices.h"
#include "daemon/broker/linger.h"
#include "daemon/broker/listener.h"
#include "daemon/broker/names.h"
#include "daemon/broker/registry.h"
#include "daemon/broker/standstill.h"
#include "daemon/broker/timings.h"
#include "daemon/broker/tool.h"

enum cgm_broker_signal { CGM_ON_TERM, CGM_ON_INT, CGM_ON_HUP, CGM_ON_CHILD, CGM_SIGNAL_COUNT };

struct cgm_broker {
    uv_loop_t loop;
    struct cgm_config config;
    const char *config_path; /* reread at SIGHUP; NULL: none */
    struct cgm_listener listener;
    struct cgm_wire *wire;
    struct cgm_executor executor;
    struct cgm_closer closer;
    struct cgm_linger linger;

    struct cgm_registry sessions, comms, buffers, imports, plans;
    struct cgm_names buffer_names, comm_names; /* of comms that are not broken */
    struct cgm_registry users;                 /* quota.h; by uid + 1 */
    unsigned users_with_jobs;                  /* quota.h */
    unsigned unread_fds;                       /* of all users; quota.h */
    uint64_t fds_of_all;                       /* quota.h */
    uint64_t mappings_max;                     /* of a process; quota.h */
    uint64_t import_bytes_max;                 /* of a user */
    uid_t anybody; /* the uid that all have whom this process cannot tell apart, as they are
                      of another user namespace; -1: it can tell all */
    uint64_t turn; /* of the loop; counts up */
    /* Estates of what went while the executor was making it, by id. */
    struct cgm_registry orphan_comms, orphan_imports;
    uint64_t last_session, last_comm;
    uint64_t drained_after; /* while it drains, the last session that goes on */
    uint64_t last_object;   /* buffers, imports and user buffers of plans share one counter */
    uint64_t plan_key[2];   /* secret; of the hash that plans are known by */
    struct cgm_indices buffer_indices, comm_indices; /* of the journal */

    uv_timer_t join_timer, watchdog_timer, end_timer;
    uv_timer_t hello_timer; /* admission.h */
    uv_timer_t save_timer;  /* of timings */
    uv_timer_t ghost_timer; /* ghost.h */
    uv_timer_t status_timer;
    struct cgm_timings timings;
    struct cgm_standstill standstill;
    uv_signal_t signals[CGM_SIGNAL_COUNT];
    uint64_t started_ns;
    uint32_t closing_sessions; /* ended, but their sockets are still known to the loop */
    struct cgm_tool *tools;    /* running; linked by next */
    bool draining, ending;
    bool failed; /* ends with an error */
};

/* Everything but the loop's start. Status with a detail; on failure nothing is left. */
int cgm_broker_init(struct cgm_broker *broker, const struct cgm_config *config,
                    const char *config_path, char *ret_detail, size_t size);

/* Serves until a signal ends it, then frees everything. OK or INTERNAL. */
int cgm_broker_run(struct cgm_broker *broker);

/* The executor runs, or is known not to: clients may come in. */
void cgm_broker_on_settled(struct cgm_broker *broker);

/* Begins the orderly end. Sessions end when the executor runs nothing any more: until then their
 * launched jobs go on and are told, and all that they ask for is refused. */
void cgm_broker_end(struct cgm_broker *broker);
void cgm_broker_end_sessions(struct cgm_broker *broker);

/* STATUS= for systemd, soon: what changes within a second is told together. */
void cgm_broker_tell_status(struct cgm_broker *broker);

uint64_t cgm_clock_ns(void); /* CLOCK_MONOTONIC */
uint64_t cgm_spent_ns(void); /* processor time of the calling thread */

#endif
