#include "daemon/executor/transfer.h"

#include <stdlib.h>

#include "daemon/executor/contents.h"
#include "daemon/executor/endpoint.h"
#include "daemon/executor/idle_imports.h"
#include "daemon/executor/memory.h"
#include "proto/messages.h"
#include "proto/ring.h"
#include "proto/status.h"

typedef unsigned long long ull;

/* Copies are made of elements of this type: offsets and sizes are multiples of its size. */
#define COPY_DTYPE CGM_DTYPE_FP32
#define COPY_ALIGN 4u
/* Copied without a break: it may end, and its user leave, after each of these. */
#define SLICE_BYTES (16ull << 20)

/* A queue for copies from one device. They are the next user's when one has no more to copy: there
 * are as many as users ever copied at once. */
struct cgm_transfer {
    struct cgm_transfer *next; /* among the idle ones of its device */
    uint32_t device;
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
    struct cgm_copier *copier;
    struct cgm_transfer *transfer; /* of the slice under way; NULL: the mapper makes one */
    bool in_queue;                 /* that slice is */
    struct cgm_run run;            /* of it */
};

/* Who has copies that are not done: they are made one after the other. */
struct cgm_copier {
    struct cgm_copier *next;
    uint32_t uid;
    struct copy *first, **end;
};

/* ---- on the mapper -------------------------------------------------------------------------- */

static void transfer_free(struct cgm_transfer *transfer, const struct cgm_backend_ops *ops)
{
    if (transfer->queue)
        ops->queue_free(transfer->queue);
    if (transfer->done)
        ops->flag_free(transfer->done);
    free(transfer);
}

static int transfer_new(struct cgm_executor *executor, uint32_t device,
                        struct cgm_transfer **ret_transfer)
{
    const struct cgm_backend_ops *ops = executor->ops;
    struct cgm_transfer *transfer = calloc(1, sizeof(*transfer));
    if (!transfer)
        return CGM_NO_MEMORY;
    transfer->device = device;
    int status = ops->queue_new(executor->backend, device, 0, 0, &transfer->queue);
    if (status == CGM_OK)
        status = ops->flag_new(executor->backend, device, CGM_FLAG_HOST, &transfer->done);
    if (status == CGM_OK)
        *ret_transfer = transfer;
    else
        transfer_free(transfer, ops);
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

static int slice_enqueue(struct cgm_executor *executor, struct copy *copy,
                         const Cgm__CopyForward *m)
{
    const struct cgm_backend_ops *ops = executor->ops;
    struct cgm_transfer *transfer = copy->transfer;
    uint64_t at = copy->done_bytes, bytes = m->bytes - at;
    if (bytes > SLICE_BYTES)
        bytes = SLICE_BYTES;
    struct cgm_copy views = {.dst = bytes_view(copy->dst, m->dst_offset + at, bytes),
                             .src = bytes_view(copy->src, m->src_offset + at, bytes)};
    copy->done_bytes += bytes;
    copy->run = (struct cgm_run){.begin_ns = cgm_now_ns(), .uid = copy->copier->uid};
    ops->set_run(transfer->queue, &copy->run);
    int status = ops->copy(transfer->queue, &views);
    if (status == CGM_OK)
        status = ops->signal(transfer->queue, transfer->done, transfer->last + 1);
    transfer->last += status == CGM_OK;
    ops->set_run(transfer->queue, NULL);
    return status;
}

static void slice_begun_step(struct cgm_request *request);

static void slice_begin_step(struct cgm_request *request)
{
    struct cgm_executor *executor = request->executor;
    struct copy *copy = request->object;
    request->status = CGM_OK;
    if (!copy->transfer)
        request->status = transfer_new(executor, copy->src->device, &copy->transfer);
    if (request->status == CGM_OK)
        request->status = slice_enqueue(executor, copy, (const Cgm__CopyForward *)request->message);
    cgm_request_to_poller(request, slice_begun_step);
}

/* ---- on the poller -------------------------------------------------------------------------- */

static int check_holes(const struct cgm_executor *executor, const struct copy *copy,
                       char *ret_detail, size_t bytes)
{
    if (cgm_memory_has_holes(copy->src, executor->ops))
        return cgm_memory_holes_detail(copy->src, "src", ret_detail, bytes);
    if (cgm_memory_has_holes(copy->dst, executor->ops))
        return cgm_memory_holes_detail(copy->dst, "dst", ret_detail, bytes);
    return CGM_OK;
}

static void copy_end(struct copy *copy, char *ret_detail, size_t bytes)
{
    struct cgm_request *request = copy->request;
    cgm_detail(ret_detail, bytes, 0, "%s", cgm_status_text(request->status));
    int status = check_holes(request->executor, copy, ret_detail, bytes);
    if (status != CGM_OK)
        request->status = status;
}

static void copy_finish(struct copy *copy)
{
    struct cgm_request *request = copy->request;
    char detail[CGM_CQE_DETAIL];
    copy_end(copy, detail, sizeof(detail));
    cgm_memory_end_write(request->executor, copy->dst);
    cgm_memory_leave(request->executor, copy->dst);
    cgm_memory_leave(request->executor, copy->src);
    free(copy);
    if (request->status == CGM_OK)
        cgm_request_ok(request);
    else
        cgm_request_fail(request, request->status, "the copy failed: %s", detail);
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

static void slice_next(struct copy *copy)
{
    struct cgm_executor *executor = copy->request->executor;
    struct cgm_transfer **idle = &executor->idle_transfers;
    while (*idle && (*idle)->device != copy->src->device)
        idle = &(*idle)->next;
    copy->transfer = *idle;
    if (*idle)
        *idle = copy->transfer->next;
    cgm_request_to_mapper(copy->request, CGM_NOBODY, slice_begin_step);
}

static void copier_remove(struct cgm_executor *executor, struct cgm_copier *copier)
{
    struct cgm_copier **link = &executor->copiers;
    while (*link != copier)
        link = &(*link)->next;
    *link = copier->next;
    free(copier);
}

/* The user's next slice, or its end. */
static void copier_go_on(struct cgm_executor *executor, struct cgm_copier *copier)
{
    while (copier->first && is_over(copier->first)) {
        struct copy *copy = copier->first;
        copier->first = copy->next;
        copy_finish(copy);
    }
    if (copier->first)
        slice_next(copier->first);
    else
        copier_remove(executor, copier);
}

/* One slice of each user is under way at a time. How long it takes is up to whose memory it is:
 * pages come when the system gives them, and where a client makes holes all the time it gives them
 * late. */
static void slice_end(struct cgm_executor *executor, struct copy *copy)
{
    if (copy->transfer) {
        copy->transfer->next = executor->idle_transfers;
        executor->idle_transfers = copy->transfer;
    }
    copy->transfer = NULL;
    copy->in_queue = false;
    copier_go_on(executor, copy->copier);
}

static void slice_begun_step(struct cgm_request *request)
{
    struct copy *copy = request->object;
    copy->in_queue = request->status == CGM_OK;
    if (!copy->in_queue)
        slice_end(request->executor, copy);
}

bool cgm_transfer_step(struct cgm_executor *executor)
{
    bool busy = false;
    struct cgm_copier *next;
    for (struct cgm_copier *copier = executor->copiers; copier; copier = next) {
        struct copy *copy = copier->first;
        next = copier->next;
        if (!copy->in_queue ||
            executor->ops->flag_read(copy->transfer->done) < copy->transfer->last)
            continue;
        copy->request->status = atomic_load(&copy->run.status);
        slice_end(executor, copy);
        busy = true;
    }
    return busy;
}

static int copy_enqueue(struct cgm_executor *executor, uint32_t uid, struct copy *copy)
{
    struct cgm_copier **link = &executor->copiers;
    while (*link && (*link)->uid != uid)
        link = &(*link)->next;
    bool idle = !*link;
    if (idle && !(*link = calloc(1, sizeof(**link))))
        return CGM_NO_MEMORY;
    struct cgm_copier *copier = copy->copier = *link;
    if (idle) {
        copier->uid = uid;
        copier->end = &copier->first;
    }
    *copier->end = copy;
    copier->end = &copy->next;
    if (idle)
        copier_go_on(executor, copier);
    return CGM_OK;
}

static int check_range(const char *name, uint64_t offset, uint64_t bytes,
                       const struct cgm_grant *grant, char *detail, size_t size)
{
    if (!grant)
        return cgm_detail(detail, size, CGM_NOT_FOUND, "%s: it is not open in this session", name);
    int status = cgm_memory_check_open(grant->memory, name, detail, size);
    if (status != CGM_OK)
        return status;
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
    return check_holes(endpoint->poller->executor, ret_copy, detail, size);
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
