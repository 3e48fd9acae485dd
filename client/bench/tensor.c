#include "client/bench/tensor.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "kernels/number_format.h"
#include "kernels/random.h"
#include "proto/status.h"
#include "proto/types.h"

#define PAGE_BYTES 4096u
#define BLOCK 4096u

static int new_buffer(commgemm_client *client, uint64_t bytes, int device, char *ret_detail,
                      size_t size, struct cgm_tensor *ret_tensor)
{
    struct commgemm_buffer buffer;
    struct cgm_window window;
    int status = commgemm_buffer_create(client, NULL, bytes, device, 0, 0, &buffer);
    if (!status)
        status = cgm_window_open(client, &buffer, &window);
    if (status) {
        snprintf(ret_detail, size, "a buffer of %llu bytes: %s", (unsigned long long)bytes,
                 commgemm_last_error());
        return status;
    }
    *ret_tensor = (struct cgm_tensor){buffer.id, buffer.generation, window.address, bytes, window};
    return CGM_OK;
}

static int import_memfd(commgemm_client *client, int fd, uint64_t length, int device,
                        struct cgm_tensor *ret_tensor)
{
    struct commgemm_segment segment = {
        .kind = COMMGEMM_SEGMENT_FD, .fd = fd, .offset = 0, .length = length};
    if (ftruncate(fd, (off_t)length) || fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW))
        return cgm_status_of_errno(errno);
    void *address = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (address == MAP_FAILED)
        return cgm_status_of_errno(errno);
    int status =
        commgemm_import(client, &segment, 1, device, 0, &ret_tensor->id, &ret_tensor->generation);
    if (status)
        munmap(address, length);
    else
        ret_tensor->address = address;
    return status;
}

static int new_import(commgemm_client *client, uint64_t bytes, int device, char *ret_detail,
                      size_t size, struct cgm_tensor *ret_tensor)
{
    struct cgm_tensor tensor = {.bytes = bytes};
    uint64_t length = (bytes + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES;
    int fd = memfd_create("commgemm-bench", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0) {
        snprintf(ret_detail, size, "--import: memfd_create: %s", strerror(errno));
        return cgm_status_of_errno(errno);
    }
    int status = import_memfd(client, fd, length, device, &tensor);
    if (status)
        snprintf(ret_detail, size, "--import of %llu bytes: %s", (unsigned long long)length,
                 commgemm_last_error());
    else
        *ret_tensor = tensor;
    close(fd);
    return status;
}

int cgm_tensor_new(commgemm_client *client, bool import, uint64_t bytes, int device,
                   char *ret_detail, size_t size, struct cgm_tensor *ret_tensor)
{
    return import ? new_import(client, bytes, device, ret_detail, size, ret_tensor)
                  : new_buffer(client, bytes, device, ret_detail, size, ret_tensor);
}

int cgm_tensor_push(const struct cgm_tensor *tensor)
{
    return tensor->window.client ? cgm_window_store(&tensor->window) : CGM_OK;
}

int cgm_tensor_pull(const struct cgm_tensor *tensor)
{
    return tensor->window.client ? cgm_window_fetch(&tensor->window) : CGM_OK;
}

void cgm_tensor_poison(const struct cgm_tensor *tensor, int dtype)
{
    const struct cgm_format_info *info = cgm_format_info(dtype);
    for (uint64_t at = 0; at + info->bytes <= tensor->bytes; at += info->bytes)
        memcpy((char *)tensor->address + at, &info->nan, info->bytes);
}

void cgm_tensor_fill(const struct cgm_tensor *tensor, int dtype, uint64_t seed)
{
    struct cgm_random random;
    float block[BLOCK];
    uint64_t element = cgm_dtype_bytes(dtype), count = tensor->bytes / element;
    cgm_random_init(&random, seed);
    for (uint64_t at = 0; at < count; at += BLOCK) {
        uint64_t n = count - at < BLOCK ? count - at : BLOCK;
        cgm_random_fill(&random, CGM_FILL_NORMAL, block, n);
        cgm_format_store(dtype, block, n, (char *)tensor->address + at * element);
    }
}
