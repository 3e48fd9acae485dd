/* Copies that belong to no job: how clients read and write memory that they cannot map. The mapper
 * makes them one after the other on queues of its own. */
#ifndef CGM_TRANSFER_H
#define CGM_TRANSFER_H

#include "daemon/executor/request.h"

/* CopyForward; on the poller. */
void cgm_transfer_on_copy(struct cgm_request *request);

#endif
