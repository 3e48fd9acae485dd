#include "client/lib/pages.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "proto/room.h"

#define PAGE 4096u
#define BLOCK 512u /* of st_blocks */
/* What is allocated at once: a signal undoes it. */
#define PART (64u << 20)
#define TRIES 100

#ifndef MADV_POPULATE_READ /* Linux 5.14 */
#define MADV_POPULATE_READ 22
#endif

/* Blocks beyond the file's end say nothing about those before it. To look moves the place in the
 * file, and that of the fd is the client's and of all who share it. */
static bool may_have_hole(const struct commgemm_segment *segment)
{
    char path[32];
    snprintf(path, sizeof(path), "/proc/self/fd/%d", segment->fd);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return true;
    off_t hole = lseek(fd, (off_t)segment->offset, SEEK_HOLE);
    close(fd);
    return hole >= 0 && (uint64_t)hole < segment->offset + segment->length;
}

/* A range of a memfd. */
static bool is_memory(const struct commgemm_segment *segment)
{
    struct stat info;
    return segment->kind == COMMGEMM_SEGMENT_FD && fcntl(segment->fd, F_GET_SEALS) >= 0 &&
           fstat(segment->fd, &info) == 0 &&
           segment->offset + segment->length <= (uint64_t)info.st_size;
}

/* How many bytes may be missing. *ret_unsure: some may, of a file with as many blocks as it needs:
 * they lie beyond its end, or were made by fallocate. */
static uint64_t holes_of(const struct commgemm_segment *segment, bool *ret_unsure)
{
    struct stat info;
    *ret_unsure = false;
    if (fstat(segment->fd, &info) != 0)
        return 0;
    if ((uint64_t)info.st_blocks * BLOCK >= (uint64_t)info.st_size) {
        *ret_unsure = may_have_hole(segment);
        return 0;
    }
    uint64_t holes = (uint64_t)info.st_size - (uint64_t)info.st_blocks * BLOCK;
    return holes < segment->length ? holes : segment->length;
}

static int no_room(uint64_t holes, uint32_t index)
{
    char words[CGM_ROOM_WORDS] = "how much there is cannot be read";
    struct cgm_room room;
    if (cgm_room_find(0, &room) == CGM_OK)
        cgm_room_words(&room, words, sizeof(words));
    return cgm_fail(CGM_NO_MEMORY, "segments[%u]: %llu bytes of the memory do not exist yet; %s",
                    index, (unsigned long long)holes, words);
}

static void touch(const volatile char *memory, uint64_t bytes)
{
    for (uint64_t at = 0; at < bytes; at += PAGE)
        (void)memory[at];
}

/* Pages that were only read are clean: the kernel takes those back when it needs memory, and leaves
 * holes. These are kept. False: the fd is for reading alone, or sealed. */
static bool allocate(const struct commgemm_segment *segment, int *ret_error)
{
    uint64_t part;
    int tries = 0;
    *ret_error = 0;
    for (uint64_t done = 0; done < segment->length; done += part) {
        part = segment->length - done < PART ? segment->length - done : PART;
        while (fallocate(segment->fd, 0, (off_t)(segment->offset + done), (off_t)part) < 0) {
            *ret_error = errno;
            if (errno != EINTR || ++tries == TRIES)
                return false;
        }
    }
    return true;
}

/* Privately it can be mapped whatever it is sealed against; what is read is made in the file. */
static int make_by_reading(const struct commgemm_segment *segment)
{
    char *memory =
        mmap(NULL, segment->length, PROT_READ, MAP_PRIVATE, segment->fd, (off_t)segment->offset);
    if (memory == MAP_FAILED)
        return 0;
    int error = madvise(memory, segment->length, MADV_POPULATE_READ) == 0 ? 0 : errno;
    if (error == EINVAL)
        touch(memory, segment->length);
    munmap(memory, segment->length);
    return error;
}

int cgm_pages_make(const struct commgemm_segment *segment, uint32_t index)
{
    bool unsure;
    int error;
    if (!is_memory(segment))
        return CGM_OK;
    uint64_t holes = holes_of(segment, &unsure);
    if (holes && cgm_room_check(holes, 0) == CGM_NO_MEMORY)
        return no_room(holes, index);
    if (!allocate(segment, &error) && error != ENOMEM && error != ENOSPC && (holes || unsure))
        error = make_by_reading(segment);
    return error == ENOMEM || error == ENOSPC ? no_room(holes, index) : CGM_OK;
}
