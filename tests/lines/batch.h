/* One batch: every rank submits its part of the script, ahead of the others or behind them, while
 * jobs are cancelled, streams come late and plans are made anew. */
#ifndef LINES_BATCH_H
#define LINES_BATCH_H

#include <sys/types.h>

#include "tests/lines/crew.h"

/* executor: stands still at times; 0: does not. *ret_stalled: it did. Until all jobs have ended and
 * all streams have gone on. Prints what is wrong, returns false. */
bool batch_run(struct crew *crew, struct cgm_random *random, pid_t executor, bool *ret_stalled,
               struct lines_job ret_jobs[LINES_STEPS][LINES_WORLD]);

#endif
