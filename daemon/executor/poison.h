/* What of a failed gang's outputs is made NaN. Not what another job is to find there: who fails
 * before its launch must not spoil what jobs before it have yet to read, nor who fails on a device
 * what a job behind it has written meanwhile. Of user buffers it is known without that what is not
 * sound (contents.h). On the poller. */
#ifndef CGM_POISON_H
#define CGM_POISON_H

#include <stdbool.h>
#include <stdint.h>

struct cgm_gang;

/* So many looks at other jobs' operands one gang takes, some 40 ns each. */
#define CGM_POISON_LOOKS 8192u

/* Takes those out of the views of the gang's flight. False: of some there was no telling with so
 * many looks; they are out of the views, too, and tainted. */
bool cgm_poison_spare(struct cgm_gang *gang);

#endif
