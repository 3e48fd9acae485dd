/* One client process: a session, its ranks of several comms, and what it does with them. */
#ifndef CHAOS_CLIENT_H
#define CHAOS_CLIENT_H

#include "kernels/random.h"
#include "tests/chaos/arena.h"
#include "tests/chaos/chaos.h"

struct client {
    struct chaos_board *board;
    const struct chaos_script *script;
    const struct chaos_client_script *part;
    struct chaos_client *self; /* on the board */
    uint32_t number;
    struct cgm_random random;
    commgemm_client *session;
    struct commgemm_plan plan[CHAOS_COMMS][CHAOS_PLANS];
    bool left[CHAOS_COMMS];
    uint32_t n_arenas;
    struct chaos_arena arena[CHAOS_ARENAS];
    void *stream[CHAOS_COMMS][CHAOS_WORLD];
};

/* Something is not as it must be: the run is over. */
void client_fail(struct client *c, const char *format, ...)
    __attribute__((format(printf, 2, 3), noreturn));

/* The memory of a session goes with it: what an arena says is no evidence once an operator may have
 * ended the session. Returns when nobody did; else the client's life is over. */
void client_trust_memory(struct client *c);

/* A point of its life, at which it may die. */
void client_point(struct client *c, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* After a call that must succeed sooner or later: whether to make it again. The status must be one
 * that what was done to executor, daemon and this session allows; else the run is over. Ends the
 * process when its session has ended. */
bool client_again(struct client *c, const char *call, int status);

bool client_executor_is_lost(int status);

/* Whether an executor that is lost has a cause. */
bool client_may_lose_executor(const struct client *c);

/* Whether another of the comm's clients is lost, or will be. */
bool client_misses_peer(const struct client *c, uint32_t comm);

/* ---- streams.c: of a driver without a device */

/* Before the session is opened. */
void client_streams_init(struct client *c);
/* commgemm_submit_on_stream; the stream comes to the job late_us later. */
int client_stream_submit(struct client *c, uint32_t comm, const struct commgemm_job *job,
                         uint32_t late_us, uint64_t *ret_ticket);
/* Every stream has gone on: nothing waits in it any more. */
void client_streams_await(struct client *c);

/* ---- batch.c: lays a batch of jobs out, submits and awaits them, checks everything */
void client_batch(struct client *c, uint32_t batch);

/* ---- recover.c: after the executor's death */
void client_recover(struct client *c);

#endif
