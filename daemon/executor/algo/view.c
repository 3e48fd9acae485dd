#include "daemon/executor/algo/emit.h"

#include <assert.h>

struct cgm_view cgm_view_rows(const struct cgm_view *view, uint64_t first, uint64_t rows)
{
    struct cgm_view part = *view;
    assert(rows <= view->rows && first <= view->rows - rows);
    part.offset_bytes += first * view->stride * cgm_dtype_bytes(view->dtype);
    part.rows = rows;
    return part;
}

struct cgm_view cgm_view_cols(const struct cgm_view *view, uint64_t first, uint64_t cols)
{
    struct cgm_view part = *view;
    assert(cols <= view->cols && first <= view->cols - cols);
    part.offset_bytes += first * cgm_dtype_bytes(view->dtype);
    part.cols = cols;
    return part;
}

struct cgm_view cgm_view_of(struct cgm_mem *mem, uint64_t offset_bytes, uint64_t rows,
                            uint64_t cols, int dtype)
{
    return (struct cgm_view){.mem = mem,
                             .offset_bytes = offset_bytes,
                             .rows = rows,
                             .cols = cols,
                             .stride = cols,
                             .dtype = dtype};
}

struct cgm_view cgm_view_band(const struct cgm_view *view, bool transposed, uint64_t first,
                              uint64_t count)
{
    return transposed ? cgm_view_cols(view, first, count) : cgm_view_rows(view, first, count);
}

struct cgm_view cgm_launch_chunk(const struct cgm_launch *launch, uint32_t rank, uint32_t chunk)
{
    uint64_t offset, stride;
    struct cgm_shape shape;
    bool exists = cgm_operation_chunk(launch->spec, launch->rows, chunk, &offset, &stride, &shape);
    assert(exists);
    (void)exists;
    struct cgm_view view =
        cgm_view_of(launch->ranks[rank].user, offset, shape.rows, shape.cols, shape.dtype);
    view.stride = stride;
    return view;
}

const struct cgm_view *cgm_launch_operand(const struct cgm_launch *launch, uint32_t rank,
                                          enum cgm_operand_index operand)
{
    return &cgm_launch_views(launch, rank)[operand];
}

bool cgm_launch_accumulates(const struct cgm_launch *launch)
{
    return launch->accumulate || (launch->spec->epilogue & CGM_EPILOGUE_ACCUMULATE);
}
