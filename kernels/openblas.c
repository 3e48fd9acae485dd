#include "kernels/openblas.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define LIBRARY "libopenblas.so.0"
#define CORE_VARIABLE "OPENBLAS_CORETYPE"
#define CORE_FALLBACK "Prescott"
#define MIB (1ull << 20)
#define BUFFER_BYTES (128 * MIB) /* the largest of the usual builds */

struct cgm_openblas cgm_openblas;

/* NULL: it has none that can be reserved. */
static struct {
    void *(*take)(int position);
    void (*give)(void *buffer);
} buffers;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

#if defined(__x86_64__)
static const char *core_of_processor(void)
{
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl"))
        return "SkylakeX";
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") ? "Haswell" : NULL;
}
#else
static const char *core_of_processor(void)
{
    return NULL;
}
#endif

static void *symbol(void *library, const char *name)
{
    return library ? dlsym(library, name) : NULL;
}

/* What one of the library's functions says of it; "?": it has none of that name. */
static const char *answer(void *library, const char *name)
{
    char *(*function)(void) = NULL;
    *(void **)&function = symbol(library, name);
    return function ? function() : "?";
}

static bool is_fallback(void *library)
{
    return strcmp(answer(library, "openblas_get_corename"), CORE_FALLBACK) == 0;
}

static bool has_room(uint64_t bytes, int flags)
{
    void *room =
        mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0);
    return room != MAP_FAILED && munmap(room, bytes) == 0;
}

/* The library maps a buffer for each of its threads and one more while it is loaded. */
static bool has_room_to_load(unsigned threads, char *ret_detail, size_t detail_bytes)
{
    uint64_t bytes = (threads + 1) * BUFFER_BYTES;
    if (has_room(bytes, 0))
        return true;
    snprintf(ret_detail, detail_bytes,
             "%s is not loaded: %llu MiB of address space cannot be had; raise the limit (ulimit "
             "-v or -d, LimitAS or LimitDATA of a service)",
             LIBRARY, (unsigned long long)(bytes / MIB));
    return false;
}

/* The configuration is "OpenBLAS 0.3.21 NO_AFFINITY ...". */
static void write_release(void *library, char *ret_text, size_t size)
{
    const char *config = answer(library, "openblas_get_config");
    size_t name = strcspn(config, " "), version = 0;
    if (config[name] == ' ')
        version = 1 + strcspn(config + name + 1, " ");
    snprintf(ret_text, size, "%.*s %s", (int)(name + version), config,
             answer(library, "openblas_get_corename"));
}

static void *load(unsigned threads)
{
    const char *core = core_of_processor();
    char count[16];
    snprintf(count, sizeof(count), "%u", threads);
    setenv("OPENBLAS_NUM_THREADS", count, 1);
    void *library = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);
    if (!core || getenv(CORE_VARIABLE) || !is_fallback(library))
        return library;
    setenv(CORE_VARIABLE, core, 1);
    dlclose(library);
    return dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);
}

/* Where each thread keeps buffers of its own, one thread cannot map another's. */
static void find_buffers(void *library)
{
    if (strstr(answer(library, "openblas_get_config"), "USE_TLS"))
        return;
    *(void **)&buffers.take = symbol(library, "blas_memory_alloc");
    *(void **)&buffers.give = symbol(library, "blas_memory_free");
}

static bool load_functions(unsigned threads, char *ret_detail, size_t detail_bytes)
{
    void (*set_threads)(int) = NULL;
    void *library = load(threads);
    *(void **)&set_threads = symbol(library, "openblas_set_num_threads");
    *(void **)&cgm_openblas.sgemm = symbol(library, "cblas_sgemm");
    const char *error = cgm_openblas.sgemm ? NULL : dlerror();
    if (!cgm_openblas.sgemm)
        snprintf(ret_detail, detail_bytes, "%s cannot be loaded: %s", LIBRARY,
                 error ? error : "it has no cblas_sgemm");
    if (set_threads)
        set_threads((int)threads);
    find_buffers(library);
    write_release(library, cgm_openblas.release, sizeof(cgm_openblas.release));
    return cgm_openblas.sgemm != NULL;
}

int cgm_openblas_load(unsigned threads, char *ret_detail, size_t detail_bytes)
{
    pthread_mutex_lock(&lock);
    bool loaded = cgm_openblas.sgemm || (has_room_to_load(threads, ret_detail, detail_bytes) &&
                                         load_functions(threads, ret_detail, detail_bytes));
    pthread_mutex_unlock(&lock);
    return loaded ? 0 : -1;
}

/* Of the margin no page is touched: a node with less memory than that has room all the same. */
static void *take_buffer(void)
{
    return has_room(CGM_OPENBLAS_MARGIN_BYTES, MAP_NORESERVE) ? buffers.take(0) : NULL;
}

unsigned cgm_openblas_reserve(unsigned threads)
{
    unsigned count = 0;
    if (!buffers.take || !buffers.give)
        return threads;
    void **taken = calloc(threads, sizeof(*taken));
    while (taken && count < threads && (taken[count] = take_buffer()))
        count++;
    for (unsigned i = 0; i < count; i++)
        buffers.give(taken[i]); /* it stays mapped */
    free(taken);
    return count;
}
