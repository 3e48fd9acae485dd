/* The session's socket: requests with their replies, and the one thread that reads it.
 *
 * Any thread may call; the watcher hands every reply to the caller that waits for its serial, and
 * every event to the handler. When the daemon hangs up, or breaks the protocol, each waiting call
 * ends with DAEMON_LOST and on_lost runs once. */
#ifndef CGM_CLIENT_WIRE_H
#define CGM_CLIENT_WIRE_H

#include <pthread.h>
#include <stdbool.h>

#include "proto/messages.h"
#include "proto/packet.h"

#define CGM_REPLY_FDS_MAX 3

/* What came back. The receiver owns message and fds: cgm_reply_fini. */
struct cgm_reply {
    int status;                 /* why there is no message */
    ProtobufCMessage *message;  /* NULL: it is malformed, or there was no memory for it */
    bool cut;                   /* it came with fds for which this process had no room */
    int fds[CGM_REPLY_FDS_MAX]; /* -1: none */
};
void cgm_reply_fini(struct cgm_reply *reply);
/* Says of a reply that was cut what is missing, and returns NO_MEMORY. type: of the request. */
int cgm_fail_cut(int type);
int cgm_reply_take_fd(struct cgm_reply *reply, unsigned i);
/* Of a request to let go of something: the daemon has done so, or does not have it. */
bool cgm_reply_says_gone(int type, const struct cgm_reply *reply);

/* They run on the watcher. The event stays the watcher's; fds may be taken out of it. After an
 * event that could not be taken in the session cannot go on: the watcher hangs up. */
struct cgm_wire_handler {
    int (*on_event)(void *owner, int type, struct cgm_reply *event);
    void (*on_error)(void *owner, int status); /* the daemon refuses a request */
    void (*on_lost)(void *owner);
};

struct cgm_wire {
    int socket;
    pthread_t watcher;
    struct cgm_packet *packet; /* the watcher's */
    const struct cgm_wire_handler *handler;
    void *owner;

    pthread_mutex_t lock;   /* guards what follows; never held while the handler runs */
    struct cgm_call *calls; /* sent or being sent, not answered */
    uint32_t last_serial;
    bool lost;
    int farewell; /* status of the Error event with which the daemon hung up; OK: there was none */
    char farewell_detail[256];
};

/* The socket stays the caller's, until after the close. Starts the watcher. */
int cgm_wire_open(struct cgm_wire *wire, int socket, const struct cgm_wire_handler *handler,
                  void *owner);

/* What a caller asks. take runs on the watcher as soon as the reply is there, whatever it says, and
 * before anything that the daemon said after it: for what must happen in the daemon's order. It may
 * take the reply's fds out. NULL: nothing must. */
struct cgm_wire_request {
    int type;
    const ProtobufCMessage *message;
    const int *fds; /* stay the caller's */
    unsigned n_fds;
    int reply_type;
    void (*take)(void *argument, int type, struct cgm_reply *reply);
    void *argument;
};

/* Hangs up, waits for the watcher's end and frees. No call may be under way. */
void cgm_wire_close(struct cgm_wire *wire);

/* Why the daemon hung up, when it said so before: its status and, copied, its detail. OK: it did
 * not. */
int cgm_wire_farewell(struct cgm_wire *wire, char *ret_detail, size_t size);

/* Sends a request and waits for its reply. An Error becomes its status and detail, a reply of
 * another type BAD_MESSAGE. ret_reply NULL: the reply says nothing. */
int cgm_wire_call(struct cgm_wire *wire, const struct cgm_wire_request *request,
                  struct cgm_reply *ret_reply);

#endif
