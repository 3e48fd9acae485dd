/* The measurement of one plan's candidates (tuning.h), step by step: a trial is made, products are
 * chosen, operands are filled, launches are timed, the trial goes. Owned by the poller; the mapper
 * has it while it makes, prepares and frees. */
#ifndef CGM_MEASUREMENT_H
#define CGM_MEASUREMENT_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/executor/contest.h"
#include "daemon/executor/field.h"
#include "daemon/executor/quiet.h"
#include "daemon/executor/reclaim.h"
#include "daemon/executor/task.h"
#include "daemon/executor/tuned.h"
#include "daemon/executor/turns.h"

struct cgm_executor;
struct cgm_plan;
struct cgm_trial;

enum cgm_measurement_state {
    CGM_MEASUREMENT_WAITING,   /* has not begun */
    CGM_MEASUREMENT_MAKING,    /* the mapper makes the trial */
    CGM_MEASUREMENT_PREPARING, /* the candidates' products are chosen, in slices */
    CGM_MEASUREMENT_FILLING,
    CGM_MEASUREMENT_MEASURING,
    CGM_MEASUREMENT_ENDING, /* the mapper frees the trial */
};

struct cgm_measurement {
    struct cgm_task task; /* first */
    struct cgm_quiet quiet;
    struct cgm_turn memory; /* MAKING and ENDING it */
    struct cgm_reclaim reclaim;
    struct cgm_executor *executor;
    struct cgm_plan *plan;
    void (*done)(struct cgm_measurement *m);
    struct cgm_trial *trial;
    enum cgm_measurement_state state;
    uint64_t until_ns;      /* of all of it */
    uint64_t part_until_ns; /* of preparing, or of the first heat; before until_ns */
    uint32_t prepared;      /* entrants; those before it are, or cannot be */
    uint32_t recorded;      /* ranks of the one that is being recorded */
    bool records;           /* its products are chosen */
    bool flying, second;    /* second: heat */
    bool cut;               /* the launch under way was aborted, time is up */
    int status;
    char why[96]; /* nothing was measured; "": it was, and the contest has the result */
    const struct cgm_algorithm *algorithms[CGM_TUNED_MAX];
    struct cgm_field field; /* of them */
    struct cgm_contest contest;
    uint32_t n_first; /* entrants of the first heat */
};

/* Of a plan whose field is not empty. done: on the poller, when it has ended; may free it. */
void cgm_measurement_init(struct cgm_measurement *m, struct cgm_plan *plan,
                          void (*done)(struct cgm_measurement *m));

/* It has tune_ms from now on. */
void cgm_measurement_begin(struct cgm_measurement *m);

/* Goes on with its launches; true when something changed. It may be done afterwards. */
bool cgm_measurement_step(struct cgm_measurement *m, uint64_t now_ns);

/* Its time is up, and its last launch has not ended, although nothing more of that begins: it waits
 * behind what the comm's queues were given before; or its memory is not made or gone, which waits
 * behind what else of its user's the mapper has. */
bool cgm_measurement_is_overdue(const struct cgm_measurement *m, uint64_t now_ns);

/* NULL: there is none. */
const char *cgm_measurement_reason_to_stop(const struct cgm_measurement *m);

#endif
