/* The fds that the session was given with buffers. Any thread. */
#ifndef CGM_CLIENT_BUFFERS_H
#define CGM_CLIENT_BUFFERS_H

#include "client/lib/client.h"

/* Closes every fd that is left. */
void cgm_buffers_fini(commgemm_client *client);

#endif
