/* Tensors of many dimensions as matrices. */
#include "client/lib/client.h"
#include "proto/types.h"

typedef unsigned long long ull;

struct tensor {
    const uint64_t *dims, *strides_bytes;
    uint64_t element_bytes;
};

static int check_arguments(const uint64_t *dims, uint32_t n_dims, uint32_t axis_boundary, int dtype)
{
    int status = cgm_check_pointer(dims, "dims");
    if (status != CGM_OK)
        return status;
    if (n_dims == 0 || n_dims > COMMGEMM_DIMS_MAX)
        return cgm_fail(CGM_INVALID_ARGUMENT, "n_dims is %u; the limits are 1 and %d", n_dims,
                        COMMGEMM_DIMS_MAX);
    if (axis_boundary > n_dims)
        return cgm_fail(CGM_INVALID_ARGUMENT, "axis_boundary is %u; the limits are 0 and %u",
                        axis_boundary, n_dims);
    if (cgm_dtype_bytes(dtype) == 0)
        return cgm_fail(CGM_INVALID_ARGUMENT, "dtype is %d; it must be the number of a type",
                        dtype);
    for (uint32_t i = 0; i < n_dims; i++)
        if (dims[i] == 0)
            return cgm_fail(CGM_INVALID_ARGUMENT, "dims[%u] is 0; it must be at least 1", i);
    return CGM_OK;
}

/* Dimensions first ... end - 1 as one: how many elements, and how far apart; *stride_bytes is that
 * of the innermost one to begin with. Of a dimension of one element the distance does not matter.
 */
static int merge(const struct tensor *tensor, uint32_t first, uint32_t end, const char *what,
                 uint64_t *ret_count, uint64_t *stride_bytes)
{
    uint64_t count = 1, next = *stride_bytes;
    for (uint32_t i = end; i-- > first;) {
        uint64_t distance = tensor->strides_bytes ? tensor->strides_bytes[i] : next;
        if (tensor->dims[i] == 1)
            continue;
        if (count == 1 && *stride_bytes == 0)
            next = *stride_bytes = distance;
        if (distance != next)
            return cgm_fail(CGM_INVALID_ARGUMENT,
                            "strides_bytes[%u] is %llu; the %s need %llu to make one dimension", i,
                            (ull)distance, what, (ull)next);
        if (__builtin_mul_overflow(count, tensor->dims[i], &count))
            return cgm_fail(CGM_INVALID_ARGUMENT,
                            "dims[%u] is %llu; there are more %s than 64 bits "
                            "count",
                            i, (ull)tensor->dims[i], what);
        if (__builtin_mul_overflow(next, tensor->dims[i], &next))
            return cgm_fail(CGM_INVALID_ARGUMENT,
                            "dims[%u] is %llu; so many distances of %llu bytes are more than 64 "
                            "bits count",
                            i, (ull)tensor->dims[i], (ull)distance);
    }
    *ret_count = count;
    return CGM_OK;
}

int commgemm_collapse(const uint64_t *dims, const uint64_t *strides_bytes, uint32_t n_dims,
                      uint32_t axis_boundary, int dtype, uint64_t *ret_rows, uint64_t *ret_cols,
                      uint64_t *ret_row_stride_bytes)
{
    struct tensor tensor = {dims, strides_bytes, cgm_dtype_bytes(dtype)};
    uint64_t rows, cols, row_bytes, within = tensor.element_bytes;
    int status = check_arguments(dims, n_dims, axis_boundary, dtype);
    if (status == CGM_OK)
        status = merge(&tensor, axis_boundary, n_dims, "columns", &cols, &within);
    if (status == CGM_OK && __builtin_mul_overflow(cols, tensor.element_bytes, &row_bytes))
        status = cgm_fail(CGM_INVALID_ARGUMENT, "a row would have %llu columns of %llu bytes",
                          (ull)cols, (ull)tensor.element_bytes);
    uint64_t between = status == CGM_OK && !strides_bytes ? row_bytes : 0;
    if (status == CGM_OK)
        status = merge(&tensor, 0, axis_boundary, "rows", &rows, &between);
    if (status != CGM_OK)
        return status;
    if (rows == 1)
        between = row_bytes;
    if (between < row_bytes)
        return cgm_fail(CGM_INVALID_ARGUMENT, "rows are %llu bytes apart and have %llu",
                        (ull)between, (ull)row_bytes);
    if (ret_rows)
        *ret_rows = rows;
    if (ret_cols)
        *ret_cols = cols;
    if (ret_row_stride_bytes)
        *ret_row_stride_bytes = between;
    return CGM_OK;
}
