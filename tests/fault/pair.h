/* Two ranks in this process, each with a session of its own, on a daemon of their own; they
 * multiply small integers, so that the product is exact. */
#ifndef PAIR_H
#define PAIR_H

#include <unistd.h>

#include "tests/backend.h"
#include "tests/daemon/broker_fixture.h"

#define WORLD 2u
#define M 64u
#define N 48u /* of the whole product */
#define K 32u
#define WAIT_MS (WAIT_S * 1000)

struct rank {
    commgemm_client *client;
    uint32_t rank;
    uint64_t comm;
    struct commgemm_plan plan;
    struct commgemm_buffer in, out; /* in: lhs shard, then rhs shard */
    struct buffer_view in_view, out_view;
    float *inputs, *product; /* their memory */
};

#define LHS_FLOATS (M / WORLD * K)
#define RHS_FLOATS (K * (N / WORLD))
#define OUT_FLOATS (M * (N / WORLD))

struct pair {
    struct daemon daemon;
    struct rank rank[WORLD];
};

#define AWAIT(condition)                                                                           \
    for (unsigned naps_ = 0; !(condition); usleep(10000))                                          \
    assert_true(++naps_ < WAIT_S * 100)

/* ---- one rank ----------------------------------------------------------------------------------
 */

void pair_rank_connect(struct rank *r, const struct daemon *daemon, uint32_t rank);
void pair_rank_join(struct rank *r); /* waits for the other one */
int pair_rank_try_plan(struct rank *r);
void pair_rank_plan(struct rank *r);

/* The out buffer is full with one job. */
void pair_rank_buffers(struct rank *r);
int pair_rank_submit(struct rank *r, uint64_t deadline_ms, uint64_t *ret_ticket);

/* Returns the job's own status. The detail may be NULL. */
int pair_rank_wait(struct rank *r, uint64_t ticket, char *ret_detail, size_t size);
void pair_rank_close(struct rank *r);

/* Its buffer "in" or "out", by name. */
void pair_rank_reopen(struct rank *r, const char *kind, struct commgemm_buffer *buffer);

/* ---- both --------------------------------------------------------------------------------------
 */

/* Settings may be NULL. */
void pair_daemon_start(struct daemon *daemon, const char *setting, const char *another);

/* A daemon and both ranks' sessions in one comm. */
void pair_join(struct pair *pair, const char *setting, const char *another);

/* The same, and plans and buffers. */
void pair_open(struct pair *pair, const char *setting);

pid_t pair_executor_pid(const struct daemon *daemon);
void pair_await_executor(const struct pair *pair); /* both */

/* Ends the daemon, too, unless its pid is 0. */
void pair_close(struct pair *pair);

/* One job, which succeeds. */
void pair_run_once(struct pair *pair);
void pair_check_results(struct pair *pair);
void pair_run(struct pair *pair); /* both */

#endif
