/* What a round of chaos is: the script, made from a seed before anything starts, and the board, in
 * memory that the coordinator shares with its clients.
 *
 * The coordinator forks the clients and gives them one order after another (connect, join, plan,
 * run a batch of jobs, recover, leave); while they carry one out it does to clients, executor and
 * daemon what the script says. Afterwards it judges every job: which statuses its causes allow. */
#ifndef CHAOS_H
#define CHAOS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "client/bench/options.h"
#include "commgemm.h"

#define CHAOS_CLIENTS 16u
#define CHAOS_COMMS 4u
#define CHAOS_WORLD 8u
#define CHAOS_PLANS 3u   /* of a comm */
#define CHAOS_BATCHES 4u /* the last one of a round is the calm one */
#define CHAOS_JOBS 6u    /* of a batch */
#define CHAOS_FAULTS 5u
#define CHAOS_KEPT 6u /* named buffers that outlive rounds */
#define CHAOS_KEPT_BYTES 20000u
#define CHAOS_ARENAS 3u
#define CHAOS_ARENA_BYTES (4u << 20)
#define CHAOS_NOBODY UINT32_MAX
#define CHAOS_TEXT 1024u

/* ---- the script -------------------------------------------------------------------------------
 */

enum chaos_fault_kind {
    CHAOS_KILL_CLIENT,
    CHAOS_STOP_CLIENT,
    CHAOS_KICK_CLIENT, /* commgemmctl kill */
    CHAOS_KILL_EXECUTOR,
    CHAOS_STOP_EXECUTOR,
    CHAOS_KILL_DAEMON,
    CHAOS_STOP_DAEMON,
    CHAOS_DRAIN,
    CHAOS_FAULT_KINDS
};

struct chaos_fault {
    enum chaos_fault_kind kind;
    uint32_t stage;    /* enum chaos_verb and batch, as chaos_stage() numbers them */
    uint32_t delay_us; /* after the stage's order */
    uint32_t lasts_us; /* of a stop and of a drain */
    uint32_t client;
};

struct chaos_job {
    uint32_t comm, plan;
    uint64_t rows;
    bool collective;
    bool in_place; /* lhs is copied into the plan's buffer first, and taken from there */
    bool accumulate, phases, wide;
    uint64_t seed;
    uint32_t deadline_ms;                     /* 0: none that could pass */
    uint32_t canceller, mismatcher, offender; /* ranks, or CHAOS_NOBODY */
    uint32_t late_rank, late_us;
};

struct chaos_comm {
    uint32_t world, n_plans;
    uint32_t client[CHAOS_WORLD]; /* by rank */
    uint32_t join_ms;
    struct cgm_bench_options plan[CHAOS_PLANS];
    bool collective[CHAOS_PLANS];
    bool shaped[CHAOS_PLANS]; /* there are shapes for its operation here */
};

enum chaos_arena_kind {
    CHAOS_ARENA_BUFFER,
    CHAOS_ARENA_NAMED,
    CHAOS_ARENA_IMPORT,
    CHAOS_ARENA_REMOTE, /* a buffer that is read and written with the daemon's help */
    CHAOS_ARENA_KINDS
};

struct chaos_client_script {
    uint32_t ring_entries, n_arenas;
    bool no_ring;
    bool streams; /* its jobs are in the order of streams, one for each rank */
    uint64_t spin_ns;
    enum chaos_arena_kind arena[CHAOS_ARENAS];
    uint32_t die_at;   /* kills itself at this point of its life; 0: does not */
    uint32_t leave_at; /* leaves comm 0 before this batch; 0: does not */
};

struct chaos_script {
    uint64_t seed, round;
    uint32_t n_clients, n_comms, n_batches, n_faults;
    uint32_t n_jobs[CHAOS_BATCHES];
    struct chaos_job job[CHAOS_BATCHES][CHAOS_JOBS];
    struct chaos_comm comm[CHAOS_COMMS];
    struct chaos_client_script client[CHAOS_CLIENTS];
    struct chaos_fault fault[CHAOS_FAULTS];
};

/* Everything of the round is decided here. `hang`: launched jobs may take longer than they may.
 * `impatient`: so may streams. */
void chaos_script_make(uint64_t seed, uint64_t round, uint32_t max_clients, bool hang,
                       bool impatient, struct chaos_script *ret_script);

/* One line about a job, for whoever looks into what went wrong. */
void chaos_job_text(const struct chaos_script *script, const struct chaos_job *job, char *ret_text,
                    size_t size);

/* ---- the board --------------------------------------------------------------------------------
 */

enum chaos_verb {
    CHAOS_CONNECT,
    CHAOS_JOIN,
    CHAOS_PLAN,
    CHAOS_BATCH, /* argument: which */
    CHAOS_RECOVER,
    CHAOS_LEAVE,
};

static inline uint32_t chaos_stage(enum chaos_verb verb, uint32_t argument)
{
    return (uint32_t)verb + (verb == CHAOS_BATCH ? argument : 0);
}

#define CHAOS_UNKNOWN INT32_MIN /* the client did not live to see the job's end */

struct chaos_result {
    _Atomic int32_t status;
    char detail[192];
};

struct chaos_client {
    pid_t pid;
    _Atomic uint32_t arrived; /* the last order that it carried out */
    _Atomic uint64_t session;
    _Atomic bool lost;   /* will die or leave comms, or was told to: set before it happens */
    _Atomic bool left0;  /* of which only comm 0 knows */
    _Atomic bool kicked; /* its session was ended; set before */
    _Atomic bool gone;   /* it noticed that its session ended, and exited */
    _Atomic uint32_t point;
    _Atomic uint64_t step_ns; /* when it began what `step` says */
    char step[128];
    _Atomic bool failed;
    char failure[CHAOS_TEXT];
    bool joined[CHAOS_COMMS];
    uint64_t comm[CHAOS_COMMS];
    int plan_status[CHAOS_COMMS][CHAOS_PLANS];
    int plan_algorithm[CHAOS_COMMS][CHAOS_PLANS];
    _Atomic int32_t synced[CHAOS_COMMS];
    uint64_t checked; /* elements of results */
    double worst;     /* distance of one, in bounds */
};

struct chaos_kept {
    _Atomic uint32_t begun, ended; /* versions that were written; contents follow from it */
};

struct chaos_board {
    struct chaos_script script;
    char socket[96];
    bool hang;
    bool impatient;         /* ready_timeout is shorter than a stream may be late */
    _Atomic uint32_t order; /* counts; with verb and argument written before */
    uint32_t verb, argument;
    _Atomic uint32_t kills; /* of the executor; counted before it is killed */
    uint32_t settled; /* of them, those that were replaced before the order; written with it */
    bool usable[CHAOS_COMMS][CHAOS_PLANS]; /* every client has the plan; before the first batch */
    _Atomic bool daemon_killed, drained;
    _Atomic uint64_t high[CHAOS_COMMS]; /* the highest number that a rank's job has ended with */
    struct chaos_client client[CHAOS_CLIENTS];
    struct chaos_result result[CHAOS_BATCHES][CHAOS_JOBS][CHAOS_WORLD];
    struct chaos_kept kept[CHAOS_KEPT];
};

static inline bool chaos_has_rank(const struct chaos_script *script, uint32_t comm, uint32_t client)
{
    for (uint32_t rank = 0; rank < script->comm[comm].world; rank++)
        if (script->comm[comm].client[rank] == client)
            return true;
    return false;
}

/* The byte at an offset of a kept buffer in its n-th version. */
static inline unsigned char chaos_kept_byte(uint32_t buffer, uint32_t version, uint32_t offset)
{
    uint64_t x = ((uint64_t)buffer << 52 | (uint64_t)version << 32 | offset) * 0x9e3779b97f4a7c15u;
    return (unsigned char)(version == 0 ? 0 : x >> 56);
}

uint64_t chaos_now_ns(void);
void chaos_sleep_us(uint64_t us);

/* ---- its parts --------------------------------------------------------------------------------
 */

/* A client's life; never returns. */
void chaos_client_main(struct chaos_board *board, uint32_t client) __attribute__((noreturn));

#endif
