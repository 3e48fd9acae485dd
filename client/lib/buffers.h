/* The fds that the session was given with buffers. Any thread. */
#ifndef CGM_CLIENT_BUFFERS_H
#define CGM_CLIENT_BUFFERS_H

#include "client/lib/client.h"

void cgm_buffers_init(commgemm_client *client);
/* Closes every fd that is left. */
void cgm_buffers_fini(commgemm_client *client);

/* STALE when the memory behind the buffer's fd went with its executor, as far as is known here. */
int cgm_buffers_check(commgemm_client *client, const struct commgemm_buffer *buffer);

#endif
