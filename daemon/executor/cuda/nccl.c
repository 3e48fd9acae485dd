#include "daemon/executor/cuda/nccl.h"

#include <dlfcn.h>
#include <string.h>

#include "proto/messages.h"
#include "proto/status.h"

#define LIBRARY "libnccl.so.2"

struct cgm_nccl cgm_nccl;

/* The search path first: LD_LIBRARY_PATH, RUNPATH, ld.so.conf. */
static const char *const places[] = {
    LIBRARY,
    "/usr/local/cuda/lib64/" LIBRARY,
    "/usr/local/lib/" LIBRARY,
    "/opt/cuda/lib64/" LIBRARY,
};

static int load_functions(void *library, char *ret_text, size_t text_bytes)
{
    const char *missing = NULL;
    struct cgm_nccl functions;
    void *symbol;
#define X(name)                                                                                    \
    symbol = dlsym(library, "nccl" #name);                                                         \
    memcpy(&functions.name, &symbol, sizeof(symbol));                                              \
    if (!symbol)                                                                                   \
        missing = "nccl" #name;
    CGM_NCCL_FUNCTIONS(X)
#undef X
    if (missing)
        return cgm_detail(ret_text, text_bytes, CGM_NOT_SUPPORTED, "%s has no %s", LIBRARY,
                          missing);
    cgm_nccl = functions;
    return CGM_OK;
}

static int open_library(char *ret_text, size_t text_bytes)
{
    void *library = NULL;
    for (size_t i = 0; !library && i < sizeof(places) / sizeof(places[0]); i++)
        library = dlopen(places[i], RTLD_NOW | RTLD_LOCAL);
    if (!library)
        return cgm_detail(ret_text, text_bytes, CGM_NOT_SUPPORTED,
                          "%s cannot be loaded; install NCCL 2", LIBRARY);
    int status = load_functions(library, ret_text, text_bytes);
    if (status != CGM_OK)
        dlclose(library);
    return status;
}

int cgm_nccl_load(char *ret_text, size_t text_bytes)
{
    int version = 0;
    int status = cgm_nccl.GetVersion ? CGM_OK : open_library(ret_text, text_bytes);
    if (status != CGM_OK)
        return status;
    cgm_nccl.GetVersion(&version);
    return cgm_detail(ret_text, text_bytes, CGM_OK, "NCCL %d.%d.%d", version / 10000,
                      version % 10000 / 100, version % 100);
}
