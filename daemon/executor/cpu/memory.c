#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/executor/cpu/cpu.h"
#include "daemon/executor/host/segment.h"
#include "proto/messages.h"
#include "proto/room.h"
#include "proto/status.h"
#include "proto/system.h"

#define SEALS (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)

static uint64_t page_bytes(void)
{
    return (uint64_t)sysconf(_SC_PAGESIZE);
}

static bool round_up(uint64_t bytes, uint64_t *ret_bytes)
{
    uint64_t page = page_bytes();
    if (bytes == 0 || bytes > CGM_BUFFER_BYTES_MAX)
        return false;
    *ret_bytes = (bytes + page - 1) / page * page;
    return true;
}

/* Takes fd; it is closed on failure too. */
static int mem_new(int fd, uint64_t bytes, struct cgm_mem **ret_mem)
{
    struct cgm_mem *mem = calloc(1, sizeof(*mem));
    void *base = MAP_FAILED;
    if (mem)
        base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (base == MAP_FAILED) {
        free(mem);
        close(fd);
        return CGM_NO_MEMORY;
    }
    *mem = (struct cgm_mem){.base = base, .bytes = bytes, .fd = fd};
    *ret_mem = mem;
    return CGM_OK;
}

static int memfd_new(uint64_t bytes, int *ret_fd)
{
    int status = cgm_room_check(bytes, CGM_ROOM_OF_DAEMON);
    if (status != CGM_OK)
        return status;
    int fd = memfd_create("commgemm", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0)
        return cgm_status_of_errno(errno);
    if (ftruncate(fd, (off_t)bytes) != 0 || fcntl(fd, F_ADD_SEALS, SEALS) != 0) {
        close(fd);
        return CGM_NO_MEMORY;
    }
    *ret_fd = fd;
    return CGM_OK;
}

int cgm_cpu_mem_alloc(struct cgm_backend *backend, uint32_t device, uint64_t bytes, uint32_t flags,
                      struct cgm_mem **ret_mem)
{
    int fd = -1;
    uint64_t at_once = CGM_MEM_AT_ONCE;
    struct cgm_mem *mem = NULL;
    if (flags & CGM_MEMORY_IPC)
        return CGM_NOT_SUPPORTED;
    if (device >= backend->devices || !round_up(bytes, &bytes))
        return CGM_INVALID_ARGUMENT;
    int status = memfd_new(bytes, &fd);
    if (status == CGM_OK)
        status = mem_new(fd, bytes, &mem);
    if (status != CGM_OK)
        return status;
    status = cgm_cpu_mem_fill(mem, &at_once);
    if (status == CGM_OK)
        *ret_mem = mem;
    else
        cgm_cpu_mem_free(mem);
    return status;
}

/* All pages exist before memory is used: a device's does not run out while a job writes it. Others
 * may have taken meanwhile what was there when this one was begun. */
int cgm_cpu_mem_fill(struct cgm_mem *mem, uint64_t *bytes)
{
    uint64_t missing = mem->bytes - mem->filled, part = missing < *bytes ? missing : *bytes;
    if (part == 0)
        return CGM_OK;
    int status = cgm_room_check(missing, CGM_ROOM_OF_DAEMON);
    if (status != CGM_OK)
        return status;
    if (fallocate(mem->fd, 0, (off_t)mem->filled, (off_t)part) != 0)
        return CGM_NO_MEMORY;
    mem->filled += part;
    *bytes -= part;
    return CGM_OK;
}

/* A hole takes the pages out of every mapping too. Whoever has an fd can fill it again, at his own
 * cost. An import's pages only leave this process. */
void cgm_cpu_mem_drain(struct cgm_mem *mem, uint64_t *bytes)
{
    uint64_t part = mem->filled < *bytes ? mem->filled : *bytes;
    if (part == 0)
        return;
    mem->filled -= part;
    *bytes -= part;
    if (mem->fd < 0)
        madvise(mem->base + mem->filled, part, MADV_DONTNEED);
    else
        fallocate(mem->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)mem->filled,
                  (off_t)part);
}

int cgm_cpu_mem_export(struct cgm_mem *mem, int *ret_fd)
{
    if (mem->fd < 0)
        return CGM_NOT_SUPPORTED;
    int fd = fcntl(mem->fd, F_DUPFD_CLOEXEC, 0);
    if (fd < 0)
        return cgm_status_of_errno(errno);
    *ret_fd = fd;
    return CGM_OK;
}

int cgm_cpu_mem_adopt(struct cgm_backend *backend, uint32_t device, int fd, uint64_t bytes,
                      struct cgm_mem **ret_mem)
{
    if (device >= backend->devices || !round_up(bytes, &bytes))
        return CGM_INVALID_ARGUMENT;
    struct cgm_memory_segment whole = {.kind = CGM_SEGMENT_FD, .fd = fd, .length = bytes};
    char detail[CGM_CQE_DETAIL];
    int status = cgm_segment_check(&whole, 0, false, detail, sizeof(detail));
    if (status != CGM_OK)
        return status;
    int own = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    if (own < 0)
        return cgm_status_of_errno(errno);
    status = mem_new(own, bytes, ret_mem);
    if (status == CGM_OK)
        (*ret_mem)->filled = bytes;
    return status;
}

static int segments_check(const struct cgm_memory_segment *segments, uint32_t n_segments,
                          bool read_only, char *ret_detail, size_t detail_bytes,
                          uint64_t *ret_bytes)
{
    uint64_t bytes = 0;
    if (n_segments < 1 || n_segments > CGM_IMPORT_SEGMENTS_MAX)
        return cgm_detail(ret_detail, detail_bytes, CGM_INVALID_ARGUMENT,
                          "%u segments; an import has 1 to %u", n_segments,
                          CGM_IMPORT_SEGMENTS_MAX);
    for (uint32_t i = 0; i < n_segments; i++) {
        int status = cgm_segment_check(&segments[i], i, read_only, ret_detail, detail_bytes);
        if (status != CGM_OK)
            return status;
        bytes += segments[i].length;
        if (bytes > CGM_BUFFER_BYTES_MAX)
            return cgm_detail(ret_detail, detail_bytes, CGM_INVALID_ARGUMENT,
                              "segment %u: length is %llu; all segments have at most %llu bytes", i,
                              (unsigned long long)segments[i].length, CGM_BUFFER_BYTES_MAX);
    }
    *ret_bytes = bytes;
    return CGM_OK;
}

/* Sparse memory could use up the addresses of this process. */
static int bytes_check(uint64_t bytes, char *ret_detail, size_t detail_bytes)
{
    uint64_t total = 0, available;
    int status = cgm_system_memory(&total, &available);
    if (status == CGM_OK && bytes <= total)
        return CGM_OK;
    return cgm_detail(ret_detail, detail_bytes, CGM_NO_MEMORY,
                      "the segments have %llu bytes together; this node has %llu",
                      (unsigned long long)bytes, (unsigned long long)total);
}

/* What is only read is mapped privately: it can be watched for holes then, and nothing is written
 * that would make pages of ours. */
static char *segments_map(const struct cgm_memory_segment *segments, uint32_t n_segments,
                          bool read_only, uint64_t bytes)
{
    return read_only
               ? cgm_segments_map(segments, n_segments, bytes, PROT_READ, MAP_PRIVATE)
               : cgm_segments_map(segments, n_segments, bytes, PROT_READ | PROT_WRITE, MAP_SHARED);
}

int cgm_cpu_mem_import(struct cgm_backend *backend, uint32_t device,
                       const struct cgm_memory_segment *segments, uint32_t n_segments,
                       bool read_only, char *ret_detail, size_t detail_bytes,
                       struct cgm_mem **ret_mem)
{
    uint64_t bytes = 0;
    if (device >= backend->devices)
        return cgm_detail(ret_detail, detail_bytes, CGM_INVALID_ARGUMENT,
                          "device is %u; there are 0 to %u", device, backend->devices - 1);
    int status = segments_check(segments, n_segments, read_only, ret_detail, detail_bytes, &bytes);
    if (status != CGM_OK)
        return status;
    status = bytes_check(bytes, ret_detail, detail_bytes);
    if (status != CGM_OK)
        return status;
    struct cgm_mem *mem = calloc(1, sizeof(*mem));
    char *base = mem ? segments_map(segments, n_segments, read_only, bytes) : NULL;
    if (!base) {
        free(mem);
        return cgm_detail(ret_detail, detail_bytes, CGM_NO_MEMORY,
                          "%u segments of together %llu bytes could not be mapped", n_segments,
                          (unsigned long long)bytes);
    }
    *mem = (struct cgm_mem){
        .base = base, .bytes = bytes, .filled = bytes, .fd = -1, .read_only = read_only};
    mem->watch = cgm_holes_watch(base, bytes);
    *ret_mem = mem;
    return CGM_OK;
}

uint64_t cgm_cpu_mem_bytes(const struct cgm_mem *mem)
{
    return mem->bytes;
}

bool cgm_cpu_mem_has_holes(const struct cgm_mem *mem)
{
    return cgm_holes_found(mem->watch);
}

void cgm_cpu_mem_free(struct cgm_mem *mem)
{
    cgm_holes_unwatch(mem->watch);
    munmap(mem->base, mem->bytes);
    if (mem->fd >= 0)
        close(mem->fd);
    free(mem);
}
