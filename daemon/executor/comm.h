/* Comms: who is in them, their queues, and where their numbers stand. Owned by the poller. */
#ifndef CGM_COMM_H
#define CGM_COMM_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "daemon/executor/backend.h"
#include "daemon/executor/losses.h"
#include "daemon/executor/queue_set.h"
#include "daemon/executor/quiet.h"
#include "daemon/executor/request.h"
#include "daemon/executor/runway.h"
#include "proto/messages.h"
#include "proto/ring.h"

#define CGM_FLIGHT_SIZES 7u /* 1, 2, 4 ... CGM_COMM_SIZE_MAX ranks */

struct cgm_comm {
    uint64_t id;
    struct cgm_poller *poller;
    uint32_t uid; /* whose */
    uint32_t size, journal;
    uint64_t sessions[CGM_COMM_SIZE_MAX]; /* by rank */
    uint32_t devices[CGM_COMM_SIZE_MAX];
    struct cgm_queue_set *sets;                       /* by next; the mapper's */
    struct cgm_queue_set *current[CGM_COMM_SIZE_MAX]; /* of each rank's last launch; NULL: none */
    /* The mapper's: made by the first plan that wants it. */
    struct cgm_group *group;
    bool group_tried;
    char group_text[96]; /* the library, or why there is none */
    uint64_t join_timeout_ms;
    uint64_t last_number[CGM_COMM_SIZE_MAX]; /* of each rank; 0: none yet of this executor */
    uint64_t retired;  /* every number up to it has ended and every rank has come */
    uint64_t launched; /* every number up to it was launched or has ended; never below retired */
    int dead_status;   /* not OK: every submission fails with it, and every number not launched */
    char dead_detail[CGM_CQE_DETAIL];
    bool devices_shared;
    struct cgm_gang **window;    /* [CGM_COMM_WINDOW]: gangs above `retired`, by number */
    struct cgm_tomb *tombs;      /* as many, once there are any (window.h) */
    uint32_t n_burnt;            /* gangs that have ended, and that some rank has not come for */
    struct cgm_gang *gangs;      /* gang_list.h */
    uint64_t lost_ranks;         /* a bit each: what they submitted alone fails with that, too */
    struct cgm_loss loss;        /* of those that are to fail; listed: the comm is referenced */
    struct cgm_gang *failing;    /* the next of `gangs` that it looks at */
    struct cgm_gang *free_gangs; /* by next_free */
    uint32_t n_free_gangs;
    struct cgm_flight *free_flights[CGM_FLIGHT_SIZES]; /* flight.c */
    uint32_t n_free_flights[CGM_FLIGHT_SIZES];
    uint32_t n_flights; /* taken */
    struct cgm_runway runway;
    uint32_t users; /* plans until nothing of them is left, and unfinished gangs */
    struct cgm_request *removal;
    _Atomic bool removed;     /* nobody wants its plans any more; for the mapper */
    struct cgm_quiet parting; /* frees the group */
};

/* Of each kind and size a comm keeps so many for its next jobs, whatever was in flight at once
 * before: what it keeps counts in no quota. */
#define CGM_COMM_KEPT 16u

/* It is no use any more, though no rank is lost: all that needs every rank fails with PEER_LOST. */
void cgm_comm_give_up(struct cgm_comm *comm, const char *detail);

/* The broker's requests; on the poller. */
void cgm_comm_on_add(struct cgm_request *request);
void cgm_comm_on_remove(struct cgm_request *request);
void cgm_comm_on_rank_left(struct cgm_request *request);

void cgm_comm_ref(struct cgm_comm *comm);
void cgm_comm_unref(struct cgm_comm *comm);

/* A session is gone: its ranks are dead, and what is not launched fails on all ranks. */
void cgm_comm_session_lost(struct cgm_comm *comm, uint64_t session);

#endif
