#include "daemon/executor/cuda/doctor.h"
#include "daemon/executor/cuda/platform.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "daemon/executor/cuda/cuda.h"
#include "proto/status.h"

#define PUSH_BYTES (32u << 20)
#define PUSHES 4
#define WAKES 32
#define WAKE_LIMIT_NS 200000000ull
#define TEXT_BYTES 256u

struct doctor {
    struct cgm_backend *backend;
    cgm_doctor_add *add;
    void *context;
};

static void find(const struct doctor *doctor, const char *check, enum cgm_doctor_result result,
                 const char *fix, const char *format, ...) __attribute__((format(printf, 5, 6)));

static void find(const struct doctor *doctor, const char *check, enum cgm_doctor_result result,
                 const char *fix, const char *format, ...)
{
    char text[TEXT_BYTES];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    doctor->add(doctor->context, check, result, text, result == CGM_DOCTOR_OK ? "" : fix);
}

/* ---- versions and modes --------------------------------------------------------------------- */

static void find_driver(const struct doctor *doctor)
{
    char release[32];
    int driver = 0, toolkit = CUDART_VERSION;
    cudaDriverGetVersion(&driver);
    cgm_cuda_driver_release(release, sizeof(release));
    find(doctor, "driver", driver >= toolkit ? CGM_DOCTOR_OK : CGM_DOCTOR_WARNING,
         "install a driver that is at least as new as the toolkit",
         "release %s for CUDA %d.%d; built with toolkit %d.%d", release, driver / 1000,
         driver % 1000 / 10, toolkit / 1000, toolkit % 1000 / 10);
}

static void find_compute_mode(const struct doctor *doctor)
{
    char exclusive[96] = "";
    size_t used = 0;
    for (uint32_t d = 0; d < doctor->backend->n_devices; d++) {
        int mode = cudaComputeModeDefault;
        cgm_cuda_try(cudaDeviceGetAttribute(&mode, cudaDevAttrComputeMode, (int)d), "compute mode",
                     d);
        if (mode != cudaComputeModeDefault && used + 8 < sizeof(exclusive))
            used += (size_t)snprintf(exclusive + used, sizeof(exclusive) - used, "%s%u",
                                     used ? ", " : "", d);
    }
    if (used)
        find(doctor, "compute mode", CGM_DOCTOR_WARNING, "nvidia-smi -c DEFAULT",
             "devices %s are not in the default mode: without MPS no client can use them beside "
             "the daemon",
             exclusive);
    else
        find(doctor, "compute mode", CGM_DOCTOR_OK, "", "default: processes may share the devices");
}

/* ---- peers ---------------------------------------------------------------------------------- */

/* GB/s of one copy engine from one device into another's memory; 0 when it cannot. */
static double measure_push(const struct doctor *doctor, struct cgm_mem *const *mems, uint32_t from,
                           uint32_t to)
{
    cudaStream_t stream = doctor->backend->devices[from].service;
    void *target = mems[to] ? mems[to]->at[from] : NULL;
    cudaEvent_t begin, end;
    float ms = 0;
    if (!target || !mems[from])
        return 0;
    cgm_device_use(from);
    if (cgm_cuda_check(cudaEventCreate(&begin), "cudaEventCreate", from) != CGM_OK)
        return 0;
    int status = cgm_cuda_check(cudaEventCreate(&end), "cudaEventCreate", from);
    /* The first one is not timed. */
    for (int i = 0; i <= PUSHES && status == CGM_OK; i++) {
        status = cgm_cuda_check(cudaMemcpyAsync(target, mems[from]->at[from], PUSH_BYTES,
                                                cudaMemcpyDeviceToDevice, stream),
                                "a push", from);
        if (i == 0)
            cudaEventRecord(begin, stream);
    }
    if (status == CGM_OK) {
        cudaEventRecord(end, stream);
        status = cgm_cuda_check(cudaStreamSynchronize(stream), "a push", from);
    }
    if (status == CGM_OK)
        cudaEventElapsedTime(&ms, begin, end);
    cudaEventDestroy(begin);
    cudaEventDestroy(end);
    return ms > 0 ? (double)PUSH_BYTES * PUSHES / ms / 1e6 : 0;
}

struct rates {
    double gb_s[CGM_CUDA_DEVICES_MAX][CGM_CUDA_DEVICES_MAX];
    double best;
};

static void measure_rates(const struct doctor *doctor, struct rates *rates)
{
    struct cgm_backend *backend = doctor->backend;
    struct cgm_mem *mems[CGM_CUDA_DEVICES_MAX] = {NULL};
    for (uint32_t d = 0; d < backend->n_devices; d++)
        if (cgm_cuda_mem_alloc(backend, d, PUSH_BYTES, 0, &mems[d]) != CGM_OK)
            mems[d] = NULL;
    for (uint32_t from = 0; from < backend->n_devices; from++)
        for (uint32_t to = 0; to < backend->n_devices; to++) {
            double rate = from == to ? 0 : measure_push(doctor, mems, from, to);
            rates->gb_s[from][to] = rate;
            rates->best = rate > rates->best ? rate : rates->best;
        }
    for (uint32_t d = 0; d < backend->n_devices; d++)
        if (mems[d])
            cgm_cuda_mem_free(mems[d]);
}

static void find_pushes_from(const struct doctor *doctor, const struct rates *rates, uint32_t from)
{
    const struct cgm_device *device = &doctor->backend->devices[from];
    char check[32], list[TEXT_BYTES - 64] = "";
    size_t used = 0;
    bool missing = false, slow = false;
    for (uint32_t to = 0; to < doctor->backend->n_devices && used + 24 < sizeof(list); to++) {
        double rate = rates->gb_s[from][to];
        if (to == from)
            continue;
        missing |= !device->reaches[to];
        slow |= rate < rates->best / 2;
        used += (size_t)snprintf(list + used, sizeof(list) - used, "%s%u: ", used ? ", " : "", to);
        used += (size_t)(rate > 0 ? snprintf(list + used, sizeof(list) - used, "%.0f GB/s", rate)
                                  : snprintf(list + used, sizeof(list) - used, "%s",
                                             device->reaches[to] ? "no memory" : "no access"));
    }
    snprintf(check, sizeof(check), "push from %u", from);
    find(doctor, check, missing || slow ? CGM_DOCTOR_WARNING : CGM_DOCTOR_OK,
         missing
             ? "see nvidia-smi topo -p2p w; until then keep the ranks of a comm on devices that "
               "reach each other"
             : "see nvidia-smi topo -m and nvlink -s; work that runs now slows this too",
         "to device %s%s", list,
         missing ? ": comms across do not work"
         : slow  ? ": uneven"
                 : "");
}

static void find_peers(const struct doctor *doctor)
{
    struct rates rates = {.best = 0};
    if (doctor->backend->n_devices < 2) {
        find(doctor, "peers", CGM_DOCTOR_OK, "", "one device: ranks share it");
        return;
    }
    measure_rates(doctor, &rates);
    for (uint32_t from = 0; from < doctor->backend->n_devices; from++)
        find_pushes_from(doctor, &rates, from);
}

/* ---- memory that is shared ------------------------------------------------------------------ */

static void find_ipc(const struct doctor *doctor)
{
    uint8_t handle[CUDA_IPC_HANDLE_SIZE];
    struct cgm_mem *mem;
    int status = cgm_cuda_mem_alloc(doctor->backend, 0, 1, CGM_MEMORY_IPC, &mem);
    if (status == CGM_OK) {
        status = cgm_cuda_mem_ipc_handle(mem, handle);
        cgm_cuda_mem_free(mem);
    }
    find(doctor, "ipc", status == CGM_OK ? CGM_DOCTOR_OK : CGM_DOCTOR_WARNING,
         "let tensors be shared by file descriptor (expandable segments), or switch MIG off and "
         "give the containers distinct process numbers",
         "cudaIpc handles %s%s", status == CGM_OK ? "can be made" : "cannot be made: ",
         status == CGM_OK ? "" : cgm_status_text(status));
}

/* A durable buffer's way: made, exported, mapped again from its file descriptor, equal. */
static int try_durable(struct cgm_backend *backend)
{
    struct cgm_mem *mem, *again = NULL;
    uint64_t number = cgm_cuda_now_ns(), read = 0;
    int fd = -1;
    int status = cgm_cuda_mem_alloc(backend, 0, sizeof(number), 0, &mem);
    if (status != CGM_OK)
        return status;
    status = cgm_cuda_mem_export(mem, &fd);
    if (status == CGM_OK)
        status = cgm_cuda_mem_adopt(backend, 0, fd, cgm_cuda_mem_bytes(mem), &again);
    if (status == CGM_OK)
        status =
            cgm_cuda_check(cudaMemcpy(mem->at[0], &number, sizeof(number), cudaMemcpyHostToDevice),
                           "cudaMemcpy", 0);
    if (status == CGM_OK)
        status = cgm_cuda_check(
            cudaMemcpy(&read, again->at[0], sizeof(read), cudaMemcpyDeviceToHost), "cudaMemcpy", 0);
    if (status == CGM_OK && read != number)
        status = CGM_INTERNAL;
    if (again)
        cgm_cuda_mem_free(again);
    if (fd >= 0)
        close(fd);
    cgm_cuda_mem_free(mem);
    return status;
}

static void find_durable(const struct doctor *doctor)
{
    int status = try_durable(doctor->backend);
    find(doctor, "durable buffers", status == CGM_OK ? CGM_DOCTOR_OK : CGM_DOCTOR_FAILURE,
         "install a driver that shares VMM memory by file descriptor; in a container, allow it",
         "VMM memory %s%s",
         status == CGM_OK ? "is exported as a file descriptor and mapped again"
                          : "cannot be exported and mapped again: ",
         status == CGM_OK ? "" : cgm_status_text(status));
}

/* ---- a CPU store that wakes a stream -------------------------------------------------------- */

struct wake {
    _Atomic uint64_t *word; /* a page of a memfd, registered */
    CUdeviceptr at;
    cudaStream_t stream;
    cudaEvent_t woken;
    bool stuck; /* the stream waits on: nothing of this may be freed */
};

static bool is_woken(const struct wake *wake, uint64_t limit_ns)
{
    uint64_t begin = cgm_cuda_now_ns();
    while (cudaEventQuery(wake->woken) == cudaErrorNotReady)
        if (cgm_cuda_now_ns() - begin > limit_ns)
            return false;
    return true;
}

/* A device's write instead of the CPU's. */
static void rescue(struct wake *wake, uint64_t value)
{
    cudaStream_t other;
    if (cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking) == cudaSuccess) {
        cgm_driver.StreamWriteValue64(other, wake->at, value, CU_STREAM_WRITE_VALUE_DEFAULT);
        cudaStreamDestroy(other);
    }
    wake->stuck = !is_woken(wake, WAKE_LIMIT_NS);
}

/* Nanoseconds from the store to the event behind the wait; 0: it never came. */
static uint64_t wake_once(struct wake *wake, uint64_t value)
{
    struct timespec pause = {.tv_nsec = 200000};
    if (cgm_driver_check(
            cgm_driver.StreamWaitValue64(wake->stream, wake->at, value, CU_STREAM_WAIT_VALUE_GEQ),
            "cuStreamWaitValue64", 0) != CGM_OK)
        return 0;
    cudaEventRecord(wake->woken, wake->stream);
    nanosleep(&pause, NULL); /* it waits by now */
    uint64_t begin = cgm_cuda_now_ns();
    atomic_store(wake->word, value);
    if (is_woken(wake, WAKE_LIMIT_NS))
        return cgm_cuda_now_ns() - begin;
    rescue(wake, value);
    return 0;
}

static int compare_numbers(const void *left, const void *right)
{
    const uint64_t *a = left, *b = right;
    return (*a > *b) - (*a < *b);
}

static uint64_t measure_wake(struct wake *wake)
{
    uint64_t times[WAKES];
    for (uint64_t i = 0; i < WAKES; i++)
        if ((times[i] = wake_once(wake, i + 1)) == 0)
            return 0;
    qsort(times, WAKES, sizeof(times[0]), compare_numbers);
    return times[WAKES / 2];
}

static int wake_open(struct wake *wake, size_t bytes)
{
    void *device = NULL;
    int fd = memfd_create("commgemm-doctor", MFD_CLOEXEC);
    void *page = fd >= 0 && ftruncate(fd, (off_t)bytes) == 0
                     ? mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0)
                     : MAP_FAILED;
    if (fd >= 0)
        close(fd);
    if (page == MAP_FAILED)
        return CGM_NO_MEMORY;
    wake->word = page;
    int status = cgm_cuda_check(
        cudaHostRegister(page, bytes, cudaHostRegisterMapped | cudaHostRegisterPortable),
        "cudaHostRegister", 0);
    if (status == CGM_OK)
        status = cgm_cuda_check(cudaHostGetDevicePointer(&device, page, 0),
                                "cudaHostGetDevicePointer", 0);
    if (status == CGM_OK)
        status = cgm_cuda_check(cudaEventCreateWithFlags(&wake->woken, cudaEventDisableTiming),
                                "cudaEventCreate", 0);
    wake->at = (CUdeviceptr)(uintptr_t)device;
    return status;
}

static void wake_close(struct wake *wake, size_t bytes)
{
    if (wake->stuck || !wake->word)
        return;
    if (wake->woken)
        cudaEventDestroy(wake->woken);
    cudaHostUnregister((void *)(uintptr_t)wake->word);
    cudaGetLastError(); /* it may not have been registered */
    munmap((void *)(uintptr_t)wake->word, bytes);
}

static void find_wake(const struct doctor *doctor)
{
    struct wake wake = {.stream = doctor->backend->devices[0].service};
    size_t bytes = (size_t)sysconf(_SC_PAGESIZE);
    cgm_device_use(0);
    int status = wake_open(&wake, bytes);
    uint64_t ns = status == CGM_OK ? measure_wake(&wake) : 0;
    wake_close(&wake, bytes);
    if (status != CGM_OK)
        find(doctor, "wake", CGM_DOCTOR_FAILURE, "raise LimitMEMLOCK, or ulimit -l unlimited",
             "a memory file cannot be registered: %s", cgm_status_text(status));
    else if (ns == 0)
        find(doctor, "wake", CGM_DOCTOR_FAILURE,
             "use another driver: jobs in the order of a stream would hang",
             "a CPU store does not wake a stream that waits on registered memory");
    else
        find(doctor, "wake", CGM_DOCTOR_OK, "",
             "a CPU store wakes a waiting stream, seen after %.1f us (median)", (double)ns / 1e3);
}

void cgm_cuda_doctor(struct cgm_backend *backend, cgm_doctor_add *add, void *context)
{
    static void (*const finds[])(const struct doctor *doctor) = {
        find_driver, find_compute_mode, find_peers, find_ipc, find_durable, find_wake,
    };
    const struct doctor doctor = {backend, add, context};
    for (size_t i = 0; i < sizeof(finds) / sizeof(finds[0]); i++)
        finds[i](&doctor);
}
