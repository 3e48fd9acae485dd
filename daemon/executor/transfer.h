/* Copies that belong to no job: how clients read and write memory that they cannot map. The mapper
 * enqueues them on queues of their own, a slice of one user's and then of the next one's, and does
 * not wait for them; what a session leaves behind is not made. */
#ifndef CGM_TRANSFER_H
#define CGM_TRANSFER_H

#include "daemon/executor/request.h"

/* CopyForward; on the poller. */
void cgm_transfer_on_copy(struct cgm_request *request);

#endif
