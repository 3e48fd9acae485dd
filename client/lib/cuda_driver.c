#include "client/lib/cuda_driver.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>

#include "client/lib/error.h"

#define LIBRARY "libcuda.so.1"
#define OLDEST "11.7 (release 515)"

static const struct {
    const char *name;
    size_t at;
} functions[] = {
#define X(member, symbol, parameters) {#symbol, offsetof(struct cgm_cuda_driver, member)},
    CGM_CUDA_FUNCTIONS(X)
#undef X
};
#define N_FUNCTIONS (sizeof(functions) / sizeof(functions[0]))

/* A failure is tried again by the next call: the reason may have gone. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static const struct cgm_cuda_driver *loaded; /* under the lock; then never changed */
static struct cgm_cuda_driver driver;

/* COMMGEMM_LIBCUDA is for tests, which bring a driver of their own. */
static const char *library_path(void)
{
    const char *path = secure_getenv("COMMGEMM_LIBCUDA");
    return path && path[0] ? path : LIBRARY;
}

static int load(void)
{
    const char *path = library_path();
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library)
        return cgm_fail(CGM_NOT_SUPPORTED,
                        "there is no CUDA driver here: %s; calls without a stream or a device "
                        "pointer do not need one",
                        dlerror());
    for (size_t i = 0; i < N_FUNCTIONS; i++) {
        void *symbol = dlsym(library, functions[i].name);
        if (!symbol) {
            dlclose(library);
            return cgm_fail(CGM_NOT_SUPPORTED,
                            "the CUDA driver %s has no %s; it must be of CUDA " OLDEST " or newer",
                            path, functions[i].name);
        }
        *(void **)((char *)&driver + functions[i].at) = symbol;
    }
    loaded = &driver;
    return CGM_OK;
}

int cgm_cuda_load(const struct cgm_cuda_driver **ret_driver)
{
    pthread_mutex_lock(&lock);
    int status = loaded ? CGM_OK : load();
    *ret_driver = loaded;
    pthread_mutex_unlock(&lock);
    return status;
}

void cgm_cuda_before_fork(void)
{
    pthread_mutex_lock(&lock);
}

void cgm_cuda_after_fork(void)
{
    pthread_mutex_unlock(&lock);
}

const char *cgm_cuda_error_name(const struct cgm_cuda_driver *from, int result)
{
    const char *name = NULL;
    if (from->error_name(result, &name) != CGM_CUDA_SUCCESS || !name)
        return "an unknown error of the CUDA driver";
    return name;
}

/* CUresult. A context that is dead, or a device that is lost, is the caller's own trouble: GPU_LOST
 * would say that the daemon's jobs are lost with it. */
static const struct {
    int result, status;
} statuses[] = {
    {0, CGM_OK},
    {1, CGM_INVALID_ARGUMENT},   /* INVALID_VALUE */
    {2, CGM_NO_MEMORY},          /* OUT_OF_MEMORY */
    {3, CGM_INVALID_ARGUMENT},   /* NOT_INITIALIZED */
    {201, CGM_INVALID_ARGUMENT}, /* INVALID_CONTEXT */
    {400, CGM_INVALID_ARGUMENT}, /* INVALID_HANDLE */
    {709, CGM_INVALID_ARGUMENT}, /* CONTEXT_IS_DESTROYED */
    {801, CGM_NOT_SUPPORTED},    /* NOT_SUPPORTED */
    {906, CGM_NOT_SUPPORTED},    /* STREAM_CAPTURE_IMPLICIT */
    {46, CGM_INVALID_ARGUMENT},  /* DEVICE_UNAVAILABLE */
    {214, CGM_INVALID_ARGUMENT}, /* ECC_UNCORRECTABLE */
    {700, CGM_INVALID_ARGUMENT}, /* ILLEGAL_ADDRESS */
    {702, CGM_INVALID_ARGUMENT}, /* LAUNCH_TIMEOUT */
    {710, CGM_INVALID_ARGUMENT}, /* ASSERT */
    {714, CGM_INVALID_ARGUMENT}, /* HARDWARE_STACK_ERROR */
    {715, CGM_INVALID_ARGUMENT}, /* ILLEGAL_INSTRUCTION */
    {716, CGM_INVALID_ARGUMENT}, /* MISALIGNED_ADDRESS */
    {717, CGM_INVALID_ARGUMENT}, /* INVALID_ADDRESS_SPACE */
    {718, CGM_INVALID_ARGUMENT}, /* INVALID_PC */
    {719, CGM_INVALID_ARGUMENT}, /* LAUNCH_FAILED */
    {805, CGM_INVALID_ARGUMENT}, /* MPS_CONNECTION_FAILED */
    {806, CGM_INVALID_ARGUMENT}, /* MPS_RPC_FAILURE */
};

int cgm_cuda_status(int result)
{
    for (size_t i = 0; i < sizeof(statuses) / sizeof(statuses[0]); i++)
        if (statuses[i].result == result)
            return statuses[i].status;
    return CGM_INTERNAL;
}
