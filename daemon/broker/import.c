#include "daemon/broker/import.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "daemon/broker/broker.h"
#include "daemon/broker/session.h"
#include "daemon/broker/user_log.h"

enum { KIND_FD = 1, KIND_CUDA_IPC = 2 };
#define HANDLE_BYTES 64u
#define SEGMENT_ALIGN 4096u

/* ---- what a client may send -------------------------------------------------------------------
 */

static int check_lists(struct cgm_request *request, const Cgm__ImportCreate *create)
{
    size_t n = create->n_kind;
    if (n < 1 || n > CGM_IMPORT_SEGMENTS_MAX)
        return cgm_refuse(request, CGM_INVALID_ARGUMENT,
                          "there are %zu segments; there must be 1 to %u", n,
                          CGM_IMPORT_SEGMENTS_MAX);
    if (create->n_offset != n || create->n_length != n ||
        (create->n_handle != 0 && create->n_handle != n))
        return cgm_refuse(request, CGM_INVALID_ARGUMENT,
                          "kind, offset, length and handle have %zu, %zu, %zu and %zu values; they "
                          "must have the same number",
                          n, create->n_offset, create->n_length, create->n_handle);
    return CGM_OK;
}

/* A regular file must be a memfd that cannot shrink under the executor's mapping. What other fds
 * are (device memory) only the executor can tell. */
static int check_fd(struct cgm_request *request, const Cgm__ImportCreate *create, size_t i, int fd)
{
    struct stat st;
    if (!cgm_closer_may_be_memory(request->broker, fd))
        return cgm_refuse(request, CGM_INVALID_ARGUMENT,
                          "fd of segment %zu is neither a memfd nor device memory", i);
    if (fstat(fd, &st) < 0)
        return cgm_refuse(request, CGM_INVALID_ARGUMENT, "fd of segment %zu cannot be read", i);
    if (!S_ISREG(st.st_mode))
        return CGM_OK;
    int seals = fcntl(fd, F_GET_SEALS), flags = fcntl(fd, F_GETFL);
    if (seals < 0 || !(seals & F_SEAL_SHRINK))
        return cgm_refuse(request, CGM_INVALID_ARGUMENT,
                          "fd of segment %zu is not a memfd sealed against shrinking", i);
    if ((flags & O_ACCMODE) != O_RDWR && !create->read_only)
        return cgm_refuse(request, CGM_INVALID_ARGUMENT,
                          "fd of segment %zu is not open for writing; the import must be read_only",
                          i);
    if (create->offset[i] > (uint64_t)st.st_size ||
        create->length[i] > (uint64_t)st.st_size - create->offset[i])
        return cgm_refuse(request, CGM_INVALID_ARGUMENT,
                          "segment %zu has offset %ju and length %ju; its memory has %ju bytes", i,
                          (uintmax_t)create->offset[i], (uintmax_t)create->length[i],
                          (uintmax_t)st.st_size);
    return CGM_OK;
}

static int check_segment(struct cgm_request *request, const Cgm__ImportCreate *create, size_t i)
{
    uint64_t align = create->kind[i] == KIND_FD ? SEGMENT_ALIGN : 1;
    size_t handle = create->n_handle ? create->handle[i].len : 0;
    size_t handle_bytes = create->kind[i] == KIND_CUDA_IPC ? HANDLE_BYTES : 0;
    if (create->kind[i] != KIND_FD && create->kind[i] != KIND_CUDA_IPC)
        return cgm_refuse(request, CGM_INVALID_ARGUMENT,
                          "kind of segment %zu is %u; it must be 1 (fd) or 2 (cudaIpc)", i,
                          create->kind[i]);
    if (create->length[i] == 0 || create->length[i] > CGM_BUFFER_BYTES_MAX ||
        create->offset[i] > CGM_BUFFER_BYTES_MAX)
        return cgm_refuse(request, CGM_INVALID_ARGUMENT,
                          "segment %zu has offset %ju and length %ju; the length must be from 1 to "
                          "%ju and the offset at most that",
                          i, (uintmax_t)create->offset[i], (uintmax_t)create->length[i],
                          (uintmax_t)CGM_BUFFER_BYTES_MAX);
    if (create->offset[i] % align || create->length[i] % align)
        return cgm_refuse(request, CGM_INVALID_ARGUMENT,
                          "segment %zu has offset %ju and length %ju; they must be multiples of %u",
                          i, (uintmax_t)create->offset[i], (uintmax_t)create->length[i],
                          SEGMENT_ALIGN);
    if (handle != handle_bytes)
        return cgm_refuse(request, CGM_INVALID_ARGUMENT,
                          "handle of segment %zu has %zu bytes; it must have %zu", i, handle,
                          handle_bytes);
    return CGM_OK;
}

static int check_create(struct cgm_request *request, const Cgm__ImportCreate *create)
{
    uint32_t n_devices = request->broker->executor.n_devices;
    unsigned n_fds = 0;
    int status = check_lists(request, create);
    if (status == CGM_OK && create->device_uuid && !cgm_name_is_valid(create->device_uuid))
        return cgm_refuse(request, CGM_INVALID_ARGUMENT,
                          "device_uuid must be 1 to %u characters of [A-Za-z0-9._:-], the first "
                          "none of . - :",
                          CGM_NAME_BYTES_MAX);
    if (status == CGM_OK && create->has_device && create->device >= n_devices)
        return cgm_refuse(request, CGM_INVALID_ARGUMENT, "device is %u; it must be from 0 to %u",
                          create->device, n_devices - 1);
    for (size_t i = 0; status == CGM_OK && i < create->n_kind; i++) {
        status = check_segment(request, create, i);
        if (status != CGM_OK || create->kind[i] != KIND_FD)
            continue;
        if (n_fds == request->packet->n_fds)
            return cgm_refuse(request, CGM_BAD_MESSAGE, "segment %zu has no file descriptor", i);
        status = check_fd(request, create, i, request->packet->fds[n_fds++]);
    }
    if (status == CGM_OK && n_fds != request->packet->n_fds)
        return cgm_refuse(request, CGM_BAD_MESSAGE,
                          "ImportCreate has %u file descriptors for %u segments of kind 1",
                          request->packet->n_fds, n_fds);
    return status;
}

/* ---- objects ----------------------------------------------------------------------------------
 */

/* Of an object that has nobody else yet, or whose fds its estate has. */
static void object_free(struct cgm_import *import)
{
    cgm_message_free(import->message ? &import->message->base : NULL);
    free(import->fds);
    free(import);
}

/* ImportAdd repeats the fields of ImportCreate; a packed copy is what gives it memory of its own.
 * It may be longer than what the client sent: every list is written with a tag for each value. */
static Cgm__ImportAdd *message_new(const Cgm__ImportCreate *create, uint64_t session, uint64_t id)
{
    Cgm__ImportAdd add = CGM__IMPORT_ADD__INIT;
    struct cgm_packet *packet = malloc(sizeof(*packet));
    if (!packet)
        return NULL;
    add.session = session;
    add.id = id;
    add.generation = CGM_IMPORT_GENERATION;
    add.n_kind = create->n_kind;
    add.kind = create->kind;
    add.n_offset = create->n_offset;
    add.offset = create->offset;
    add.n_length = create->n_length;
    add.length = create->length;
    add.n_handle = create->n_handle;
    add.handle = create->handle;
    add.has_device = create->has_device;
    add.device = create->device;
    add.has_read_only = create->has_read_only;
    add.read_only = create->read_only;
    add.device_uuid = create->device_uuid;
    if (protobuf_c_message_get_packed_size(&add.base) > sizeof(packet->body)) {
        free(packet);
        return NULL;
    }
    packet->header.type = CGM_MSG_IMPORT_ADD;
    packet->header.body_bytes = (uint32_t)protobuf_c_message_pack(&add.base, packet->body);
    ProtobufCMessage *copy = cgm_packet_unpack(packet);
    free(packet);
    return (Cgm__ImportAdd *)copy;
}

/* Of lengths that were checked: the sum is below 2^64. */
static uint64_t bytes_of(const Cgm__ImportCreate *create)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < create->n_length; i++)
        bytes += create->length[i];
    return bytes;
}

static struct cgm_import *object_new(struct cgm_request *request, const Cgm__ImportCreate *create)
{
    struct cgm_broker *broker = request->broker;
    struct cgm_import *import = calloc(1, sizeof(*import));
    if (!import)
        return NULL;
    import->id = ++broker->last_object;
    import->session = request->session->id;
    import->message = message_new(create, import->session, import->id);
    import->fds = calloc(request->packet->n_fds + 1, sizeof(*import->fds));
    if (!import->message || !import->fds ||
        cgm_registry_add(&broker->imports, import->id, import) != CGM_OK) {
        object_free(import);
        return NULL;
    }
    if (cgm_registry_add(&request->session->imports, import->id, import) != CGM_OK) {
        cgm_registry_remove(&broker->imports, import->id);
        object_free(import);
        return NULL;
    }
    import->bytes = bytes_of(create);
    request->session->held_bytes += import->bytes;
    while (import->n_fds < request->packet->n_fds) {
        import->fds[import->n_fds] = cgm_packet_take_fd(request->packet, import->n_fds);
        import->n_fds++;
    }
    return import;
}

/* Frees all but the estate, which is what it returns. Memory stays here until the executor has let
 * go of it: whoever has it last frees it, and at the executor others may wait for that. Device
 * memory is the executor's business, and what was taken for it may be slow to close. */
static struct cgm_estate *take_apart(struct cgm_session *session, struct cgm_import *import)
{
    struct cgm_estate *estate = import->estate;
    int others[CGM_IMPORT_SEGMENTS_MAX];
    unsigned n_others = 0;
    session->held_bytes -= import->bytes;
    cgm_registry_remove(&session->imports, import->id);
    cgm_registry_remove(&session->broker->imports, import->id);
    for (unsigned i = 0; i < import->n_fds; i++)
        if (cgm_closer_is_memory(import->fds[i]))
            import->fds[estate->n_fds++] = import->fds[i];
        else
            others[n_others++] = import->fds[i];
    cgm_closer_drop(session->broker, estate->uid, others, n_others);
    estate->fds = import->fds;
    import->fds = NULL;
    object_free(import);
    return estate;
}

/* One that the executor is opening cannot be removed yet: whoever gets the answer to ImportAdd
 * finds the estate and settles it. request: who waits for the end, or NULL. */
static void import_free(struct cgm_session *session, struct cgm_import *import,
                        const struct cgm_request *request)
{
    struct cgm_broker *broker = session->broker;
    Cgm__ImportRemove remove = CGM__IMPORT_REMOVE__INIT;
    bool opening = import->opening;
    remove.id = import->id;
    struct cgm_estate *estate = take_apart(session, import);
    if (request)
        cgm_estate_await(estate, request);
    if (opening && cgm_registry_add(&broker->orphan_imports, remove.id, estate) == CGM_OK)
        cgm_estate_end(broker, estate);
    else
        cgm_estate_settle(broker, estate, CGM_MSG_IMPORT_REMOVE, &remove.base);
}

void cgm_import_drop_all(struct cgm_session *session)
{
    uint64_t at = 0;
    struct cgm_import *import;
    while ((import = cgm_registry_next(&session->imports, &at)))
        import_free(session, import, NULL);
}

/* ---- messages ---------------------------------------------------------------------------------
 */

int cgm_import_tell(struct cgm_broker *broker, struct cgm_import *import,
                    const struct cgm_call *call)
{
    int status = cgm_call_executor(broker, CGM_MSG_IMPORT_ADD, &import->message->base, import->fds,
                                   import->n_fds, call);
    import->opening = status == CGM_OK;
    return status;
}

void cgm_import_on_added(struct cgm_broker *broker, uint64_t id, const struct cgm_result *result)
{
    struct cgm_import *import = cgm_registry_find(&broker->imports, id);
    struct cgm_estate *estate = cgm_registry_remove(&broker->orphan_imports, id);
    Cgm__ImportRemove remove = CGM__IMPORT_REMOVE__INIT;
    remove.id = id;
    if (import) {
        import->opening = false;
        import->ready |= result->status == CGM_OK;
    } else if (result->status != CGM_OK) {
        cgm_estate_free(broker, estate);
    } else if (estate) {
        cgm_estate_settle(broker, estate, CGM_MSG_IMPORT_REMOVE, &remove.base);
    } else {
        cgm_tell_executor(broker, CGM_MSG_IMPORT_REMOVE, &remove.base);
    }
}

/* It has no memory any more, and the client is told so. */
static void make_idle(struct cgm_broker *broker, struct cgm_import *import,
                      const Cgm__ImportIdle *event)
{
    cgm_closer_drop(broker, import->estate->uid, import->fds, import->n_fds);
    import->n_fds = 0;
    cgm_estate_give_part(broker, import->estate, CGM_QUOTA_FDS);
    cgm_estate_give_part(broker, import->estate, CGM_QUOTA_IMPORT_BYTES);
    import->idle = true;
    import->message->generation = event->generation;
    import->message->has_idle = import->message->idle = 1;
    cgm_answer(broker, import->session, 0, CGM_MSG_IMPORT_IDLE, &event->base, NULL, 0);
}

void cgm_import_on_idle(struct cgm_broker *broker, const ProtobufCMessage *message)
{
    const Cgm__ImportIdle *event = (const Cgm__ImportIdle *)message;
    struct cgm_import *import = cgm_registry_find(&broker->imports, event->id);
    if (!import || import->idle)
        return;
    make_idle(broker, import, event);
    cgm_user_log(broker, import->estate->uid, CGM_LOG_DEBUG,
                 "import %ju: closed: no job had named it for long, or it has holes",
                 (uintmax_t)import->id);
}

bool cgm_import_leave_out(struct cgm_broker *broker, struct cgm_import *import)
{
    Cgm__ImportIdle event = CGM__IMPORT_IDLE__INIT;
    if (!import->ready || import->idle)
        return false;
    event.id = import->id;
    event.generation = import->message->generation + 1;
    make_idle(broker, import, &event);
    return true;
}

static void on_imported(struct cgm_broker *broker, const struct cgm_call *call,
                        const struct cgm_result *result)
{
    struct cgm_session *session = cgm_registry_find(&broker->sessions, call->session);
    struct cgm_import *import = session ? cgm_registry_find(&session->imports, call->object) : NULL;
    Cgm__ImportReply reply = CGM__IMPORT_REPLY__INIT;
    cgm_import_on_added(broker, call->object, result);
    if (result->status != CGM_OK) {
        cgm_answer_error(broker, call->session, call->serial, result->status, "%s", result->detail);
        if (import)
            cgm_estate_free(broker, take_apart(session, import));
        return;
    }
    reply.id = call->object;
    reply.generation = CGM_IMPORT_GENERATION;
    cgm_answer(broker, call->session, call->serial, CGM_MSG_IMPORT_REPLY, &reply.base, NULL, 0);
}

static int estate_new(struct cgm_request *request, const Cgm__ImportCreate *create,
                      struct cgm_estate **ret_estate)
{
    const struct cgm_charge charge = {{
        [CGM_QUOTA_IMPORTS] = 1,
        [CGM_QUOTA_IMPORT_BYTES] = bytes_of(create),
        [CGM_QUOTA_FDS] = request->packet->n_fds,
    }};
    for (unsigned i = 0; i < request->packet->n_fds; i++)
        if (!cgm_quota_spares_fd(request->packet->fds[i], request->detail, sizeof(request->detail)))
            return CGM_NO_MEMORY;
    return cgm_estate_new(request->broker, request->session->uid, &charge, NULL, 0, request->detail,
                          sizeof(request->detail), ret_estate);
}

int cgm_import_on_create(struct cgm_request *request)
{
    const Cgm__ImportCreate *create = (const Cgm__ImportCreate *)request->message;
    struct cgm_session *session = request->session;
    struct cgm_estate *estate = NULL;
    int status = check_create(request, create);
    if (status == CGM_OK)
        status = estate_new(request, create, &estate);
    if (status != CGM_OK)
        return status;
    struct cgm_import *import = object_new(request, create);
    if (!import) {
        cgm_estate_free(request->broker, estate);
        return CGM_NO_MEMORY;
    }
    import->estate = estate;
    struct cgm_call call = cgm_request_call(request, on_imported, import->id);
    status = cgm_import_tell(request->broker, import, &call);
    if (status != CGM_OK)
        cgm_estate_free(request->broker, take_apart(session, import));
    return status;
}

int cgm_import_find_held(struct cgm_request *request)
{
    uint64_t id = ((const Cgm__ImportRelease *)request->message)->id;
    request->object = cgm_registry_find(&request->session->imports, id);
    return request->object ? CGM_OK
                           : cgm_refuse(request, CGM_NOT_FOUND, "session %ju has no import %ju",
                                        (uintmax_t)request->session->id, (uintmax_t)id);
}

/* Answered when the executor uses the memory no more: then the client may free it. */
int cgm_import_on_release(struct cgm_request *request)
{
    import_free(request->session, request->object, request);
    return CGM_OK;
}
