/* Whether matrices share bytes. */
#ifndef CGM_OVERLAP_H
#define CGM_OVERLAP_H

#include <stdbool.h>

#include "daemon/executor/backend.h"

/* Exactly, whatever the strides: what lies between the rows of another one shares none with it.
 * Both lie within their memory, of less than 2^62 bytes. It takes microseconds at most, however
 * many rows there are. */
bool cgm_views_overlap(const struct cgm_view *a, const struct cgm_view *b);

#endif
