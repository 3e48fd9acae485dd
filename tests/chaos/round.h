/* A round: clients are started and given orders, the script's faults happen, jobs are judged. */
#ifndef CHAOS_ROUND_H
#define CHAOS_ROUND_H

#include "tests/chaos/server.h"

#define CHAOS_ALGORITHMS 64u

struct chaos_totals {
    uint64_t rounds, clients, jobs[32], checked; /* jobs: ranks' parts, by -status */
    uint64_t plans, refused, faults[CHAOS_FAULT_KINDS], suicides, daemons;
    uint64_t by_algorithm[CHAOS_ALGORITHMS]; /* parts that were right; by number */
    double worst;
};

/* Where a round stands. */
struct chaos_round {
    struct chaos_server *server;
    struct chaos_board *board;
    struct chaos_totals *totals;
    uint32_t stage;
    uint64_t began_ns; /* the stage */
    uint32_t limit_s;  /* of one order */
    bool done[CHAOS_FAULTS];
    uint64_t ends_ns[CHAOS_FAULTS]; /* of a stop or a drain; 0: over */
    uint32_t kills_settled;         /* executors that died and were replaced */
    bool over;                      /* the daemon was killed */
    bool hung;
    bool used[CHAOS_COMMS]; /* everybody has joined */
};

/* False: a defect; everything about it was printed. */
bool chaos_round_run(struct chaos_round *round);

/* ---- faults.c: those whose time has come; begins and ends them */
bool chaos_faults_step(struct chaos_round *round);
/* Ends what still lasts: everybody runs, the daemon takes new work, an executor serves. */
bool chaos_faults_settle(struct chaos_round *round);
const char *chaos_fault_name(enum chaos_fault_kind kind);

/* ---- oracle.c: after a batch. kills: settled before it began. */
bool chaos_judge_joins(struct chaos_round *round);
bool chaos_judge_plans(struct chaos_round *round);
bool chaos_judge_batch(struct chaos_round *round, uint32_t batch, uint32_t kills);
bool chaos_judge_sync(struct chaos_round *round, bool disturbed);
bool chaos_comm_misses_peer(const struct chaos_board *board, uint32_t comm);

#endif
