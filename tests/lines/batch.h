/* One batch: every rank submits its part of the script, ahead of the others or behind them, while
 * jobs are cancelled, streams come late and plans are made anew. */
#ifndef LINES_BATCH_H
#define LINES_BATCH_H

#include <sys/types.h>

#include "tests/lines/crew.h"

/* What happens to the executor meanwhile. */
struct batch_events {
    pid_t executor;      /* 0: nothing happens to it */
    uint32_t kills_left; /* who dies often comes back late */
    bool stalled;        /* set: it stood still at times */
    bool killed;         /* set: it was killed, and nothing was submitted from then on */
};

/* Until all jobs have ended and
 * all streams have gone on. Prints what is wrong, returns false. */
bool batch_run(struct crew *crew, struct cgm_random *random, struct batch_events *events,
               struct lines_job ret_jobs[LINES_STEPS][LINES_WORLD]);

#endif
