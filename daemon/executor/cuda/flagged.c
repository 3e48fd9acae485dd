/* Flagged products: by one kernel that waits and publishes itself, or part by part, with the stream
 * waiting and publishing between products.
 *
 * The kernel holds multiprocessors while it waits, so what it waits for must not need any of these.
 * With every queue on a stream of its own that is so: what brings the parts are copy engines on the
 * peers' communication queues, which have only their own rank's earlier work before them. Where
 * queues share streams they may have other comms' work before them, and that may be waiting for
 * this device: then the stream waits first. Where ranks share a device it copies with
 * multiprocessors. */
#include "daemon/executor/cuda/flag.h"
#include "daemon/executor/cuda/gemm.h"
#include "daemon/executor/cuda/queue.h"
#include "daemon/executor/cuda/recording.h"
#include "daemon/executor/cuda/view.h"
#include "daemon/executor/flagged_gemm.h"
#include "kernels/flagged_gemm.h"
#include "proto/status.h"
#include "proto/types.h"

_Static_assert(CGM_GEMM_PARTS_MAX == CGM_KERNEL_PARTS_MAX, "one limit of parts");
_Static_assert(CGM_ALSO_MAX == CGM_KERNEL_ALSO_MAX, "one limit of places");

/* ---- part by part --------------------------------------------------------------------------- */

static int copy_also(struct cgm_queue *queue, const struct cgm_flagged_gemm *flagged,
                     const struct cgm_gemm_part *part)
{
    int status = CGM_OK;
    for (uint32_t i = 0; i < part->n_also && status == CGM_OK; i++) {
        struct cgm_copy copy = cgm_flagged_part_copy(flagged, part, i);
        status = cgm_cuda_copy(queue, &copy);
    }
    return status;
}

static int multiply_parts(struct cgm_queue *queue, const struct cgm_flagged_gemm *flagged)
{
    int status = CGM_OK;
    for (uint32_t i = 0; i < flagged->n_parts && status == CGM_OK; i++) {
        const struct cgm_gemm_part *part = &flagged->parts[i];
        struct cgm_gemm gemm = cgm_flagged_part_gemm(flagged, part);
        if (part->await.flag)
            status = cgm_cuda_wait(queue, part->await.flag, part->await.value, &gemm.label);
        if (status == CGM_OK)
            status = cgm_cuda_gemm(queue, &gemm);
        if (status == CGM_OK)
            status = copy_also(queue, flagged, part);
        if (status == CGM_OK && part->publish.flag)
            status = cgm_cuda_signal(queue, part->publish.flag, part->publish.value);
    }
    return status;
}

static int prepare_parts(struct cgm_queue *queue, const struct cgm_flagged_gemm *flagged,
                         enum cgm_prepare how)
{
    int status = CGM_OK;
    for (uint32_t i = 0; i < flagged->n_parts && status == CGM_OK; i++) {
        struct cgm_gemm gemm = cgm_flagged_part_gemm(flagged, &flagged->parts[i]);
        status = cgm_cuda_prepare_gemm(queue, &gemm, how);
    }
    return status;
}

/* ---- by one kernel -------------------------------------------------------------------------- */

struct fused {
    struct cgm_kernel_flagged_gemm gemm;
    struct cgm_kernel_part parts[CGM_GEMM_PARTS_MAX];
};

static bool awaits(const struct cgm_flagged_gemm *flagged)
{
    for (uint32_t i = 0; i < flagged->n_parts; i++)
        if (flagged->parts[i].await.flag)
            return true;
    return false;
}

/* As far as types and alignment tell; what only looks at shapes has no memory behind its views. */
static bool kernel_can(struct cgm_queue *queue, const struct cgm_flagged_gemm *flagged)
{
    struct fused outline;
    outline.gemm = (struct cgm_kernel_flagged_gemm){.b = cgm_view_outline(&flagged->gemm.b),
                                                    .transb = flagged->gemm.transb,
                                                    .parts = outline.parts,
                                                    .n_parts = flagged->n_parts};
    for (uint32_t i = 0; i < flagged->n_parts; i++) {
        outline.parts[i].a = cgm_view_outline(&flagged->parts[i].a);
        outline.parts[i].out = cgm_view_outline(&flagged->parts[i].out);
        outline.parts[i].col = flagged->parts[i].col;
        outline.parts[i].n_also = flagged->parts[i].n_also;
        for (uint32_t j = 0; j < flagged->parts[i].n_also; j++)
            outline.parts[i].also[j] = cgm_view_outline(&flagged->parts[i].also[j]);
    }
    return queue->device->has_flagged && !(flagged->shared && awaits(flagged)) &&
           cgm_kernel_flagged_gemm_can(&outline.gemm);
}

static int resolve_part(const struct cgm_flagged_gemm *flagged, uint32_t index, uint32_t device,
                        struct cgm_kernel_part *ret_part)
{
    const struct cgm_gemm_part *part = &flagged->parts[index];
    struct cgm_gemm gemm = cgm_flagged_part_gemm(flagged, part);
    struct cgm_kernel_gemm g = {.transa = gemm.transa, .transb = gemm.transb};
    int status = cgm_view_resolve(&gemm.a, device, false, &g.a);
    if (status == CGM_OK)
        status = cgm_view_resolve(&gemm.b, device, false, &g.b);
    if (status == CGM_OK)
        status = cgm_view_resolve(&gemm.out, device, true, &g.out);
    if (status == CGM_OK)
        status = cgm_view_resolve_optional(&gemm.bias, device, &g.bias);
    if (status == CGM_OK && !cgm_gemm_fits(&g))
        status = CGM_INVALID_ARGUMENT;
    if (status != CGM_OK)
        return status;
    *ret_part =
        (struct cgm_kernel_part){.a = g.a, .out = g.out, .col = part->col, .n_also = part->n_also};
    status = cgm_views_resolve_also(part->also, part->n_also, device, &g.out, ret_part->also);
    if (status != CGM_OK)
        return status;
    if (part->publish.flag) {
        ret_part->publish = (uint64_t *)(uintptr_t)cgm_flag_at(part->publish.flag, device);
        ret_part->publish_value = part->publish.value;
        status = ret_part->publish ? CGM_OK : CGM_NOT_SUPPORTED;
    }
    return status;
}

static int resolve(struct cgm_queue *queue, const struct cgm_flagged_gemm *flagged,
                   struct fused *ret_fused)
{
    const struct cgm_gemm *whole = &flagged->gemm;
    uint32_t device = queue->device->index;
    uint32_t sms = (uint32_t)queue->device->kind[CGM_KIND_SMS];
    ret_fused->gemm = (struct cgm_kernel_flagged_gemm){.transa = whole->transa,
                                                       .transb = whole->transb,
                                                       .accumulate = whole->accumulate,
                                                       .woven = flagged->woven,
                                                       .tile_cols = flagged->tile_cols,
                                                       .parts = ret_fused->parts,
                                                       .n_parts = flagged->n_parts,
                                                       .blocks = sms - whole->spared_sms};
    int status = whole->spared_sms < sms ? CGM_OK : CGM_INVALID_ARGUMENT;
    if (status == CGM_OK)
        status = cgm_view_resolve(&whole->b, device, false, &ret_fused->gemm.b);
    if (status == CGM_OK)
        status = cgm_view_resolve_optional(&whole->bias, device, &ret_fused->gemm.bias);
    for (uint32_t i = 0; i < flagged->n_parts && status == CGM_OK; i++)
        status = resolve_part(flagged, i, device, &ret_fused->parts[i]);
    return status;
}

/* The kernel waits, or the stream before it. */
static int set_awaits(struct cgm_queue *queue, const struct cgm_flagged_gemm *flagged,
                      struct fused *fused)
{
    bool by_stream = cgm_streams_are_shared(queue->backend);
    int status = CGM_OK;
    for (uint32_t i = 0; i < flagged->n_parts && status == CGM_OK; i++) {
        const struct cgm_flag_value *await = &flagged->parts[i].await;
        if (!await->flag)
            continue;
        if (by_stream) {
            status = cgm_cuda_wait(queue, await->flag, await->value, &flagged->gemm.label);
            continue;
        }
        fused->parts[i].await =
            (const uint64_t *)(uintptr_t)cgm_flag_at(await->flag, queue->device->index);
        fused->parts[i].await_value = await->value;
        status = fused->parts[i].await ? CGM_OK : CGM_NOT_SUPPORTED;
    }
    return status;
}

static int set_give_up(struct cgm_queue *queue, const struct cgm_flagged_gemm *flagged,
                       struct fused *fused)
{
    struct cgm_give_up give_up;
    int status = cgm_queue_take_give_up(queue, &give_up);
    fused->gemm.give_up = (const uint64_t *)(uintptr_t)give_up.at;
    for (uint32_t i = 0; i < flagged->n_parts && status == CGM_OK; i++)
        if (fused->parts[i].await)
            cgm_queue_remember(queue, &flagged->parts[i].await, give_up.index, 1ull << i);
    return status;
}

/* cuBLASLt's room, which its products need one at a time, too. */
static int set_workspace(const struct cgm_stream *stream, struct fused *fused)
{
    fused->gemm.partials = stream->workspace;
    fused->gemm.partial_bytes = CGM_GEMM_WORKSPACE_BYTES;
    fused->gemm.meetings = stream->meetings;
    return stream->workspace ? CGM_OK : CGM_NOT_SUPPORTED;
}

static int launch(struct cgm_queue *queue, const struct cgm_flagged_gemm *flagged,
                  struct fused *fused)
{
    struct cgm_stream *stream = queue->stream;
    int status = cgm_gemm_need_workspace(queue);
    if (status == CGM_OK)
        status = set_workspace(stream, fused);
    if (status == CGM_OK)
        status = set_awaits(queue, flagged, fused);
    if (status == CGM_OK)
        status = set_give_up(queue, flagged, fused);
    if (status != CGM_OK)
        return status;
    fused->gemm.counters = stream->counters;
    fused->gemm.expected = stream->expected;
    struct cgm_span *span = cgm_span_begin(queue, CGM_PHASE_GEMM, &flagged->gemm.label);
    status = cgm_cuda_check(cgm_kernel_flagged_gemm_launch(&fused->gemm, stream->handle),
                            "flagged product", queue->device->index);
    cgm_span_end(span);
    for (uint32_t i = 0; i < flagged->n_parts && status == CGM_OK; i++)
        if (flagged->parts[i].publish.flag)
            cgm_flag_will_be(flagged->parts[i].publish.flag, flagged->parts[i].publish.value);
    return status;
}

/* The kernel's values of flags become those of each replay. */
static int record(struct cgm_queue *stand_in, const struct cgm_flagged_gemm *flagged,
                  struct fused *fused)
{
    int status = set_workspace(stand_in->stream, fused);
    if (status == CGM_OK)
        status = set_awaits(stand_in, flagged, fused);
    return status == CGM_OK ? cgm_recording_add_kernel(stand_in, flagged, &fused->gemm) : status;
}

/* ---- either --------------------------------------------------------------------------------- */

int cgm_cuda_flagged_gemm(struct cgm_queue *queue, const struct cgm_flagged_gemm *flagged)
{
    struct fused fused;
    if (!cgm_flagged_gemm_fits(flagged))
        return CGM_INVALID_ARGUMENT;
    if (!kernel_can(queue, flagged))
        return multiply_parts(queue, flagged);
    int status = resolve(queue, flagged, &fused);
    if (status != CGM_OK)
        return status;
    if (!cgm_queue_begin(queue, "a flagged product")) /* only waits and signals are left */
        return multiply_parts(queue, flagged);
    return queue->recording ? record(queue, flagged, &fused) : launch(queue, flagged, &fused);
}

int cgm_cuda_prepare_flagged_gemm(struct cgm_queue *queue, const struct cgm_flagged_gemm *flagged,
                                  enum cgm_prepare how)
{
    if (!cgm_flagged_gemm_fits(flagged))
        return CGM_INVALID_ARGUMENT;
    if (!kernel_can(queue, flagged))
        return prepare_parts(queue, flagged, how);
    if (how == CGM_PREPARE_KNOWN)
        return queue->stream->workspace ? CGM_OK : CGM_NOT_FOUND;
    cgm_device_use(queue->device->index);
    return cgm_gemm_need_workspace(queue);
}
