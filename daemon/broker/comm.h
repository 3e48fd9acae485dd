/* Comms: who holds which rank. A comm lives as long as a session that created or joined it, at the
 * cost of its owner while he is in it, then of another who is; who has no room for it in his quotas
 * has to leave. It is told to the executor when every rank has joined (comm_join.h); from then on
 * it cannot get a lost rank back. */
#ifndef CGM_BROKER_COMM_H
#define CGM_BROKER_COMM_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/broker/estate.h"
#include "daemon/broker/owner.h"
#include "daemon/broker/request.h"
#include "proto/messages.h"

struct cgm_join;

enum cgm_comm_state {
    CGM_COMM_FORMING, /* ranks are missing */
    CGM_COMM_ADDING,  /* all are there; the executor has not said Ok */
    CGM_COMM_READY,
};

struct cgm_comm {
    uint64_t id;
    char name[CGM_NAME_BYTES_MAX + 1]; /* "": none */
    struct cgm_owner owner;
    struct cgm_estate *estate;
    uint32_t size;
    uint32_t index; /* in the journal */
    uint64_t pairs; /* of priorities that its estate has paid for: a bit each */
    uint64_t join_timeout_ns;
    enum cgm_comm_state state;
    bool told;        /* the executor has not answered to CommAdd */
    bool broken;      /* it can never run again, and its name is free */
    int lost_rank;    /* the first one whose session is gone; -1: none */
    uint64_t creator; /* the session of CommCreate, which holds the comm without a rank; 0: none */
    struct cgm_join *joins;
    uint32_t holders;                     /* sessions */
    uint64_t sessions[CGM_COMM_SIZE_MAX]; /* by rank; 0: nobody */
    uint32_t devices[CGM_COMM_SIZE_MAX];
    uint64_t left[CGM_COMM_SIZE_MAX]; /* by rank: who let go of it while `told`; 0: nobody */
};

/* Ranks that nobody holds, as bits. */
uint64_t cgm_comm_missing(const struct cgm_comm *comm);

bool cgm_comm_has_session(const struct cgm_comm *comm, uint64_t session);

/* Of those who hold ranks, the next one, NULL behind the last; *rank begins at 0. A session comes
 * as often as it has ranks. */
struct cgm_session *cgm_comm_next(const struct cgm_broker *broker, const struct cgm_comm *comm,
                                  uint32_t *rank);

/* It can never run again, and its name is free. */
void cgm_comm_break(struct cgm_broker *broker, struct cgm_comm *comm);

/* PEER_LOST, with a detail, when it is broken. */
int cgm_comm_check_lives(struct cgm_request *request, const struct cgm_comm *comm);

/* A broken one is not found. */
struct cgm_comm *cgm_comm_find_by_name(struct cgm_broker *broker, const char *name);

/* The job of this number has ended well, though the executor died before it could note that. */
void cgm_comm_note_ended(struct cgm_broker *broker, uint64_t id, uint64_t number);

/* name: NULL: none. The session holds it, without a rank. */
int cgm_comm_new(struct cgm_request *request, const char *name, uint32_t size, uint32_t mode,
                 struct cgm_comm **ret_comm);

/* A plan wants queues of these priorities, of which each pair costs who pays for the comm as much
 * of quota_ranks as the first one, until the comm ends. QUOTA with a detail; NO_MEMORY. */
int cgm_comm_charge_pair(struct cgm_broker *broker, struct cgm_comm *comm, int gemm_priority,
                         int comm_priority, char *ret_detail, size_t size);

/* The session holds the comm from now on, if it did not. */
int cgm_comm_hold(struct cgm_session *session, struct cgm_comm *comm);

/* It does no longer; the executor knows. May free the comm. */
void cgm_comm_drop(struct cgm_session *session, struct cgm_comm *comm);

/* Nobody made it. Who waits for that hears status and detail and does not hold it any more, but for
 * who created it, whose ranks are free. May free the comm. */
void cgm_comm_disband(struct cgm_broker *broker, struct cgm_comm *comm, int status,
                      const char *detail);

/* What the dispatch table calls. */
int cgm_comm_find_held(struct cgm_request *request);
int cgm_comm_on_create(struct cgm_request *request);
int cgm_comm_on_leave(struct cgm_request *request);

/* The session ends; the executor knows by SessionRemove. */
void cgm_comm_drop_all(struct cgm_session *session);

void cgm_comm_free_all(struct cgm_broker *broker);

#endif
