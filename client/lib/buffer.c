#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client/lib/buffers.h"

/* ---- fds --------------------------------------------------------------------------------------
 */

static void fd_add(commgemm_client *client, struct cgm_buffer_fd *entry)
{
    pthread_mutex_lock(&client->buffers_lock);
    entry->next = client->buffer_fds;
    client->buffer_fds = entry;
    pthread_mutex_unlock(&client->buffers_lock);
}

/* Other memory than a file's cannot be told apart. */
static bool is_same_file(int fd, int other)
{
    struct stat a, b;
    return fstat(fd, &a) == 0 && fstat(other, &b) == 0 && S_ISREG(a.st_mode) &&
           a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

/* True when the old one's number is as good: the memory is the same, or is in the place of what
 * went with an executor from then on. */
static bool put_in_place(struct cgm_buffer_fd *old, const struct cgm_buffer_fd *opened)
{
    if (old->buffer != opened->buffer || old->writable != opened->writable)
        return false;
    if (old->life == opened->life)
        return is_same_file(old->fd, opened->fd);
    if (old->life > opened->life || old->users > 0 || dup3(opened->fd, old->fd, O_CLOEXEC) < 0)
        return false;
    old->life = opened->life;
    return true;
}

/* -1: there is none yet. */
static int find_another(commgemm_client *client, const struct cgm_buffer_fd *opened)
{
    struct cgm_buffer_fd *old;
    pthread_mutex_lock(&client->buffers_lock);
    for (old = client->buffer_fds; old; old = old->next)
        if (put_in_place(old, opened))
            break;
    pthread_mutex_unlock(&client->buffers_lock);
    return old ? old->fd : -1;
}

static struct cgm_buffer_fd *fds_remove(commgemm_client *client, uint64_t buffer)
{
    struct cgm_buffer_fd *removed = NULL;
    pthread_mutex_lock(&client->buffers_lock);
    struct cgm_buffer_fd **at = &client->buffer_fds;
    while (*at) {
        struct cgm_buffer_fd *entry = *at;
        if (entry->buffer != buffer) {
            at = &entry->next;
            continue;
        }
        *at = entry->next;
        entry->next = removed;
        removed = entry;
    }
    pthread_mutex_unlock(&client->buffers_lock);
    return removed;
}

static void fd_free(struct cgm_buffer_fd *entry)
{
    close(entry->fd);
    free(entry);
}

/* Of those that are in use the last user does it. */
static void fds_close(commgemm_client *client, struct cgm_buffer_fd *entry)
{
    while (entry) {
        struct cgm_buffer_fd *next = entry->next;
        pthread_mutex_lock(&client->buffers_lock);
        bool is_used = entry->users > 0;
        entry->closed = true;
        pthread_mutex_unlock(&client->buffers_lock);
        if (!is_used)
            fd_free(entry);
        entry = next;
    }
}

void cgm_buffers_init(commgemm_client *client)
{
    pthread_mutex_init(&client->buffers_lock, NULL);
}

void cgm_buffers_fini(commgemm_client *client)
{
    fds_close(client, client->buffer_fds);
    pthread_mutex_destroy(&client->buffers_lock);
}

int cgm_buffer_fd_use(commgemm_client *client, const struct commgemm_buffer *buffer,
                      struct cgm_buffer_fd **ret_fd)
{
    struct cgm_buffer_fd *entry = NULL;
    *ret_fd = NULL;
    if (buffer->fd < 0)
        return CGM_OK;
    pthread_mutex_lock(&client->buffers_lock);
    for (entry = client->buffer_fds; entry; entry = entry->next)
        if (entry->fd == buffer->fd && entry->buffer == buffer->id &&
            (entry->writable || !buffer->writable))
            break;
    if (entry)
        entry->users++;
    pthread_mutex_unlock(&client->buffers_lock);
    *ret_fd = entry;
    if (entry)
        return CGM_OK;
    return cgm_fail(CGM_NOT_FOUND, "buffer %llu: fd %d, with which it was opened, is closed",
                    (unsigned long long)buffer->id, buffer->fd);
}

void cgm_buffer_fd_end_use(commgemm_client *client, struct cgm_buffer_fd *fd)
{
    if (!fd)
        return;
    pthread_mutex_lock(&client->buffers_lock);
    bool is_last = --fd->users == 0 && fd->closed;
    pthread_mutex_unlock(&client->buffers_lock);
    if (is_last)
        fd_free(fd);
}

int cgm_buffer_fd_check(commgemm_client *client, const struct cgm_buffer_fd *fd)
{
    Cgm__BufferCheck request = CGM__BUFFER_CHECK__INIT;
    if (!(client->features & CGM_FEATURE_BUFFER_CHECK))
        return CGM_OK; /* such a daemon tells nobody */
    request.id = fd->buffer;
    request.executor_life = fd->life;
    request.has_executor_life = fd->life != 0;
    return cgm_client_tell(client, CGM_MSG_BUFFER_CHECK, &request.base);
}

/* ---- create, open, close ----------------------------------------------------------------------
 * Fds come and go with the daemon's replies, in their order: what was opened before a close is
 * closed, what was opened after it stays. */

struct opening {
    commgemm_client *client;
    struct cgm_buffer_fd *entry; /* for the fd; NULL: taken */
    int fd;                      /* -1: it came without */
};

struct closing {
    commgemm_client *client;
    uint64_t id;
    struct cgm_buffer_fd *fds; /* which the caller closes: the watcher is not to free memory */
};

/* Who opens a buffer again, as after each executor's death, has one fd of it. */
static void take_opened(void *argument, int type, struct cgm_reply *reply)
{
    struct opening *opening = argument;
    const Cgm__BufferReply *buffer = (const Cgm__BufferReply *)reply->message;
    if (type != CGM_MSG_BUFFER_REPLY || !buffer || reply->cut || reply->fds[0] < 0)
        return;
    struct cgm_buffer_fd opened = {.buffer = buffer->id,
                                   .life = buffer->executor_life,
                                   .fd = cgm_reply_take_fd(reply, 0),
                                   .writable = buffer->writable};
    opening->fd = find_another(opening->client, &opened);
    if (opening->fd >= 0) {
        close(opened.fd);
        return;
    }
    opening->fd = opened.fd;
    *opening->entry = opened;
    fd_add(opening->client, opening->entry);
    opening->entry = NULL;
}

static void take_closed(void *argument, int type, struct cgm_reply *reply)
{
    struct closing *closing = argument;
    if (cgm_reply_says_gone(type, reply))
        closing->fds = fds_remove(closing->client, closing->id);
}

/* Of the one open that the daemon counts and this side does not, and of what was made with it. No
 * job has it. */
static void let_go(commgemm_client *client, const Cgm__BufferReply *buffer, bool created)
{
    Cgm__BufferClose message = CGM__BUFFER_CLOSE__INIT;
    const struct cgm_wire_request request = {
        .type = CGM_MSG_BUFFER_CLOSE, .message = &message.base, .reply_type = CGM_MSG_OK};
    message.id = buffer->id;
    message.has_once = message.once = 1;
    message.has_open = buffer->has_open;
    message.open = buffer->open;
    message.has_unmade = message.unmade = created;
    cgm_wire_call(&client->wire, &request, NULL);
}

static int ask_for_buffer(struct opening *opening, int type, const ProtobufCMessage *message,
                          struct commgemm_buffer *ret_buffer)
{
    const struct cgm_wire_request request = {.type = type,
                                             .message = message,
                                             .reply_type = CGM_MSG_BUFFER_REPLY,
                                             .take = take_opened,
                                             .argument = opening};
    struct cgm_reply reply;
    int status = cgm_client_ask(opening->client, &request, &reply);
    if (status != CGM_OK)
        return status;
    const Cgm__BufferReply *buffer = (const Cgm__BufferReply *)reply.message;
    if (reply.cut) {
        let_go(opening->client, buffer, type == CGM_MSG_BUFFER_CREATE);
        status = cgm_fail_cut(type);
    } else {
        *ret_buffer = (struct commgemm_buffer){
            .id = buffer->id,
            .bytes = buffer->bytes,
            .generation = buffer->generation,
            .tainted = buffer->tainted,
            .writable = buffer->writable,
            .fd = opening->fd,
        };
    }
    cgm_reply_fini(&reply);
    return status;
}

static int call_for_buffer(commgemm_client *client, int type, const ProtobufCMessage *request,
                           struct commgemm_buffer *ret_buffer)
{
    struct opening opening = {.client = client, .entry = malloc(sizeof(*opening.entry)), .fd = -1};
    if (!opening.entry)
        return cgm_fail_plain(CGM_NO_MEMORY);
    int status = ask_for_buffer(&opening, type, request, ret_buffer);
    free(opening.entry);
    return status;
}

static int check_create(uint64_t bytes, int device, uint32_t flags)
{
    if (bytes == 0 || bytes > CGM_BUFFER_BYTES_MAX)
        return cgm_fail(CGM_INVALID_ARGUMENT, "bytes is %llu; it must be 1 to %llu",
                        (unsigned long long)bytes, CGM_BUFFER_BYTES_MAX);
    if (device < -1)
        return cgm_fail(CGM_INVALID_ARGUMENT, "device is %d; it must be -1 or a device's number",
                        device);
    if (flags & ~(uint32_t)COMMGEMM_BUFFER_IPC)
        return cgm_fail(CGM_INVALID_ARGUMENT, "flags is %#x; the only flag is %#x (IPC)", flags,
                        COMMGEMM_BUFFER_IPC);
    return CGM_OK;
}

int commgemm_buffer_create(commgemm_client *client, const char *name, uint64_t bytes, int device,
                           uint32_t mode, uint32_t flags, struct commgemm_buffer *ret_buffer)
{
    Cgm__BufferCreate request = CGM__BUFFER_CREATE__INIT;
    int status = cgm_check_client(client);
    if (status == CGM_OK)
        status = cgm_check_pointer(ret_buffer, "ret_buffer");
    if (status == CGM_OK)
        status = cgm_check_name(name, "name", 0);
    if (status == CGM_OK)
        status = cgm_check_mode(mode);
    if (status == CGM_OK)
        status = check_create(bytes, device, flags);
    if (status != CGM_OK)
        return status;
    request.name = (char *)(uintptr_t)name;
    request.bytes = bytes;
    request.has_mode = mode != 0;
    request.mode = mode;
    request.has_device = device >= 0;
    request.device = device;
    request.has_flags = flags != 0;
    request.flags = flags;
    status = call_for_buffer(client, CGM_MSG_BUFFER_CREATE, &request.base, ret_buffer);
    if (status != CGM_OK || ret_buffer->bytes >= bytes)
        return status;
    commgemm_buffer_close(client, ret_buffer->id);
    return cgm_fail(CGM_BAD_MESSAGE, "the daemon made a buffer of %llu bytes, not of %llu",
                    (unsigned long long)ret_buffer->bytes, (unsigned long long)bytes);
}

int commgemm_buffer_open(commgemm_client *client, const char *name, uint64_t id, int read_only,
                         struct commgemm_buffer *ret_buffer)
{
    Cgm__BufferOpen request = CGM__BUFFER_OPEN__INIT;
    int status = cgm_check_client(client);
    if (status == CGM_OK)
        status = cgm_check_pointer(ret_buffer, "ret_buffer");
    if (status == CGM_OK)
        status = cgm_check_name(name, "name", 0);
    if (status == CGM_OK && !name && id == 0)
        status = cgm_fail(CGM_INVALID_ARGUMENT, "name is NULL and id is 0; one of them is needed");
    if (status != CGM_OK)
        return status;
    request.name = (char *)(uintptr_t)name;
    request.has_id = !name;
    request.id = id;
    request.has_read_only = read_only != 0;
    request.read_only = read_only != 0;
    return call_for_buffer(client, CGM_MSG_BUFFER_OPEN, &request.base, ret_buffer);
}

int commgemm_buffer_close(commgemm_client *client, uint64_t id)
{
    Cgm__BufferClose request = CGM__BUFFER_CLOSE__INIT;
    int status = cgm_check_client(client);
    if (status != CGM_OK)
        return status;
    struct closing closing = {.client = client, .id = id};
    request.id = id;
    status = cgm_client_tell_in_order(client, CGM_MSG_BUFFER_CLOSE, &request.base, take_closed,
                                      &closing);
    fds_close(client, closing.fds);
    return status;
}

int commgemm_buffer_destroy(commgemm_client *client, const char *name)
{
    Cgm__BufferDestroy request = CGM__BUFFER_DESTROY__INIT;
    int status = cgm_check_client(client);
    if (status == CGM_OK)
        status = cgm_check_name(name, "name", 1);
    request.name = (char *)(uintptr_t)name;
    return status == CGM_OK ? cgm_client_tell(client, CGM_MSG_BUFFER_DESTROY, &request.base)
                            : status;
}

int commgemm_buffer_destroy_id(commgemm_client *client, uint64_t id)
{
    Cgm__BufferDestroy request = CGM__BUFFER_DESTROY__INIT;
    int status = cgm_check_client(client);
    request.has_id = 1;
    request.id = id;
    return status == CGM_OK ? cgm_client_tell(client, CGM_MSG_BUFFER_DESTROY, &request.base)
                            : status;
}

int commgemm_buffer_rewritten(commgemm_client *client, const struct commgemm_buffer *buffer)
{
    Cgm__BufferRewritten request = CGM__BUFFER_REWRITTEN__INIT;
    int status = cgm_check_client(client);
    if (status == CGM_OK)
        status = cgm_check_pointer(buffer, "buffer");
    if (status != CGM_OK)
        return status;
    request.id = buffer->id;
    request.has_generation = 1;
    request.generation = buffer->generation;
    return cgm_client_tell(client, CGM_MSG_BUFFER_REWRITTEN, &request.base);
}

/* ---- mapping ----------------------------------------------------------------------------------
 */

static int check_mappable(const struct commgemm_buffer *buffer, const struct cgm_buffer_fd *fd)
{
    struct stat st;
    if (!fd)
        return cgm_fail(CGM_NOT_SUPPORTED,
                        "buffer %llu has no fd: it is device memory that is "
                        "shared by handle",
                        (unsigned long long)buffer->id);
    if (fstat(fd->fd, &st) < 0)
        return cgm_fail(cgm_status_of_errno(errno), "buffer's fd is %d: %s", fd->fd,
                        strerror(errno));
    if (!S_ISREG(st.st_mode))
        return cgm_fail(CGM_NOT_SUPPORTED,
                        "buffer %llu is device memory; copy through a job or "
                        "import the fd in CUDA",
                        (unsigned long long)buffer->id);
    if (buffer->bytes == 0 || (uint64_t)st.st_size < buffer->bytes)
        return cgm_fail(CGM_INVALID_ARGUMENT, "buffer's bytes is %llu; its memory has 1 to %lld",
                        (unsigned long long)buffer->bytes, (long long)st.st_size);
    return CGM_OK;
}

static int map_fd(const struct commgemm_buffer *buffer, const struct cgm_buffer_fd *fd,
                  void **ret_address)
{
    int protection = buffer->writable ? PROT_READ | PROT_WRITE : PROT_READ;
    void *address = mmap(NULL, buffer->bytes, protection, MAP_SHARED, fd->fd, 0);
    if (address == MAP_FAILED)
        return cgm_fail(cgm_status_of_errno(errno), "buffer %llu of %llu bytes: %s",
                        (unsigned long long)buffer->id, (unsigned long long)buffer->bytes,
                        strerror(errno));
    *ret_address = address;
    return CGM_OK;
}

int commgemm_buffer_map(commgemm_client *client, const struct commgemm_buffer *buffer,
                        void **ret_address)
{
    struct cgm_buffer_fd *fd;
    int status = cgm_check_client(client);
    if (status == CGM_OK)
        status = cgm_check_pointer(buffer, "buffer");
    if (status == CGM_OK)
        status = cgm_check_pointer(ret_address, "ret_address");
    if (status == CGM_OK)
        status = cgm_buffer_fd_use(client, buffer, &fd);
    if (status != CGM_OK)
        return status;
    status = check_mappable(buffer, fd);
    if (status == CGM_OK)
        status = cgm_buffer_fd_check(client, fd);
    if (status == CGM_OK)
        status = map_fd(buffer, fd, ret_address);
    cgm_buffer_fd_end_use(client, fd);
    return status;
}

int commgemm_buffer_unmap(void *address, uint64_t bytes)
{
    if (!address || bytes == 0)
        return cgm_fail(CGM_INVALID_ARGUMENT,
                        "address is %p and bytes is %llu; both must be as "
                        "commgemm_buffer_map gave them",
                        address, (unsigned long long)bytes);
    if (munmap(address, bytes) == 0)
        return CGM_OK;
    return cgm_fail(cgm_status_of_errno(errno), "address is %p: %s", address, strerror(errno));
}
