/* The executor process as the broker sees it: started, watched, restarted with back-off, and given
 * everything that the one before it had. */
#ifndef CGM_BROKER_EXECUTOR_H
#define CGM_BROKER_EXECUTOR_H

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#include "daemon/broker/calls.h"
#include "daemon/broker/candidates.h"
#include "daemon/broker/connection.h"
#include "daemon/broker/heartbeat.h"
#include "daemon/broker/left_behind.h"
#include "daemon/broker/replay.h"
#include "daemon/broker/standstill.h"
#include "daemon/broker/starter.h"
#include "proto/journal.h"

struct cgm_broker;

enum cgm_executor_state {
    CGM_EXECUTOR_DOWN,      /* there is no process; a timer may start one */
    CGM_EXECUTOR_STARTING,  /* ExecutorSetup is not answered */
    CGM_EXECUTOR_REPLAYING, /* it is given what its predecessor had */
    CGM_EXECUTOR_READY,
    CGM_EXECUTOR_DYING, /* given up: it is sent nothing any more; its process is not reaped */
};

struct cgm_executor {
    enum cgm_executor_state state;
    uint64_t life; /* counts the processes from 1 */
    struct cgm_starter starter;
    struct cgm_connection link;
    uid_t payer;      /* for the packet that is handled now; CGM_NOBODY (guest.h): none is known */
    bool link_open;   /* known to the loop */
    int pid;          /* 0: none, or it is reaped, or left behind */
    uv_timer_t timer; /* DOWN: restart; STARTING, REPLAYING: patience */
    uint64_t started_ns, backoff_ms;
    struct cgm_patience patience; /* with its start, then with its end */
    struct cgm_heartbeat heartbeat;
    struct cgm_calls calls;
    struct cgm_replay replay;
    struct cgm_journal *journal;
    int journal_fd;
    struct cgm_candidates candidates;
    bool settled;     /* the first one is ready, or none can be started */
    bool under_mps;   /* it was started with an MPS there */
    bool terminating; /* MPS is asked to end it */
    bool killed;      /* and runs nothing any more, whether it has ended or not */
    bool told;        /* everybody knows that it is lost */
    unsigned kills;   /* of one that is dying, for want of its end */
    struct cgm_left_behind left;
    int lost_status;    /* what its end means to sessions: EXECUTOR_LOST or GPU_LOST */
    const char *doom;   /* why it is given up when the loop comes round; NULL: it is not */
    char why[256];      /* why none is running */
    bool explained;     /* `why` is what the process itself or its start said */
    char exit_why[192]; /* how the process ended, before its last words were read; "": it did not */
    char backend[16];
    char platform[320];     /* what times depend on; "": it does not say */
    char device_names[160]; /* "4 x NVIDIA H200": equal ones are counted */
    uint32_t n_devices;
    uint32_t deaths;
};

/* Creates the journal and what starts the process. NO_MEMORY with a detail. */
int cgm_executor_init(struct cgm_broker *broker, char *ret_detail, size_t size);
void cgm_executor_start(struct cgm_broker *broker);

/* True from its hello on: calls reach it. */
bool cgm_executor_hears(const struct cgm_executor *executor);

/* True when it serves: replay is over. */
bool cgm_executor_is_ready(const struct cgm_executor *executor);

/* Why none serves; "" when one does. */
const char *cgm_executor_why_not(const struct cgm_executor *executor);

/* True when what runs, or is tried, is the CUDA executor. */
bool cgm_executor_is_cuda(const struct cgm_executor *executor);

/* Called by replay: everything is handed over. */
void cgm_executor_on_replayed(struct cgm_broker *broker);

/* A process of this one has ended: called by the loop, for every SIGCHLD. */
void cgm_executor_on_child(struct cgm_broker *broker);

/* The socket is closed: called by the loop, with the broker. */
void cgm_executor_on_link_closed(void *owner);

/* The job that has ended well, and of which it may not have told all ranks yet. False: none. */
bool cgm_executor_ending(const struct cgm_executor *executor, uint64_t *ret_comm,
                         uint64_t *ret_number);

/* True when there is no process, or none that is counted on any more. */
bool cgm_executor_is_lost(const struct cgm_executor *executor);

/* It has hung up or is about to. Must not be lost already. The process is given a while to end by
 * itself. Everybody is told as soon as it runs nothing any more: until then it may complete jobs,
 * and of one job all ranks must hear the same. */
void cgm_executor_lose(struct cgm_broker *broker, const char *why);

/* Gives up on the process: kills it, then its rings and its calls, as above. `why` goes into log
 * and status. */
void cgm_executor_give_up(struct cgm_broker *broker, const char *why);

/* Its socket has come to its end, or was cut: called by the link. Closes it. */
void cgm_executor_on_link_end(struct cgm_broker *broker, const char *why);

/* None can be started before something that is out of the daemon's hands: says so in log and
 * status, and looks again after a while. */
void cgm_executor_await(struct cgm_broker *broker, const char *what, unsigned look_again_ms);

/* What was awaited has come. */
void cgm_executor_retry(struct cgm_broker *broker);

/* The same as soon as the loop comes round, for those who are in the middle of something: it could
 * not be told of a removal, and only a new one will know what is there. `why` is static. */
void cgm_executor_doom(struct cgm_broker *broker, const char *why);

/* Asks it to finish launched jobs and end. */
void cgm_executor_shut_down(struct cgm_broker *broker);
void cgm_executor_kill(struct cgm_broker *broker);
bool cgm_executor_has_ended(const struct cgm_executor *executor);
/* True from a while before that on: no job of it writes any more. */
bool cgm_executor_runs_nothing(const struct cgm_executor *executor);
void cgm_executor_fini(struct cgm_broker *broker);

#endif
