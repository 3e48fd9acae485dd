#include "daemon/executor/cuda/flag.h"

#include <assert.h>
#include <stdlib.h>

#include "proto/status.h"

#define SLAB_FLAGS 1024u
#define FLAG_BYTES (CGM_FLAG_WORDS * sizeof(uint64_t)) /* a cache line each */
#define SLAB_BYTES (SLAB_FLAGS * FLAG_BYTES)
#define WORD_BITS 64u

/* Memory of many flags. Of host flags, pinned host memory at the same address everywhere. */
struct cgm_flag_slab {
    struct cgm_flag_slab *next;
    struct cgm_mem *mem; /* device flags */
    char *host;          /* host flags */
    uint64_t used[SLAB_FLAGS / WORD_BITS];
};

static struct cgm_flag_slab *slab_new(struct cgm_backend *backend, uint32_t device,
                                      enum cgm_flag_kind kind)
{
    struct cgm_flag_slab *slab = calloc(1, sizeof(*slab));
    void *host = NULL;
    int status = slab ? CGM_OK : CGM_NO_MEMORY;
    if (status == CGM_OK && kind == CGM_FLAG_DEVICE)
        status = cgm_cuda_mem_alloc(backend, device, SLAB_BYTES, 0, &slab->mem);
    else if (status == CGM_OK)
        status = cgm_cuda_check(
            cudaHostAlloc(&host, SLAB_BYTES, cudaHostAllocMapped | cudaHostAllocPortable),
            "cudaHostAlloc", device);
    if (status != CGM_OK) {
        free(slab);
        return NULL;
    }
    slab->host = host;
    return slab;
}

static bool slab_take(struct cgm_flag_slab *slab, uint32_t *ret_index)
{
    for (uint32_t word = 0; word < SLAB_FLAGS / WORD_BITS; word++) {
        if (slab->used[word] == UINT64_MAX)
            continue;
        uint32_t bit = (uint32_t)__builtin_ctzll(~slab->used[word]);
        slab->used[word] |= 1ull << bit;
        *ret_index = word * WORD_BITS + bit;
        return true;
    }
    return false;
}

static void slab_give(struct cgm_flag_slab *slab, uint32_t index)
{
    slab->used[index / WORD_BITS] &= ~(1ull << index % WORD_BITS);
}

static struct cgm_flag_slab *take(struct cgm_backend *backend, uint32_t device,
                                  enum cgm_flag_kind kind, uint32_t *ret_index)
{
    struct cgm_flag_slab **list =
        kind == CGM_FLAG_HOST ? &backend->host_slabs : &backend->devices[device].slabs;
    for (struct cgm_flag_slab *slab = *list; slab; slab = slab->next)
        if (slab_take(slab, ret_index))
            return slab;
    struct cgm_flag_slab *slab = slab_new(backend, device, kind);
    if (!slab)
        return NULL;
    slab->next = *list;
    *list = slab;
    slab_take(slab, ret_index);
    return slab;
}

static _Atomic uint64_t *host_word(const struct cgm_flag *flag)
{
    return (_Atomic uint64_t *)(void *)(flag->slab->host + (size_t)flag->index * FLAG_BYTES);
}

static int zero(struct cgm_flag *flag)
{
    cudaStream_t stream = flag->backend->devices[flag->device].service;
    if (flag->kind == CGM_FLAG_HOST) {
        atomic_store(host_word(flag), 0);
        return CGM_OK;
    }
    int status = cgm_cuda_check(
        cudaMemsetAsync((void *)(uintptr_t)cgm_flag_at(flag, flag->device), 0, FLAG_BYTES, stream),
        "cudaMemsetAsync", flag->device);
    return status == CGM_OK
               ? cgm_cuda_check(cudaStreamSynchronize(stream), "zeroing of a flag", flag->device)
               : status;
}

int cgm_cuda_flag_new(struct cgm_backend *backend, uint32_t device, enum cgm_flag_kind kind,
                      struct cgm_flag **ret_flag)
{
    if (device >= backend->n_devices)
        return CGM_INVALID_ARGUMENT;
    struct cgm_flag *flag = calloc(1, sizeof(*flag));
    if (!flag)
        return CGM_NO_MEMORY;
    cgm_device_use(device);
    flag->backend = backend;
    flag->device = device;
    flag->kind = kind;
    flag->slab = take(backend, device, kind, &flag->index);
    if (!flag->slab) {
        free(flag);
        return CGM_NO_MEMORY;
    }
    int status = zero(flag);
    if (status == CGM_OK)
        *ret_flag = flag;
    else
        cgm_cuda_flag_free(flag);
    return status;
}

CUdeviceptr cgm_flag_at(const struct cgm_flag *flag, uint32_t device)
{
    assert(flag->kind == CGM_FLAG_HOST || flag->slab->mem);
    const char *base = flag->kind == CGM_FLAG_HOST ? flag->slab->host : flag->slab->mem->at[device];
    return base ? (CUdeviceptr)(uintptr_t)base + (CUdeviceptr)flag->index * FLAG_BYTES : 0;
}

uint64_t cgm_cuda_flag_read(const struct cgm_flag *flag)
{
    return flag->kind == CGM_FLAG_HOST ? atomic_load_explicit(host_word(flag), memory_order_acquire)
                                       : 0;
}

void cgm_cuda_flag_free(struct cgm_flag *flag)
{
    slab_give(flag->slab, flag->index);
    free(flag);
}

static void slabs_free(struct cgm_flag_slab *slab)
{
    while (slab) {
        struct cgm_flag_slab *next = slab->next;
        if (slab->mem)
            cgm_cuda_mem_free(slab->mem);
        if (slab->host)
            cgm_cuda_check(cudaFreeHost(slab->host), "cudaFreeHost", 0);
        free(slab);
        slab = next;
    }
}

void cgm_flag_slabs_free(struct cgm_backend *backend)
{
    slabs_free(backend->host_slabs);
    for (uint32_t i = 0; i < backend->n_devices; i++)
        slabs_free(backend->devices[i].slabs);
}
