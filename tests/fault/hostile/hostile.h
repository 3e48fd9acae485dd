/* A client that breaks every rule that it can think of. Its attacks are rounds of a table; each
 * connects as it likes, does its worst, and leaves without a word. It survives whatever the daemon
 * does about it, and says nothing about what is right: that is for those who watch. */
#ifndef HOSTILE_H
#define HOSTILE_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/messages.h"
#include "proto/packet.h"
#include "proto/ring.h"

#define IDS_MAX 256u

/* What it has to do with the daemon. */
struct hostile {
    const char *socket;
    bool operator; /* of the daemon's own user or root: what those may do is no attack */
    uint64_t rounds, packets, replies, errors, cuts;
    uint64_t ids[IDS_MAX]; /* numbers that replies had in them, the newest ones */
    unsigned n_ids;
};

struct attack {
    const char *name, *help;
    void (*round)(struct hostile *hostile);
};

/* ---- chance ---- */
uint64_t chance(uint64_t below);              /* 0 to below - 1 */
uint64_t odd_number(struct hostile *hostile); /* limits, neighbours of limits, ids, noise */

/* ---- one connection; fd -1: none ---- */
struct line {
    int fd;
    uint32_t serial;
};
bool line_connect(struct hostile *hostile, struct line *ret_line);
bool line_hello(struct hostile *hostile, struct line *line);
bool line_open(struct hostile *hostile, struct line *ret_line); /* both */
void line_close(struct line *line);
/* False: cut off. What finds no room is left out. */
bool line_send(struct hostile *hostile, struct line *line, int type,
               const ProtobufCMessage *message, const int *fds, unsigned n_fds);
bool line_send_bytes(struct hostile *hostile, struct line *line, const uint8_t *bytes, size_t size);
/* Reads what is there and keeps the ids; the fds of the last packet that had any are the caller's
 * when ret_fds is not NULL. False: cut off. */
bool line_drain(struct hostile *hostile, struct line *line, int *ret_fds, unsigned *ret_n_fds);
/* Waits for the reply to the last message, at most a second; the message is the caller's. */
ProtobufCMessage *line_reply(struct hostile *hostile, struct line *line, int type, int *ret_fds,
                             unsigned *ret_n_fds);

/* ---- what it sends ---- */
/* A message of valid structure with odd values; of static memory, until the next call. */
ProtobufCMessage *odd_message(struct hostile *hostile, int type);
/* A file descriptor of a wrong kind; the caller's. */
int odd_fd(void);
int sealed_memfd(uint64_t bytes);

/* ---- the attacks ---- */
void attack_messages(struct hostile *hostile);
void attack_packets(struct hostile *hostile);
void attack_fds(struct hostile *hostile);
void attack_flood(struct hostile *hostile);
void attack_half_open(struct hostile *hostile);
void attack_deaf(struct hostile *hostile);
void attack_questions(struct hostile *hostile);
void attack_rings(struct hostile *hostile);
void attack_scribble(struct hostile *hostile);
void attack_entries(struct hostile *hostile);
void attack_feed(struct hostile *hostile);
void attack_listings(struct hostile *hostile);
void attack_comms(struct hostile *hostile);
void attack_buffers(struct hostile *hostile);
void attack_plans(struct hostile *hostile);
void attack_imports(struct hostile *hostile);

#endif
