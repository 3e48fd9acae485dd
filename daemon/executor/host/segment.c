#include "daemon/executor/host/segment.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "proto/messages.h"
#include "proto/room.h"
#include "proto/status.h"

#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif

/* Where a check writes what it found. */
struct finding {
    uint32_t index;
    char *detail;
    size_t bytes;
};

#define REFUSE(f, status, format, ...)                                                             \
    cgm_detail((f)->detail, (f)->bytes, status, "segment %u: " format, (f)->index, __VA_ARGS__)
/* Without its number, which whoever reads this does not know. */
#define REFUSE_FD(f, status, why) REFUSE(f, status, "its fd %s", why)

static int check_kind(const struct cgm_memory_segment *segment, const struct finding *f)
{
    if (segment->kind == CGM_SEGMENT_FD)
        return CGM_OK;
    if (segment->kind == CGM_SEGMENT_CUDA_IPC)
        return REFUSE(f, CGM_NOT_SUPPORTED, "kind is %u (cudaIpc handle); the CPU backend takes %s",
                      segment->kind, "kind 1 (fd of a memfd)");
    return REFUSE(f, CGM_INVALID_ARGUMENT, "kind is %u; it must be 1 (fd) or 2 (cudaIpc handle)",
                  segment->kind);
}

static int check_access(int fd, bool read_only, int seals, const struct finding *f)
{
    int flags = fcntl(fd, F_GETFL);
    int mode = flags & O_ACCMODE;
    if (flags < 0 || (mode != O_RDWR && mode != O_RDONLY))
        return REFUSE_FD(f, CGM_PERMISSION, "is not open for reading");
    if (!read_only && mode != O_RDWR)
        return REFUSE_FD(f, CGM_PERMISSION, "is open for reading only; import it read-only");
    if (!read_only && seals & (F_SEAL_WRITE | F_SEAL_FUTURE_WRITE))
        return REFUSE_FD(f, CGM_PERMISSION, "is sealed against writing; import it read-only");
    return CGM_OK;
}

/* No seal keeps its owner from punching holes into it. Ordinary pages come back as zeroes; huge
 * ones may have run out, and then whoever touches them dies. */
static int check_fd(int fd, bool read_only, const struct finding *f)
{
    struct statfs file_system;
    int seals = fcntl(fd, F_GET_SEALS);
    if (seals < 0)
        return REFUSE_FD(f, CGM_INVALID_ARGUMENT, "is not a memfd");
    if (!(seals & F_SEAL_SHRINK))
        return REFUSE_FD(f, CGM_INVALID_ARGUMENT,
                         "is not sealed; it must be a memfd with F_SEAL_SHRINK");
    if (fstatfs(fd, &file_system) != 0 || file_system.f_type == HUGETLBFS_MAGIC)
        return REFUSE_FD(f, CGM_INVALID_ARGUMENT,
                         "has huge pages; a memfd without MFD_HUGETLB is needed");
    return check_access(fd, read_only, seals, f);
}

static int check_range(const struct cgm_memory_segment *segment, const struct finding *f)
{
    struct stat info;
    unsigned long long page = (unsigned long long)sysconf(_SC_PAGESIZE);
    unsigned long long offset = segment->offset, length = segment->length;
    if (offset % page)
        return REFUSE(f, CGM_INVALID_ARGUMENT, "offset is %llu; it must be a multiple of %llu",
                      offset, page);
    if (length == 0 || length % page)
        return REFUSE(f, CGM_INVALID_ARGUMENT,
                      "length is %llu; it must be a multiple of %llu, at least %llu", length, page,
                      page);
    if (fstat(segment->fd, &info) != 0)
        return REFUSE_FD(f, CGM_INVALID_ARGUMENT, "has no size");
    unsigned long long size = (unsigned long long)info.st_size;
    if (length > size || offset > size - length)
        return REFUSE(f, CGM_INVALID_ARGUMENT,
                      "offset %llu and length %llu reach beyond the %llu bytes of the memory",
                      offset, length, size);
    return CGM_OK;
}

int cgm_segment_check(const struct cgm_memory_segment *segment, uint32_t index, bool read_only,
                      char *ret_detail, size_t detail_bytes)
{
    struct finding finding = {index, ret_detail, detail_bytes};
    int status = check_kind(segment, &finding);
    if (status == CGM_OK)
        status = check_fd(segment->fd, read_only, &finding);
    return status == CGM_OK ? check_range(segment, &finding) : status;
}

uint64_t cgm_segments_missing(const struct cgm_memory_segment *segments, uint32_t count)
{
    uint64_t missing = 0;
    for (uint32_t i = 0; i < count; i++) {
        struct stat info = {0};
        fstat(segments[i].fd, &info);
        uint64_t size = (uint64_t)info.st_size, there = (uint64_t)info.st_blocks * 512,
                 holes = there < size ? size - there : 0;
        missing += holes < segments[i].length ? holes : segments[i].length;
    }
    return missing;
}

int cgm_segments_check_holes(const struct cgm_memory_segment *segments, uint32_t count,
                             char *ret_detail, size_t detail_bytes)
{
    unsigned long long missing = cgm_segments_missing(segments, count);
    char words[CGM_ROOM_WORDS] = "how much there is cannot be read";
    struct cgm_room room;
    if (cgm_room_check(missing, CGM_ROOM_OF_DAEMON) == CGM_OK)
        return CGM_OK;
    if (cgm_room_find(CGM_ROOM_OF_DAEMON, &room) == CGM_OK)
        cgm_room_words(&room, words, sizeof(words));
    return cgm_detail(ret_detail, detail_bytes, CGM_NO_MEMORY,
                      "%llu bytes of the segments do not exist yet; %s", missing, words);
}

/* A gap that is a page long: nothing that has one behind it fits in. */
char *cgm_segments_map(const struct cgm_memory_segment *segments, uint32_t count, uint64_t bytes,
                       int protection, int kind)
{
    uint64_t gap = (uint64_t)sysconf(_SC_PAGESIZE);
    char *base =
        mmap(NULL, bytes + gap, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base == MAP_FAILED)
        return NULL;
    char *at = base;
    for (uint32_t i = 0; i < count; i++) {
        if (mmap(at, segments[i].length, protection, kind | MAP_FIXED, segments[i].fd,
                 (off_t)segments[i].offset) == MAP_FAILED) {
            munmap(base, bytes + gap);
            return NULL;
        }
        at += segments[i].length;
    }
    munmap(at, gap);
    return base;
}
