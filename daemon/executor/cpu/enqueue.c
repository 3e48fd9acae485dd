/* The operations of the seam: views are checked and resolved once, here, by the enqueuing thread.
 */
#include "daemon/executor/cpu/queue.h"
#include "daemon/executor/flagged_gemm.h"
#include "proto/status.h"

void cgm_cpu_set_run(struct cgm_queue *queue, struct cgm_run *run)
{
    queue->run = run;
}

static int present(const struct cgm_view *view, bool writes, struct cgm_matrix *ret_matrix)
{
    return view->mem ? cgm_matrix_resolve(view, writes, ret_matrix) : CGM_INVALID_ARGUMENT;
}

int cgm_cpu_copy(struct cgm_queue *queue, const struct cgm_copy *copy)
{
    struct cgm_matrix dst, src;
    if (present(&copy->dst, true, &dst) != CGM_OK || present(&copy->src, false, &src) != CGM_OK ||
        !cgm_matrix_same_shape(&dst, &src) || dst.dtype != src.dtype)
        return CGM_INVALID_ARGUMENT;
    struct cgm_record *record = cgm_queue_reserve(queue, CGM_RECORD_COPY);
    record->label = copy->label;
    record->of.copy.dst = dst;
    record->of.copy.src = src;
    cgm_queue_push(queue);
    return CGM_OK;
}

/* Other places of one result, each like the first. */
static int also_check(const struct cgm_view *views, uint32_t count, const struct cgm_view *like)
{
    struct cgm_matrix matrix;
    int status = count <= CGM_ALSO_MAX ? CGM_OK : CGM_INVALID_ARGUMENT;
    for (uint32_t i = 0; i < count && status == CGM_OK; i++) {
        status = present(&views[i], true, &matrix);
        if (status == CGM_OK && (views[i].rows != like->rows || views[i].cols != like->cols ||
                                 views[i].dtype != like->dtype))
            status = CGM_INVALID_ARGUMENT;
    }
    return status;
}

static int gemm_resolve(const struct cgm_gemm *gemm, struct cgm_matrix_gemm *ret_gemm)
{
    *ret_gemm = (struct cgm_matrix_gemm){
        .transa = gemm->transa, .transb = gemm->transb, .accumulate = gemm->accumulate};
    if (present(&gemm->a, false, &ret_gemm->a) != CGM_OK ||
        present(&gemm->b, false, &ret_gemm->b) != CGM_OK ||
        present(&gemm->out, true, &ret_gemm->out) != CGM_OK ||
        cgm_matrix_resolve(&gemm->bias, false, &ret_gemm->bias) != CGM_OK)
        return CGM_INVALID_ARGUMENT;
    return cgm_gemm_check(ret_gemm);
}

int cgm_cpu_gemm(struct cgm_queue *queue, const struct cgm_gemm *gemm)
{
    struct cgm_matrix_gemm resolved;
    int status = gemm_resolve(gemm, &resolved);
    if (status != CGM_OK)
        return status;
    struct cgm_record *record = cgm_queue_reserve(queue, CGM_RECORD_GEMM);
    record->label = gemm->label;
    record->of.gemm = resolved;
    cgm_queue_push(queue);
    return CGM_OK;
}

/* The queue's thread takes one part after the other: it waits, multiplies, publishes. */
int cgm_cpu_flagged_gemm(struct cgm_queue *queue, const struct cgm_flagged_gemm *flagged)
{
    struct cgm_matrix_gemm unused;
    int status = cgm_flagged_gemm_fits(flagged) ? CGM_OK : CGM_INVALID_ARGUMENT;
    for (uint32_t i = 0; i < flagged->n_parts && status == CGM_OK; i++) {
        struct cgm_gemm gemm = cgm_flagged_part_gemm(flagged, &flagged->parts[i]);
        status = gemm_resolve(&gemm, &unused);
        if (status == CGM_OK)
            status = also_check(flagged->parts[i].also, flagged->parts[i].n_also, &gemm.out);
    }
    for (uint32_t i = 0; i < flagged->n_parts && status == CGM_OK; i++) {
        const struct cgm_gemm_part *part = &flagged->parts[i];
        struct cgm_gemm gemm = cgm_flagged_part_gemm(flagged, part);
        if (part->await.flag)
            cgm_cpu_wait(queue, part->await.flag, part->await.value, &gemm.label);
        status = cgm_cpu_gemm(queue, &gemm);
        for (uint32_t j = 0; j < part->n_also && status == CGM_OK; j++) {
            struct cgm_copy copy = cgm_flagged_part_copy(flagged, part, j);
            status = cgm_cpu_copy(queue, &copy);
        }
        if (part->publish.flag)
            cgm_cpu_signal(queue, part->publish.flag, part->publish.value);
    }
    return status;
}

/* Sums of int32 are int32, and only those. */
static bool reduce_types_fit(const struct cgm_matrix_reduce *reduce,
                             const struct cgm_matrix *sources)
{
    bool integers = cgm_matrix_is_integer(&reduce->dst);
    if (integers && (reduce->dst.dtype != CGM_DTYPE_INT32 || reduce->bias.data))
        return false;
    for (uint32_t i = 0; i < reduce->n_src; i++)
        if (integers ? sources[i].dtype != CGM_DTYPE_INT32 : cgm_matrix_is_integer(&sources[i]))
            return false;
    return !cgm_matrix_is_integer(&reduce->bias);
}

/* Everything is checked before the first record, so that a refusal leaves nothing behind. */
static int reduce_resolve(const struct cgm_reduce *reduce, struct cgm_matrix_reduce *ret_reduce,
                          struct cgm_matrix *ret_sources)
{
    if (reduce->n_src < 1 || reduce->n_src > CGM_REDUCE_SOURCES_MAX)
        return CGM_INVALID_ARGUMENT;
    ret_reduce->n_src = reduce->n_src;
    ret_reduce->accumulate = reduce->accumulate;
    if (present(&reduce->dst, true, &ret_reduce->dst) != CGM_OK ||
        cgm_matrix_resolve(&reduce->bias, false, &ret_reduce->bias) != CGM_OK)
        return CGM_INVALID_ARGUMENT;
    const struct cgm_matrix *bias = &ret_reduce->bias;
    if (bias->data && (bias->rows != 1 || bias->cols != ret_reduce->dst.cols))
        return CGM_INVALID_ARGUMENT;
    for (uint32_t i = 0; i < reduce->n_src; i++)
        if (present(&reduce->src[i], false, &ret_sources[i]) != CGM_OK ||
            !cgm_matrix_same_shape(&ret_sources[i], &ret_reduce->dst))
            return CGM_INVALID_ARGUMENT;
    if (!reduce_types_fit(ret_reduce, ret_sources))
        return CGM_INVALID_ARGUMENT;
    return also_check(reduce->also, reduce->n_also, &reduce->dst);
}

int cgm_cpu_reduce(struct cgm_queue *queue, const struct cgm_reduce *reduce)
{
    struct cgm_matrix_reduce resolved;
    struct cgm_matrix sources[CGM_REDUCE_SOURCES_MAX];
    int status = reduce_resolve(reduce, &resolved, sources);
    if (status != CGM_OK)
        return status;
    for (uint32_t first = 0; first < reduce->n_src; first += CGM_SOURCES_PER_RECORD) {
        struct cgm_record *part = cgm_queue_reserve(queue, CGM_RECORD_SOURCES);
        uint32_t left = reduce->n_src - first;
        part->of.sources.first = first;
        part->of.sources.count = left < CGM_SOURCES_PER_RECORD ? left : CGM_SOURCES_PER_RECORD;
        for (uint32_t i = 0; i < part->of.sources.count; i++)
            part->of.sources.matrix[i] = sources[first + i];
        cgm_queue_push(queue);
    }
    struct cgm_record *record = cgm_queue_reserve(queue, CGM_RECORD_REDUCE);
    record->label = reduce->label;
    record->of.reduce = resolved;
    cgm_queue_push(queue);
    for (uint32_t i = 0; i < reduce->n_also && status == CGM_OK; i++)
        status = cgm_cpu_copy(
            queue, &(struct cgm_copy){reduce->label, reduce->also[i], reduce->dst, .sms = 0});
    return status;
}

int cgm_cpu_activate(struct cgm_queue *queue, const struct cgm_activation *activation)
{
    struct cgm_matrix_activation resolved = {.kind = activation->kind};
    bool forward = activation->kind == CGM_ACTIVATION_GELU;
    if (present(&activation->out, true, &resolved.out) != CGM_OK ||
        cgm_matrix_resolve(&activation->input, forward, &resolved.input) != CGM_OK ||
        cgm_activation_check(&resolved) != CGM_OK)
        return CGM_INVALID_ARGUMENT;
    struct cgm_record *record = cgm_queue_reserve(queue, CGM_RECORD_ACTIVATE);
    record->label = activation->label;
    record->of.activation = resolved;
    cgm_queue_push(queue);
    return CGM_OK;
}

int cgm_cpu_sum(struct cgm_queue *queue, const struct cgm_sum *sum)
{
    struct cgm_matrix_sum resolved = {.across = sum->across};
    if (present(&sum->dst, true, &resolved.dst) != CGM_OK ||
        present(&sum->src, false, &resolved.src) != CGM_OK || cgm_sum_check(&resolved) != CGM_OK)
        return CGM_INVALID_ARGUMENT;
    struct cgm_record *record = cgm_queue_reserve(queue, CGM_RECORD_SUM);
    record->label = sum->label;
    record->of.sum = resolved;
    cgm_queue_push(queue);
    return CGM_OK;
}

int cgm_cpu_poison(struct cgm_queue *queue, const struct cgm_view *view)
{
    struct cgm_matrix matrix;
    if (present(view, true, &matrix) != CGM_OK)
        return CGM_INVALID_ARGUMENT;
    if (cgm_cpu_mem_has_holes(view->mem)) /* the client has none of it */
        return CGM_OK;
    struct cgm_record *record = cgm_queue_reserve(queue, CGM_RECORD_POISON);
    record->of.poison = matrix;
    cgm_queue_push(queue);
    return CGM_OK;
}

int cgm_cpu_signal(struct cgm_queue *queue, struct cgm_flag *flag, uint64_t value)
{
    struct cgm_record *record = cgm_queue_reserve(queue, CGM_RECORD_SIGNAL);
    record->of.flag.flag = flag;
    record->of.flag.value = value;
    cgm_queue_push(queue);
    return CGM_OK;
}

int cgm_cpu_wait(struct cgm_queue *queue, struct cgm_flag *flag, uint64_t value,
                 const struct cgm_label *label)
{
    struct cgm_record *record = cgm_queue_reserve(queue, CGM_RECORD_WAIT);
    record->label = *label;
    record->of.flag.flag = flag;
    record->of.flag.value = value;
    cgm_queue_push(queue);
    return CGM_OK;
}

int cgm_cpu_signal_all(struct cgm_queue *queue, const struct cgm_flag_value *signals,
                       uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        cgm_cpu_signal(queue, signals[i].flag, signals[i].value);
    return CGM_OK;
}

int cgm_cpu_wait_all(struct cgm_queue *queue, const struct cgm_wait *waits, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        cgm_cpu_wait(queue, waits[i].until.flag, waits[i].until.value, &waits[i].label);
    return CGM_OK;
}
