#include "daemon/executor/cuda/view.h"

#include "kernels/number_format.h"
#include "proto/status.h"

/* Any address that is no null pointer and well aligned. */
#define OUTLINE_BASE 256u

#define X(number, SYMBOL, spelling, bytes)                                                         \
    _Static_assert((int)CGM_FORMAT_##SYMBOL == (int)CGM_DTYPE_##SYMBOL, "one numbering");
CGM_DTYPES(X)
#undef X

int cgm_view_resolve(const struct cgm_view *view, uint32_t device, bool writes,
                     struct cgm_kernel_matrix *ret_matrix)
{
    uint64_t element = cgm_dtype_bytes(view->dtype), end;
    if (!view->mem || !element || !view->rows || !view->cols || view->stride < view->cols ||
        view->offset_bytes % element || !cgm_view_end(view, &end) || end > view->mem->bytes ||
        (writes && view->mem->read_only))
        return CGM_INVALID_ARGUMENT;
    if (!view->mem->at[device])
        return CGM_NOT_SUPPORTED;
    *ret_matrix = (struct cgm_kernel_matrix){.data = view->mem->at[device] + view->offset_bytes,
                                             .rows = view->rows,
                                             .cols = view->cols,
                                             .stride = view->stride,
                                             .format = view->dtype};
    return CGM_OK;
}

int cgm_view_resolve_optional(const struct cgm_view *view, uint32_t device,
                              struct cgm_kernel_matrix *ret_matrix)
{
    *ret_matrix = (struct cgm_kernel_matrix){0};
    return view->mem ? cgm_view_resolve(view, device, false, ret_matrix) : CGM_OK;
}

struct cgm_kernel_matrix cgm_view_outline(const struct cgm_view *view)
{
    if (!view->mem)
        return (struct cgm_kernel_matrix){0};
    return (struct cgm_kernel_matrix){
        .data = (void *)(uintptr_t)(OUTLINE_BASE + view->offset_bytes),
        .rows = view->rows,
        .cols = view->cols,
        .stride = view->stride,
        .format = view->dtype,
    };
}

bool cgm_bias_fits(const struct cgm_kernel_matrix *bias, const struct cgm_kernel_matrix *out)
{
    return !bias->data || (bias->rows == 1 && bias->cols == out->cols);
}

bool cgm_is_integer(const struct cgm_kernel_matrix *matrix)
{
    return matrix->data &&
           (matrix->format == CGM_FORMAT_INT8 || matrix->format == CGM_FORMAT_INT32);
}

int cgm_views_resolve_also(const struct cgm_view *views, uint32_t count, uint32_t device,
                           const struct cgm_kernel_matrix *like,
                           struct cgm_kernel_matrix *ret_matrices)
{
    int status = count <= CGM_ALSO_MAX ? CGM_OK : CGM_INVALID_ARGUMENT;
    for (uint32_t i = 0; i < count && status == CGM_OK; i++) {
        struct cgm_kernel_matrix *to = &ret_matrices[i];
        status = cgm_view_resolve(&views[i], device, true, to);
        if (status == CGM_OK &&
            (to->rows != like->rows || to->cols != like->cols || to->format != like->format))
            status = CGM_INVALID_ARGUMENT;
    }
    return status;
}
