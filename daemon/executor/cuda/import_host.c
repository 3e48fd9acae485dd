/* memfds: host memory that the devices read and write in place. */
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/executor/cuda/import.h"
#include "proto/status.h"

#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif

typedef unsigned long long ull;

bool cgm_import_is_memfd(int fd)
{
    return fcntl(fd, F_GET_SEALS) >= 0;
}

static int check_fd(const struct cgm_importing *i, uint32_t n, bool read_only)
{
    int fd = i->segments[n].fd, seals = fcntl(fd, F_GET_SEALS), flags = fcntl(fd, F_GETFL);
    if (seals < 0 || flags < 0)
        return CGM_REFUSE(i, CGM_INVALID_ARGUMENT, "segment %u: fd %d is not a memfd", n, fd);
    if (!(seals & F_SEAL_SHRINK))
        return CGM_REFUSE(i, CGM_INVALID_ARGUMENT,
                          "segment %u: fd %d is not sealed; it must be a memfd with F_SEAL_SHRINK",
                          n, fd);
    if (!read_only &&
        ((flags & O_ACCMODE) != O_RDWR || seals & (F_SEAL_WRITE | F_SEAL_FUTURE_WRITE)))
        return CGM_REFUSE(i, CGM_PERMISSION,
                          "segment %u: fd %d cannot be written; import it read-only", n, fd);
    return CGM_OK;
}

static int check_range(const struct cgm_importing *i, uint32_t n)
{
    const struct cgm_memory_segment *s = &i->segments[n];
    ull page = (ull)sysconf(_SC_PAGESIZE);
    struct stat info;
    if (s->offset % page || s->length % page)
        return CGM_REFUSE(i, CGM_INVALID_ARGUMENT,
                          "segment %u: offset %llu and length %llu; they must be multiples of %llu",
                          n, (ull)s->offset, (ull)s->length, page);
    if (fstat(s->fd, &info) != 0 || s->length > (ull)info.st_size ||
        s->offset > (ull)info.st_size - s->length)
        return CGM_REFUSE(i, CGM_INVALID_ARGUMENT,
                          "segment %u: offset %llu and length %llu reach beyond the memory", n,
                          (ull)s->offset, (ull)s->length);
    return CGM_OK;
}

/* One range of addresses, and the segments mapped over it one behind the other. */
static int map(const struct cgm_importing *i, struct cgm_mem *mem)
{
    int protection = mem->read_only ? PROT_READ : PROT_READ | PROT_WRITE;
    char *range =
        mmap(NULL, mem->range_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (range == MAP_FAILED)
        return CGM_NO_MEMORY;
    mem->range = range;
    for (uint32_t n = 0; n < i->n_segments; n++) {
        if (mmap(range, i->segments[n].length, protection, MAP_SHARED | MAP_FIXED,
                 i->segments[n].fd, (off_t)i->segments[n].offset) == MAP_FAILED)
            return CGM_NO_MEMORY;
        range += i->segments[n].length;
    }
    return CGM_OK;
}

static int pin(struct cgm_mem *mem)
{
    unsigned flags = cudaHostRegisterMapped | cudaHostRegisterPortable |
                     (mem->read_only ? cudaHostRegisterReadOnly : 0);
    int status = cgm_cuda_check(cudaHostRegister(mem->range, mem->range_bytes, flags),
                                "cudaHostRegister", mem->device);
    if (status != CGM_OK)
        return status;
    mem->n_parts = 1;
    for (uint32_t d = 0; d < mem->backend->n_devices && status == CGM_OK; d++) {
        void *at = NULL;
        cgm_device_use(d);
        status = cgm_cuda_check(cudaHostGetDevicePointer(&at, mem->range, 0),
                                "cudaHostGetDevicePointer", d);
        mem->at[d] = at;
    }
    return status;
}

int cgm_import_host(const struct cgm_importing *i, struct cgm_mem *mem)
{
    int status = CGM_OK;
    for (uint32_t n = 0; n < i->n_segments && status == CGM_OK; n++) {
        status = check_fd(i, n, mem->read_only);
        if (status == CGM_OK)
            status = check_range(i, n);
        mem->range_bytes += i->segments[n].length;
    }
    if (status != CGM_OK)
        return status;
    status = map(i, mem);
    if (status == CGM_OK)
        status = pin(mem);
    if (status != CGM_OK)
        return CGM_REFUSE(i, status,
                          "%llu bytes of host memory could not be mapped and pinned for the "
                          "devices; see the limit on locked memory",
                          (ull)mem->range_bytes);
    mem->bytes = mem->range_bytes;
    return CGM_OK;
}

void cgm_import_host_free(struct cgm_mem *mem)
{
    if (mem->n_parts > 0)
        cgm_cuda_check(cudaHostUnregister(mem->range), "cudaHostUnregister", mem->device);
    if (mem->range)
        munmap(mem->range, mem->range_bytes);
}
