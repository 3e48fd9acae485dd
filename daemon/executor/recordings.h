/* What a launch puts into its queues is the same every time while a plan's jobs have the same
 * operands, but for the values of flags, which grow with the epoch. Frameworks use the same few
 * tensors step after step: so a plan keeps recordings (backend.h) of launches whose operands came
 * often enough, and such a job is enqueued in one call for each queue. Nothing is recorded of a
 * plan of which something cannot be. A plan keeps a few, all of a user's plans together no more
 * than a number of operations: what was not used for the longest time is given up. */
#ifndef CGM_RECORDINGS_H
#define CGM_RECORDINGS_H

#include <stdbool.h>
#include <stdint.h>

struct cgm_executor;
struct cgm_gang;
struct cgm_poller;
struct cgm_recorded;
struct cgm_recordings;

/* Of a gang that could be launched: what each rank's part is enqueued from, or NULL where nothing
 * is recorded and it is enqueued as usual. False: not yet, it is being recorded. Poller; the answer
 * holds for the plan's next launch, if that is not held. */
bool cgm_recordings_find(struct cgm_gang *gang, const struct cgm_recorded **ret_recorded);

/* The plan is not used any more; NULL is allowed, in both. First on the poller, then on the mapper.
 */
void cgm_recordings_leave(struct cgm_poller *poller, struct cgm_recordings *recordings);
void cgm_recordings_free(struct cgm_executor *executor, struct cgm_recordings *recordings);

#endif
