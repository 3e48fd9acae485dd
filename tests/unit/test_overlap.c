/* Matrices that share bytes, and those that lie between each other's rows. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "daemon/executor/overlap.h"
#include "proto/types.h"
#include "tests/seed.h"

#define BYTES 512u

static struct cgm_mem *const memory = (struct cgm_mem *)0x1000;
static struct cgm_random numbers;

static uint64_t below(uint64_t n)
{
    return cgm_random_below(&numbers, n);
}

/* Any that lies within so many bytes; some have one row, some no gaps. */
static struct cgm_view random_view(uint64_t bytes)
{
    static const int dtypes[] = {CGM_DTYPE_INT8, CGM_DTYPE_BF16, CGM_DTYPE_FP32};
    struct cgm_view view = {.mem = memory, .dtype = dtypes[below(3)]};
    uint64_t element = cgm_dtype_bytes(view.dtype), end;
    do {
        view.cols = 1 + below(below(4) ? 6 : bytes / element / 3);
        view.rows = 1 + below(below(3) ? 20 : bytes / element);
        view.stride = view.cols + (below(4) ? below(40) : 0);
        view.offset_bytes = below(bytes / element) * element;
    } while (!cgm_view_end(&view, &end) || end > bytes);
    return view;
}

static void mark(const struct cgm_view *view, uint8_t *bytes)
{
    uint64_t element = cgm_dtype_bytes(view->dtype);
    for (uint64_t row = 0; row < view->rows; row++)
        memset(bytes + view->offset_bytes + row * view->stride * element, 1, view->cols * element);
}

static bool share_bytes(const struct cgm_view *a, const struct cgm_view *b)
{
    uint8_t of_a[BYTES] = {0}, of_b[BYTES] = {0};
    bool found = false;
    mark(a, of_a);
    mark(b, of_b);
    for (uint32_t i = 0; i < BYTES; i++)
        found |= of_a[i] && of_b[i];
    return found;
}

static void test_random_ones(void **state)
{
    uint32_t meet = 0, count = 200000;
    (void)state;
    for (uint32_t i = 0; i < count; i++) {
        struct cgm_view a = random_view(BYTES), b = random_view(BYTES);
        bool expected = share_bytes(&a, &b);
        meet += expected;
        if (cgm_views_overlap(&a, &b) != expected || cgm_views_overlap(&b, &a) != expected)
            fail_msg("%llu rows of %llu, stride %llu, at %llu, type %d, and %llu of %llu, stride "
                     "%llu, at %llu, type %d",
                     (unsigned long long)a.rows, (unsigned long long)a.cols,
                     (unsigned long long)a.stride, (unsigned long long)a.offset_bytes, a.dtype,
                     (unsigned long long)b.rows, (unsigned long long)b.cols,
                     (unsigned long long)b.stride, (unsigned long long)b.offset_bytes, b.dtype);
    }
    assert_in_range(meet, count / 10, count - count / 10);
}

/* Rows that meet late, or never, of matrices as large as there are. */
static void test_large_ones(void **state)
{
    uint64_t rows = 1ull << 24;
    struct cgm_view a = {memory, 0, rows, 1, 1ull << 20, CGM_DTYPE_INT8};
    struct cgm_view b = {memory, 1ull << 19, rows, 1, (1ull << 20) + 1, CGM_DTYPE_INT8};
    (void)state;
    assert_true(cgm_views_overlap(&a, &b)); /* as row 2^19 of b is row 2^19 + 1 of a */
    b.rows = 1ull << 19;
    assert_false(cgm_views_overlap(&a, &b));
    b.rows++;
    assert_true(cgm_views_overlap(&a, &b));
    assert_true(cgm_views_overlap(&b, &a));
    b.stride = 3ull << 18; /* begins in the middle of a's gaps, or beside their middle */
    b.offset_bytes = 1;
    assert_false(cgm_views_overlap(&a, &b));
    b.cols = (1ull << 18) - 1;
    assert_false(cgm_views_overlap(&a, &b));
    b.cols++;
    assert_true(cgm_views_overlap(&a, &b));
}

static void test_other_memory(void **state)
{
    struct cgm_view a = {memory, 0, 4, 4, 4, CGM_DTYPE_FP32}, b = a;
    (void)state;
    assert_true(cgm_views_overlap(&a, &b));
    b.mem = (struct cgm_mem *)0x2000;
    assert_false(cgm_views_overlap(&a, &b));
}

static int set_up(void **state)
{
    (void)state;
    test_seed(&numbers);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_ones),
        cmocka_unit_test(test_large_ones),
        cmocka_unit_test(test_other_memory),
    };
    return cmocka_run_group_tests(tests, set_up, NULL);
}
