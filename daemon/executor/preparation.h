/* Before the first launch of a plan with given rows, strides and alignments, a backend that wants
 * it is shown the products (rehearse.h); with launches held (quiet.h) where something has to be
 * loaded. What was shown is remembered. */
#ifndef CGM_PREPARATION_H
#define CGM_PREPARATION_H

#include <stdbool.h>

struct cgm_gang;

/* Whether the gang, all of whose jobs have come, may be launched as far as that goes. The first
 * time it may not, and the preparation begins. On the poller. */
bool cgm_preparation_is_done(struct cgm_gang *gang);

#endif
