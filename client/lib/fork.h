/* What happens to sessions in a child of fork(): their sockets are closed there, so that the daemon
 * sees the end of the parent even while the child lives, and every call on them is refused. */
#ifndef CGM_CLIENT_FORK_H
#define CGM_CLIENT_FORK_H

#include "client/include/commgemm.h"

void cgm_fork_add(commgemm_client *client);
void cgm_fork_remove(commgemm_client *client);

#endif
