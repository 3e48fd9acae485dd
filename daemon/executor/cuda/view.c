#include "daemon/executor/cuda/view.h"

#include "kernels/number_format.h"
#include "proto/status.h"

#define X(number, SYMBOL, spelling, bytes)                                                         \
    _Static_assert((int)CGM_FORMAT_##SYMBOL == (int)CGM_DTYPE_##SYMBOL, "one numbering");
CGM_DTYPES(X)
#undef X

static bool view_end(const struct cgm_view *view, uint64_t element, uint64_t *ret_end)
{
    uint64_t elements, bytes;
    return !__builtin_mul_overflow(view->rows - 1, view->stride, &elements) &&
           !__builtin_add_overflow(elements, view->cols, &elements) &&
           !__builtin_mul_overflow(elements, element, &bytes) &&
           !__builtin_add_overflow(bytes, view->offset_bytes, ret_end);
}

int cgm_view_resolve(const struct cgm_view *view, uint32_t device, bool writes,
                     struct cgm_kernel_matrix *ret_matrix)
{
    uint64_t element = cgm_dtype_bytes(view->dtype), end;
    if (!view->mem || !element || !view->rows || !view->cols || view->stride < view->cols ||
        view->offset_bytes % element || !view_end(view, element, &end) || end > view->mem->bytes ||
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

bool cgm_bias_fits(const struct cgm_kernel_matrix *bias, const struct cgm_kernel_matrix *out)
{
    return !bias->data || (bias->rows == 1 && bias->cols == out->cols);
}
