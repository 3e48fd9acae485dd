/* What only the executor knows, as rows for the broker's answers. */
#ifndef CGM_EXECUTOR_QUERY_H
#define CGM_EXECUTOR_QUERY_H

#include "daemon/executor/request.h"

/* On the poller: status, jobs, algorithms, doctor. It waits until the poller comes to it. */
void cgm_query_on_query(struct cgm_request *request);

/* Answers one that waits, the first one, or has it measured first; false when there is none. That
 * is all of a round of the poller's: however many ask, they take that much of it. */
bool cgm_query_step(struct cgm_poller *poller);

#endif
