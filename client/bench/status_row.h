/* What the daemon says of its state: commgemmctl status --json. */
#ifndef CGM_BENCH_STATUS_ROW_H
#define CGM_BENCH_STATUS_ROW_H

#include <jansson.h>

#include "commgemm.h"

/* The one row, a new reference; NULL where it cannot be had. */
json_t *cgm_status_row(commgemm_client *client);

#endif
