/* The fds that the session was given with buffers. Any thread. */
#ifndef CGM_CLIENT_BUFFERS_H
#define CGM_CLIENT_BUFFERS_H

#include "client/lib/client.h"

void cgm_buffers_init(commgemm_client *client);
/* Closes every fd that is left. */
void cgm_buffers_fini(commgemm_client *client);

/* The fd that the buffer was opened with, until the end of its use: it is not closed before that.
 * *ret_fd NULL: it came without. NOT_FOUND: the buffer is closed. */
int cgm_buffer_fd_use(commgemm_client *client, const struct commgemm_buffer *buffer,
                      struct cgm_buffer_fd **ret_fd);
void cgm_buffer_fd_end_use(commgemm_client *client, struct cgm_buffer_fd *fd);

/* Behind a copy from or to the memory of the fd: asks the daemon whether it was the buffer's then.
 * NOT_FOUND: the session has it no more; STALE: it went with its executor; DAEMON_LOST. */
int cgm_buffer_fd_check(commgemm_client *client, const struct cgm_buffer_fd *fd);

#endif
