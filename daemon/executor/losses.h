/* What ends with a session or a comm, piece by piece: there may be thousands of jobs, and the
 * poller is everybody's. On the poller. */
#ifndef CGM_LOSSES_H
#define CGM_LOSSES_H

#include <stdbool.h>

struct cgm_poller;

struct cgm_loss {
    struct cgm_loss *next;
    bool listed;
    bool (*piece)(struct cgm_loss *loss); /* true: there is more */
    void (*done)(struct cgm_loss *loss);  /* it is in no list any more; may free it */
};

/* piece and done are set. Nothing when it is there already. */
void cgm_losses_add(struct cgm_poller *poller, struct cgm_loss *loss);

/* A piece of one of them, in turns. Some are there. */
void cgm_losses_step(struct cgm_poller *poller);

#endif
