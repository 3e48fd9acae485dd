#include "daemon/executor/cuda/gemm.h"

#include <string.h>

#include "daemon/executor/cuda/queue.h"
#include "daemon/executor/cuda/view.h"
#include "kernels/number_format.h"
#include "proto/status.h"
#include "proto/types.h"

static uint64_t depth_of(const struct cgm_kernel_gemm *g)
{
    return g->transa ? g->a.rows : g->a.cols;
}

/* int8 goes with int8, and gives int32; nothing else is an integer. */
static bool types_fit(const struct cgm_kernel_gemm *g)
{
    if (g->a.format == CGM_FORMAT_INT8)
        return g->b.format == CGM_FORMAT_INT8 && g->out.format == CGM_FORMAT_INT32 &&
               !g->bias.data && !g->accumulate;
    return !cgm_is_integer(&g->a) && !cgm_is_integer(&g->b) && !cgm_is_integer(&g->out) &&
           !cgm_is_integer(&g->bias);
}

bool cgm_gemm_fits(const struct cgm_kernel_gemm *g)
{
    uint64_t a_rows = g->transa ? g->a.cols : g->a.rows;
    uint64_t b_rows = g->transb ? g->b.cols : g->b.rows;
    uint64_t b_cols = g->transb ? g->b.rows : g->b.cols;
    return types_fit(g) && a_rows == g->out.rows && b_cols == g->out.cols &&
           b_rows == depth_of(g) && cgm_bias_fits(&g->bias, &g->out);
}

static int resolve(const struct cgm_gemm *gemm, uint32_t device, struct cgm_kernel_gemm *ret_gemm)
{
    *ret_gemm = (struct cgm_kernel_gemm){
        .transa = gemm->transa, .transb = gemm->transb, .accumulate = gemm->accumulate};
    int status = cgm_view_resolve(&gemm->a, device, false, &ret_gemm->a);
    if (status == CGM_OK)
        status = cgm_view_resolve(&gemm->b, device, false, &ret_gemm->b);
    if (status == CGM_OK)
        status = cgm_view_resolve(&gemm->out, device, true, &ret_gemm->out);
    if (status == CGM_OK)
        status = cgm_view_resolve_optional(&gemm->bias, device, &ret_gemm->bias);
    if (status == CGM_OK && !cgm_gemm_fits(ret_gemm))
        status = CGM_INVALID_ARGUMENT;
    return status;
}

/* ---- keys ----------------------------------------------------------------------------------- */

/* The largest power of two up to CGM_GEMM_ALIGN_MAX that divides address and row distance. */
static uint8_t align_of(const struct cgm_kernel_matrix *matrix)
{
    uint64_t row_bytes = matrix->rows > 1 ? matrix->stride * cgm_dtype_bytes(matrix->format) : 0;
    uint64_t bits = (uint64_t)(uintptr_t)matrix->data | row_bytes | CGM_GEMM_ALIGN_MAX;
    return (uint8_t)(bits & -bits);
}

bool cgm_gemm_spares_few(const struct cgm_device *device, const struct cgm_gemm *gemm)
{
    return gemm->spared_sms < (uint32_t)device->kind[CGM_KIND_SMS];
}

struct cgm_gemm_key cgm_gemm_key_of(const struct cgm_device *device, const struct cgm_gemm *gemm,
                                    const struct cgm_kernel_gemm *g)
{
    struct cgm_gemm_key key;
    memset(&key, 0, sizeof(key));
    key.m = g->out.rows;
    key.n = g->out.cols;
    key.k = depth_of(g);
    key.a_stride = g->a.stride;
    key.b_stride = g->b.stride;
    key.out_stride = g->out.stride;
    key.dtype = (uint8_t)g->a.format;
    key.out_dtype = (uint8_t)g->out.format;
    key.transa = g->transa;
    key.transb = g->transb;
    key.accumulate = g->accumulate;
    key.bias = g->bias.data != NULL;
    key.sms = gemm->spared_sms ? (uint32_t)device->kind[CGM_KIND_SMS] - gemm->spared_sms : 0;
    key.tf32 = gemm->tf32 && g->a.format == CGM_DTYPE_FP32;
    key.a_align = align_of(&g->a);
    key.b_align = align_of(&g->b);
    key.out_align = align_of(&g->out);
    return key;
}

bool cgm_gemm_is_odd(const struct cgm_kernel_gemm *g)
{
    return g->a.format != g->b.format ||
           (g->bias.data &&
            (g->bias.format != g->out.format ||
             g->bias.cols * cgm_dtype_bytes(g->bias.format) > CGM_GEMM_BIAS_BYTES)) ||
           (g->out.format != g->a.format && g->out.format != CGM_DTYPE_FP32 &&
            g->out.format != CGM_DTYPE_INT32);
}

/* ---- running -------------------------------------------------------------------------------- */

int cgm_gemm_need_workspace(struct cgm_queue *queue)
{
    struct cgm_stream *stream = queue->stream;
    const uint64_t bytes = CGM_GEMM_WORKSPACE_BYTES + CGM_GEMM_BIAS_BYTES;
    void *memory = NULL;
    if (stream->workspace)
        return CGM_OK;
    atomic_fetch_add_explicit(&queue->backend->allocations, 1, memory_order_relaxed);
    int status = cgm_cuda_check(cudaMalloc(&memory, bytes + CGM_GEMM_COUNTER_BYTES),
                                "cudaMalloc of a workspace", queue->device->index);
    if (status != CGM_OK)
        return status;
    stream->workspace = memory;
    stream->counters = (uint64_t *)(void *)((char *)memory + bytes);
    stream->meetings = (uint32_t *)(void *)(stream->counters + CGM_GEMM_PARTS_MAX);
    return cgm_cuda_check(
        cudaMemsetAsync(stream->counters, 0, CGM_GEMM_COUNTER_BYTES, stream->handle),
        "cudaMemsetAsync of counters", queue->device->index);
}

static bool bias_is_moved(const struct cgm_kernel_matrix *bias)
{
    return (uintptr_t)bias->data % CGM_GEMM_ALIGN_MAX != 0;
}

static int set_bias(const struct cgm_device *device, const struct cgm_stream *stream,
                    const struct cgm_kernel_matrix *bias, const struct cgm_gemm_entry *entry)
{
    const void *at = bias->data;
    int status = CGM_OK;
    if (!at)
        return CGM_OK;
    if (bias_is_moved(bias)) {
        void *aligned = (char *)stream->workspace + CGM_GEMM_WORKSPACE_BYTES;
        status =
            cgm_cuda_check(cudaMemcpyAsync(aligned, at, bias->cols * cgm_dtype_bytes(bias->format),
                                           cudaMemcpyDefault, stream->handle),
                           "copy of a bias", device->index);
        at = aligned;
    }
    if (status == CGM_OK &&
        cgm_blas.MatmulDescSetAttribute(entry->product, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &at,
                                        sizeof(at)) != CUBLAS_STATUS_SUCCESS)
        status = CGM_INTERNAL;
    return status;
}

int cgm_gemm_multiply(const struct cgm_device *device, const struct cgm_stream *stream,
                      const struct cgm_kernel_gemm *g, const struct cgm_gemm_entry *entry)
{
    const float ones[] = {1, 0};
    const int32_t whole_ones[] = {1, 0}; /* int32 is scaled by int32 */
    bool integers = g->out.format == CGM_FORMAT_INT32;
    const void *one = integers ? (const void *)&whole_ones[0] : &ones[0];
    const void *zero = integers ? (const void *)&whole_ones[1] : &ones[1];
    int status = set_bias(device, stream, &g->bias, entry);
    if (status != CGM_OK)
        return status;
    cublasStatus_t result = cgm_blas.Matmul(
        device->blas, entry->product, one, g->b.data, entry->b, g->a.data, entry->a,
        g->accumulate ? one : zero, g->out.data, entry->out, g->out.data, entry->out,
        &entry->algorithm, stream->workspace, CGM_GEMM_WORKSPACE_BYTES, stream->handle);
    if (result == CUBLAS_STATUS_SUCCESS)
        return CGM_OK;
    cgm_cuda_log(3, "device %u: cublasLtMatmul: %s (%llu x %llu x %llu)", device->index,
                 cgm_blas.GetStatusString(result), (unsigned long long)entry->key.m,
                 (unsigned long long)entry->key.n, (unsigned long long)entry->key.k);
    cgm_cuda_check(cudaPeekAtLastError(), "cublasLtMatmul", device->index);
    return CGM_INTERNAL;
}

static int multiply_plain(struct cgm_queue *queue, const struct cgm_kernel_gemm *g)
{
    return cgm_cuda_check(cgm_kernel_gemm_launch(g, queue->stream->handle), "plain product",
                          queue->device->index);
}

/* A product that was not prepared must not make cuBLASLt load code here: it would wait for streams
 * that may be waiting for what this thread enqueues next. */
static int multiply_fast(struct cgm_queue *queue, const struct cgm_gemm *gemm,
                         const struct cgm_kernel_gemm *g)
{
    struct cgm_gemm_table *table = queue->device->gemms;
    const struct cgm_gemm_key key = cgm_gemm_key_of(queue->device, gemm, g);
    const struct cgm_gemm_entry *entry = cgm_gemm_table_lock(table, &key);
    bool known = entry != NULL;
    if (entry && !entry->plain && !bias_is_moved(&g->bias) && !queue->recording)
        *queue->device->last = (struct cgm_last_product){queue->stream, key, *g};
    int status = entry && !entry->plain ? cgm_gemm_multiply(queue->device, queue->stream, g, entry)
                                        : multiply_plain(queue, g);
    cgm_gemm_table_unlock(table);
    if (!known)
        atomic_fetch_add_explicit(&queue->backend->unprepared, 1, memory_order_relaxed);
    return status;
}

int cgm_cuda_gemm(struct cgm_queue *queue, const struct cgm_gemm *gemm)
{
    struct cgm_kernel_gemm g;
    int status = cgm_gemm_spares_few(queue->device, gemm) ? resolve(gemm, queue->device->index, &g)
                                                          : CGM_INVALID_ARGUMENT;
    if (status != CGM_OK || !cgm_queue_begin(queue, "a product"))
        return status;
    status = cgm_gemm_need_workspace(queue);
    if (status != CGM_OK)
        return status;
    struct cgm_span *span = cgm_span_begin(queue, CGM_PHASE_GEMM, &gemm->label);
    status = cgm_gemm_is_odd(&g) ? multiply_plain(queue, &g) : multiply_fast(queue, gemm, &g);
    cgm_span_end(span);
    return status;
}
