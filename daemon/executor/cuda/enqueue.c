/* The operations that move and add numbers. Each one is checked before anything is enqueued. */
#include "daemon/executor/cuda/queue.h"
#include "daemon/executor/cuda/view.h"
#include "kernels/number_format.h"
#include "proto/status.h"
#include "proto/types.h"

_Static_assert(CGM_COPIES_AT_ONCE == CGM_KERNEL_COPIES_MAX, "one limit of copies");
_Static_assert(CGM_REDUCE_SOURCES_MAX == CGM_KERNEL_SOURCES_MAX, "a source for each");

static bool same_shape(const struct cgm_kernel_matrix *a, const struct cgm_kernel_matrix *b)
{
    return a->rows == b->rows && a->cols == b->cols;
}

#define KERNEL_COPY_SMS 8u /* where it was to be a copy engine, and cannot be */

/* The driver makes such a copy itself: its call would not return before all that is in the stream
 * ahead of the copy is done, and the thread that calls serves every queue of the device. */
static bool is_within_host(const struct cgm_copy *copy)
{
    return copy->dst.mem->kind == CGM_MEM_HOST && copy->src.mem->kind == CGM_MEM_HOST;
}

/* Between devices, a copy engine has been seen to write beyond rows that lie an odd number of bytes
 * apart. */
static bool is_odd(const struct cgm_kernel_matrix *dst, const struct cgm_kernel_matrix *src,
                   size_t width)
{
    size_t element = cgm_dtype_bytes(dst->format);
    return ((uintptr_t)dst->data | (uintptr_t)src->data | dst->stride * element |
            src->stride * element | width) &
           1;
}

static cudaError_t copy_by_engine(const struct cgm_kernel_copy *copy, cudaStream_t stream)
{
    const struct cgm_kernel_matrix *dst = &copy->dst, *src = &copy->src;
    size_t element = cgm_dtype_bytes(dst->format), width = dst->cols * element;
    if (dst->rows == 1 || (dst->stride == dst->cols && src->stride == src->cols))
        return cudaMemcpyAsync(dst->data, src->data, width * dst->rows, cudaMemcpyDefault, stream);
    if (is_odd(dst, src, width))
        return cgm_kernel_copies_launch(copy, 1, KERNEL_COPY_SMS, stream);
    return cudaMemcpy2DAsync(dst->data, dst->stride * element, src->data, src->stride * element,
                             width, dst->rows, cudaMemcpyDefault, stream);
}

static int copy_resolve(const struct cgm_copy *copy, uint32_t device,
                        struct cgm_kernel_copy *ret_copy)
{
    int status = cgm_view_resolve(&copy->dst, device, true, &ret_copy->dst);
    if (status == CGM_OK)
        status = cgm_view_resolve(&copy->src, device, false, &ret_copy->src);
    if (status == CGM_OK && (!same_shape(&ret_copy->dst, &ret_copy->src) ||
                             ret_copy->dst.format != ret_copy->src.format))
        status = CGM_INVALID_ARGUMENT;
    return status;
}

int cgm_cuda_copy(struct cgm_queue *queue, const struct cgm_copy *copy)
{
    struct cgm_kernel_copy resolved;
    if (copy->sms)
        return cgm_cuda_copy_all(queue, copy, 1);
    int status = copy_resolve(copy, queue->device->index, &resolved);
    if (status != CGM_OK || !cgm_queue_begin(queue, "a copy"))
        return status;
    struct cgm_span *span = cgm_span_begin(queue, CGM_PHASE_COPY, &copy->label);
    cudaStream_t stream = queue->stream->handle;
    status = cgm_cuda_check(is_within_host(copy)
                                ? cgm_kernel_copies_launch(&resolved, 1, KERNEL_COPY_SMS, stream)
                                : copy_by_engine(&resolved, stream),
                            "copy", queue->device->index);
    cgm_span_end(span);
    return status;
}

int cgm_cuda_copy_all(struct cgm_queue *queue, const struct cgm_copy *copies, uint32_t count)
{
    struct cgm_kernel_copy resolved[CGM_KERNEL_COPIES_MAX];
    uint32_t device = queue->device->index;
    int status = count >= 1 && count <= CGM_KERNEL_COPIES_MAX ? CGM_OK : CGM_INVALID_ARGUMENT;
    for (uint32_t i = 0; i < count && status == CGM_OK; i++)
        status = copy_resolve(&copies[i], device, &resolved[i]);
    if (status != CGM_OK || !cgm_queue_begin(queue, "copies"))
        return status;
    struct cgm_span *span = cgm_span_begin(queue, CGM_PHASE_COPY, &copies->label);
    status = cgm_cuda_check(
        cgm_kernel_copies_launch(resolved, count, copies->sms, queue->stream->handle), "copies",
        device);
    cgm_span_end(span);
    return status;
}

/* Sums of int32 are int32, and only those. */
static bool reduce_types_fit(const struct cgm_kernel_reduce *reduce)
{
    bool integers = cgm_is_integer(&reduce->dst);
    if (integers && (reduce->dst.format != CGM_FORMAT_INT32 || reduce->bias.data))
        return false;
    for (uint32_t i = 0; i < reduce->n_src; i++)
        if (integers ? reduce->src[i].format != CGM_FORMAT_INT32 : cgm_is_integer(&reduce->src[i]))
            return false;
    return !cgm_is_integer(&reduce->bias);
}

static int reduce_resolve(const struct cgm_reduce *reduce, uint32_t device,
                          struct cgm_kernel_reduce *ret_reduce)
{
    if (reduce->n_src < 1 || reduce->n_src > CGM_REDUCE_SOURCES_MAX)
        return CGM_INVALID_ARGUMENT;
    ret_reduce->n_src = reduce->n_src;
    ret_reduce->accumulate = reduce->accumulate;
    ret_reduce->n_also = reduce->n_also;
    int status = cgm_view_resolve(&reduce->dst, device, true, &ret_reduce->dst);
    if (status == CGM_OK)
        status = cgm_view_resolve_optional(&reduce->bias, device, &ret_reduce->bias);
    if (status == CGM_OK && !cgm_bias_fits(&ret_reduce->bias, &ret_reduce->dst))
        status = CGM_INVALID_ARGUMENT;
    for (uint32_t i = 0; i < reduce->n_src && status == CGM_OK; i++) {
        status = cgm_view_resolve(&reduce->src[i], device, false, &ret_reduce->src[i]);
        if (status == CGM_OK && !same_shape(&ret_reduce->src[i], &ret_reduce->dst))
            status = CGM_INVALID_ARGUMENT;
    }
    if (status == CGM_OK)
        status = cgm_views_resolve_also(reduce->also, reduce->n_also, device, &ret_reduce->dst,
                                        ret_reduce->also);
    if (status == CGM_OK && !reduce_types_fit(ret_reduce))
        status = CGM_INVALID_ARGUMENT;
    return status;
}

int cgm_cuda_reduce(struct cgm_queue *queue, const struct cgm_reduce *reduce)
{
    struct cgm_kernel_reduce resolved;
    uint32_t device = queue->device->index;
    int status = reduce_resolve(reduce, device, &resolved);
    if (status != CGM_OK || !cgm_queue_begin(queue, "a reduction"))
        return status;
    struct cgm_span *span = cgm_span_begin(queue, CGM_PHASE_REDUCE, &reduce->label);
    status = cgm_cuda_check(cgm_kernel_reduce_launch(&resolved, queue->stream->handle), "reduction",
                            device);
    cgm_span_end(span);
    return status;
}

static int activation_resolve(const struct cgm_activation *activation, uint32_t device,
                              struct cgm_kernel_activation *ret_activation)
{
    bool backward = activation->kind == CGM_ACTIVATION_DGELU;
    *ret_activation = (struct cgm_kernel_activation){.backward = backward};
    if (!backward && activation->kind != CGM_ACTIVATION_GELU)
        return CGM_INVALID_ARGUMENT;
    int status = cgm_view_resolve(&activation->out, device, true, &ret_activation->out);
    if (status == CGM_OK && (backward || activation->input.mem))
        status = cgm_view_resolve(&activation->input, device, !backward, &ret_activation->input);
    if (status == CGM_OK && ret_activation->input.data &&
        !same_shape(&ret_activation->input, &ret_activation->out))
        status = CGM_INVALID_ARGUMENT;
    if (status == CGM_OK &&
        (cgm_is_integer(&ret_activation->out) || cgm_is_integer(&ret_activation->input)))
        status = CGM_INVALID_ARGUMENT;
    return status;
}

int cgm_cuda_activate(struct cgm_queue *queue, const struct cgm_activation *activation)
{
    struct cgm_kernel_activation resolved;
    uint32_t device = queue->device->index;
    int status = activation_resolve(activation, device, &resolved);
    if (status != CGM_OK || !cgm_queue_begin(queue, "a GELU"))
        return status;
    struct cgm_span *span = cgm_span_begin(queue, CGM_PHASE_EPILOGUE, &activation->label);
    status = cgm_cuda_check(cgm_kernel_activate_launch(&resolved, queue->stream->handle), "GELU",
                            device);
    cgm_span_end(span);
    return status;
}

int cgm_cuda_sum(struct cgm_queue *queue, const struct cgm_sum *sum)
{
    struct cgm_kernel_sum resolved = {.across = sum->across};
    uint32_t device = queue->device->index;
    int status = cgm_view_resolve(&sum->dst, device, true, &resolved.dst);
    if (status == CGM_OK)
        status = cgm_view_resolve(&sum->src, device, false, &resolved.src);
    if (status != CGM_OK)
        return status;
    if (resolved.dst.rows != 1 || cgm_is_integer(&resolved.dst) || cgm_is_integer(&resolved.src) ||
        resolved.dst.cols != (sum->across ? resolved.src.rows : resolved.src.cols))
        return CGM_INVALID_ARGUMENT;
    if (!cgm_queue_begin(queue, "a sum"))
        return CGM_OK;
    struct cgm_span *span = cgm_span_begin(queue, CGM_PHASE_EPILOGUE, &sum->label);
    status = cgm_cuda_check(cgm_kernel_sum_launch(&resolved, queue->stream->handle), "sum", device);
    cgm_span_end(span);
    return status;
}

int cgm_cuda_poison(struct cgm_queue *queue, const struct cgm_view *view)
{
    static const struct cgm_label nobody;
    struct cgm_kernel_matrix matrix;
    uint32_t device = queue->device->index;
    int status = cgm_view_resolve(view, device, true, &matrix);
    if (status != CGM_OK)
        return status;
    cgm_queue_begin(queue, "poisoning");
    struct cgm_span *span = cgm_span_begin(queue, CGM_PHASE_FILL, &nobody);
    status = cgm_cuda_check(cgm_kernel_poison_launch(&matrix, queue->stream->handle), "poisoning",
                            device);
    cgm_span_end(span);
    return status;
}
