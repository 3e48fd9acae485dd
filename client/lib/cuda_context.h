/* The context of a stream, made the calling thread's for the length of one call. */
#ifndef CGM_CLIENT_CUDA_CONTEXT_H
#define CGM_CLIENT_CUDA_CONTEXT_H

#include <stdbool.h>

#include "client/lib/cuda_driver.h"

struct cgm_cuda_context {
    const struct cgm_cuda_driver *driver;
    void *context;
    bool pushed; /* it was not current: pop it again */
};

/* Of a stream, NULL for the default stream of the current context. INVALID_ARGUMENT when there is
 * no context, or the stream belongs to none. */
int cgm_cuda_context_of_stream(void *stream, struct cgm_cuda_context *ret_context);

/* This one, or with NULL whatever is current; never fails with NULL. */
int cgm_cuda_context_enter(void *context, struct cgm_cuda_context *ret_context);

void cgm_cuda_context_leave(const struct cgm_cuda_context *context);

#endif
