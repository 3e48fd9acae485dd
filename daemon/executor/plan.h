/* A plan: what was asked for, the algorithm that was chosen, and what it needs on every rank. Made
 * and freed by the mapper, used by the poller and the device threads. */
#ifndef CGM_PLAN_H
#define CGM_PLAN_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/executor/algorithm.h"
#include "daemon/executor/comm.h"
#include "daemon/executor/flight.h"
#include "daemon/executor/quiet.h"
#include "daemon/executor/request.h"
#include "daemon/executor/tuning.h"

/* How many sets of rows, strides and alignments are remembered as prepared. */
#define CGM_PLAN_PREPARED 32u

/* How many operations a run puts on one queue of a rank, at most, as far as it is known. */
struct cgm_queue_room {
    uint32_t operations; /* 0: there was none yet */
    uint64_t rows;       /* of the largest one */
};

struct cgm_plan {
    uint64_t id;
    uint32_t uid;          /* whose */
    struct cgm_comm *comm; /* referenced; NULL: nothing but user buffers is left */
    struct cgm_spec spec;
    const struct cgm_algorithm *algorithm;
    char reason[160];
    struct cgm_tuned tuned;
    struct cgm_queue_set *queues; /* the comm's */
    struct cgm_plan_rank ranks[CGM_COMM_SIZE_MAX];
    /* Host flags: the last epoch that a rank's compute and communication queue are through with. */
    struct cgm_flag *done[CGM_COMM_SIZE_MAX], *sent[CGM_COMM_SIZE_MAX];
    struct cgm_memory *user[CGM_COMM_SIZE_MAX]; /* registered like buffers, freed with the plan */
    uint32_t n_flags;                           /* of each rank */
    uint32_t n_begun;                           /* ranks that have any of it */
    uint64_t scratch_bytes;                     /* on each rank */
    uint64_t epoch;                             /* of the last launch */
    struct cgm_queue_room room;                 /* the poller's */
    uint32_t users;                             /* unfinished jobs, preparation, answer */
    uint64_t prepared[CGM_PLAN_PREPARED];       /* signatures; see preparation.c */
    uint32_t n_prepared;                        /* counts on */
    bool preparing;
    struct cgm_recordings *recordings; /* recordings.h; NULL: none yet. The poller's */
    struct cgm_request *removal;
    void (*freed_step)(struct cgm_request *request); /* the last one; it frees the plan */
    struct cgm_task answered;                        /* from the mapper */

    /* While it is made: the request, its first run, and the operands of that run. */
    struct cgm_request *creation;
    const char *doing; /* for the error, when it fails */
    bool lost;         /* an executor before this one had it, and what lay in its user buffers */
    bool rehearsing;
    struct cgm_quiet rehearsal;
    struct cgm_plan *next_warming;
    struct cgm_flight *flight;
    struct cgm_mem *warm[CGM_COMM_SIZE_MAX];
};

void cgm_plan_ref(struct cgm_plan *plan);
void cgm_plan_unref(struct cgm_plan *plan);

/* The broker's requests; on the poller. */
void cgm_plan_on_add(struct cgm_request *request);
void cgm_plan_on_measure(struct cgm_request *request);
void cgm_plan_on_remove(struct cgm_request *request);

/* So many are looked after at every call, more than that only so often. */
#define CGM_WARMING_FEW 16u
#define CGM_WARMING_LOOK_NS 1000000u

/* Looks after the first runs that are under way. True when one ended. */
bool cgm_plan_step_warming(struct cgm_poller *poller);

#endif
