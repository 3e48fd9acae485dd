#include "daemon/executor/cuda/driver.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "proto/log_line.h"
#include "proto/messages.h"
#include "proto/status.h"

struct cgm_driver cgm_driver;

static int load(const char *name, unsigned version, void *ret_function, char *ret_detail,
                size_t detail_bytes)
{
    void *function = NULL;
    enum cudaDriverEntryPointQueryResult found;
    cudaError_t error =
        cudaGetDriverEntryPointByVersion(name, &function, version, cudaEnableDefault, &found);
    if (error != cudaSuccess || found != cudaDriverEntryPointSuccess || !function)
        return cgm_detail(ret_detail, detail_bytes, CGM_NOT_SUPPORTED,
                          "the CUDA driver has no %s of version %u.%u; install a newer driver",
                          name, version / 1000, version % 1000 / 10);
    memcpy(ret_function, &function, sizeof(function));
    return CGM_OK;
}

int cgm_driver_load(char *ret_detail, size_t detail_bytes)
{
    int status = CGM_OK;
#define X(name, version)                                                                           \
    if (status == CGM_OK)                                                                          \
        status = load("cu" #name, version, &cgm_driver.name, ret_detail, detail_bytes);
    CGM_DRIVER_FUNCTIONS(X)
#undef X
    return status;
}

static struct {
    int log_limit;
    void (*end)(void *context, bool stuck, const char *why);
    void *end_context;
} reports; /* written before there is a second thread */

void cgm_cuda_reports_init(const struct cgm_backend_options *options)
{
    reports.log_limit = options->log_level;
    reports.end = options->end;
    reports.end_context = options->end_context;
}

void cgm_cuda_log(int level, const char *format, ...)
{
    va_list arguments;
    if (reports.log_limit > 0 && level > reports.log_limit)
        return;
    va_start(arguments, format);
    cgm_log_line_write(level, "executor: ", format, arguments);
    va_end(arguments);
}

/* No call of this process succeeds after one of these. */
static const cudaError_t fatal[] = {
    cudaErrorIllegalAddress,
    cudaErrorLaunchFailure,
    cudaErrorLaunchTimeout,
    cudaErrorECCUncorrectable,
    cudaErrorNvlinkUncorrectable,
    cudaErrorHardwareStackError,
    cudaErrorIllegalInstruction,
    cudaErrorMisalignedAddress,
    cudaErrorInvalidAddressSpace,
    cudaErrorInvalidPc,
    cudaErrorAssert,
    cudaErrorContextIsDestroyed,
    cudaErrorMpsClientTerminated,
    cudaErrorMpsConnectionFailed,
    cudaErrorMpsRpcFailure,
    cudaErrorMpsServerNotReady,
    cudaErrorDevicesUnavailable,
    cudaErrorSystemNotReady,
    cudaErrorCudartUnloading,
    cudaErrorContained,
    cudaErrorExternalDevice,
    cudaErrorTensorMemoryLeak,
};

/* What the others mean here; INTERNAL where nothing is said. */
static const struct {
    cudaError_t error;
    int status;
} meanings[] = {
    {cudaErrorMemoryAllocation, CGM_NO_MEMORY},
    {cudaErrorInvalidValue, CGM_INVALID_ARGUMENT},
    {cudaErrorInvalidDevicePointer, CGM_INVALID_ARGUMENT},
    {cudaErrorInvalidResourceHandle, CGM_INVALID_ARGUMENT},
    {cudaErrorInvalidDevice, CGM_INVALID_ARGUMENT},
    {cudaErrorInvalidPitchValue, CGM_INVALID_ARGUMENT},
    {cudaErrorOperatingSystem, CGM_INVALID_ARGUMENT},
    {cudaErrorMapBufferObjectFailed, CGM_INVALID_ARGUMENT},
    {cudaErrorDeviceUninitialized, CGM_INVALID_ARGUMENT},
    {cudaErrorAlreadyMapped, CGM_INVALID_ARGUMENT},
    {cudaErrorNotSupported, CGM_NOT_SUPPORTED},
    {cudaErrorPeerAccessUnsupported, CGM_NOT_SUPPORTED},
    {cudaErrorNotPermitted, CGM_PERMISSION},
    {cudaErrorHostMemoryAlreadyRegistered, CGM_EXISTS},
    {cudaErrorPeerAccessAlreadyEnabled, CGM_OK},
};

void cgm_cuda_end(bool stuck, const char *why)
{
    if (reports.end)
        reports.end(reports.end_context, stuck, why);
    cgm_cuda_log(3, "%s: the executor ends", why);
    abort();
}

static void end_if_fatal(cudaError_t error, const char *operation, unsigned device)
{
    char why[384];
    for (size_t i = 0; i < sizeof(fatal) / sizeof(fatal[0]); i++) {
        if (fatal[i] != error)
            continue;
        snprintf(why, sizeof(why), "device %u: %s: %s (%s)", device, operation,
                 cudaGetErrorName(error), cudaGetErrorString(error));
        cgm_cuda_end(false, why);
    }
}

int cgm_cuda_try(cudaError_t error, const char *operation, unsigned device)
{
    if (error == cudaSuccess)
        return CGM_OK;
    end_if_fatal(error, operation, device);
    cudaGetLastError();
    for (size_t i = 0; i < sizeof(meanings) / sizeof(meanings[0]); i++)
        if (meanings[i].error == error)
            return meanings[i].status;
    return CGM_INTERNAL;
}

int cgm_cuda_check(cudaError_t error, const char *operation, unsigned device)
{
    int status = cgm_cuda_try(error, operation, device);
    if (status != CGM_OK)
        cgm_cuda_log(4, "device %u: %s: %s (%s)", device, operation, cudaGetErrorName(error),
                     cudaGetErrorString(error));
    return status;
}

/* Driver and runtime number their errors alike. */
int cgm_driver_check(CUresult result, const char *operation, unsigned device)
{
    return cgm_cuda_check((cudaError_t)result, operation, device);
}

uint64_t cgm_cuda_now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000ull + (uint64_t)now.tv_nsec;
}

void cgm_cuda_log_step(const char *what, int device, uint64_t *at_ns)
{
    uint64_t before_ns = *at_ns;
    *at_ns = cgm_cuda_now_ns();
    if (device < 0)
        cgm_cuda_log(7, "opening: %s in %.1f ms", what, (double)(*at_ns - before_ns) / 1e6);
    else
        cgm_cuda_log(7, "opening: device %d: %s in %.1f ms", device, what,
                     (double)(*at_ns - before_ns) / 1e6);
}
