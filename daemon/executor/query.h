/* What only the executor knows, as rows for the broker's answers. */
#ifndef CGM_EXECUTOR_QUERY_H
#define CGM_EXECUTOR_QUERY_H

#include "daemon/executor/request.h"

/* On the poller: status, jobs, algorithms, doctor. */
void cgm_query_on_query(struct cgm_request *request);

#endif
