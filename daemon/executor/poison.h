/* What of a failed gang's outputs is made NaN. Not what another job is to find there: who fails
 * before its launch must not spoil what jobs before it have yet to read, nor who fails on a device
 * what a job behind it has written meanwhile. Of user buffers it is known without that what is not
 * sound (contents.h). On the poller. */
#ifndef CGM_POISON_H
#define CGM_POISON_H

#include <stdint.h>

#include "daemon/executor/backend.h"

struct cgm_gang;

/* So many looks at other jobs each gang may have: whoever fails in a crowd of them spares all. */
#define CGM_POISON_LOOKS 1024u

/* Takes those out of the rank's outputs. views: of its operands; looks: as many as are left. */
void cgm_poison_spare(const struct cgm_gang *gang, uint32_t rank, struct cgm_view *views,
                      uint32_t *looks);

#endif
