/* auto by measurement. Before a plan is made, while the client that creates it waits, the
 * algorithms that it could use, and variants of the best, are run on its real shapes, on the
 * devices and queues of its comm, with operands of random numbers (trial.h). Whose turn it is and
 * who wins is contest.h's. Others' jobs go on meanwhile: a launch of a trial waits its turn in the
 * queues as a job does.
 *
 * One plan is measured at a time, for tune_ms at most: its memory is made, the candidates' products
 * are chosen where a backend wants that, for two thirds of what is left at most, and the rest is
 * for launches. What is begun by then ends: a slice of memory or of preparing, or a launch of which
 * nothing more begins; the next plan does not wait for what is behind jobs of its comm, or behind
 * other memory of its user's. Not counted is the comm's group, which its first plan makes and needs
 * anyway. The users take turns; a plan whose turn does not come in twice as long, that has no
 * memory for it, or whose comm has lost a rank, is estimated as without. The broker remembers
 * results, and gives them with the plan when it is created again: then nothing is measured. Owned
 * by the poller. */
#ifndef CGM_TUNING_H
#define CGM_TUNING_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/executor/tuned.h"

struct cgm_plan;
struct cgm_poller;
struct cgm_request;

/* Of a plan that is to be made, the request's object, and whose algorithm was estimated: gives it
 * the one, and the variant, that is remembered or found to be fastest, and completes its reason.
 * `then` is run on the poller, at once or when that is done. */
void cgm_tuning_begin(struct cgm_request *request, void (*then)(struct cgm_request *request));

/* Of a plan that may be measured: the bytes that this takes on all ranks together, and the scratch
 * of the candidate or variant that wants most. Else 0, and no change of *scratch_bytes. */
uint64_t cgm_tuning_bytes(const struct cgm_plan *plan, uint64_t *scratch_bytes);

/* Goes on with what is measured; true when something changed. */
bool cgm_tuning_step(struct cgm_poller *poller);

/* Whether a launch is under way. */
bool cgm_tuning_runs(const struct cgm_poller *poller);

#endif
