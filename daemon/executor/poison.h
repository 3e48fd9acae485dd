/* What of a failed gang's outputs is made NaN. Not what another job is to find there: who fails
 * before its launch must not spoil what jobs before it have yet to read, nor who fails on a device
 * what a job behind it has written meanwhile. Of user buffers it is known without that what is not
 * sound (contents.h). On the poller. */
#ifndef CGM_POISON_H
#define CGM_POISON_H

#include <stdbool.h>
#include <stdint.h>

struct cgm_gang;

/* How long one gang may look, in pieces of some 5 ns; with 64 ranks three times as long. Half of
 * it, where there is one object: at 7000 operands that are not near, though others are, at fewer
 * where outputs are many, at some three hundred that lie between their rows. */
#define CGM_POISON_EFFORT 131072u

/* Takes those out of the views of the gang's flight. False: of some there was no telling in that
 * time; they are out of the views, too, and tainted. */
bool cgm_poison_spare(struct cgm_gang *gang);

#endif
