#include "client/lib/cuda_pointer.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "client/lib/cuda_context.h"
#include "client/lib/error.h"

typedef unsigned long long ull;

/* cuda.h: CUpointer_attribute. X(field, number); a field that a driver does not fill stays 0. */
#define ATTRIBUTES(X)                                                                              \
    X(context, 1)                                                                                  \
    X(memory_type, 2)                                                                              \
    X(buffer_id, 7)                                                                                \
    X(is_managed, 8)                                                                               \
    X(device, 9)                                                                                   \
    X(is_ipc_capable, 10)                                                                          \
    X(base, 11)                                                                                    \
    X(bytes, 12)                                                                                   \
    X(handle_types, 14)                                                                            \
    X(pool, 17)

/* Of a driver of 11.8 or newer. */
#define MAPPING_ATTRIBUTES(X)                                                                      \
    X(bytes, 18)                                                                                   \
    X(base, 19)                                                                                    \
    X(block_id, 20)

enum { TYPE_UNKNOWN = 0, TYPE_HOST = 1, HANDLE_TYPE_FD = 1 };
enum { BUFFER_ID = 7, BLOCK_ID = 20 };

struct pointer {
#define X(field, number) uint64_t field;
    ATTRIBUTES(X)
#undef X
};

struct mapping {
#define X(field, number) uint64_t field;
    MAPPING_ATTRIBUTES(X)
#undef X
};

/* The driver writes 1, 4 or 8 bytes into each zeroed word, the lowest first. */
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "words are filled from below");

static int pointer_describe(const struct cgm_cuda_driver *driver, uint64_t address,
                            struct pointer *ret_pointer)
{
    memset(ret_pointer, 0, sizeof(*ret_pointer));
#define X(field, number) number,
    int numbers[] = {ATTRIBUTES(X)};
#undef X
#define X(field, number) &ret_pointer->field,
    void *data[] = {ATTRIBUTES(X)};
#undef X
    return driver->pointer_attributes(sizeof(numbers) / sizeof(numbers[0]), numbers, data, address);
}

static int mapping_describe(const struct cgm_cuda_driver *driver, uint64_t address,
                            struct mapping *ret_mapping)
{
    memset(ret_mapping, 0, sizeof(*ret_mapping));
#define X(field, number) number,
    int numbers[] = {MAPPING_ATTRIBUTES(X)};
#undef X
#define X(field, number) &ret_mapping->field,
    void *data[] = {MAPPING_ATTRIBUTES(X)};
#undef X
    return driver->pointer_attributes(sizeof(numbers) / sizeof(numbers[0]), numbers, data, address);
}

/* Buffer ids are small counters: a rotation keeps the two apart. */
uint64_t cgm_cuda_identity(const struct cgm_cuda_driver *driver, uint64_t pointer)
{
    uint64_t buffer_id = 0, block_id = 0;
    int numbers[] = {BUFFER_ID, BLOCK_ID};
    void *data[] = {&buffer_id, &block_id};
    if (driver->pointer_attributes(2, numbers, data, pointer) != CGM_CUDA_SUCCESS) {
        buffer_id = block_id = 0; /* an older driver knows no blocks */
        if (driver->pointer_attributes(1, numbers, data, pointer) != CGM_CUDA_SUCCESS)
            return 0;
    }
    return buffer_id ^ (block_id << 32 | block_id >> 32);
}

/* ---- what cannot be exported ------------------------------------------------------------------
 */

static bool is_unknown(const struct pointer *p)
{
    return p->memory_type == TYPE_UNKNOWN;
}

static bool is_managed(const struct pointer *p)
{
    return p->is_managed != 0;
}

static bool is_host(const struct pointer *p)
{
    return p->memory_type == TYPE_HOST;
}

static bool is_pooled(const struct pointer *p)
{
    return p->pool != 0;
}

static bool is_vmm_without_fd(const struct pointer *p)
{
    return !p->is_ipc_capable && !(p->handle_types & HANDLE_TYPE_FD);
}

/* The first that holds. */
static const struct {
    bool (*holds)(const struct pointer *p);
    int status;
    const char *why;
} refusals[] = {
    {is_unknown, CGM_INVALID_ARGUMENT,
     "is not known to the CUDA driver: it is freed memory, or host memory; allocate with "
     "cudaMalloc "
     "and submit before it is freed"},
    {is_managed, CGM_NOT_SUPPORTED,
     "is managed memory (cudaMallocManaged), which no other process can open; allocate with "
     "cudaMalloc"},
    {is_host, CGM_NOT_SUPPORTED,
     "is host memory; copy it to the device, or import a sealed memfd with commgemm_import"},
    {is_pooled, CGM_NOT_SUPPORTED,
     "comes from a memory pool (cudaMallocAsync), which has no handle for a part of it; allocate "
     "with cudaMalloc (PyTorch: PYTORCH_CUDA_ALLOC_CONF=backend:native) or copy into a buffer of "
     "the daemon"},
    {is_vmm_without_fd, CGM_NOT_SUPPORTED,
     "is virtual memory (cuMemCreate) without the POSIX fd handle type, or of a device that shares "
     "no memory; ask for CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR (PyTorch: "
     "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:False) or copy into a buffer of the daemon"},
};

static const char *why_mig(const struct cgm_cuda_driver *driver, uint64_t ordinal)
{
    char name[256] = "";
    int device;
    if (driver->device_get(&device, (int)ordinal) != CGM_CUDA_SUCCESS ||
        driver->device_name(name, sizeof(name), device) != CGM_CUDA_SUCCESS || !strstr(name, "MIG"))
        return NULL;
    return "is memory of a MIG instance, which cannot be shared between processes; use the whole "
           "GPU, or copy into a buffer of the daemon";
}

static int refuse(const struct cgm_cuda_driver *driver, uint64_t address, const struct pointer *p)
{
    for (size_t i = 0; i < sizeof(refusals) / sizeof(refusals[0]); i++) {
        const char *why = refusals[i].why, *mig = NULL;
        if (!refusals[i].holds(p))
            continue;
        if (refusals[i].holds == is_vmm_without_fd)
            mig = why_mig(driver, p->device);
        return cgm_fail(refusals[i].status, "device_pointer %#llx %s", (ull)address,
                        mig ? mig : why);
    }
    return CGM_OK;
}

/* ---- what it lies in --------------------------------------------------------------------------
 */

static int find_uuid(const struct cgm_cuda_driver *driver, uint64_t ordinal, char *ret_text,
                     size_t size)
{
    struct cgm_cuda_uuid uuid;
    const unsigned char *b = uuid.bytes;
    int device;
    int result = driver->device_get(&device, (int)ordinal);
    if (result == CGM_CUDA_SUCCESS)
        result = driver->device_uuid(&uuid, device);
    if (result != CGM_CUDA_SUCCESS)
        return cgm_fail(cgm_cuda_status(result), "cuDeviceGetUuid: %s",
                        cgm_cuda_error_name(driver, result));
    snprintf(ret_text, size,
             "GPU-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", b[0], b[1],
             b[2], b[3], b[4], b[5], b[6], b[7], b[8], b[9], b[10], b[11], b[12], b[13], b[14],
             b[15]);
    return CGM_OK;
}

static int part_add(const struct cgm_cuda_driver *driver, uint64_t base, uint64_t bytes,
                    struct cgm_cuda_memory *memory)
{
    uint64_t identity = cgm_cuda_identity(driver, base);
    if (identity == 0)
        return cgm_fail(CGM_NOT_SUPPORTED,
                        "the driver gives no buffer id for the %llu bytes at %#llx, so that their "
                        "reuse would go unnoticed; use commgemm_import",
                        (ull)bytes, (ull)base);
    memory->parts[memory->n_parts++] = (struct cgm_cuda_part){base, bytes, identity};
    return CGM_OK;
}

static int find_allocation(const struct cgm_cuda_driver *driver, const struct pointer *p,
                           uint64_t address, uint64_t bytes, struct cgm_cuda_memory *memory)
{
    uint64_t behind = p->base + p->bytes - address;
    if (bytes > behind)
        return cgm_fail(CGM_INVALID_ARGUMENT,
                        "bytes is %llu; %llu of the allocation of %llu bytes at %#llx lie behind "
                        "device_pointer %#llx",
                        (ull)bytes, (ull)behind, (ull)p->bytes, (ull)p->base, (ull)address);
    return part_add(driver, p->base, p->bytes, memory);
}

/* A range may go over several mappings, as those of PyTorch's expandable segments do. */
static int find_mappings(const struct cgm_cuda_driver *driver, uint64_t address, uint64_t bytes,
                         struct cgm_cuda_memory *memory)
{
    for (uint64_t at = address; at - address < bytes;) {
        struct mapping mapping;
        int result = mapping_describe(driver, at, &mapping);
        if (result != CGM_CUDA_SUCCESS)
            return cgm_fail(CGM_NOT_SUPPORTED,
                            "cuPointerGetAttributes of virtual memory: %s; the driver must be of "
                            "CUDA 11.8 or newer",
                            cgm_cuda_error_name(driver, result));
        if (mapping.bytes == 0 || mapping.base + mapping.bytes <= at)
            return cgm_fail(CGM_INVALID_ARGUMENT,
                            "bytes is %llu; only %llu are mapped behind device_pointer %#llx",
                            (ull)bytes, (ull)(at - address), (ull)address);
        if (memory->n_parts == CGM_IMPORT_SEGMENTS_MAX)
            return cgm_fail(CGM_NOT_SUPPORTED,
                            "the %llu bytes at %#llx have more than %u mappings, which is what an "
                            "import takes; PyTorch: expandable_segments:False",
                            (ull)bytes, (ull)address, CGM_IMPORT_SEGMENTS_MAX);
        int status = part_add(driver, mapping.base, mapping.bytes, memory);
        if (status != CGM_OK)
            return status;
        at = mapping.base + mapping.bytes;
    }
    return CGM_OK;
}

int cgm_cuda_memory_find(const struct cgm_cuda_driver *driver, uint64_t pointer, uint64_t bytes,
                         struct cgm_cuda_memory *ret_memory)
{
    struct pointer p;
    int result = pointer_describe(driver, pointer, &p);
    if (result != CGM_CUDA_SUCCESS)
        return cgm_fail(cgm_cuda_status(result),
                        "device_pointer is %#llx; cuPointerGetAttributes: %s", (ull)pointer,
                        cgm_cuda_error_name(driver, result));
    int status = refuse(driver, pointer, &p);
    if (status != CGM_OK)
        return status;
    ret_memory->context = (void *)(uintptr_t)p.context;
    ret_memory->is_vmm = !p.is_ipc_capable;
    ret_memory->n_parts = 0;
    status = find_uuid(driver, p.device, ret_memory->uuid, sizeof(ret_memory->uuid));
    if (status != CGM_OK)
        return status;
    return ret_memory->is_vmm ? find_mappings(driver, pointer, bytes, ret_memory)
                              : find_allocation(driver, &p, pointer, bytes, ret_memory);
}

/* ---- export -----------------------------------------------------------------------------------
 */

static int export_ipc(const struct cgm_cuda_driver *driver, const struct cgm_cuda_memory *memory,
                      struct commgemm_segment *ret_segment)
{
    struct cgm_cuda_context context;
    struct cgm_cuda_ipc_handle handle;
    int status = cgm_cuda_context_enter(memory->context, &context);
    if (status != CGM_OK)
        return status;
    int result = driver->ipc_handle(&handle, memory->parts[0].base);
    cgm_cuda_context_leave(&context);
    if (result != CGM_CUDA_SUCCESS)
        return cgm_fail(CGM_NOT_SUPPORTED,
                        "the allocation of %llu bytes at %#llx: cuIpcGetMemHandle: %s; the system "
                        "or container allows no CUDA IPC: copy into a buffer of the daemon",
                        (ull)memory->parts[0].bytes, (ull)memory->parts[0].base,
                        cgm_cuda_error_name(driver, result));
    ret_segment->kind = COMMGEMM_SEGMENT_CUDA_IPC;
    memcpy(ret_segment->handle, handle.bytes, sizeof(ret_segment->handle));
    return CGM_OK;
}
_Static_assert(sizeof(((struct commgemm_segment *)0)->handle) == sizeof(struct cgm_cuda_ipc_handle),
               "a cudaIpc handle");

static int export_fd(const struct cgm_cuda_driver *driver, const struct cgm_cuda_part *part,
                     struct commgemm_segment *ret_segment)
{
    uint64_t handle;
    const char *call = "cuMemRetainAllocationHandle";
    int result = driver->allocation_retain(&handle, (void *)(uintptr_t)part->base);
    if (result == CGM_CUDA_SUCCESS) {
        call = "cuMemExportToShareableHandle";
        result = driver->allocation_export(&ret_segment->fd, handle, HANDLE_TYPE_FD, 0);
        driver->allocation_release(handle);
    }
    if (result != CGM_CUDA_SUCCESS)
        return cgm_fail(CGM_NOT_SUPPORTED,
                        "the mapping of %llu bytes at %#llx: %s: %s; copy into a buffer of the "
                        "daemon",
                        (ull)part->bytes, (ull)part->base, call,
                        cgm_cuda_error_name(driver, result));
    ret_segment->kind = COMMGEMM_SEGMENT_FD;
    return CGM_OK;
}

int cgm_cuda_memory_export(const struct cgm_cuda_driver *driver,
                           const struct cgm_cuda_memory *memory,
                           struct commgemm_segment *ret_segments)
{
    for (uint32_t i = 0; i < memory->n_parts; i++) {
        const struct cgm_cuda_part *part = &memory->parts[i];
        ret_segments[i] = (struct commgemm_segment){.fd = -1, .length = part->bytes};
        int status = memory->is_vmm ? export_fd(driver, part, &ret_segments[i])
                                    : export_ipc(driver, memory, &ret_segments[i]);
        if (status != CGM_OK) {
            cgm_cuda_segments_close(ret_segments, i);
            return status;
        }
    }
    return CGM_OK;
}

void cgm_cuda_segments_close(struct commgemm_segment *segments, uint32_t n_segments)
{
    for (uint32_t i = 0; i < n_segments; i++)
        if (segments[i].fd >= 0)
            close(segments[i].fd);
}
