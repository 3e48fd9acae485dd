#include "client/lib/import.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>

#include "client/lib/pages.h"

#define PAGE 4096u

/* ImportCreate's lists, pointing into the caller's segments. */
struct lists {
    uint32_t kind[CGM_IMPORT_SEGMENTS_MAX];
    uint64_t offset[CGM_IMPORT_SEGMENTS_MAX];
    uint64_t length[CGM_IMPORT_SEGMENTS_MAX];
    ProtobufCBinaryData handle[CGM_IMPORT_SEGMENTS_MAX];
    int fds[CGM_IMPORT_SEGMENTS_MAX];
    unsigned n_fds;
};

/* What is certainly no memory, and for which the daemon would end the session, or memory that it
 * never takes. What only a driver knows has none of these types. */
static int check_fd(int fd, uint32_t i)
{
    struct stat st;
    struct statfs file_system;
    if (fstat(fd, &st) < 0)
        return cgm_fail(CGM_INVALID_ARGUMENT, "segments[%u].fd is %d: %s", i, fd, strerror(errno));
    if (S_ISFIFO(st.st_mode) || S_ISSOCK(st.st_mode) || S_ISDIR(st.st_mode) ||
        (S_ISREG(st.st_mode) && fcntl(fd, F_GET_SEALS) < 0))
        return cgm_fail(CGM_INVALID_ARGUMENT,
                        "segments[%u].fd is %d, which is no memory; it must be a memfd sealed "
                        "against shrinking, or exported device memory",
                        i, fd);
    if (S_ISREG(st.st_mode) && fstatfs(fd, &file_system) == 0 &&
        file_system.f_type == HUGETLBFS_MAGIC)
        return cgm_fail(CGM_INVALID_ARGUMENT,
                        "segments[%u].fd is %d, which has huge pages; a memfd without MFD_HUGETLB "
                        "is needed",
                        i, fd);
    return CGM_OK;
}

static int check_segment(const struct commgemm_segment *segment, uint32_t i)
{
    if (segment->kind != COMMGEMM_SEGMENT_FD && segment->kind != COMMGEMM_SEGMENT_CUDA_IPC)
        return cgm_fail(CGM_INVALID_ARGUMENT,
                        "segments[%u].kind is %u; it must be %d (FD) or %d "
                        "(CUDA_IPC)",
                        i, segment->kind, COMMGEMM_SEGMENT_FD, COMMGEMM_SEGMENT_CUDA_IPC);
    if (segment->length == 0 || segment->length > CGM_BUFFER_BYTES_MAX ||
        segment->offset > CGM_BUFFER_BYTES_MAX - segment->length)
        return cgm_fail(CGM_INVALID_ARGUMENT,
                        "segments[%u] has offset %llu and length %llu; length "
                        "must be at least 1 and their sum at most %llu",
                        i, (unsigned long long)segment->offset, (unsigned long long)segment->length,
                        CGM_BUFFER_BYTES_MAX);
    if (segment->kind == COMMGEMM_SEGMENT_FD && segment->fd < 0)
        return cgm_fail(CGM_INVALID_ARGUMENT, "segments[%u].fd is %d; kind FD needs one", i,
                        segment->fd);
    if (segment->kind == COMMGEMM_SEGMENT_FD && (segment->offset % PAGE || segment->length % PAGE))
        return cgm_fail(CGM_INVALID_ARGUMENT,
                        "segments[%u] has offset %llu and length %llu; both "
                        "must be multiples of %u",
                        i, (unsigned long long)segment->offset, (unsigned long long)segment->length,
                        PAGE);
    return segment->kind == COMMGEMM_SEGMENT_FD ? check_fd(segment->fd, i) : CGM_OK;
}

static int fill_lists(struct lists *lists, const struct commgemm_segment *segments,
                      uint32_t n_segments)
{
    for (uint32_t i = 0; i < n_segments; i++) {
        const struct commgemm_segment *segment = &segments[i];
        int status = check_segment(segment, i);
        if (status == CGM_OK)
            status = cgm_pages_make(segment, i);
        if (status != CGM_OK)
            return status;
        bool by_handle = segment->kind == COMMGEMM_SEGMENT_CUDA_IPC;
        lists->kind[i] = segment->kind;
        lists->offset[i] = segment->offset;
        lists->length[i] = segment->length;
        lists->handle[i].data = (uint8_t *)(uintptr_t)segment->handle;
        lists->handle[i].len = by_handle ? sizeof(segment->handle) : 0;
        if (!by_handle)
            lists->fds[lists->n_fds++] = segment->fd;
    }
    return CGM_OK;
}

static int import_send(commgemm_client *client, struct lists *lists, uint32_t n_segments,
                       const struct cgm_import_origin *origin, struct cgm_reply *ret_reply)
{
    Cgm__ImportCreate request = CGM__IMPORT_CREATE__INIT;
    request.n_kind = request.n_offset = request.n_length = request.n_handle = n_segments;
    request.kind = lists->kind;
    request.offset = lists->offset;
    request.length = lists->length;
    request.handle = lists->handle;
    request.has_device = origin->device >= 0;
    request.device = (uint32_t)origin->device;
    request.device_uuid = (char *)(uintptr_t)origin->uuid;
    request.has_read_only = origin->read_only != 0;
    request.read_only = origin->read_only != 0;
    request.has_address = origin->address != 0;
    request.address = origin->address;
    request.has_driver_buffer_id = origin->driver_buffer_id != 0;
    request.driver_buffer_id = origin->driver_buffer_id;
    const struct cgm_wire_request ask = {
        .type = CGM_MSG_IMPORT_CREATE,
        .message = &request.base,
        .fds = lists->fds,
        .n_fds = lists->n_fds,
        .reply_type = CGM_MSG_IMPORT_REPLY,
        .take = origin->take,
        .argument = origin->argument,
    };
    return cgm_client_ask(client, &ask, ret_reply);
}

static int check_import(commgemm_client *client, const void *segments, uint32_t n_segments,
                        int device)
{
    int status = cgm_check_client(client);
    if (status == CGM_OK)
        status = cgm_check_pointer(segments, "segments");
    if (status != CGM_OK)
        return status;
    if (n_segments == 0 || n_segments > CGM_IMPORT_SEGMENTS_MAX)
        return cgm_fail(CGM_INVALID_ARGUMENT, "n_segments is %u; it must be 1 to %u", n_segments,
                        CGM_IMPORT_SEGMENTS_MAX);
    if (device < -1)
        return cgm_fail(CGM_INVALID_ARGUMENT, "device is %d; it must be -1 or a device's number",
                        device);
    return CGM_OK;
}

int cgm_import_create(commgemm_client *client, const struct commgemm_segment *segments,
                      uint32_t n_segments, const struct cgm_import_origin *origin, uint64_t *ret_id,
                      uint32_t *ret_generation)
{
    struct lists lists = {.n_fds = 0};
    struct cgm_reply reply;
    int status = fill_lists(&lists, segments, n_segments);
    if (status == CGM_OK)
        status = import_send(client, &lists, n_segments, origin, &reply);
    if (status != CGM_OK)
        return status;
    *ret_id = ((const Cgm__ImportReply *)reply.message)->id;
    *ret_generation = ((const Cgm__ImportReply *)reply.message)->generation;
    cgm_reply_fini(&reply);
    return CGM_OK;
}

int cgm_import_release(commgemm_client *client, uint64_t id)
{
    Cgm__ImportRelease request = CGM__IMPORT_RELEASE__INIT;
    request.id = id;
    return cgm_client_tell(client, CGM_MSG_IMPORT_RELEASE, &request.base);
}

int commgemm_import(commgemm_client *client, const struct commgemm_segment *segments,
                    uint32_t n_segments, int device, int read_only, uint64_t *ret_id,
                    uint32_t *ret_generation)
{
    const struct cgm_import_origin origin = {.device = device, .read_only = read_only};
    int status = check_import(client, segments, n_segments, device);
    if (status == CGM_OK)
        status = cgm_check_pointer(ret_id, "ret_id");
    if (status == CGM_OK)
        status = cgm_check_pointer(ret_generation, "ret_generation");
    return status == CGM_OK
               ? cgm_import_create(client, segments, n_segments, &origin, ret_id, ret_generation)
               : status;
}

int commgemm_import_release(commgemm_client *client, uint64_t id)
{
    int status = cgm_check_client(client);
    if (status != CGM_OK)
        return status;
    cgm_cuda_imports_forget(&client->imports, id);
    return cgm_import_release(client, id);
}
