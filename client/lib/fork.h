/* What happens to sessions in a child of fork(): their sockets are closed there, so that the daemon
 * sees the end of the parent even while the child lives, and every call on them is refused. */
#ifndef CGM_CLIENT_FORK_H
#define CGM_CLIENT_FORK_H

#include "client/include/commgemm.h"

/* Makes the client's socket, so that no child has a copy that it does not close. A status, with
 * errno set. */
int cgm_fork_add(commgemm_client *client);
/* Closes the socket, too. */
void cgm_fork_remove(commgemm_client *client);

#endif
