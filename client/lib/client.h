/* A session, as all parts of the library see it. */
#ifndef CGM_CLIENT_CLIENT_H
#define CGM_CLIENT_CLIENT_H

#include "client/include/commgemm.h"
#include "client/lib/cuda_imports.h"
#include "client/lib/cuda_timeline.h"
#include "client/lib/error.h"
#include "client/lib/jobs.h"
#include "client/lib/wire.h"

/* An fd that the session was given with a buffer; it may have several of one buffer. */
struct cgm_buffer_fd {
    uint64_t buffer;
    uint64_t life; /* the executor's that the memory goes with; 0: it outlives it */
    int fd;
    bool writable;
    unsigned users; /* calls that use the fd: the last one closes it when the buffer is closed */
    bool closed;    /* by then it is in no list */
    struct cgm_buffer_fd *next;
};

struct commgemm_client {
    struct cgm_wire wire;
    struct cgm_jobs jobs;
    bool no_ring;
    uint32_t ring_entries;
    uint64_t features;         /* the daemon's: proto/packet.h */
    atomic_bool forked;        /* this is a child's copy: nothing of it may be used */
    struct commgemm_info info; /* under the jobs' lock; without executor_life */
    _Atomic uint64_t executor_life;
    pthread_mutex_t submit_lock; /* no_ring: one Submit at a time, so that tickets have no gaps */
    pthread_mutex_t buffers_lock;
    struct cgm_buffer_fd *buffer_fds;
    struct cgm_staging *staging; /* client/lib/transfer.c; made when first needed */
    pthread_mutex_t staging_lock;
    struct cgm_cuda_timelines timelines;
    struct cgm_cuda_imports imports;
    int socket;                   /* the wire's; for client/lib/fork.c, as is what follows */
    struct commgemm_client *next; /* of this process */
};

/* Frees the staging memory; its import goes with the session. NULL is allowed. */
void cgm_staging_free(struct cgm_staging *staging);

/* What every call begins with: a client that this process may use. */
int cgm_check_client(const commgemm_client *client);

/* Under the jobs' lock: which executor takes the session's requests; 0: none does. */
uint64_t cgm_client_serving_life(const commgemm_client *client);

/* Under the jobs' lock: OK when one does, else as cgm_jobs_ready. */
int cgm_client_check_served(commgemm_client *client);

/* cgm_wire_call of a session; one that lets something go comes behind the jobs that may name it.
 * Not under the jobs' lock. */
int cgm_client_ask(commgemm_client *client, const struct cgm_wire_request *request,
                   struct cgm_reply *ret_reply);

/* Asks, with no more than a message. */
int cgm_client_call(commgemm_client *client, int type, const ProtobufCMessage *message,
                    int reply_type, struct cgm_reply *ret_reply);

/* A call whose reply is Ok. */
int cgm_client_tell(commgemm_client *client, int type, const ProtobufCMessage *message);

/* The same; take and its argument are as in wire.h. */
int cgm_client_tell_in_order(commgemm_client *client, int type, const ProtobufCMessage *message,
                             void (*take)(void *argument, int type, struct cgm_reply *reply),
                             void *argument);

#endif
