#include "daemon/executor/cuda/platform.h"

#include <stdio.h>
#include <string.h>

#include "daemon/executor/cuda/blas.h"
#include "daemon/executor/cuda/cuda.h"

/* "NVRM version: NVIDIA UNIX ... Kernel Module  580.95.05  Release ...": the first number of
 * that form. */
void cgm_cuda_driver_release(char *ret_release, size_t size)
{
    char line[256] = "";
    FILE *file = fopen("/proc/driver/nvidia/version", "re");
    if (file && !fgets(line, sizeof(line), file))
        line[0] = '\0';
    if (file)
        fclose(file);
    snprintf(ret_release, size, "?");
    for (char *word = strtok(line, " \t\n"); word; word = strtok(NULL, " \t\n")) {
        if (word[0] < '0' || word[0] > '9' || !strchr(word, '.'))
            continue;
        snprintf(ret_release, size, "%.31s", word);
        return;
    }
}

/* Of the first device to the others, which there are. Only what is on NVLink has atomics between
 * devices. */
static const char *link_name(const struct cgm_backend *backend)
{
    const char *name = "NVLink";
    for (uint32_t i = 1; i < backend->n_devices; i++) {
        int atomics = 0;
        if (cudaDeviceGetP2PAttribute(&atomics, cudaDevP2PAttrNativeAtomicSupported, 0, (int)i) !=
                cudaSuccess ||
            !atomics)
            name = "PCIe";
    }
    (void)cudaGetLastError();
    return name;
}

/* The models one after the other, and how many there are of each in a row. */
static size_t write_models(const struct cgm_backend *backend, char *ret_text, size_t size)
{
    struct cudaDeviceProp first, next;
    size_t used = 0;
    for (uint32_t i = 0, n; i < backend->n_devices && used < size; i += n) {
        if (cudaGetDeviceProperties(&first, (int)i) != cudaSuccess)
            snprintf(first.name, sizeof(first.name), "GPU");
        for (n = 1; i + n < backend->n_devices; n++)
            if (cudaGetDeviceProperties(&next, (int)(i + n)) != cudaSuccess ||
                strcmp(first.name, next.name) != 0)
                break;
        used += (size_t)snprintf(ret_text + used, size - used, "%u x %.48s, ", n, first.name);
    }
    return used < size ? used : size;
}

static void write_collectives(const struct cgm_backend *backend, char *ret_text, size_t size)
{
    char library[48];
    cgm_cuda_group_library(library, sizeof(library));
    snprintf(ret_text, size, "%s, %s", library, link_name(backend));
}

void cgm_cuda_describe(struct cgm_backend *backend, char *ret_text, size_t text_bytes)
{
    char release[32], collectives[64] = "no links";
    int driver = 0;
    size_t blas = cgm_blas.GetVersion(), used = write_models(backend, ret_text, text_bytes);
    cudaDriverGetVersion(&driver);
    cgm_cuda_driver_release(release, sizeof(release));
    if (backend->n_devices > 1)
        write_collectives(backend, collectives, sizeof(collectives));
    snprintf(ret_text + used, text_bytes - used, "driver %s, CUDA %d.%d, cuBLASLt %zu.%zu.%zu, %s",
             release, driver / 1000, driver % 1000 / 10, blas / 10000, blas / 100 % 100, blas % 100,
             collectives);
}
