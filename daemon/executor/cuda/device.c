#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/executor/cuda/cuda.h"
#include "daemon/executor/cuda/fitness.h"
#include "daemon/executor/cuda/gemm.h"
#include "daemon/executor/cuda/gemm_codes.h"
#include "daemon/executor/cuda/queue.h"
#include "kernels/flagged_gemm.h"
#include "proto/status.h"

#define TEXT_OF(x) #x
#define TEXT(x) TEXT_OF(x)

void cgm_device_use(uint32_t device)
{
    static _Thread_local uint32_t current = UINT32_MAX;
    if (current == device)
        return;
    cgm_cuda_check(cudaSetDevice((int)device), "cudaSetDevice", device);
    current = device;
}

/* ---- what a machine must have --------------------------------------------------------------- */

static int refuse_driver(cudaError_t error, char *ret_detail, size_t detail_bytes)
{
    int driver = 0, runtime = CUDART_VERSION;
    cudaDriverGetVersion(&driver);
    if (driver == 0)
        return cgm_detail(ret_detail, detail_bytes, CGM_NOT_SUPPORTED,
                          "there is no CUDA driver on this machine; install one, or use backend "
                          "cpu");
    if (error == cudaErrorInsufficientDriver)
        return cgm_detail(ret_detail, detail_bytes, CGM_NOT_SUPPORTED,
                          "the driver is for CUDA %d.%d and this executor for %d.%d; install a "
                          "newer driver",
                          driver / 1000, driver % 1000 / 10, runtime / 1000, runtime % 1000 / 10);
    if (error == cudaErrorNoDevice)
        return cgm_detail(ret_detail, detail_bytes, CGM_NOT_SUPPORTED,
                          "the CUDA driver shows no device; see nvidia-smi and "
                          "CUDA_VISIBLE_DEVICES");
    return cgm_detail(ret_detail, detail_bytes, CGM_NOT_SUPPORTED, "CUDA does not start: %s (%s)",
                      cudaGetErrorName(error), cudaGetErrorString(error));
}

static int check_device(int device, char *ret_detail, size_t detail_bytes)
{
    static const CUdevice_attribute attributes[] = {
#define X(attribute, what) CU_DEVICE_ATTRIBUTE_##attribute,
        CGM_DEVICE_NEEDS(X)
#undef X
    };
    struct cudaDeviceProp properties;
    cudaError_t error = cudaGetDeviceProperties(&properties, device);
    if (error != cudaSuccess)
        return refuse_driver(error, ret_detail, detail_bytes);
    struct cgm_device_facts facts = {
        .name = properties.name, .major = properties.major, .minor = properties.minor};
    for (int i = 0; i < CGM_NEED_COUNT; i++) {
        int has = 0;
        facts.has[i] =
            cgm_driver.DeviceGetAttribute(&has, attributes[i], device) == CUDA_SUCCESS && has;
    }
    return cgm_device_judge(device, &facts, ret_detail, detail_bytes);
}

/* Read by NCCL when it is loaded, and by the driver when it starts, which is in the first call. Our
 * kernels are loaded at once, which cgm_kernels_load sees to where the environment asks for lazy
 * loading: one that is loaded later starts only when every stream of the device is idle, and some
 * may be waiting for it. cuBLASLt loads on demand all the same: hence cgm_cuda_prepare_gemm. */
static void set_environment(void)
{
    static const struct {
        const char *name, *value;
        bool ours; /* not to be configured */
    } of_nccl[] = {
        /* Connections are made with the communicator, not on the way of a job. */
        {"NCCL_RUNTIME_CONNECT", "0", true},
        {"NCCL_LAUNCH_ORDER_IMPLICIT", "1", true},
        /* An operand may have another address on each device. */
        {"NCCL_P2P_DIRECT_DISABLE", "1", true},
        {"NCCL_NVLS_ENABLE", "0", false},
    };
    for (size_t i = 0; i < sizeof(of_nccl) / sizeof(of_nccl[0]); i++)
        setenv(of_nccl[i].name, of_nccl[i].value, of_nccl[i].ours);
    setenv("CUDA_DEVICE_MAX_CONNECTIONS", TEXT(32), 1);
    setenv("CUDA_MODULE_LOADING", "EAGER", 0);
    setenv("CUDA_DEVICE_ORDER", "PCI_BUS_ID", 0);
}
_Static_assert(CGM_CUDA_CONNECTIONS == 32, "as in set_environment");

int cgm_devices_find(const struct cgm_backend_options *options, char *ret_detail,
                     size_t detail_bytes, uint32_t *ret_count)
{
    int count = 0, status;
    if (options->devices > CGM_CUDA_DEVICES_MAX)
        return cgm_detail(ret_detail, detail_bytes, CGM_INVALID_ARGUMENT,
                          "devices is %u; the CUDA backend has 1 to %u", options->devices,
                          CGM_CUDA_DEVICES_MAX);
    set_environment();
    cudaError_t error = cudaGetDeviceCount(&count);
    if (error != cudaSuccess || count < 1)
        return refuse_driver(error == cudaSuccess ? cudaErrorNoDevice : error, ret_detail,
                             detail_bytes);
    status = cgm_driver_load(ret_detail, detail_bytes);
    uint32_t present =
        (uint32_t)count < CGM_CUDA_DEVICES_MAX ? (uint32_t)count : CGM_CUDA_DEVICES_MAX;
    uint32_t used = options->devices > 0 && options->devices < present ? options->devices : present;
    if (options->devices > present)
        cgm_cuda_log(6, "devices is %u and %u are present: ranks share those", options->devices,
                     present);
    for (uint32_t i = 0; i < used && status == CGM_OK; i++)
        status = check_device((int)i, ret_detail, detail_bytes);
    *ret_count = used;
    return status;
}

/* ---- one device ----------------------------------------------------------------------------- */

static int find_kind(struct cgm_device *device)
{
    static const enum cudaDeviceAttr attributes[] = {cudaDevAttrComputeCapabilityMajor,
                                                     cudaDevAttrComputeCapabilityMinor,
                                                     cudaDevAttrMultiProcessorCount};
    int status = CGM_OK;
    for (size_t i = 0; i < sizeof(attributes) / sizeof(attributes[0]) && status == CGM_OK; i++)
        status = cgm_cuda_check(
            cudaDeviceGetAttribute(&device->kind[i], attributes[i], (int)device->index),
            "cudaDeviceGetAttribute", device->index);
    return status;
}

static bool has_mps(uint32_t device)
{
    int has = 0;
    return cgm_driver.DeviceGetAttribute(&has, CU_DEVICE_ATTRIBUTE_MPS_ENABLED, (CUdevice)device) ==
               CUDA_SUCCESS &&
           has;
}

int cgm_device_open(struct cgm_device *device)
{
    uint32_t d = device->index;
    uint64_t at_ns = cgm_cuda_now_ns();
    int least;
    cgm_device_use(d);
    int status = cgm_cuda_check(cudaFree(NULL), "making a context", d);
    cgm_cuda_log_step("the context", (int)d, &at_ns);
    if (status == CGM_OK)
        cgm_kernels_load(d);
    cgm_cuda_log_step("the kernels", (int)d, &at_ns);
    if (status == CGM_OK)
        status = find_kind(device);
    device->warms_up = true;
    device->beside_others = has_mps(d);
    if (status == CGM_OK)
        status = cgm_cuda_check(cgm_kernel_flagged_gemm_load(&device->has_flagged),
                                "loading of flagged products", d);
    if (status == CGM_OK)
        status =
            cgm_cuda_check(cudaDeviceGetStreamPriorityRange(&least, &device->priority_greatest),
                           "cudaDeviceGetStreamPriorityRange", d);
    if (status == CGM_OK)
        status = cgm_cuda_check(cudaStreamCreateWithFlags(&device->service, cudaStreamNonBlocking),
                                "cudaStreamCreate", d);
    if (status == CGM_OK)
        status = cgm_cuda_check(cudaStreamCreateWithPriority(&device->rescue, cudaStreamNonBlocking,
                                                             device->priority_greatest),
                                "cudaStreamCreate", d);
    if (status == CGM_OK)
        status = cgm_warm_open(device);
    if (status == CGM_OK)
        status = cgm_cuda_check(cudaEventCreate(&device->reference), "cudaEventCreate", d);
    if (status != CGM_OK)
        return status;
    cgm_cuda_log_step("its streams", (int)d, &at_ns);
    cublasStatus_t blas = cgm_blas.Create(&device->blas);
    cgm_cuda_log_step("cuBLASLt's first handle", (int)d, &at_ns);
    if (blas == CUBLAS_STATUS_SUCCESS)
        blas = cgm_blas.Create(&device->chooser);
    if (blas != CUBLAS_STATUS_SUCCESS) {
        cgm_cuda_log(3, "device %u: cublasLtCreate: %s", d, cgm_blas.GetStatusString(blas));
        return CGM_INTERNAL;
    }
    cgm_cuda_log_step("cuBLASLt's second handle", (int)d, &at_ns);
    device->gemms = cgm_gemm_table_new();
    device->codes = cgm_gemm_codes_new();
    device->last = calloc(1, sizeof(*device->last));
    return device->gemms && device->codes && device->last ? CGM_OK : CGM_NO_MEMORY;
}

void cgm_device_close(struct cgm_device *device)
{
    cgm_device_use(device->index);
    cgm_queues_close(device);
    cgm_gemm_table_free(device->gemms);
    cgm_gemm_codes_free(device->codes);
    free(device->last);
    if (device->chooser)
        cgm_blas.Destroy(device->chooser);
    if (device->blas)
        cgm_blas.Destroy(device->blas);
    for (uint32_t i = 0; i < device->n_streams; i++) {
        if (device->streams[i].handle)
            cgm_cuda_check(cudaStreamDestroy(device->streams[i].handle), "cudaStreamDestroy",
                           device->index);
        if (device->streams[i].workspace)
            cgm_cuda_check(cudaFree(device->streams[i].workspace), "cudaFree", device->index);
    }
    if (device->reference)
        cudaEventDestroy(device->reference);
    if (device->service)
        cudaStreamDestroy(device->service);
    if (device->rescue)
        cudaStreamDestroy(device->rescue);
    cgm_warm_close(device);
}

/* COMMGEMM_TEST_NO_PEERS is for tests: every machine becomes one without peer access. */
static int connect_pair(struct cgm_device *from, const struct cgm_device *to)
{
    int can = 0;
    cgm_device_use(from->index);
    int status = cgm_cuda_check(cudaDeviceCanAccessPeer(&can, (int)from->index, (int)to->index),
                                "cudaDeviceCanAccessPeer", from->index);
    if (status != CGM_OK)
        return status;
    if (!can || secure_getenv("COMMGEMM_TEST_NO_PEERS")) {
        cgm_cuda_log(
            4,
            "device %u cannot access the memory of device %u: comms with ranks on both are "
            "refused",
            from->index, to->index);
        return CGM_OK;
    }
    status = cgm_cuda_check(cudaDeviceEnablePeerAccess((int)to->index, 0),
                            "cudaDeviceEnablePeerAccess", from->index);
    from->reaches[to->index] = status == CGM_OK;
    return status;
}

int cgm_device_connect(struct cgm_backend *backend, struct cgm_device *device)
{
    uint64_t at_ns = cgm_cuda_now_ns();
    int status = CGM_OK;
    for (uint32_t i = 0; i < backend->n_devices && status == CGM_OK; i++)
        if (i == device->index)
            device->reaches[i] = true;
        else
            status = connect_pair(device, &backend->devices[i]);
    cgm_cuda_log_step("access to peers", (int)device->index, &at_ns);
    return status;
}
