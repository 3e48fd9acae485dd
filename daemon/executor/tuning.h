/* auto by measurement. Before a plan is made, while the client that creates it waits, the
 * algorithms that it could use are run on its real shapes, on the devices and queues of its comm,
 * with operands of random numbers (trial.h). They take turns, launch by launch, so that whatever
 * else goes on meets all of them; each one's time is the median of its launches. Others' jobs go on
 * meanwhile: a launch of a trial waits its turn in the queues as a job does.
 *
 * One plan is measured at a time. It takes tune_ms, and the launch that is under way then, after as
 * long at most in which the candidates' products are chosen where a backend wants that. The users
 * take turns; a plan whose turn does not come in twice as long, that has no memory for it, or whose
 * comm has lost a rank, is estimated as without. The broker remembers results, and gives them with
 * the plan when it is created again: then nothing is measured. Owned by the poller. */
#ifndef CGM_TUNING_H
#define CGM_TUNING_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/executor/algorithm.h"

struct cgm_plan;
struct cgm_poller;
struct cgm_request;

/* More than any operation has. */
#define CGM_TUNING_MAX 16u

struct cgm_tried {
    const struct cgm_algorithm *algorithm;
    uint64_t ns; /* 0: it failed, or there was no time for it */
};

/* What a plan's algorithm was chosen from: the chosen one, serial, and the others, the faster ones
 * first. */
struct cgm_tuned {
    struct cgm_tried tried[CGM_TUNING_MAX];
    uint32_t n;    /* 0: nothing was measured */
    uint64_t at_s; /* when, in seconds of the epoch, where it was remembered; 0: now */
};

/* Of a plan that is to be made, the request's object, and whose algorithm was estimated: gives it
 * the one that is remembered or found to be fastest, and completes its reason. `then` is run on the
 * poller, at once or when that is done. */
void cgm_tuning_begin(struct cgm_request *request, void (*then)(struct cgm_request *request));

/* Of a plan that may be measured: the bytes that this takes on all ranks together, and the scratch
 * of the candidate that wants most. Else 0, and no change of *scratch_bytes. */
uint64_t cgm_tuning_bytes(const struct cgm_plan *plan, uint64_t *scratch_bytes);

/* Goes on with what is measured; true when something changed. */
bool cgm_tuning_step(struct cgm_poller *poller);

/* Whether a launch is under way. */
bool cgm_tuning_runs(const struct cgm_poller *poller);

/* Writes "auto: a measured 48 us; b 75, c 80 and 2 more; kept since 2026-11-20". */
void cgm_tuned_write(const struct cgm_tuned *tuned, char *ret_text, size_t size);

/* Brings times into that order. The chosen one is the fastest, unless serial is slower by no more
 * than what is lost in noise. */
void cgm_tuned_sort(struct cgm_tuned *tuned);

#endif
