#include "daemon/executor/memory.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/executor/contents.h"
#include "daemon/executor/endpoint.h"
#include "proto/messages.h"
#include "proto/status.h"

/* ---- large memory, on the mapper ------------------------------------------------------------ */

static bool fill_slice(struct cgm_request *request)
{
    struct cgm_memory *memory = request->object;
    uint64_t bytes = CGM_MEM_SLICE;
    request->status = cgm_wish_is_over(&memory->wish)
                          ? CGM_CANCELLED
                          : request->executor->ops->mem_fill(memory->mem, &bytes);
    return request->status == CGM_OK && bytes == 0;
}

bool cgm_mem_drain_slice(const struct cgm_backend_ops *ops, struct cgm_mem *mem)
{
    uint64_t bytes = CGM_MEM_SLICE;
    if (!mem || !ops->mem_drain)
        return false;
    ops->mem_drain(mem, &bytes);
    return bytes == 0;
}

static bool drain_slice(struct cgm_request *request)
{
    return cgm_mem_drain_slice(request->executor->ops,
                               ((const struct cgm_memory *)request->object)->mem);
}

/* What an import has is not ours to give back. */
static bool is_large(const struct cgm_memory *memory)
{
    return memory->mem && memory->session == 0 && memory->bytes > CGM_MEM_AT_ONCE;
}

/* On the mapper; then `step`. */
static void memory_drain(struct cgm_request *request, void (*step)(struct cgm_request *request))
{
    const struct cgm_memory *memory = request->object;
    if (is_large(memory))
        cgm_request_in_slices(request, memory->uid, drain_slice, step);
    else
        step(request);
}

/* ---- closed imports ------------------------------------------------------------------------- */

bool cgm_memory_has_holes(const struct cgm_memory *memory, const struct cgm_backend_ops *ops)
{
    return memory->session != 0 && memory->mem && ops->mem_has_holes &&
           ops->mem_has_holes(memory->mem);
}

int cgm_memory_holes_detail(const struct cgm_memory *memory, const char *operand, char *ret_detail,
                            size_t detail_bytes)
{
    return cgm_detail(ret_detail, detail_bytes, CGM_STALE,
                      "%s: import %llu has holes: its client gave back pages of the memory; they "
                      "must exist (fallocate), and be imported again",
                      operand, (unsigned long long)memory->id);
}

int cgm_memory_check_open(const struct cgm_memory *memory, const char *operand, char *ret_detail,
                          size_t detail_bytes)
{
    if (memory->mem)
        return CGM_OK;
    if (memory->holes)
        return cgm_memory_holes_detail(memory, operand, ret_detail, detail_bytes);
    return cgm_detail(ret_detail, detail_bytes, CGM_STALE,
                      "%s: import %llu was closed: no job had named it for long, or an executor "
                      "found holes in it or cannot take it over",
                      operand, (unsigned long long)memory->id);
}

/* ---- users ---------------------------------------------------------------------------------- */

void cgm_memory_ref(struct cgm_memory *memory)
{
    memory->users++;
}

static struct cgm_memory *memory_of_reclaim(struct cgm_reclaim *reclaim)
{
    return (struct cgm_memory *)(void *)((char *)reclaim - offsetof(struct cgm_memory, reclaim));
}

static void memory_reclaim(struct cgm_executor *executor, struct cgm_memory *memory,
                           void (*done)(struct cgm_reclaim *reclaim))
{
    memory->reclaim = (struct cgm_reclaim){.mem = memory->mem, .done = done};
    cgm_reclaim(executor, &memory->reclaim);
}

static void memory_gone(struct cgm_reclaim *reclaim)
{
    free(memory_of_reclaim(reclaim));
}

static void removal_done(struct cgm_reclaim *reclaim)
{
    struct cgm_memory *memory = memory_of_reclaim(reclaim);
    struct cgm_request *removal = memory->removal;
    free(memory);
    cgm_request_ok(removal);
}

static void memory_freed_step(struct cgm_request *request)
{
    memory_reclaim(request->executor, request->object, removal_done);
}

static void memory_free_step(struct cgm_request *request)
{
    memory_drain(request, memory_freed_step);
}

/* On the sweeper: a client that has the memory too may be at it all the time, and the system lets
 * one in after the other. All of a buffer, however little, is given back: it is in nobody's quota
 * any more, and clients may keep any number of fds. Of an import it only leaves this process. */
static void memory_sweep_step(struct cgm_request *request)
{
    const struct cgm_memory *memory = request->object;
    cgm_request_in_sweep(request, memory->uid, memory->guest, drain_slice, memory_freed_step);
}

static _Atomic uint32_t *journal_writers(struct cgm_executor *executor,
                                         const struct cgm_memory *memory)
{
    if (memory->journal >= CGM_JOURNAL_BUFFERS)
        return NULL;
    return &executor->journal->writers[memory->journal];
}

void cgm_memory_begin_write(struct cgm_executor *executor, const struct cgm_memory *memory)
{
    _Atomic uint32_t *writers = journal_writers(executor, memory);
    if (writers)
        atomic_fetch_add(writers, 1);
}

void cgm_memory_end_write(struct cgm_executor *executor, const struct cgm_memory *memory)
{
    _Atomic uint32_t *writers = journal_writers(executor, memory);
    if (writers)
        atomic_fetch_sub(writers, 1);
}

static void memory_free_if_unused(struct cgm_memory *memory)
{
    struct cgm_request *removal = memory->removal;
    if (memory->users > 0 || !removal)
        return;
    removal->object = memory;
    if (removal->executor->ops->mem_freed_anywhere)
        cgm_request_to_sweeper(removal, memory_sweep_step);
    else
        cgm_request_to_mapper(removal, memory->uid, memory_free_step);
}

void cgm_memory_unref(struct cgm_memory *memory)
{
    memory->users--;
    if (memory->users == 0 && memory->session != 0)
        memory->unused_since_ns = cgm_now_ns();
    if (memory->users == 0 && memory->on_unused) {
        memory->on_unused(memory); /* may free it */
        return;
    }
    memory_free_if_unused(memory);
}

/* What a user buffer holds is judged by chunks (contents.h), and an import is its client's. */
void cgm_memory_taint(struct cgm_executor *executor, struct cgm_memory *memory)
{
    Cgm__BufferTainted event = CGM__BUFFER_TAINTED__INIT;
    if (memory->journal == CGM_JOURNAL_NONE || memory->contents || memory->tainted)
        return;
    event.id = memory->id;
    memory->tainted = true;
    cgm_event_send(executor, CGM_MSG_BUFFER_TAINTED, &event.base);
}

void cgm_memory_restored(struct cgm_executor *executor, struct cgm_memory *memory)
{
    Cgm__BufferRestored event = CGM__BUFFER_RESTORED__INIT;
    event.id = memory->id;
    memory->tainted = false;
    cgm_event_send(executor, CGM_MSG_BUFFER_RESTORED, &event.base);
}

/* ---- registering, on the poller ------------------------------------------------------------- */

static void memory_answer(struct cgm_request *request, const struct cgm_memory *memory)
{
    Cgm__Memory reply = CGM__MEMORY__INIT;
    int fd = -1;
    reply.id = memory->id;
    reply.bytes = memory->mem_bytes;
    if (request->type != CGM_MSG_BUFFER_ALLOC) {
        cgm_request_ok(request);
        return;
    }
    const struct cgm_backend_ops *ops = request->executor->ops;
    const Cgm__BufferAlloc *asked = (const Cgm__BufferAlloc *)request->message;
    if (asked->flags & CGM_MEMORY_IPC) {
        uint8_t handle[64];
        int made =
            ops->mem_ipc_handle ? ops->mem_ipc_handle(memory->mem, handle) : CGM_NOT_SUPPORTED;
        reply.has_ipc_handle = 1;
        reply.ipc_handle = (ProtobufCBinaryData){sizeof(handle), handle};
        if (made == CGM_OK)
            cgm_request_answer(request, CGM_MSG_MEMORY, &reply.base, NULL, 0);
        else
            cgm_request_fail(request, made, "memory of buffer %llu has no cudaIpc handle",
                             (unsigned long long)memory->id);
        return;
    }
    int status = ops->mem_export(memory->mem, &fd);
    if (status != CGM_OK) {
        cgm_request_fail(request, status, "memory of buffer %llu cannot be exported",
                         (unsigned long long)memory->id);
        return;
    }
    cgm_request_answer(request, CGM_MSG_MEMORY, &reply.base, &fd, 1);
    close(fd);
}

/* Mapper. */
static void memory_discard_step(struct cgm_request *request)
{
    memory_reclaim(request->executor, request->object, memory_gone);
    cgm_request_fail(request, request->status, "the memory object cannot be registered: %s",
                     cgm_status_text(request->status));
}

static void memory_register(struct cgm_request *request)
{
    struct cgm_poller *poller = &request->executor->poller;
    struct cgm_memory *memory = request->object;
    memory->unused_since_ns = cgm_now_ns();
    int status = cgm_map_add(&poller->memories, memory->id, memory);
    if (status == CGM_OK && memory->session != 0) {
        struct cgm_endpoint *endpoint = cgm_map_get(&poller->endpoints, memory->session);
        memory->uid = endpoint ? endpoint->uid : 0;
        status = cgm_endpoint_grant(endpoint, memory, !memory->read_only);
    }
    if (status == CGM_OK) {
        memory_answer(request, memory);
        return;
    }
    if (cgm_map_get(&poller->memories, memory->id) == memory)
        cgm_map_remove(&poller->memories, memory->id);
    request->status = status;
    cgm_request_to_mapper(request, memory->uid, memory_discard_step);
}

/* ---- making, on the mapper ------------------------------------------------------------------ */

static struct cgm_memory *memory_new(uint64_t id, uint32_t generation, uint64_t bytes,
                                     uint32_t device, uint32_t journal)
{
    struct cgm_memory *memory = calloc(1, sizeof(*memory));
    if (!memory)
        return NULL;
    memory->id = id;
    memory->guest = CGM_NOBODY;
    memory->generation = generation;
    memory->bytes = bytes;
    memory->device = device;
    memory->journal = journal;
    return memory;
}

static void memory_made(struct cgm_request *request, struct cgm_memory *memory, int status,
                        const char *detail)
{
    if (status != CGM_OK) {
        if (memory)
            memory_reclaim(request->executor, memory, memory_gone);
        cgm_request_fail(request, status, "%s", detail);
        return;
    }
    if (memory->mem)
        memory->mem_bytes = request->executor->ops->mem_bytes(memory->mem);
    request->object = memory;
    cgm_request_to_poller(request, memory_register);
}

/* False when it was refused: the broker may remember more devices than this executor has. */
static bool device_is_there(struct cgm_request *request, uint32_t device)
{
    uint32_t n_devices = request->executor->n_devices;
    if (device >= n_devices)
        cgm_request_fail(request, CGM_INVALID_ARGUMENT, "device: %u; this node has 0 to %u", device,
                         n_devices - 1);
    return device < n_devices;
}

/* How much was asked for, and how much there is. */
static void describe_shortage(struct cgm_executor *executor, uint64_t bytes, uint32_t device,
                              char *ret_detail, size_t size)
{
    char room[CGM_EXECUTOR_ROOM];
    cgm_executor_describe_room(executor, device, room);
    cgm_detail(ret_detail, size, 0, "bytes: %llu on device %u could not be allocated; %s",
               (unsigned long long)bytes, device, room);
}

static void alloc_failed_step(struct cgm_request *request)
{
    const Cgm__BufferAlloc *m = (const Cgm__BufferAlloc *)request->message;
    struct cgm_memory *memory = request->object;
    char detail[384] = "its session has ended";
    if (request->status == CGM_NOT_SUPPORTED && m->flags)
        cgm_detail(detail, sizeof(detail), 0,
                   "flags: the %s backend has no memory with a cudaIpc handle",
                   request->executor->ops->name);
    else if (request->status != CGM_CANCELLED)
        describe_shortage(request->executor, m->bytes, m->device, detail, sizeof(detail));
    memory_made(request, memory, request->status, detail);
}

static void alloc_filled_step(struct cgm_request *request)
{
    struct cgm_memory *memory = request->object;
    cgm_wishes_remove(&request->executor->wishes, &memory->wish);
    if (request->status == CGM_OK)
        memory_made(request, request->object, CGM_OK, NULL);
    else
        memory_drain(request, alloc_failed_step);
}

static void alloc_step(struct cgm_request *request)
{
    const Cgm__BufferAlloc *m = (const Cgm__BufferAlloc *)request->message;
    struct cgm_executor *executor = request->executor;
    struct cgm_memory *memory = request->object;
    request->status = cgm_wish_is_over(&memory->wish)
                          ? CGM_CANCELLED
                          : executor->ops->mem_alloc(executor->backend, m->device, m->bytes,
                                                     m->flags, &memory->mem);
    if (request->status == CGM_OK && executor->ops->mem_fill && m->bytes > CGM_MEM_AT_ONCE)
        cgm_request_in_slices(request, m->uid, fill_slice, alloc_filled_step);
    else
        alloc_filled_step(request);
}

/* From here, where the end of its session would be noticed. */
void cgm_buffer_on_alloc(struct cgm_request *request)
{
    const Cgm__BufferAlloc *m = (const Cgm__BufferAlloc *)request->message;
    if (!device_is_there(request, m->device))
        return;
    struct cgm_memory *memory = memory_new(m->id, m->generation, m->bytes, m->device, m->journal);
    if (!memory) {
        cgm_request_fail(request, CGM_NO_MEMORY, "buffer %llu: out of host memory",
                         (unsigned long long)m->id);
        return;
    }
    memory->uid = m->uid;
    request->object = memory;
    cgm_wishes_add(&request->executor->wishes, m->session, &memory->wish);
    cgm_request_to_mapper(request, memory->uid, alloc_step);
}

/* Clients have it, too, and can hold the system's locks on it: then this process cannot map
 * anything any more, and the broker is to know why. id: 0 when it is done. */
static void note_mapping(struct cgm_executor *executor, uint64_t id)
{
    if (executor->ops->mem_freed_anywhere)
        atomic_store(&executor->journal->mapping, id);
}

static void adopt_step(struct cgm_request *request)
{
    const Cgm__BufferAdopt *m = (const Cgm__BufferAdopt *)request->message;
    struct cgm_executor *executor = request->executor;
    if (!device_is_there(request, m->device))
        return;
    int fd = cgm_packet_take_fd(request->packet, 0);
    struct cgm_memory *memory = memory_new(m->id, m->generation, m->bytes, m->device, m->journal);
    note_mapping(executor, m->id);
    int status =
        memory ? executor->ops->mem_adopt(executor->backend, m->device, fd, m->bytes, &memory->mem)
               : CGM_NO_MEMORY;
    note_mapping(executor, 0);
    if (memory) {
        memory->tainted = m->tainted;
        memory->uid = m->uid;
        memory->guest = m->has_guest ? m->guest : CGM_NOBODY;
    }
    if (fd >= 0)
        close(fd);
    memory_made(request, memory, status, "memory could not be adopted");
}

void cgm_buffer_on_adopt(struct cgm_request *request)
{
    cgm_request_to_mapper(request, ((const Cgm__BufferAdopt *)request->message)->uid, adopt_step);
}

/* Gathers the segments; false when the lists do not fit together. */
static bool import_segments(const Cgm__ImportAdd *m, struct cgm_packet *packet,
                            struct cgm_memory_segment *ret_segments)
{
    unsigned next_fd = 0;
    if (m->n_kind == 0 || m->n_kind > CGM_IMPORT_SEGMENTS_MAX || m->n_offset != m->n_kind ||
        m->n_length != m->n_kind)
        return false;
    for (size_t i = 0; i < m->n_kind; i++) {
        struct cgm_memory_segment *s = &ret_segments[i];
        *s = (struct cgm_memory_segment){
            .kind = m->kind[i], .fd = -1, .offset = m->offset[i], .length = m->length[i]};
        if (s->kind == 1 && next_fd < packet->n_fds)
            s->fd = packet->fds[next_fd++];
        if (s->kind == 2 && i < m->n_handle && m->handle[i].len == sizeof(s->handle))
            memcpy(s->handle, m->handle[i].data, sizeof(s->handle));
    }
    return true;
}

/* The device that an import is for: by UUID when the client knows no number of ours. */
static int import_device(struct cgm_executor *executor, const Cgm__ImportAdd *m, char *ret_detail,
                         size_t size, uint32_t *ret_device)
{
    *ret_device = m->device;
    if (!m->device_uuid)
        return m->device < executor->n_devices ? CGM_OK
                                               : cgm_detail(ret_detail, size, CGM_INVALID_ARGUMENT,
                                                            "device: %u; there are 0 to %u",
                                                            m->device, executor->n_devices - 1);
    for (uint32_t i = 0; i < executor->n_devices; i++) {
        if (strcmp(executor->info[i].uuid, m->device_uuid) != 0)
            continue;
        *ret_device = i;
        return CGM_OK;
    }
    return cgm_detail(ret_detail, size, CGM_INVALID_ARGUMENT,
                      "device: %.60s is none of the %u that the %s executor uses", m->device_uuid,
                      executor->n_devices, executor->ops->name);
}

static void import_step(struct cgm_request *request)
{
    const Cgm__ImportAdd *m = (const Cgm__ImportAdd *)request->message;
    struct cgm_executor *executor = request->executor;
    struct cgm_memory_segment segments[CGM_IMPORT_SEGMENTS_MAX];
    char detail[256] = "segments: the lists of kinds, offsets and lengths differ in size";
    uint64_t bytes = 0;
    uint32_t device = 0;
    if (!import_segments(m, request->packet, segments) ||
        import_device(executor, m, detail, sizeof(detail), &device) != CGM_OK) {
        cgm_request_fail(request, CGM_INVALID_ARGUMENT, "%s", detail);
        return;
    }
    for (size_t i = 0; i < m->n_length; i++)
        bytes += m->length[i];
    struct cgm_memory *memory = memory_new(m->id, m->generation, bytes, device, CGM_JOURNAL_NONE);
    int status = memory ? CGM_OK : CGM_NO_MEMORY;
    note_mapping(executor, m->id);
    if (memory && !m->idle)
        status = executor->ops->mem_import(executor->backend, device, segments, (uint32_t)m->n_kind,
                                           m->read_only, detail, sizeof(detail), &memory->mem);
    note_mapping(executor, 0);
    if (memory) {
        memory->session = m->session;
        memory->read_only = m->read_only;
    }
    memory_made(request, memory, status, detail);
}

void cgm_import_on_add(struct cgm_request *request)
{
    const Cgm__ImportAdd *m = (const Cgm__ImportAdd *)request->message;
    const struct cgm_endpoint *endpoint =
        cgm_map_get(&request->executor->poller.endpoints, m->session);
    /* Without its session it will be refused. */
    cgm_request_to_mapper(request, endpoint ? endpoint->uid : CGM_NOBODY, import_step);
}

/* ---- removing and granting, on the poller --------------------------------------------------- */

static void revoke_from(void *context, uint64_t session, void *value)
{
    (void)session;
    cgm_endpoint_revoke(value, ((struct cgm_memory *)context)->id);
}

void cgm_memory_forget(struct cgm_poller *poller, struct cgm_memory *memory)
{
    cgm_map_remove(&poller->memories, memory->id);
    cgm_map_each(&poller->endpoints, revoke_from, memory);
}

void cgm_memory_on_remove(struct cgm_request *request)
{
    struct cgm_poller *poller = &request->executor->poller;
    uint64_t id = request->type == CGM_MSG_BUFFER_REMOVE
                      ? ((const Cgm__BufferRemove *)request->message)->id
                      : ((const Cgm__ImportRemove *)request->message)->id;
    struct cgm_memory *memory = cgm_map_get(&poller->memories, id);
    if (!memory || memory->owner) {
        cgm_request_fail(request, CGM_NOT_FOUND, "id: %llu is no memory object",
                         (unsigned long long)id);
        return;
    }
    cgm_memory_forget(poller, memory);
    memory->removal = request;
    memory_free_if_unused(memory);
}

void cgm_memory_on_rewritten(struct cgm_request *request)
{
    const Cgm__BufferRewritten *m = (const Cgm__BufferRewritten *)request->message;
    struct cgm_memory *memory = cgm_map_get(&request->executor->poller.memories, m->id);
    if (memory)
        memory->tainted = false;
    if (memory && memory->contents)
        cgm_contents_vouch(memory->contents);
    cgm_request_ok(request);
}

void cgm_grant_on_add(struct cgm_request *request)
{
    const Cgm__Grant *m = (const Cgm__Grant *)request->message;
    struct cgm_poller *poller = &request->executor->poller;
    struct cgm_memory *memory = cgm_map_get(&poller->memories, m->id);
    struct cgm_endpoint *endpoint = cgm_map_get(&poller->endpoints, m->session);
    int status = memory ? cgm_endpoint_grant(endpoint, memory, m->writable) : CGM_NOT_FOUND;
    if (status == CGM_OK)
        cgm_request_ok(request);
    else
        cgm_request_fail(request, status, "session %llu or object %llu is not here",
                         (unsigned long long)m->session, (unsigned long long)m->id);
}

void cgm_grant_on_revoke(struct cgm_request *request)
{
    const Cgm__Revoke *m = (const Cgm__Revoke *)request->message;
    struct cgm_endpoint *endpoint = cgm_map_get(&request->executor->poller.endpoints, m->session);
    if (endpoint)
        cgm_endpoint_revoke(endpoint, m->id);
    cgm_request_ok(request);
}
