/* The fds that the session was given with buffers. Any thread. */
#ifndef CGM_CLIENT_BUFFERS_H
#define CGM_CLIENT_BUFFERS_H

#include "client/lib/client.h"

void cgm_buffers_init(commgemm_client *client);
/* Closes every fd that is left. */
void cgm_buffers_fini(commgemm_client *client);

/* Behind a copy from or to the memory of the buffer's fd: asks the daemon whether it was the
 * buffer's then. NOT_FOUND: the session has it no more; STALE: it went with its executor;
 * DAEMON_LOST. */
int cgm_buffers_check(commgemm_client *client, const struct commgemm_buffer *buffer);

#endif
