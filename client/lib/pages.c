#include "client/lib/pages.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#define PAGE 4096u
#define BLOCK 512u /* of st_blocks */

#ifndef MADV_POPULATE_READ /* Linux 5.14 */
#define MADV_POPULATE_READ 22
#endif

static bool may_have_holes(const struct commgemm_segment *segment)
{
    struct stat info;
    return segment->kind == COMMGEMM_SEGMENT_FD && fcntl(segment->fd, F_GET_SEALS) >= 0 &&
           fstat(segment->fd, &info) == 0 &&
           segment->offset + segment->length <= (uint64_t)info.st_size &&
           (uint64_t)info.st_blocks * BLOCK < (uint64_t)info.st_size;
}

static void touch(const volatile char *memory, uint64_t bytes)
{
    for (uint64_t at = 0; at < bytes; at += PAGE)
        (void)memory[at];
}

int cgm_pages_make(const struct commgemm_segment *segment, uint32_t index)
{
    int status = CGM_OK;
    if (!may_have_holes(segment))
        return CGM_OK;
    char *memory =
        mmap(NULL, segment->length, PROT_READ, MAP_SHARED, segment->fd, (off_t)segment->offset);
    if (memory == MAP_FAILED)
        return CGM_OK;
    if (madvise(memory, segment->length, MADV_POPULATE_READ) == 0)
        status = CGM_OK;
    else if (errno == EINVAL)
        touch(memory, segment->length);
    else if (errno == ENOMEM)
        status =
            cgm_fail(CGM_NO_MEMORY,
                     "segments[%u]: the memory has holes, and there is no memory for them", index);
    munmap(memory, segment->length);
    return status;
}
