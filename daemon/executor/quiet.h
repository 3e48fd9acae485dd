/* Work for the mapper that must not meet a launch that is half-way into the queues. A backend may
 * have to load code for it, which waits until its device's queues are through; a queue that waits
 * for what is not enqueued yet would then wait for ever. So: nothing is launched from the moment
 * such work is posted until it is done, and it begins when every launch is in the queues, before
 * all that the mapper has been given otherwise. Work that takes long is done in slices; behind each
 * slice, and behind each work, everything is launched for as long as it took.
 *
 * What the backend aborts (abort_waits) must not meet such a launch either, and needs no mapper: it
 * may be what the mapper waits for. */
#ifndef CGM_QUIET_H
#define CGM_QUIET_H

#include <stdbool.h>

#include "daemon/executor/task.h"

struct cgm_poller;

struct cgm_quiet {
    struct cgm_task task;
    struct cgm_quiet *next;
    struct cgm_poller *poller;
    bool again; /* set by run: this was a slice, run is to be called again */
    void (*run)(struct cgm_quiet *quiet);  /* on the mapper */
    void (*done)(struct cgm_quiet *quiet); /* on the poller; may free it */
};

/* On the poller. run and done are set. */
void cgm_quiet_post(struct cgm_poller *poller, struct cgm_quiet *quiet);

/* Begins what can begin, aborts too; true when something did that the mapper does. */
bool cgm_quiet_step(struct cgm_poller *poller);

/* Whether launches have to wait. */
bool cgm_quiet_holds(const struct cgm_poller *poller);

#endif
