#pragma GCC visibility push(default)
#include "tests/unit/fake_cuda.h"
#pragma GCC visibility pop

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "client/lib/cuda_driver.h"

/* The entry points, with the types that the library expects. */
#pragma GCC visibility push(default)
#define X(member, symbol, parameters) int symbol parameters;
CGM_CUDA_FUNCTIONS(X)
#undef X
#pragma GCC visibility pop

#define DEVICE_BIT (1ull << 60) /* device addresses of host memory are not host addresses */
#define CONTEXTS 8
#define RANGES_MAX 64
#define MEMORIES_MAX 512

enum { SUCCESS = 0, INVALID_VALUE = 1, INVALID_CONTEXT = 201, ALREADY_REGISTERED = 712 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char complaint[128];
static struct {
    int result, skip;
} failures[FAKE_CALLS];

static void complain(const char *what)
{
    pthread_mutex_lock(&lock);
    snprintf(complaint, sizeof(complaint), "%s", what);
    pthread_mutex_unlock(&lock);
}

const char *fake_cuda_complaint(void)
{
    return complaint;
}

void fake_cuda_fail(enum fake_cuda_call call, int result, int skip)
{
    pthread_mutex_lock(&lock);
    failures[call].result = result;
    failures[call].skip = skip;
    pthread_mutex_unlock(&lock);
}

static int failure_of(enum fake_cuda_call call)
{
    int result = SUCCESS;
    pthread_mutex_lock(&lock);
    if (failures[call].result && failures[call].skip-- == 0) {
        result = failures[call].result;
        failures[call].result = SUCCESS;
    }
    pthread_mutex_unlock(&lock);
    return result;
}

int cuGetErrorName(int result, const char **ret_name)
{
    *ret_name = result == INVALID_VALUE ? "CUDA_ERROR_INVALID_VALUE" : "CUDA_ERROR_FAKE";
    return SUCCESS;
}

/* ---- contexts and devices ---------------------------------------------------------------------
 */

static char contexts[CONTEXTS];
static _Thread_local void *current[4];
static _Thread_local unsigned depth;

void *fake_context(unsigned i)
{
    return &contexts[i];
}

void fake_context_set(void *context)
{
    current[depth] = context;
}

int cuCtxGetCurrent(void **ret_context)
{
    *ret_context = current[depth];
    return SUCCESS;
}

int cuCtxPushCurrent_v2(void *context)
{
    int result = failure_of(FAKE_PUSH);
    if (result == SUCCESS)
        current[++depth] = context;
    return result;
}

int cuCtxPopCurrent_v2(void **ret_context)
{
    *ret_context = current[depth--];
    return SUCCESS;
}

int cuCtxGetDevice(int *ret_device)
{
    *ret_device = (int)((char *)current[depth] - contexts);
    return current[depth] ? SUCCESS : INVALID_CONTEXT;
}

int cuDeviceGet(int *ret_device, int ordinal)
{
    *ret_device = ordinal;
    return SUCCESS;
}

int cuDeviceGetAttribute(int *ret_value, int attribute, int device)
{
    *ret_value = attribute == 122 && device != CONTEXTS - 1;
    return SUCCESS;
}

int cuDeviceGetName(char *ret_name, int bytes, int device)
{
    snprintf(ret_name, (size_t)bytes, device == 5 ? "Fake MIG 1g.18gb" : "Fake");
    return SUCCESS;
}

int cuDeviceGetUuid_v2(struct cgm_cuda_uuid *ret_uuid, int device)
{
    memset(ret_uuid->bytes, 0xab, sizeof(ret_uuid->bytes));
    ret_uuid->bytes[15] = (unsigned char)device;
    return SUCCESS;
}

/* ---- registered memory ------------------------------------------------------------------------
 */

static struct {
    char *base;
    size_t bytes;
} ranges[RANGES_MAX];

int cuMemHostRegister_v2(void *base, size_t bytes, unsigned flags)
{
    int result = failure_of(FAKE_REGISTER);
    if (result)
        return result;
    if (!current[depth] || flags != 3)
        complain("registered without a context, or not for all of them");
    pthread_mutex_lock(&lock);
    int place = -1;
    for (int i = 0; i < RANGES_MAX; i++) {
        if (!ranges[i].base)
            place = i;
        else if (ranges[i].base < (char *)base + bytes &&
                 (char *)base < ranges[i].base + ranges[i].bytes)
            result = ALREADY_REGISTERED;
    }
    if (place >= 0 && !result) {
        ranges[place].base = base;
        ranges[place].bytes = bytes;
    }
    pthread_mutex_unlock(&lock);
    return place < 0 ? 2 : result;
}

static bool is_registered(const void *at)
{
    bool found = false;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < RANGES_MAX; i++)
        found |= ranges[i].base && ranges[i].base <= (const char *)at &&
                 (const char *)at < ranges[i].base + ranges[i].bytes;
    pthread_mutex_unlock(&lock);
    return found;
}

int cuMemHostUnregister(void *base)
{
    int result = INVALID_VALUE;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < RANGES_MAX; i++)
        if (ranges[i].base == base) {
            ranges[i].base = NULL;
            result = SUCCESS;
        }
    pthread_mutex_unlock(&lock);
    return result;
}

unsigned fake_cuda_registered(void)
{
    unsigned count = 0;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < RANGES_MAX; i++)
        count += ranges[i].base != NULL;
    pthread_mutex_unlock(&lock);
    return count;
}

int cuMemHostGetDevicePointer_v2(uint64_t *ret_address, void *base, unsigned flags)
{
    *ret_address = (uint64_t)(uintptr_t)base | DEVICE_BIT;
    return flags == 0 && is_registered(base) ? SUCCESS : INVALID_VALUE;
}

/* ---- streams ----------------------------------------------------------------------------------
 */

enum kind { WRITE, WAIT, HOLD };

struct operation {
    enum kind kind;
    _Atomic uint64_t *word;
    uint64_t value;
    struct operation *next;
};

struct stream {
    void *context;
    unsigned depth, queued;
    atomic_bool capturing;
    _Atomic unsigned released; /* holds that may be passed */
    bool ends;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct operation *first, **last;
    struct stream *next;
};

static struct stream *streams; /* under the lock */

static bool is_passed(struct stream *stream, const struct operation *operation)
{
    unsigned released = atomic_load(&stream->released);
    if (operation->kind == HOLD)
        return released > 0 &&
               atomic_compare_exchange_strong(&stream->released, &released, released - 1);
    if (!is_registered(operation->word)) {
        complain("a stream used memory that is not registered");
        return true;
    }
    if (operation->kind == WRITE)
        atomic_store(operation->word, operation->value);
    return (int64_t)(atomic_load(operation->word) - operation->value) >= 0;
}

static void *stream_main(void *argument)
{
    struct stream *stream = argument;
    pthread_mutex_lock(&stream->lock);
    while (stream->first || !stream->ends) {
        struct operation *operation = stream->first;
        if (!operation) {
            pthread_cond_wait(&stream->changed, &stream->lock);
            continue;
        }
        pthread_mutex_unlock(&stream->lock);
        while (!is_passed(stream, operation))
            usleep(20);
        pthread_mutex_lock(&stream->lock);
        stream->first = operation->next;
        if (!stream->first)
            stream->last = &stream->first;
        stream->queued--;
        free(operation);
        pthread_cond_broadcast(&stream->changed);
    }
    pthread_mutex_unlock(&stream->lock);
    return NULL;
}

static int enqueue(void *handle, enum kind kind, uint64_t address, uint64_t value)
{
    struct stream *stream = handle;
    struct operation *operation = calloc(1, sizeof(*operation));
    *operation = (struct operation){.kind = kind,
                                    .word = (_Atomic uint64_t *)(uintptr_t)(address & ~DEVICE_BIT),
                                    .value = value};
    if (kind != HOLD && !(address & DEVICE_BIT))
        complain("a host address in a stream");
    if (kind != HOLD && current[depth] != stream->context)
        complain("a stream of another context than the current one");
    pthread_mutex_lock(&stream->lock);
    while (stream->depth && stream->queued >= stream->depth)
        pthread_cond_wait(&stream->changed, &stream->lock);
    *stream->last = operation;
    stream->last = &operation->next;
    stream->queued++;
    pthread_cond_broadcast(&stream->changed);
    pthread_mutex_unlock(&stream->lock);
    return SUCCESS;
}

int cuStreamWriteValue64_v2(void *stream, uint64_t address, uint64_t value, unsigned flags)
{
    int result = failure_of(FAKE_WRITE);
    if (flags != 0)
        complain("a write without the barrier");
    return result ? result : enqueue(stream, WRITE, address, value);
}

int cuStreamWaitValue64_v2(void *stream, uint64_t address, uint64_t value, unsigned flags)
{
    int result = failure_of(FAKE_WAIT);
    if (flags != 0)
        complain("a wait for something else than >=");
    return result ? result : enqueue(stream, WAIT, address, value);
}

int cuStreamGetCtx(void *stream, void **ret_context)
{
    *ret_context = ((struct stream *)stream)->context;
    return SUCCESS;
}

int cuStreamIsCapturing(void *stream, int *ret_state)
{
    *ret_state = stream && atomic_load(&((struct stream *)stream)->capturing) ? 1 : 0;
    return SUCCESS;
}

void *fake_stream_new(void *context, unsigned stream_depth)
{
    struct stream *stream = calloc(1, sizeof(*stream));
    stream->context = context;
    stream->depth = stream_depth;
    stream->last = &stream->first;
    pthread_mutex_init(&stream->lock, NULL);
    pthread_cond_init(&stream->changed, NULL);
    pthread_create(&stream->thread, NULL, stream_main, stream);
    pthread_mutex_lock(&lock);
    stream->next = streams;
    streams = stream;
    pthread_mutex_unlock(&lock);
    return stream;
}

void fake_stream_free(void *handle)
{
    struct stream *stream = handle;
    pthread_mutex_lock(&stream->lock);
    stream->ends = true;
    pthread_cond_broadcast(&stream->changed);
    pthread_mutex_unlock(&stream->lock);
    pthread_join(stream->thread, NULL);
    pthread_mutex_lock(&lock);
    for (struct stream **at = &streams; *at; at = &(*at)->next)
        if (*at == stream) {
            *at = stream->next;
            break;
        }
    pthread_mutex_unlock(&lock);
    pthread_mutex_destroy(&stream->lock);
    pthread_cond_destroy(&stream->changed);
    free(stream);
}

void fake_stream_hold(void *stream)
{
    enqueue(stream, HOLD, 0, 0);
}

void fake_stream_release(void *stream)
{
    atomic_fetch_add(&((struct stream *)stream)->released, 1);
}

void fake_stream_capture(void *stream, bool capturing)
{
    atomic_store(&((struct stream *)stream)->capturing, capturing);
}

unsigned fake_stream_length(void *handle)
{
    struct stream *stream = handle;
    pthread_mutex_lock(&stream->lock);
    unsigned length = stream->queued;
    pthread_mutex_unlock(&stream->lock);
    return length;
}

bool fake_stream_is_done(void *handle, int within_ms)
{
    for (int i = 0;; i++) {
        bool done = fake_stream_length(handle) == 0;
        if (done || i >= within_ms * 10)
            return done;
        usleep(100);
    }
}

/* All streams of the context. The test frees none meanwhile. */
int cuCtxSynchronize(void)
{
    pthread_mutex_lock(&lock);
    struct stream *stream = streams;
    pthread_mutex_unlock(&lock);
    for (; stream; stream = stream->next)
        if (stream->context == current[depth])
            while (!fake_stream_is_done(stream, 1000))
                continue;
    return SUCCESS;
}

/* ---- memory -----------------------------------------------------------------------------------
 */

struct row {
    struct fake_memory memory;
    uint64_t base, bytes, id; /* of this mapping, or of all of it */
};

static struct row rows[MEMORIES_MAX];
static unsigned n_rows;
static uint64_t last_id;

static void row_add(const struct fake_memory *memory, uint64_t base, uint64_t bytes)
{
    pthread_mutex_lock(&lock);
    rows[n_rows++] = (struct row){*memory, base, bytes, ++last_id};
    pthread_mutex_unlock(&lock);
}

void fake_memory_add(const struct fake_memory *memory)
{
    uint64_t step = memory->mapping_bytes ? memory->mapping_bytes : memory->bytes;
    for (uint64_t at = 0; at < memory->bytes; at += step)
        row_add(memory, memory->base + at, step);
}

static struct row *row_find(uint64_t address)
{
    for (unsigned i = 0; i < n_rows; i++)
        if (rows[i].base <= address && address < rows[i].base + rows[i].bytes)
            return &rows[i];
    return NULL;
}

void fake_memory_remove(uint64_t address)
{
    pthread_mutex_lock(&lock);
    struct row *row = row_find(address);
    if (row)
        *row = rows[--n_rows];
    pthread_mutex_unlock(&lock);
}

void fake_memory_map(uint64_t address, uint64_t bytes)
{
    const struct fake_memory memory = {.base = address,
                                       .bytes = bytes,
                                       .memory_type = 2,
                                       .fd_capable = true,
                                       .mapping_bytes = bytes};
    row_add(&memory, address, bytes);
}

static uint64_t attribute_of(const struct row *row, int attribute)
{
    const struct fake_memory *m = &row->memory;
    switch (attribute) {
    case 1:
        return m->mapping_bytes ? 0 : (uint64_t)(uintptr_t)&contexts[m->device];
    case 2:
        return m->memory_type;
    case 7:
        return row->id;
    case 8:
        return m->managed;
    case 9:
        return m->device;
    case 10:
        return m->ipc_capable;
    case 11:
        return m->base;
    case 12:
        return m->bytes;
    case 14:
        return m->fd_capable;
    case 17:
        return m->pooled;
    case 18:
        return row->bytes;
    case 19:
        return row->base;
    case 20:
        return row->id + 100;
    default:
        complain("an unknown attribute");
        return 0;
    }
}

/* As the driver: fields of an unknown pointer are zeroed, and each has the width of its type. */
int cuPointerGetAttributes(unsigned count, int *attributes, void **data, uint64_t pointer)
{
    pthread_mutex_lock(&lock);
    struct row *found = row_find(pointer), row = {{0}, 0, 0, 0};
    if (found)
        row = *found;
    pthread_mutex_unlock(&lock);
    for (unsigned i = 0; i < count; i++) {
        uint64_t value = found ? attribute_of(&row, attributes[i]) : 0;
        size_t bytes = attributes[i] == 2 || attributes[i] == 9    ? 4
                       : attributes[i] == 8 || attributes[i] == 10 ? 1
                                                                   : 8;
        memcpy(data[i], &value, bytes);
    }
    return SUCCESS;
}

int cuIpcGetMemHandle(struct cgm_cuda_ipc_handle *ret_handle, uint64_t pointer)
{
    int result = failure_of(FAKE_IPC);
    if (!current[depth])
        complain("a handle without a context");
    memset(ret_handle, 0, sizeof(*ret_handle));
    memcpy(ret_handle->bytes, &pointer, sizeof(pointer));
    return result;
}

int cuMemRetainAllocationHandle(uint64_t *ret_handle, void *address)
{
    *ret_handle = (uint64_t)(uintptr_t)address;
    return SUCCESS;
}

int cuMemExportToShareableHandle(void *ret_handle, uint64_t handle, int type, uint64_t flags)
{
    int result = failure_of(FAKE_EXPORT);
    (void)handle;
    if (result || type != 1 || flags != 0)
        return result ? result : INVALID_VALUE;
    *(int *)ret_handle = memfd_create("fake-vmm", MFD_CLOEXEC);
    return SUCCESS;
}

int cuMemRelease(uint64_t handle)
{
    (void)handle;
    return SUCCESS;
}
