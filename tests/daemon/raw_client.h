/* Raw clients, which speak the protocol by hand, and the requests that many tests make. Every wait
 * is bounded. */
#ifndef CGM_RAW_CLIENT_H
#define CGM_RAW_CLIENT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <cmocka.h>

#include "proto/messages.h"
#include "proto/packet.h"
#include "proto/ring.h"
#include "proto/status.h"

struct daemon; /* broker_fixture.h */

struct message {
    struct message *next;
    uint16_t type;
    uint32_t serial;
    ProtobufCMessage *body;
    int fds[CGM_PACKET_FDS_ROOM];
    unsigned n_fds;
};

struct client {
    int fd;
    uint32_t serial;
    uint64_t session;
    struct message *events; /* that came while something else was waited for */
};

void client_connect(struct client *client, const struct daemon *daemon);
void client_open(struct client *client, const struct daemon *daemon); /* connect and Hello */
void client_close(struct client *client);

#define STRANGER 12345u      /* a user who has nothing else here */
void skip_unless_root(void); /* the test, which becomes other users */
void client_connect_as(uid_t uid, struct client *client, const struct daemon *daemon);
void client_open_as(uid_t uid, struct client *client, const struct daemon *daemon);

void message_free(struct message *message);

/* Sends a request; its serial. */
uint32_t client_send(struct client *client, int type, const ProtobufCMessage *body, const int *fds,
                     unsigned n_fds);
/* A right message with fds that do not belong to it, up to CGM_PACKET_FDS_ROOM. */
bool client_send_fds(struct client *client, const int *fds, unsigned n_fds);
/* The reply to a serial. */
struct message *client_reply(struct client *client, uint32_t serial);
/* The next event of a type. */
struct message *client_event(struct client *client, int type);
/* True when the daemon closes the connection; other messages are dropped. */
bool client_is_closed(struct client *client);

/* Sends and expects this type of reply, whose message is returned; it must be freed. */
struct message *client_call(struct client *client, int type, const ProtobufCMessage *body,
                            const int *fds, unsigned n_fds, int reply_type);
void client_ok(struct client *client, int type, const ProtobufCMessage *body);
/* Expects an error with this status, and with a detail that contains the text. */
void client_error(struct client *client, int type, const ProtobufCMessage *body, const int *fds,
                  unsigned n_fds, int status, const char *text);
void expect_error(struct message *message, int status, const char *text);

/* ---- requests that many tests make ---- */

/* That no comm and no buffer may have. */
extern const char *const bad_names[];
extern const size_t bad_names_count;

uint64_t comm_join_all(struct client *client, const char *name, uint32_t size);
uint32_t send_join(struct client *client, const char *name, uint32_t size, uint32_t rank,
                   uint32_t timeout_ms);
uint64_t buffer_create(struct client *client, const char *name, uint64_t bytes, uint32_t mode,
                       int *ret_fd);
uint64_t plan_create(struct client *client, uint64_t comm, uint64_t m);
uint32_t plan_create_send(struct client *client, uint64_t comm, uint64_t m); /* its serial */
void plan_create_error(struct client *client, uint64_t comm, uint64_t m, int status,
                       const char *detail);
/* One that a real executor makes: m, n and k are `size`. */
uint64_t ag_gemm_plan_create(struct client *client, uint64_t comm, uint64_t size);
/* The same by ring_exchange, with queues of a pair of priorities. */
uint64_t pair_plan_create(struct client *client, uint64_t comm, uint64_t size, int gemm_priority,
                          int comm_priority);
void pair_plan_create_error(struct client *client, uint64_t comm, uint64_t size, int gemm_priority,
                            int comm_priority, int status, const char *detail);
/* The message with the ring; it must be freed. */
struct message *client_ring_set_up(struct client *client, uint32_t entries);
void client_submit(struct client *client, const struct cgm_entry *entry); /* by message */
/* The JSON value of a key in the row whose match_key has this JSON value; match_key NULL: in the
 * last row. "" when there is none. */
void query_value(struct client *client, uint32_t what, const char *match_key, const char *match,
                 const char *key, char *ret_value, size_t size);
/* What a user has used of a quota; 0 also where the daemon knows no such user. */
uint64_t quota_used(struct client *client, uid_t uid, const char *quota);
uint64_t status_number(struct client *client, const char *key);
/* A number of the daemon's status, asked for by a client of its own. */
uint64_t daemon_status(const struct daemon *daemon, const char *key);
/* Waits until the status has this number. */
void wait_for_status(struct client *client, const char *key, uint64_t number);
void wait_for_more(struct client *client, const char *key, uint64_t number);
/* The life of the executor that is killed. */
uint64_t client_kill_executor(struct client *client);
/* Waits until an executor serves. */
void wait_for_executor(struct client *client);

#endif
