#include "daemon/executor/transfer.h"

#include <stdlib.h>
#include <unistd.h>

#include "daemon/executor/contents.h"
#include "daemon/executor/endpoint.h"
#include "daemon/executor/memory.h"
#include "proto/messages.h"
#include "proto/status.h"

typedef unsigned long long ull;

/* Copies are made of elements of this type: offsets and sizes are multiples of its size. */
#define COPY_DTYPE CGM_DTYPE_FP32
#define COPY_ALIGN 4u
#define LOOK_US 20
/* Copied without a break: who else copies waits for one of these. */
#define SLICE_BYTES (16ull << 20)

/* One queue for each device, made when first needed, and where its copies stand. */
struct cgm_transfer {
    struct cgm_queue *queue;
    struct cgm_flag *done;
    uint64_t last;
};

/* A copy between its slices. */
struct copy {
    struct copy *next; /* of the same user */
    struct cgm_request *request;
    struct cgm_memory *dst, *src;
    uint64_t done_bytes;
    struct cgm_run run; /* of the slice under way */
};

/* Who has copies that are not done, each of them one slice in turn. */
struct cgm_copier {
    struct cgm_copier *next;
    uint32_t uid;
    struct copy *first, **end;
};

/* ---- on the mapper -------------------------------------------------------------------------- */

static int transfer_open(struct cgm_executor *executor, uint32_t device,
                         struct cgm_transfer **ret_transfer)
{
    if (!executor->transfer)
        executor->transfer = calloc(executor->n_devices, sizeof(*executor->transfer));
    if (!executor->transfer)
        return CGM_NO_MEMORY;
    struct cgm_transfer *transfer = &executor->transfer[device];
    int status = CGM_OK;
    if (!transfer->queue)
        status = executor->ops->queue_new(executor->backend, device, 0, 0, &transfer->queue);
    if (status == CGM_OK && !transfer->done)
        status = executor->ops->flag_new(executor->backend, device, CGM_FLAG_HOST, &transfer->done);
    *ret_transfer = transfer;
    return status;
}

static struct cgm_view bytes_view(const struct cgm_memory *memory, uint64_t offset, uint64_t bytes)
{
    uint64_t elements = bytes / COPY_ALIGN;
    return (struct cgm_view){.mem = memory->mem,
                             .offset_bytes = offset,
                             .rows = 1,
                             .cols = elements,
                             .stride = elements,
                             .dtype = COPY_DTYPE};
}

static int transfer_enqueue(struct cgm_executor *executor, struct copy *copy,
                            const Cgm__CopyForward *m)
{
    const struct cgm_backend_ops *ops = executor->ops;
    uint64_t at = copy->done_bytes, bytes = m->bytes - at;
    if (bytes > SLICE_BYTES)
        bytes = SLICE_BYTES;
    struct cgm_copy views = {.dst = bytes_view(copy->dst, m->dst_offset + at, bytes),
                             .src = bytes_view(copy->src, m->src_offset + at, bytes)};
    copy->done_bytes += bytes;
    struct cgm_transfer *transfer;
    int status = transfer_open(executor, copy->src->device, &transfer);
    if (status != CGM_OK)
        return status;
    copy->run = (struct cgm_run){.begin_ns = cgm_now_ns()};
    ops->set_run(transfer->queue, &copy->run);
    status = ops->copy(transfer->queue, &views);
    if (status == CGM_OK)
        status = ops->signal(transfer->queue, transfer->done, transfer->last + 1);
    transfer->last += status == CGM_OK;
    ops->set_run(transfer->queue, NULL);
    return status;
}

static void transfer_end_step(struct cgm_request *request);
static void transfer_await_step(struct cgm_request *request);

static void transfer_begin_step(struct cgm_request *request)
{
    request->status = transfer_enqueue(request->executor, request->object,
                                       (const Cgm__CopyForward *)request->message);
    if (request->status == CGM_OK)
        cgm_request_to_awaiter(request, transfer_await_step);
    else
        cgm_request_to_poller(request, transfer_end_step);
}

/* ---- on the awaiter -------------------------------------------------------------------------- */

/* One slice at a time is under way. How long it takes is up to whose memory it is: pages come when
 * the system gives them, and where a client makes holes all the time it gives them late. */
static void transfer_await_step(struct cgm_request *request)
{
    const struct copy *copy = request->object;
    const struct cgm_executor *executor = request->executor;
    const struct cgm_transfer *transfer = &executor->transfer[copy->src->device];
    while (executor->ops->flag_read(transfer->done) < transfer->last)
        usleep(LOOK_US);
    request->status = atomic_load(&copy->run.status);
    cgm_request_to_poller(request, transfer_end_step);
}

/* ---- on the poller -------------------------------------------------------------------------- */

static void copy_finish(struct copy *copy)
{
    struct cgm_request *request = copy->request;
    cgm_memory_end_write(request->executor, copy->dst);
    cgm_memory_unref(copy->dst);
    cgm_memory_unref(copy->src);
    free(copy);
    if (request->status == CGM_OK)
        cgm_request_ok(request);
    else
        cgm_request_fail(request, request->status, "the copy failed: %s",
                         cgm_status_text(request->status));
}

static bool is_over(const struct copy *copy)
{
    struct cgm_request *request = copy->request;
    const Cgm__CopyForward *m = (const Cgm__CopyForward *)request->message;
    const struct cgm_endpoint *endpoint =
        cgm_map_get(&request->executor->poller.endpoints, m->session);
    if (request->status == CGM_OK && copy->done_bytes < m->bytes &&
        (!endpoint || endpoint->removal))
        request->status = CGM_CANCELLED;
    return request->status != CGM_OK || copy->done_bytes == m->bytes;
}

/* The users take turns here; each one's copies are made one after the other. At the mapper a slice
 * waits for nothing else of its user's: all copies wait for it. */
static void copy_next(struct cgm_executor *executor)
{
    struct cgm_copier *user;
    while ((user = executor->copiers)) {
        struct copy *copy = user->first;
        if (copy && !is_over(copy)) {
            cgm_request_to_mapper(copy->request, CGM_NOBODY, transfer_begin_step);
            return;
        }
        if (copy) {
            user->first = copy->next;
            if (!user->first)
                user->end = &user->first;
            copy_finish(copy);
        } else {
            executor->copiers = user->next;
            free(user);
        }
    }
}

static void transfer_end_step(struct cgm_request *request)
{
    struct cgm_executor *executor = request->executor;
    struct cgm_copier *user = executor->copiers, **end = &executor->copiers;
    struct copy *copy = user->first;
    if (is_over(copy)) {
        user->first = copy->next;
        if (!user->first)
            user->end = &user->first;
        copy_finish(copy);
    }
    executor->copiers = user->next;
    user->next = NULL;
    while (*end)
        end = &(*end)->next;
    *end = user;
    copy_next(executor);
}

static int copy_enqueue(struct cgm_executor *executor, uint32_t uid, struct copy *copy)
{
    bool idle = !executor->copiers;
    struct cgm_copier **link = &executor->copiers;
    while (*link && (*link)->uid != uid)
        link = &(*link)->next;
    if (!*link) {
        struct cgm_copier *user = calloc(1, sizeof(*user));
        if (!user)
            return CGM_NO_MEMORY;
        user->uid = uid;
        user->end = &user->first;
        *link = user;
    }
    *(*link)->end = copy;
    (*link)->end = &copy->next;
    if (idle)
        copy_next(executor);
    return CGM_OK;
}

static int check_range(const char *name, uint64_t offset, uint64_t bytes,
                       const struct cgm_grant *grant, char *detail, size_t size)
{
    if (!grant)
        return cgm_detail(detail, size, CGM_NOT_FOUND, "%s: it is not open in this session", name);
    if (!grant->memory->mem)
        return cgm_detail(detail, size, CGM_STALE,
                          "%s: import %llu was closed, as no job had named it for long", name,
                          (ull)grant->memory->id);
    if (offset % COPY_ALIGN != 0 || bytes % COPY_ALIGN != 0 || bytes == 0)
        return cgm_detail(detail, size, CGM_INVALID_ARGUMENT,
                          "%s: offset %llu and bytes %llu; they must be multiples of %u", name,
                          (ull)offset, (ull)bytes, COPY_ALIGN);
    if (bytes > grant->memory->mem_bytes || offset > grant->memory->mem_bytes - bytes)
        return cgm_detail(detail, size, CGM_INVALID_ARGUMENT,
                          "%s: %llu bytes at offset %llu leave the object's %llu bytes", name,
                          (ull)bytes, (ull)offset, (ull)grant->memory->mem_bytes);
    return CGM_OK;
}

static int check_copy(const struct cgm_endpoint *endpoint, const Cgm__CopyForward *m,
                      struct copy *ret_copy, char *detail, size_t size)
{
    if (!endpoint)
        return cgm_detail(detail, size, CGM_NOT_FOUND, "session: it is not here");
    const struct cgm_grant *dst = cgm_map_get(&endpoint->grants, m->dst);
    const struct cgm_grant *src = cgm_map_get(&endpoint->grants, m->src);
    int status = check_range("dst", m->dst_offset, m->bytes, dst, detail, size);
    if (status == CGM_OK)
        status = check_range("src", m->src_offset, m->bytes, src, detail, size);
    if (status != CGM_OK)
        return status;
    if (!dst->writable)
        return cgm_detail(detail, size, CGM_PERMISSION, "dst: object %llu is open for reading only",
                          (ull)m->dst);
    /* A program may look at what is damaged, in memory of its own; other jobs may not. */
    bool is_sound =
        !src->memory->tainted && cgm_contents_are_sound(src->memory, m->src_offset, m->bytes);
    if (!is_sound && dst->memory->session == 0)
        return cgm_detail(detail, size, CGM_TAINTED, "src: object %llu is tainted", (ull)m->src);
    if (m->dst == m->src && m->dst_offset < m->src_offset + m->bytes &&
        m->src_offset < m->dst_offset + m->bytes)
        return cgm_detail(detail, size, CGM_INVALID_ARGUMENT, "dst: it overlaps src");
    ret_copy->dst = dst->memory;
    ret_copy->src = src->memory;
    return CGM_OK;
}

void cgm_transfer_on_copy(struct cgm_request *request)
{
    const Cgm__CopyForward *m = (const Cgm__CopyForward *)request->message;
    const struct cgm_endpoint *endpoint =
        cgm_map_get(&request->executor->poller.endpoints, m->session);
    char detail[256] = "copy: out of host memory";
    struct copy *copy = calloc(1, sizeof(*copy));
    int status = copy ? check_copy(endpoint, m, copy, detail, sizeof(detail)) : CGM_NO_MEMORY;
    if (status == CGM_OK) {
        copy->request = request;
        request->object = copy;
        cgm_memory_ref(copy->dst);
        cgm_memory_ref(copy->src);
        cgm_memory_begin_write(request->executor, copy->dst);
        if (copy_enqueue(request->executor, endpoint->uid, copy) == CGM_OK)
            return;
        request->status = CGM_NO_MEMORY;
        copy_finish(copy);
        return;
    }
    free(copy);
    cgm_request_fail(request, status, "%s", detail);
}
