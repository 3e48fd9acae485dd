/* One non-blocking SOCK_SEQPACKET socket in the loop: packets in, packets out. A peer that does not
 * read is queued for up to a limit and then cut off. Used for clients and for the executor. */
#ifndef CGM_CONNECTION_H
#define CGM_CONNECTION_H

#include <stdbool.h>
#include <stddef.h>
#include <uv.h>

#include "proto/packet.h"

/* Known limit: libuv ends the process when epoll refuses an fd that it has accepted when the
 * connection was opened (it tries once), and when there is no memory for its table of watched fds,
 * which grows at powers of two. */

/* The loop's one receive buffer and one send buffer: a connection itself stays small. */
struct cgm_wire {
    struct cgm_packet in;
    uint8_t out[CGM_PACKET_BYTES_MAX];
    int highest_fd; /* of a connection so far */
};

struct cgm_connection_events {
    unsigned fd_weight_bytes;  /* of a queued fd in the limit of queued bytes: fds are scarcer */
    unsigned packets_per_turn; /* read at most, so that one busy peer keeps nobody waiting */
    /* Whether its owner may have a packet handled now; else it is asked again in the loop's next
     * turn. NULL: always. */
    bool (*has_turn)(void *owner);
    /* For how long its packets must lie, in milliseconds; 0: not at all. Asked before each packet,
     * and after that time once more. A hang-up is noticed all the same. NULL: never. */
    uint64_t (*rest_ms)(void *owner);
    /* Whether so many more fds may lie unread, of_peer with them, at this peer; who has read all
     * gets one packet more. Of those in flight this process's user may have so many, and the rest
     * must be there for others. And that so many more do, or less. NULL, both: any number. */
    bool (*lets_unread)(void *owner, unsigned of_peer, unsigned n_more);
    /* Those in the queue are among them. */
    void (*count_unread)(void *owner, int n_more);
    /* A send took so much of a processor, which is long: who sends wakes all who watch the peer's
     * end. And for how long, in milliseconds, no such peer of this owner's user must be sent
     * anything; 0: not at all. NULL, both: nobody counts that. */
    void (*on_long_send)(void *owner, uint64_t ns);
    uint64_t (*sends_rest_ms)(void *owner);
    bool keeps_reserve; /* queued fds leave those that the daemon must have (quota.h) */
    /* Whether fds may come in a packet; else one that has some lies until they may. NULL: always.
     */
    bool (*lets_fds_come)(void *owner);
    /* Why the peer must not send any more, a static text; NULL: it may. Asked before each packet.
     * NULL: it always may. */
    const char *(*must_end)(void *owner);
    /* So much of a processor went into an event of the connection, or into a packet; it may be
     * closing. NULL: nobody counts it. */
    void (*on_spent)(void *owner, uint64_t ns);
    /* A packet with a right header. Fds that are not taken are closed afterwards. */
    void (*on_packet)(void *owner, struct cgm_packet *packet);
    /* A packet that is right, but for fds for which this process had no room. NULL: as garbage. */
    void (*on_cut)(void *owner, struct cgm_packet *packet);
    /* Bytes that are no packet. serial 0: the header was not readable either. */
    void (*on_garbage)(void *owner, uint32_t serial);
    /* Closes the socket, from cgm_connection_close. What is unread stays counted (unread_fds) until
     * the owner knows that it is read. */
    void (*hang_up)(void *owner, int fd);
    /* Closes fds that came and that nobody has taken; the connection may be closing. False: the
     * peer is cut off. */
    bool (*close_fds)(void *owner, const int *fds, unsigned n_fds);
    /* Closes fds of messages that were queued. */
    void (*drop_fds)(void *owner, const int *fds, unsigned n_fds);
    /* The peer hung up or was cut off; `why` is static. Close the connection here or later. */
    void (*on_end)(void *owner, const char *why);
    /* After cgm_connection_close: the loop does not know the connection any more. */
    void (*on_closed)(void *owner);
};

struct cgm_outgoing;

struct cgm_connection {
    uv_poll_t poll;
    struct cgm_wire *wire;
    const struct cgm_connection_events *events;
    void *owner;
    int fd;
    bool paused, closing;
    bool resting; /* until its packets may be handled again */
    bool served;  /* since it rested last */
    uv_timer_t rested;
    unsigned handles;    /* still being closed: poll, rested, retry */
    bool crowded;        /* what is queued must wait, and when it need not will not be announced */
    bool measured;       /* the last send seemed to take long: the next one is looked at */
    bool slow;           /* it did take long */
    uv_timer_t retry;    /* while it is */
    unsigned unread_fds; /* sent since the peer was seen to have read all */
    unsigned queued_fds;
    const char *broken; /* why it is cut off; NULL: it is not */
    struct cgm_outgoing *first, **last;
    size_t queued_bytes, queued_bytes_max;
};

/* Takes over the fd on success alone. When it fails, no event ever comes. */
int cgm_connection_open(struct cgm_connection *connection, uv_loop_t *loop, struct cgm_wire *wire,
                        int fd, size_t queued_bytes_max, const struct cgm_connection_events *events,
                        void *owner);

/* Sends or queues. The fds stay the caller's. A failure is reported by on_end, from the loop. */
void cgm_connection_send(struct cgm_connection *connection, uint16_t type, uint32_t serial,
                         const ProtobufCMessage *message, const int *fds, unsigned n_fds);

/* True when this side has ended it: the peer may live, and not know of it. */
bool cgm_connection_was_cut(const struct cgm_connection *connection);

/* Fds that were sent to the peer, and that it has not read, or that wait to be sent. */
unsigned cgm_connection_unread_fds(struct cgm_connection *connection);

/* Stops or goes on reading; a hang-up is noticed all the same. */
void cgm_connection_pause(struct cgm_connection *connection, bool paused);

/* Ends it in such a way that the peer can still read what was sent. on_closed follows. */
void cgm_connection_close(struct cgm_connection *connection);

#endif
