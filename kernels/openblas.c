#include "kernels/openblas.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LIBRARY "libopenblas.so.0"
#define CORE_VARIABLE "OPENBLAS_CORETYPE"
#define CORE_FALLBACK "Prescott"

struct cgm_openblas cgm_openblas;

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

int cgm_openblas_load(unsigned threads, char *ret_detail, size_t detail_bytes)
{
    void (*set_threads)(int) = NULL;
    pthread_mutex_lock(&lock);
    if (!cgm_openblas.sgemm) {
        void *library = load(threads);
        *(void **)&set_threads = symbol(library, "openblas_set_num_threads");
        *(void **)&cgm_openblas.sgemm = symbol(library, "cblas_sgemm");
        if (set_threads)
            set_threads((int)threads);
        write_release(library, cgm_openblas.release, sizeof(cgm_openblas.release));
    }
    bool loaded = cgm_openblas.sgemm != NULL;
    const char *error = loaded ? NULL : dlerror();
    if (!loaded)
        snprintf(ret_detail, detail_bytes, "%s cannot be loaded: %s", LIBRARY,
                 error ? error : "it has no cblas_sgemm");
    pthread_mutex_unlock(&lock);
    return loaded ? 0 : -1;
}
