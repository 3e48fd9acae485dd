#include "client/lib/cuda_context.h"

#include "client/lib/error.h"

static int enter(const struct cgm_cuda_driver *driver, void *current, void *wanted,
                 struct cgm_cuda_context *ret_context)
{
    bool push = wanted != current;
    int result = push ? driver->context_push(wanted) : CGM_CUDA_SUCCESS;
    if (result != CGM_CUDA_SUCCESS)
        return cgm_fail(cgm_cuda_status(result), "cuCtxPushCurrent: %s",
                        cgm_cuda_error_name(driver, result));
    *ret_context = (struct cgm_cuda_context){driver, wanted, push};
    return CGM_OK;
}

static int fail_current(const struct cgm_cuda_driver *driver, int result)
{
    return cgm_fail(cgm_cuda_status(result),
                    "cuCtxGetCurrent: %s; this process must use CUDA before it names streams or "
                    "device pointers",
                    cgm_cuda_error_name(driver, result));
}

int cgm_cuda_context_of_stream(void *stream, struct cgm_cuda_context *ret_context)
{
    const struct cgm_cuda_driver *driver;
    void *current = NULL, *wanted = NULL;
    int status = cgm_cuda_load(&driver);
    if (status != CGM_OK)
        return status;
    int result = driver->context_get(&current);
    if (result != CGM_CUDA_SUCCESS)
        return fail_current(driver, result);
    wanted = current;
    if (stream && (result = driver->stream_context(stream, &wanted)) != CGM_CUDA_SUCCESS)
        return cgm_fail(cgm_cuda_status(result), "stream is %p; cuStreamGetCtx: %s", stream,
                        cgm_cuda_error_name(driver, result));
    if (!wanted)
        return cgm_fail(CGM_INVALID_ARGUMENT,
                        "stream is NULL and this thread has no CUDA context; call cudaSetDevice "
                        "first, or name a stream");
    return enter(driver, current, wanted, ret_context);
}

int cgm_cuda_context_enter(void *context, struct cgm_cuda_context *ret_context)
{
    const struct cgm_cuda_driver *driver;
    void *current = NULL;
    int status = cgm_cuda_load(&driver);
    if (status != CGM_OK)
        return status;
    int result = driver->context_get(&current);
    if (result != CGM_CUDA_SUCCESS)
        return fail_current(driver, result);
    return enter(driver, current, context ? context : current, ret_context);
}

void cgm_cuda_context_leave(const struct cgm_cuda_context *context)
{
    void *popped;
    if (context->pushed)
        context->driver->context_pop(&popped);
}
