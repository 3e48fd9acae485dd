/* The CUDA driver, found at run time: the library has no NEEDED libcuda, includes no header of
 * CUDA, and works where there is no driver. Only what a client needs: streams wait and write, ring
 * memory is registered, pointers are described and exported. */
#ifndef CGM_CLIENT_CUDA_DRIVER_H
#define CGM_CLIENT_CUDA_DRIVER_H

#include <stddef.h>
#include <stdint.h>

struct cgm_cuda_ipc_handle {
    unsigned char bytes[64];
};

struct cgm_cuda_uuid {
    unsigned char bytes[16];
};

/* X(member, symbol, parameters). A context and a stream are void *, a device address uint64_t.
 * Source of symbols, parameters and numbers: cuda.h, "CUDA Driver API". */
#define CGM_CUDA_FUNCTIONS(X)                                                                      \
    X(error_name, cuGetErrorName, (int result, const char **ret_name))                             \
    X(context_get, cuCtxGetCurrent, (void **ret_context))                                          \
    X(context_push, cuCtxPushCurrent_v2, (void *context))                                          \
    X(context_pop, cuCtxPopCurrent_v2, (void **ret_context))                                       \
    X(context_sync, cuCtxSynchronize, (void))                                                      \
    X(context_device, cuCtxGetDevice, (int *ret_device))                                           \
    X(device_get, cuDeviceGet, (int *ret_device, int ordinal))                                     \
    X(device_attribute, cuDeviceGetAttribute, (int *ret_value, int attribute, int device))         \
    X(device_name, cuDeviceGetName, (char *ret_name, int bytes, int device))                       \
    X(device_uuid, cuDeviceGetUuid_v2, (struct cgm_cuda_uuid * ret_uuid, int device))              \
    X(stream_context, cuStreamGetCtx, (void *stream, void **ret_context))                          \
    X(stream_capturing, cuStreamIsCapturing, (void *stream, int *ret_state))                       \
    X(stream_write, cuStreamWriteValue64_v2,                                                       \
      (void *stream, uint64_t address, uint64_t value, unsigned flags))                            \
    X(stream_wait, cuStreamWaitValue64_v2,                                                         \
      (void *stream, uint64_t address, uint64_t value, unsigned flags))                            \
    X(host_register, cuMemHostRegister_v2, (void *base, size_t bytes, unsigned flags))             \
    X(host_unregister, cuMemHostUnregister, (void *base))                                          \
    X(host_address, cuMemHostGetDevicePointer_v2,                                                  \
      (uint64_t * ret_address, void *base, unsigned flags))                                        \
    X(pointer_attributes, cuPointerGetAttributes,                                                  \
      (unsigned count, int *attributes, void **data, uint64_t pointer))                            \
    X(ipc_handle, cuIpcGetMemHandle, (struct cgm_cuda_ipc_handle * ret_handle, uint64_t pointer))  \
    X(allocation_retain, cuMemRetainAllocationHandle, (uint64_t * ret_handle, void *address))      \
    X(allocation_export, cuMemExportToShareableHandle,                                             \
      (void *ret_handle, uint64_t handle, int type, uint64_t flags))                               \
    X(allocation_release, cuMemRelease, (uint64_t handle))

struct cgm_cuda_driver {
#define X(member, symbol, parameters) int(*member) parameters;
    CGM_CUDA_FUNCTIONS(X)
#undef X
};

enum { CGM_CUDA_SUCCESS = 0, CGM_CUDA_INVALID_VALUE = 1 };

/* The driver, loaded once a process. NOT_SUPPORTED when there is none, or it lacks a function. */
int cgm_cuda_load(const struct cgm_cuda_driver **ret_driver);

/* Around a fork, afterwards in both processes: no thread loads the driver meanwhile, and the child
 * may. */
void cgm_cuda_before_fork(void);
void cgm_cuda_after_fork(void);

/* The name of a driver's error, "CUDA_ERROR_INVALID_VALUE". */
const char *cgm_cuda_error_name(const struct cgm_cuda_driver *driver, int result);

/* Our status for it. */
int cgm_cuda_status(int result);

#endif
