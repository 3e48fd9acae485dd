/* Our own kernels, loaded before anything runs. */
#include <cgm_kernel_files.h>

#include "daemon/executor/cuda/cuda.h"
#include "kernels/device_kernels.h"

#define KERNELS_MAX 256 /* of one file */

#define X(file) const void *cgm_kernel_anchor_##file(void);
CGM_KERNEL_FILES(X)
#undef X

static const struct {
    const char *file;
    const void *(*anchor)(void);
} files[] = {
#define X(name) {#name, cgm_kernel_anchor_##name},
    CGM_KERNEL_FILES(X)
#undef X
};

static CUresult load_module(const void *anchor)
{
    CUfunction functions[KERNELS_MAX];
    CUmodule module;
    unsigned count = 0;
    cudaFunction_t function;
    if (cudaGetFuncBySymbol(&function, anchor) != cudaSuccess)
        return CUDA_ERROR_NOT_FOUND;
    CUresult result = cgm_driver.FuncGetModule(&module, function);
    if (result == CUDA_SUCCESS)
        result = cgm_driver.ModuleGetFunctionCount(&count, module);
    count = count < KERNELS_MAX ? count : KERNELS_MAX;
    if (result == CUDA_SUCCESS)
        result = cgm_driver.ModuleEnumerateFunctions(functions, count, module);
    for (unsigned i = 0; i < count && result == CUDA_SUCCESS; i++)
        result = cgm_driver.FuncLoad(functions[i]);
    return result;
}

void cgm_kernels_load(uint32_t device)
{
    for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
        CUresult result = load_module(files[i].anchor());
        if (result != CUDA_SUCCESS)
            cgm_cuda_log(4, "device %u: the kernels of %s cannot be loaded ahead: error %d", device,
                         files[i].file, (int)result);
    }
    cudaGetLastError();
}
