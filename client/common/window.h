/* A buffer's bytes in this process: the memory itself where it can be mapped, else a copy that is
 * fetched and stored. */
#ifndef CGM_COMMON_WINDOW_H
#define CGM_COMMON_WINDOW_H

#include <stdbool.h>

#include "commgemm.h"

struct cgm_window {
    commgemm_client *client;
    struct commgemm_buffer buffer;
    void *address; /* buffer.bytes; zeros until the first fetch when it is a copy */
    bool mapped;
};

/* Status; commgemm_last_error() has the detail. */
int cgm_window_open(commgemm_client *client, const struct commgemm_buffer *buffer,
                    struct cgm_window *ret_window);
/* Buffer to window and back; where it is mapped there is nothing to be done. */
int cgm_window_fetch(const struct cgm_window *window);
int cgm_window_store(const struct cgm_window *window);
/* Behind what was read or written through it: whether that was the buffer's memory to the end.
 * NOT_FOUND, DAEMON_LOST. */
int cgm_window_check(const struct cgm_window *window);
void cgm_window_close(struct cgm_window *window);

#endif
