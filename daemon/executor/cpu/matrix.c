#include "daemon/executor/cpu/matrix.h"

#include <assert.h>
#include <stdatomic.h>
#include <string.h>

#include "daemon/executor/cpu/cpu.h"
#include "kernels/number_format.h"
#include "proto/status.h"

#define BLOCK 1024u               /* values that are converted at a time */
#define FILL_AT_ONCE (4ull << 20) /* elements */
#define FILL_COPIED (16ull << 10) /* bytes */
#define COPY_BYTES (16ull << 20)  /* at a time: less than a hundredth of a second */

#define X(number, SYMBOL, spelling, bytes)                                                         \
    _Static_assert((int)CGM_FORMAT_##SYMBOL == (int)CGM_DTYPE_##SYMBOL, "one numbering");
CGM_DTYPES(X)
#undef X

bool cgm_is_aborted(const _Atomic int *abort)
{
    return (abort && atomic_load(abort) != CGM_OK) || cgm_holes_missed();
}

bool cgm_goes_on(struct cgm_seat *seat)
{
    return !cgm_is_aborted(seat ? seat->abort : NULL) && (!seat || cgm_seat_take(seat));
}

int cgm_matrix_resolve(const struct cgm_view *view, bool writes, struct cgm_matrix *ret_matrix)
{
    uint64_t element = cgm_dtype_bytes(view->dtype), end;
    *ret_matrix = (struct cgm_matrix){0};
    if (!view->mem)
        return CGM_OK;
    if (!element || !view->rows || !view->cols || view->stride < view->cols ||
        view->offset_bytes % element || !cgm_view_end(view, &end) || end > view->mem->bytes ||
        (writes && view->mem->read_only))
        return CGM_INVALID_ARGUMENT;
    *ret_matrix = (struct cgm_matrix){view->mem->base + view->offset_bytes,
                                      view->rows,
                                      view->cols,
                                      view->stride,
                                      view->dtype,
                                      view->mem->watch};
    return CGM_OK;
}

bool cgm_matrix_is_integer(const struct cgm_matrix *matrix)
{
    return matrix->data && cgm_format_info(matrix->dtype)->is_integer;
}

bool cgm_matrix_same_shape(const struct cgm_matrix *a, const struct cgm_matrix *b)
{
    return a->rows == b->rows && a->cols == b->cols;
}

char *cgm_matrix_at(const struct cgm_matrix *matrix, uint64_t row, uint64_t col)
{
    return matrix->data + (row * matrix->stride + col) * cgm_dtype_bytes(matrix->dtype);
}

void cgm_matrix_load(const struct cgm_matrix *matrix, uint64_t row, uint64_t col, uint64_t rows,
                     uint64_t cols, float *ret_values)
{
    for (uint64_t i = 0; i < rows; i++)
        cgm_format_load(matrix->dtype, cgm_matrix_at(matrix, row + i, col), cols,
                        ret_values + i * cols);
}

void cgm_matrix_store(const struct cgm_matrix *matrix, uint64_t row, uint64_t col, uint64_t rows,
                      uint64_t cols, const float *values)
{
    for (uint64_t i = 0; i < rows; i++)
        cgm_format_store(matrix->dtype, values + i * cols, cols,
                         cgm_matrix_at(matrix, row + i, col));
}

void cgm_matrix_add(const struct cgm_matrix *matrix, uint64_t row, uint64_t col, uint64_t count,
                    float *sums)
{
    float values[BLOCK];
    for (uint64_t at = 0; at < count; at += BLOCK) {
        uint64_t n = count - at < BLOCK ? count - at : BLOCK;
        cgm_matrix_load(matrix, row, col + at, 1, n, values);
        for (uint64_t i = 0; i < n; i++)
            sums[at + i] += values[i];
    }
}

/* A matrix without gaps is one long row. */
static bool is_whole(const struct cgm_matrix *matrix)
{
    return matrix->stride == matrix->cols || matrix->rows == 1;
}

static struct cgm_matrix flattened(const struct cgm_matrix *matrix)
{
    uint64_t count = matrix->rows * matrix->cols;
    return (struct cgm_matrix){matrix->data, 1, count, count, matrix->dtype, matrix->watch};
}

/* Operands of two ranks may lie across each other, if those who submit them like that. */
static void copy_bytes(char *dst, const char *src, uint64_t bytes, struct cgm_seat *seat)
{
    for (uint64_t at = 0; at < bytes && cgm_goes_on(seat); at += COPY_BYTES)
        memmove(dst + at, src + at, bytes - at < COPY_BYTES ? bytes - at : COPY_BYTES);
}

void cgm_matrix_copy(const struct cgm_matrix *dst, const struct cgm_matrix *src,
                     struct cgm_seat *seat)
{
    uint64_t element = cgm_dtype_bytes(dst->dtype);
    if (is_whole(dst) && is_whole(src)) {
        copy_bytes(dst->data, src->data, dst->rows * dst->cols * element, seat);
        return;
    }
    for (uint64_t row = 0; row < dst->rows && cgm_goes_on(seat); row++)
        copy_bytes(cgm_matrix_at(dst, row, 0), cgm_matrix_at(src, row, 0), dst->cols * element,
                   seat);
}

/* What is there already is copied, while it is in the cache. */
static void fill_row(char *row, const void *pattern, uint64_t element, uint64_t count)
{
    uint64_t bytes = element * count, part;
    memcpy(row, pattern, element);
    for (uint64_t done = element; done < bytes; done += part) {
        part = done < FILL_COPIED ? done : FILL_COPIED;
        part = part < bytes - done ? part : bytes - done;
        memcpy(row + done, row, part);
    }
}

static bool poison_row(const struct cgm_matrix *matrix, uint64_t row, struct cgm_seat *seat)
{
    const struct cgm_format_info *info = cgm_format_info(matrix->dtype);
    uint16_t half = (uint16_t)info->nan;
    uint8_t byte = (uint8_t)info->nan;
    const void *const patterns[] = {[1] = &byte, [2] = &half, [4] = &info->nan};
    uint64_t col = 0;
    for (; col < matrix->cols && cgm_goes_on(seat); col += FILL_AT_ONCE) {
        uint64_t left = matrix->cols - col;
        fill_row(cgm_matrix_at(matrix, row, col), patterns[info->bytes], info->bytes,
                 left < FILL_AT_ONCE ? left : FILL_AT_ONCE);
    }
    return col >= matrix->cols;
}

bool cgm_matrix_poison(const struct cgm_matrix *matrix, struct cgm_seat *seat)
{
    uint64_t row = 0;
    while (row < matrix->rows && poison_row(matrix, row, seat))
        row++;
    return row == matrix->rows;
}

static void reduce_block(const struct cgm_matrix_reduce *reduce, const struct cgm_matrix *sources,
                         uint64_t row, uint64_t col, uint64_t count)
{
    float sum[BLOCK];
    cgm_matrix_load(&sources[0], row, col, 1, count, sum);
    for (uint32_t i = 1; i < reduce->n_src; i++)
        cgm_matrix_add(&sources[i], row, col, count, sum);
    if (reduce->accumulate)
        cgm_matrix_add(&reduce->dst, row, col, count, sum);
    if (reduce->bias.data)
        cgm_matrix_add(&reduce->bias, 0, col, count, sum);
    cgm_matrix_store(&reduce->dst, row, col, 1, count, sum);
}

/* Modulo 2^32. */
static void reduce_integers(const struct cgm_matrix_reduce *reduce,
                            const struct cgm_matrix *sources, uint64_t row, uint64_t col,
                            uint64_t count)
{
    int32_t *dst = (int32_t *)(void *)cgm_matrix_at(&reduce->dst, row, col);
    for (uint64_t at = 0; at < count; at++) {
        uint32_t sum = reduce->accumulate ? (uint32_t)dst[at] : 0;
        for (uint32_t i = 0; i < reduce->n_src; i++)
            sum += *(const uint32_t *)(const void *)cgm_matrix_at(&sources[i], row, col + at);
        dst[at] = (int32_t)sum;
    }
}

static bool reduce_row(const struct cgm_matrix_reduce *reduce, const struct cgm_matrix *sources,
                       uint64_t row, struct cgm_seat *seat)
{
    const struct cgm_matrix *dst = &reduce->dst;
    void (*block)(const struct cgm_matrix_reduce *reduce, const struct cgm_matrix *sources,
                  uint64_t row, uint64_t col, uint64_t count) =
        cgm_matrix_is_integer(dst) ? reduce_integers : reduce_block;
    uint64_t col = 0;
    for (; col < dst->cols && cgm_goes_on(seat); col += BLOCK) {
        uint64_t left = dst->cols - col;
        block(reduce, sources, row, col, left < BLOCK ? left : BLOCK);
    }
    return col >= dst->cols;
}

static void reduce_rows(const struct cgm_matrix_reduce *reduce, const struct cgm_matrix *sources,
                        struct cgm_seat *seat)
{
    uint64_t row = 0;
    while (row < reduce->dst.rows && reduce_row(reduce, sources, row, seat))
        row++;
}

void cgm_matrix_reduce(const struct cgm_matrix_reduce *reduce, const struct cgm_matrix *sources,
                       struct cgm_seat *seat)
{
    struct cgm_matrix_reduce flat = *reduce;
    struct cgm_matrix flat_sources[CGM_REDUCE_SOURCES_MAX];
    bool whole = !reduce->bias.data && is_whole(&reduce->dst);
    assert(reduce->n_src > 0);
    for (uint32_t i = 0; i < reduce->n_src; i++)
        whole = whole && is_whole(&sources[i]);
    if (!whole) {
        reduce_rows(reduce, sources, seat);
        return;
    }
    flat.dst = flattened(&reduce->dst);
    for (uint32_t i = 0; i < reduce->n_src; i++)
        flat_sources[i] = flattened(&sources[i]);
    reduce_rows(&flat, flat_sources, seat);
}
