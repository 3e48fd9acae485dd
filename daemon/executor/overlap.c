#include "daemon/executor/overlap.h"

/* Of equal length, equally far apart; stride is of meaning where there is more than one. */
struct rows {
    uint64_t begin, bytes, count, stride;
};

/* Rows that follow each other without a gap are one. */
static struct rows rows_of(const struct cgm_view *view)
{
    uint64_t element = cgm_dtype_bytes(view->dtype);
    struct rows rows = {view->offset_bytes, view->cols * element, view->rows,
                        cgm_view_stride_bytes(view)};
    if (rows.count == 1 || rows.stride == rows.bytes) {
        rows.bytes *= rows.count;
        rows.stride = rows.bytes;
        rows.count = 1;
    }
    return rows;
}

/* The sum of (a * i + b) / m over i below n, modulo 2^64, by turns as in Euclid's algorithm: the
 * points below a line are counted by columns, then by rows, of ever smaller rests. */
static uint64_t sum_of_quotients(uint64_t n, uint64_t m, uint64_t a, uint64_t b)
{
    uint64_t sum = 0;
    for (;;) {
        uint64_t pairs = n % 2 ? (n - 1) / 2 * n : n / 2 * (n - 1);
        sum += pairs * (a / m) + n * (b / m);
        uint64_t last = a % m * n + b % m;
        if (last < m)
            return sum;
        n = last / m;
        b = last % m;
        uint64_t rest = a % m;
        a = m;
        m = rest;
    }
}

static uint64_t begin_of(const struct rows *rows, uint64_t index)
{
    return rows->begin + index * rows->stride;
}

static uint64_t end_of(const struct rows *rows)
{
    return begin_of(rows, rows->count - 1) + rows->bytes;
}

/* The index of the first one that ends behind `at`. */
static uint64_t first_behind(const struct rows *rows, uint64_t at)
{
    uint64_t first_end = rows->begin + rows->bytes;
    return at < first_end ? 0 : (at - first_end) / rows->stride + 1;
}

/* How many begin before `at`. */
static uint64_t count_before(const struct rows *rows, uint64_t at)
{
    uint64_t count = at <= rows->begin ? 0 : (at - rows->begin - 1) / rows->stride + 1;
    return count < rows->count ? count : rows->count;
}

/* Of rows `from` to below `to` of a, which all lie behind b's first row and before its last one:
 * how many of b's begin before one's end less how many end before its begin is how many it meets.
 * Where the gaps are wide enough that is one at most, and the sums tell whether any does. */
static bool some_meet(const struct rows *a, uint64_t from, uint64_t to, const struct rows *b)
{
    uint64_t n = to - from, begin = begin_of(a, from) - b->begin;
    return a->bytes + b->bytes > b->stride ||
           sum_of_quotients(n, b->stride, a->stride, begin + a->bytes - 1) !=
               sum_of_quotients(n, b->stride, a->stride, begin - b->bytes);
}

static bool rows_overlap(const struct rows *a, const struct rows *b)
{
    if (end_of(a) <= b->begin || end_of(b) <= a->begin)
        return false;
    uint64_t from = first_behind(a, b->begin), to = count_before(a, end_of(b));
    if (from >= to)
        return false;
    return begin_of(a, from) < b->begin + b->bytes ||
           begin_of(a, to - 1) + a->bytes > begin_of(b, b->count - 1) || some_meet(a, from, to, b);
}

bool cgm_views_overlap(const struct cgm_view *a, const struct cgm_view *b)
{
    if (a->mem != b->mem)
        return false;
    struct rows of_a = rows_of(a), of_b = rows_of(b);
    return rows_overlap(&of_a, &of_b);
}
