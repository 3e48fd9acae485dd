#include "daemon/executor/cuda/blas.h"

#include <dlfcn.h>
#include <string.h>

#include "proto/messages.h"
#include "proto/status.h"

#define TEXT_OF(x) #x
#define TEXT(x) TEXT_OF(x)
#define LIBRARY "libcublasLt.so." TEXT(CUBLAS_VER_MAJOR)

struct cgm_blas cgm_blas;

/* The search path first: LD_LIBRARY_PATH, RUNPATH, ld.so.conf. */
static const char *const places[] = {
    LIBRARY,
    "/usr/local/cuda/lib64/" LIBRARY,
    "/usr/local/cuda-" TEXT(CUBLAS_VER_MAJOR) "/lib64/" LIBRARY,
    "/opt/cuda/lib64/" LIBRARY,
};

static void *open_library(void)
{
    void *library = NULL;
    for (size_t i = 0; !library && i < sizeof(places) / sizeof(places[0]); i++)
        library = dlopen(places[i], RTLD_NOW | RTLD_LOCAL);
    return library;
}

int cgm_blas_load(char *ret_detail, size_t detail_bytes)
{
    const char *missing = NULL;
    void *symbol, *library = open_library();
    if (!library)
        return cgm_detail(ret_detail, detail_bytes, CGM_NOT_SUPPORTED,
                          "%s cannot be loaded (%s); install cuBLAS %d or add its folder to the "
                          "library path",
                          LIBRARY, dlerror(), CUBLAS_VER_MAJOR);
#define X(name)                                                                                    \
    symbol = dlsym(library, "cublasLt" #name);                                                     \
    memcpy(&cgm_blas.name, &symbol, sizeof(symbol));                                               \
    if (!symbol)                                                                                   \
        missing = "cublasLt" #name;
    CGM_BLAS_FUNCTIONS(X)
#undef X
    if (missing)
        return cgm_detail(ret_detail, detail_bytes, CGM_NOT_SUPPORTED, "%s has no %s", LIBRARY,
                          missing);
    return CGM_OK;
}
