/* What algorithms have in common whose product is one piece and awaits or publishes flags while it
 * runs: members of cgm_algorithm. */
#ifndef CGM_FLAGGED_H
#define CGM_FLAGGED_H

#include "daemon/executor/operation.h"

/* It waits for chunks that peers push. */
int cgm_awaiting_check(const struct cgm_spec *spec, char *ret_detail, size_t detail_bytes);
double cgm_awaiting_estimate(const struct cgm_spec *spec);

/* It publishes which blocks are done. */
int cgm_publishing_check(const struct cgm_spec *spec, char *ret_detail, size_t detail_bytes);
double cgm_publishing_estimate(const struct cgm_spec *spec);

#endif
