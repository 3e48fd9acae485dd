/* A file that should be a .npy: cgm_npy_open refuses it with words, or all of it can be read. */
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "client/common/npy.h"
#include "proto/status.h"
#include "tests/fuzz/fuzz.h"

#define READ_BYTES_MAX (1u << 20)

static void read_all(const struct cgm_npy *npy)
{
    char detail[CGM_NPY_DETAIL_BYTES];
    FUZZ_CHECK(npy->dimensions >= 1 && npy->dimensions <= CGM_NPY_DIMENSIONS_MAX);
    FUZZ_CHECK(npy->bytes == npy->rows * npy->cols * sizeof(float));
    if (npy->bytes > READ_BYTES_MAX)
        return;
    float *values = malloc(npy->bytes ? npy->bytes : 1);
    FUZZ_CHECK(values);
    FUZZ_CHECK(cgm_npy_read(npy, values, detail) == CGM_OK);
    free(values);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char path[64], detail[CGM_NPY_DETAIL_BYTES] = "";
    struct cgm_npy npy;
    int fd = memfd_create("input.npy", MFD_CLOEXEC);
    FUZZ_CHECK(fd >= 0 && write(fd, data, size) == (ssize_t)size);
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    int status = cgm_npy_open(path, &npy, detail);
    FUZZ_CHECK(status == CGM_OK || detail[0] != '\0');
    if (status == CGM_OK) {
        read_all(&npy);
        for (unsigned axis = 0; axis <= npy.dimensions; axis++)
            if (cgm_npy_collapse(&npy, axis, detail) == CGM_OK)
                read_all(&npy);
        cgm_npy_close(&npy);
    }
    close(fd);
    return 0;
}
