/* A session: one client connection, the unit of trust, quota and death. */
#ifndef CGM_SESSION_H
#define CGM_SESSION_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "daemon/broker/connection.h"
#include "daemon/broker/estate.h"
#include "daemon/broker/registry.h"
#include "daemon/broker/request.h"
#include "proto/messages.h"
#include "proto/ring.h"

/* The broker's part of a ring: a mapping, to be able to end its jobs when the executor dies, and
 * the fd that tells whether the client has joined. The other fds are only there until the executor
 * has taken its ends and the client gets its own. */
struct cgm_session_ring {
    uint32_t entries; /* what the client asked for; 0: nothing */
    struct cgm_ring map;
    uint64_t life;   /* of the executor that it belongs to */
    uint32_t serial; /* of the RingSetup that waits for it; 0: none, the client gets an event */
    int ring_fd, wake_fd, notify_fd;
};

struct cgm_session {
    uint64_t id;
    struct cgm_broker *broker;
    struct cgm_connection connection;
    pid_t pid;
    uid_t uid;
    gid_t gid;
    char name[CGM_NAME_BYTES_MAX + 1];
    struct cgm_charge charge; /* of the connection */
    struct cgm_estate *jobs;  /* room for its jobs at the executor; NULL: none yet */
    uint64_t connected_ns;    /* of cgm_lived_ns */
    bool greeted;             /* Hello was answered */
    bool added;               /* every executor is told of it */
    uint32_t calls;           /* of its requests, at the executor */
    unsigned fds_to_come;     /* with the answers to those */
    struct cgm_session_ring ring;
    /* id -> object, for each that it holds */
    struct cgm_registry comms;   /* struct cgm_comm */
    struct cgm_registry buffers; /* struct cgm_buffer_hold */
    uint64_t last_open;          /* numbers those and the opens that they count */
    struct cgm_registry plans;   /* struct cgm_plan_hold */
    struct cgm_registry imports; /* struct cgm_import */
    uint64_t held_bytes;         /* of the last two */
};

/* A client has connected; takes over the fd. False: it is refused. */
bool cgm_session_accept(void *broker, int fd);

/* Ends it: everything that the session held goes back. `why` is for the log. */
void cgm_session_end(struct cgm_session *session, const char *why);

/* Sends Error as an event, then ends it. */
void cgm_session_refuse(struct cgm_session *session, uint32_t serial, int status,
                        const char *detail);

/* Tells the executor of the session, once, before its id is used there. NO_EXECUTOR, NO_MEMORY,
 * QUOTA with a detail. */
int cgm_session_ensure_added(struct cgm_session *session, char *ret_detail, size_t size);

/* Room for its jobs, ring or not: once, whoever asks first. */
int cgm_session_charge_jobs(struct cgm_session *session, uint64_t jobs, uint64_t fds,
                            char *ret_detail, size_t size);
void cgm_session_give_jobs(struct cgm_session *session);
/* The same when the executor that had or may have the session has it no more: asks for that. */
void cgm_session_settle_jobs(struct cgm_session *session);

/* A session with too many requests at the executor is not read until there are fewer. fds: so many
 * come with their answers. No session of this id: nothing happens. */
void cgm_session_count_call(struct cgm_broker *broker, uint64_t session, int change, int fds);

/* It has to read fds before it is heard: there must be room for those that its requests may bring,
 * since what cannot be sent waits in this process. */
bool cgm_session_owes_reading(struct cgm_session *session);

/* The ring, once the client has joined and it may be looked at; else NULL. */
const struct cgm_ring *cgm_session_ring(const struct cgm_session *session);

/* The executor is gone: ends every job of the ring, and the ring. */
void cgm_session_kill_ring(struct cgm_session *session, int status);

/* SessionAdd of a session that the executors know, with a new ring if it has one. The caller's call
 * is made; on its success cgm_session_send_ring may follow. */
int cgm_session_readd(struct cgm_session *session, const struct cgm_call *call);

/* Gives the client its ends of a ring that the executor serves, unless it has them. */
void cgm_session_send_ring(struct cgm_session *session);

/* Handlers. */
int cgm_session_on_hello(struct cgm_request *request);
int cgm_session_on_ring_setup(struct cgm_request *request);
int cgm_session_on_submit(struct cgm_request *request);
int cgm_session_on_cancel(struct cgm_request *request);
int cgm_session_on_copy(struct cgm_request *request);

/* Events of the executor. */
void cgm_session_on_completion(struct cgm_broker *broker, const ProtobufCMessage *message);
void cgm_session_on_bad(struct cgm_broker *broker, const ProtobufCMessage *message);

#endif
