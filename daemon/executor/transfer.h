/* Copies that belong to no job: how clients read and write memory that they cannot map. The mapper
 * enqueues them, slice by slice, on queues of their own: each user's on another one, so that nobody
 * waits for what another one's memory takes. What a session leaves behind is not made. */
#ifndef CGM_TRANSFER_H
#define CGM_TRANSFER_H

#include "daemon/executor/request.h"

/* CopyForward; on the poller. */
void cgm_transfer_on_copy(struct cgm_request *request);

/* Looks after the slices that are under way; true when one ended. On the poller. */
bool cgm_transfer_step(struct cgm_executor *executor);

#endif
