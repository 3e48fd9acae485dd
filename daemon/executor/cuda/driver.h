/* The driver's functions, found at run time: the executable has no NEEDED libcuda and starts where
 * there is no driver. And what is done about an error of any CUDA call. */
#ifndef CGM_CUDA_DRIVER_H
#define CGM_CUDA_DRIVER_H

#include <cuda.h>
#include <cudaTypedefs.h>
#include <cuda_runtime_api.h>
#include <stddef.h>

#include "daemon/executor/backend.h"

/* X(name, version of its interface) */
#define CGM_DRIVER_FUNCTIONS(X)                                                                    \
    X(DeviceGetAttribute, 2000)                                                                    \
    X(MemGetAddressRange, 3020)                                                                    \
    X(MemCreate, 10020)                                                                            \
    X(MemRelease, 10020)                                                                           \
    X(MemAddressReserve, 10020)                                                                    \
    X(MemAddressFree, 10020)                                                                       \
    X(MemMap, 10020)                                                                               \
    X(MemUnmap, 10020)                                                                             \
    X(MemSetAccess, 10020)                                                                         \
    X(MemExportToShareableHandle, 10020)                                                           \
    X(MemImportFromShareableHandle, 10020)                                                         \
    X(MemGetAllocationGranularity, 10020)                                                          \
    X(MemGetAllocationPropertiesFromHandle, 10020)                                                 \
    X(FuncGetModule, 11000)                                                                        \
    X(ModuleGetFunctionCount, 12040)                                                               \
    X(ModuleEnumerateFunctions, 12040)                                                             \
    X(FuncLoad, 12040)                                                                             \
    X(StreamWaitValue64, 11070)                                                                    \
    X(StreamWriteValue64, 11070)                                                                   \
    X(StreamBatchMemOp, 11070)                                                                     \
    X(CtxGetCurrent, 4000)                                                                         \
    X(GraphAddBatchMemOpNode, 11070)                                                               \
    X(GraphExecBatchMemOpNodeSetParams, 11070)

struct cgm_driver {
#define X(name, version) PFN_cu##name##_v##version name;
    CGM_DRIVER_FUNCTIONS(X)
#undef X
};

extern struct cgm_driver cgm_driver; /* written by cgm_driver_load alone */

/* OK, or NOT_SUPPORTED with the function that the driver lacks. */
int cgm_driver_load(char *ret_detail, size_t detail_bytes);

/* OK for a success. Else a status, after a line in the log that names operation and device; ends
 * the process when the error is one that the device's context does not survive. Clears the error
 * of this thread. */
int cgm_cuda_check(cudaError_t error, const char *operation, unsigned device);
int cgm_driver_check(CUresult result, const char *operation, unsigned device);

/* As cgm_cuda_check, without a line for an error that is survived: one that input can cause. */
int cgm_cuda_try(cudaError_t error, const char *operation, unsigned device);

/* Where a fatal error goes, and which lines are left out. First of all. */
void cgm_cuda_reports_init(const struct cgm_backend_options *options);

/* Ends the process as cgm_backend_options.end says. */
_Noreturn void cgm_cuda_end(bool stuck, const char *why);

uint64_t cgm_cuda_now_ns(void); /* CLOCK_MONOTONIC */

/* A line for debugging: what took how long since *at_ns, which becomes now. device -1: none. */
void cgm_cuda_log_step(const char *what, int device, uint64_t *at_ns);

/* One line on stderr, which the broker's log takes over. level as syslog's: lines above the limit
 * are left out, 0 for none. */
void cgm_cuda_log(int level, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
