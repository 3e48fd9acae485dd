/* Buffers: names, owners, generations and the memory fds. The memory itself is the executor's while
 * it lives; the fd here is what keeps it when that one dies. */
#ifndef CGM_BROKER_BUFFER_H
#define CGM_BROKER_BUFFER_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/broker/estate.h"
#include "daemon/broker/owner.h"
#include "daemon/broker/request.h"
#include "proto/guest.h"
#include "proto/messages.h"

enum cgm_buffer_flags { CGM_BUFFER_IPC = 1u << 0 };
#define CGM_IPC_HANDLE_BYTES 64u

struct cgm_buffer_waiter;

struct cgm_buffer {
    uint64_t id;
    char name[CGM_NAME_BYTES_MAX + 1]; /* "": it goes with its last holder */
    struct cgm_owner owner;
    uint64_t bytes;            /* as asked for; what listings say and a client may map */
    struct cgm_estate *estate; /* NULL: a plan's buffer, of whose estate it is part */
    uint32_t device, flags;
    uint32_t generation;
    uint32_t index; /* in the journal */
    bool tainted;
    bool ready;    /* the executor has allocated it */
    bool made;     /* who created it has been told */
    bool opened;   /* somebody else has */
    bool left_out; /* no executor gets it any more; replay.h */
    int fd;        /* -1: IPC memory, or not ready */
    uint8_t ipc_handle[CGM_IPC_HANDLE_BYTES];
    size_t ipc_handle_bytes;
    uint64_t plan;                        /* whose user buffer it is; 0: nobody's */
    struct cgm_buffer_hold *first, *last; /* of all sessions, in the order in which they came */
    uint32_t holders;                     /* how many those are */
    struct cgm_buffer_waiter *waiters;    /* while it is made; buffer_waiters.h */
    uint32_t guest; /* the other user who might write it, and may have its fd for ever */
};

/* A session's hold on a buffer: a grant at the executor. */
struct cgm_buffer_hold {
    struct cgm_buffer *buffer;
    struct cgm_session *session;
    struct cgm_buffer_hold *next, *previous; /* of the buffer */
    uint64_t number;                         /* among all of the session's */
    uint32_t granting;                       /* creates and opens that are not answered yet */
    uint32_t opens;                          /* that are answered, and not closed */
    uint64_t first_open;                     /* the number of the oldest of them, or less */
    bool writable;
    bool by_plan; /* PlanChunk granted it: it stays as long as the session has the plan */
};

/* What the dispatch table calls. */
int cgm_buffer_find_to_open(struct cgm_request *request);
int cgm_buffer_find_held(struct cgm_request *request);
int cgm_buffer_find_owned(struct cgm_request *request);
int cgm_buffer_on_create(struct cgm_request *request);
int cgm_buffer_on_open(struct cgm_request *request);
int cgm_buffer_on_close(struct cgm_request *request);
int cgm_buffer_on_destroy(struct cgm_request *request);
int cgm_buffer_on_check(struct cgm_request *request);
int cgm_buffer_on_rewritten(struct cgm_request *request);

/* A buffer that is not ready, of no bytes yet; name: NULL, or one that no buffer has. NULL: no
 * memory, or no journal index. */
struct cgm_buffer *cgm_buffer_new(struct cgm_broker *broker, const struct cgm_owner *owner,
                                  const char *name);
struct cgm_buffer *cgm_buffer_find_name(struct cgm_broker *broker, const char *name);
/* It goes with its last holder from now on. */
void cgm_buffer_unname(struct cgm_broker *broker, struct cgm_buffer *buffer);

/* Of one without a name: at the cost of its owner while he has it open, then of another while that
 * one has. Who has no room for it in his quota loses it, and with the last one it is freed. */
void cgm_buffer_free_unused(struct cgm_broker *broker, struct cgm_buffer *buffer);

/* The hold that a grant was for, unless it has ended; NULL: it has. */
struct cgm_buffer_hold *cgm_buffer_hold_of_call(struct cgm_session *session,
                                                const struct cgm_call *call);
/* Its open is answered: it counts from now on by this number, or, 0, it was in vain, and this may
 * end the hold. */
void cgm_buffer_end_grant(struct cgm_session *session, struct cgm_buffer_hold *hold, uint64_t open);

/* Undoes every open that is answered, or one; the last one ends the hold, unless another is to be
 * answered, and may end the buffer. */
void cgm_buffer_close(struct cgm_session *session, struct cgm_buffer_hold *hold);
void cgm_buffer_close_once(struct cgm_session *session, struct cgm_buffer_hold *hold);

/* What the client gets: a read-only session gets a read-only fd; of memory that has no such thing
 * it gets none unless it might write anyway. The caller closes it. -1: none. NO_MEMORY when there
 * is one and the daemon has no room for it. */
int cgm_buffer_client_fd(const struct cgm_buffer *buffer, const struct cgm_session *session,
                         bool writable, int *ret_fd);

/* BufferAlloc, and what its answer brings. */
int cgm_buffer_tell_alloc(struct cgm_broker *broker, const struct cgm_buffer *buffer,
                          const struct cgm_call *call);
void cgm_buffer_take_memory(struct cgm_broker *broker, struct cgm_buffer *buffer,
                            const struct cgm_result *result);

/* The session ends; the executor knows by SessionRemove. */
void cgm_buffer_drop_all(struct cgm_session *session);

/* Counts the buffer for the session and asks the executor for the grant: by an open, or by its
 * plan. The call's callback follows exactly when OK is returned; else there is a sentence. An
 * open's call.other becomes the hold's number. */
int cgm_buffer_grant(struct cgm_session *session, struct cgm_buffer *buffer, bool writable,
                     bool by_plan, const struct cgm_call *call, char *ret_detail, size_t size);

/* Sends the grants of a session again; replay.c. */
int cgm_buffer_tell_grant(struct cgm_session *session, const struct cgm_buffer_hold *hold,
                          const struct cgm_call *call);

/* The user buffers of plans. bytes and fd come when the executor has made the plan. */
int cgm_buffer_new_for_plan(struct cgm_broker *broker, const struct cgm_owner *owner, uint64_t plan,
                            uint32_t device, struct cgm_buffer **ret_buffer);
/* Takes the holds of all sessions away and frees it; the executor knows by PlanRemove, and the
 * caller gives the journal index back. */
void cgm_buffer_free_of_plan(struct cgm_broker *broker, struct cgm_buffer *buffer);
/* Takes one session's hold of a plan's buffer away. */
void cgm_buffer_drop_of_plan(struct cgm_session *session, struct cgm_buffer *buffer);

/* BufferAdopt, or BufferAlloc for memory that no fd holds; its answer goes to on_adopted. */
int cgm_buffer_tell(struct cgm_broker *broker, struct cgm_buffer *buffer,
                    const struct cgm_call *call);
void cgm_buffer_on_adopted(struct cgm_broker *broker, uint64_t id, const struct cgm_result *result);

/* The executor died: taints what it was writing. */
void cgm_buffer_note_tainted(struct cgm_broker *broker);

/* Events of the executor. */
void cgm_buffer_on_restored(struct cgm_broker *broker, const ProtobufCMessage *message);
void cgm_buffer_on_tainted(struct cgm_broker *broker, const ProtobufCMessage *message);

void cgm_buffer_free_all(struct cgm_broker *broker);

/* Keeps other uids from opening a memfd for writing through /proc; then the buffer owns the fd. */
void cgm_buffer_set_fd(struct cgm_broker *broker, struct cgm_buffer *buffer, int fd);

#endif
