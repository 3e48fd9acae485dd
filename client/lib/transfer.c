/* Reading and writing buffers. Host-visible ones through their fd; others through staging: a memfd
 * that both sides map, imported once, with the daemon copying between it and the buffer. */
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client/lib/buffers.h"
#include "client/lib/client.h"
#include "client/lib/file_limit.h"
#include "client/lib/import.h"

typedef unsigned long long ull;

#define STAGING_BYTES (16u << 20)
#define COPY_ALIGN 4u /* of the daemon's copies */

struct cgm_staging {
    uint8_t *memory;
    uint64_t import;
};

/* One piece of a transfer: `bytes` at `offset` of the buffer, and the aligned stretch around it. */
struct piece {
    const struct commgemm_buffer *buffer;
    uint64_t offset, bytes;
    uint64_t begin, span; /* what the daemon copies */
};

static int check(commgemm_client *client, const struct commgemm_buffer *buffer,
                 uint64_t offset_bytes, const void *data, uint64_t bytes, bool writes)
{
    int status = cgm_check_client(client);
    if (status == CGM_OK)
        status = cgm_check_pointer(buffer, "buffer");
    if (status == CGM_OK && bytes > 0)
        status = cgm_check_pointer(data, writes ? "data" : "ret_bytes");
    if (status != CGM_OK)
        return status;
    if (bytes > buffer->bytes || offset_bytes > buffer->bytes - bytes)
        return cgm_fail(CGM_INVALID_ARGUMENT,
                        "offset_bytes is %llu and bytes %llu; buffer %llu has %llu bytes",
                        (ull)offset_bytes, (ull)bytes, (ull)buffer->id, (ull)buffer->bytes);
    if (writes && !buffer->writable)
        return cgm_fail(CGM_PERMISSION, "buffer %llu is open for reading only", (ull)buffer->id);
    return CGM_OK;
}

/* ---- host-visible --------------------------------------------------------------------------- */

static bool is_host_visible(const struct cgm_buffer_fd *fd)
{
    struct stat st;
    return fd && fstat(fd->fd, &st) == 0 && S_ISREG(st.st_mode);
}

static int fail_io(const struct cgm_buffer_fd *fd, ssize_t n)
{
    return cgm_fail(n < 0 ? cgm_status_of_errno(errno) : CGM_IO, "buffer %llu: %s", (ull)fd->buffer,
                    n < 0 ? strerror(errno) : "its memory is shorter than it says");
}

static int pread_all(const struct cgm_buffer_fd *fd, uint64_t offset, uint8_t *to, uint64_t bytes)
{
    while (bytes > 0) {
        ssize_t n = pread(fd->fd, to, bytes, (off_t)offset);
        if (n <= 0)
            return fail_io(fd, n);
        to += n;
        offset += (uint64_t)n;
        bytes -= (uint64_t)n;
    }
    return CGM_OK;
}

static ssize_t pwrite_limited(int fd, const uint8_t *from, uint64_t bytes, uint64_t offset)
{
    struct cgm_file_limit limit;
    cgm_file_limit_begin(&limit);
    ssize_t n = pwrite(fd, from, bytes, (off_t)offset);
    cgm_file_limit_end(&limit, n < 0);
    return n;
}

static int pwrite_all(const struct cgm_buffer_fd *fd, uint64_t offset, const uint8_t *from,
                      uint64_t bytes)
{
    while (bytes > 0) {
        ssize_t n = pwrite_limited(fd->fd, from, bytes, offset);
        if (n <= 0)
            return fail_io(fd, n);
        from += n;
        offset += (uint64_t)n;
        bytes -= (uint64_t)n;
    }
    return CGM_OK;
}

/* ---- through staging, under staging_lock ---------------------------------------------------- */

static int staging_import(commgemm_client *client, int fd, uint64_t *ret_import)
{
    struct commgemm_segment segment = {
        .kind = COMMGEMM_SEGMENT_FD, .fd = fd, .length = STAGING_BYTES};
    uint32_t generation;
    return commgemm_import(client, &segment, 1, -1, 0, ret_import, &generation);
}

static bool allocate_limited(int fd)
{
    struct cgm_file_limit limit;
    cgm_file_limit_begin(&limit);
    bool done = fallocate(fd, 0, 0, STAGING_BYTES) == 0;
    cgm_file_limit_end(&limit, !done);
    return done;
}

static int staging_map(int fd, uint8_t **ret_memory)
{
    if (fd < 0 || !allocate_limited(fd) || fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) < 0)
        return cgm_fail(cgm_status_of_errno(errno), "staging memory: %s", strerror(errno));
    void *memory = mmap(NULL, STAGING_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (memory == MAP_FAILED)
        return cgm_fail(cgm_status_of_errno(errno), "staging memory: %s", strerror(errno));
    *ret_memory = memory;
    return CGM_OK;
}

static int staging_open(commgemm_client *client)
{
    struct cgm_staging *staging = client->staging;
    if (staging)
        return CGM_OK;
    staging = calloc(1, sizeof(*staging));
    if (!staging)
        return cgm_fail_plain(CGM_NO_MEMORY);
    int fd = memfd_create("commgemm-staging", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    int status = staging_map(fd, &staging->memory);
    if (status == CGM_OK)
        status = staging_import(client, fd, &staging->import);
    if (fd >= 0)
        close(fd); /* the mapping and the daemon's import hold the memory */
    if (status == CGM_OK)
        client->staging = staging;
    else
        cgm_staging_free(staging);
    return status;
}

void cgm_staging_free(struct cgm_staging *staging)
{
    if (staging && staging->memory)
        munmap(staging->memory, STAGING_BYTES);
    free(staging);
}

static int copy(commgemm_client *client, const struct piece *piece, bool to_buffer)
{
    Cgm__MemoryCopy request = CGM__MEMORY_COPY__INIT;
    request.has_dst_generation = to_buffer;
    request.has_src_generation = !to_buffer;
    request.dst_generation = request.src_generation = piece->buffer->generation;
    request.dst = to_buffer ? piece->buffer->id : client->staging->import;
    request.src = to_buffer ? client->staging->import : piece->buffer->id;
    request.dst_offset = to_buffer ? piece->begin : 0;
    request.src_offset = to_buffer ? 0 : piece->begin;
    request.bytes = piece->span;
    return cgm_client_tell(client, CGM_MSG_MEMORY_COPY, &request.base);
}

static struct piece piece_of(const struct commgemm_buffer *buffer, uint64_t offset, uint64_t left)
{
    struct piece piece = {.buffer = buffer, .offset = offset};
    piece.begin = offset / COPY_ALIGN * COPY_ALIGN;
    uint64_t room = STAGING_BYTES - (offset - piece.begin);
    piece.bytes = left < room ? left : room;
    uint64_t end = offset + piece.bytes + COPY_ALIGN - 1;
    piece.span = end / COPY_ALIGN * COPY_ALIGN - piece.begin;
    return piece;
}

static int read_piece(commgemm_client *client, const struct piece *piece, uint8_t *to)
{
    int status = copy(client, piece, false);
    if (status == CGM_OK)
        memcpy(to, client->staging->memory + (piece->offset - piece->begin), piece->bytes);
    return status;
}

/* The bytes around an unaligned piece go back as they were. */
static int write_piece(commgemm_client *client, const struct piece *piece, const uint8_t *from)
{
    int status = CGM_OK;
    if (piece->span != piece->bytes)
        status = copy(client, piece, false);
    if (status != CGM_OK)
        return status;
    memcpy(client->staging->memory + (piece->offset - piece->begin), from, piece->bytes);
    return copy(client, piece, true);
}

static int move(commgemm_client *client, const struct piece *piece, uint8_t *to,
                const uint8_t *from)
{
    return to ? read_piece(client, piece, to) : write_piece(client, piece, from);
}

/* The daemon closes what was not used for long, this too. */
static int move_renewed(commgemm_client *client, const struct piece *piece, uint8_t *to,
                        const uint8_t *from)
{
    struct cgm_kept_error kept;
    cgm_error_keep(&kept);
    int status = move(client, piece, to, from);
    if (status != CGM_STALE)
        return status;
    cgm_import_release(client, client->staging->import);
    cgm_staging_free(client->staging);
    client->staging = NULL;
    status = staging_open(client);
    if (status == CGM_OK)
        status = move(client, piece, to, from);
    if (status == CGM_OK)
        cgm_error_restore(&kept);
    return status;
}

/* Exactly one of `to` and `from` is given. */
static int transfer(commgemm_client *client, const struct commgemm_buffer *buffer, uint64_t offset,
                    uint8_t *to, const uint8_t *from, uint64_t bytes)
{
    pthread_mutex_lock(&client->staging_lock);
    int status = staging_open(client);
    for (uint64_t done = 0; status == CGM_OK && done < bytes;) {
        struct piece piece = piece_of(buffer, offset + done, bytes - done);
        status = move_renewed(client, &piece, to ? to + done : NULL, from ? from + done : NULL);
        done += piece.bytes;
    }
    pthread_mutex_unlock(&client->staging_lock);
    return status;
}

/* In either direction, as transfer. */
static int move_bytes(commgemm_client *client, const struct commgemm_buffer *buffer,
                      uint64_t offset, uint8_t *to, const uint8_t *from, uint64_t bytes)
{
    struct cgm_buffer_fd *fd;
    int status = cgm_buffer_fd_use(client, buffer, &fd);
    if (status != CGM_OK)
        return status;
    if (!is_host_visible(fd)) {
        status = transfer(client, buffer, offset, to, from, bytes);
    } else {
        status = to ? pread_all(fd, offset, to, bytes) : pwrite_all(fd, offset, from, bytes);
        if (status == CGM_OK)
            status = cgm_buffer_fd_check(client, fd);
    }
    cgm_buffer_fd_end_use(client, fd);
    return status;
}

int commgemm_buffer_read(commgemm_client *client, const struct commgemm_buffer *buffer,
                         uint64_t offset_bytes, void *ret_bytes, uint64_t bytes)
{
    int status = check(client, buffer, offset_bytes, ret_bytes, bytes, false);
    if (status != CGM_OK || bytes == 0)
        return status;
    return move_bytes(client, buffer, offset_bytes, ret_bytes, NULL, bytes);
}

int commgemm_buffer_write(commgemm_client *client, const struct commgemm_buffer *buffer,
                          uint64_t offset_bytes, const void *data, uint64_t bytes)
{
    int status = check(client, buffer, offset_bytes, data, bytes, true);
    if (status != CGM_OK || bytes == 0)
        return status;
    return move_bytes(client, buffer, offset_bytes, NULL, data, bytes);
}
