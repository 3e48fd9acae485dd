/* commgemm_collapse against indices: element (i, j) of the matrix is the same byte as that of the
 * tensor with the same number in C order; and what it refuses. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "commgemm.h"
#include "tests/seed.h"

static struct cgm_random rng;

static uint64_t pick(uint64_t low, uint64_t high)
{
    return low + cgm_random_below(&rng, high - low + 1);
}

/* The byte of an element by its number in C order. */
static uint64_t byte_of(const uint64_t *dims, const uint64_t *strides, uint32_t n, uint64_t number)
{
    uint64_t at = 0;
    for (uint32_t i = n; i-- > 0; number /= dims[i])
        at += number % dims[i] * strides[i];
    return at;
}

static void test_every_element_is_where_it_was(void **state)
{
    (void)state;
    for (int trial = 0; trial < 20000; trial++) {
        uint64_t dims[6], strides[6], rows, cols, stride;
        uint32_t n = (uint32_t)pick(1, 6), boundary = (uint32_t)pick(0, n);
        int dtype = (int)pick(0, 4);
        uint64_t next = commgemm_dtype_bytes(dtype), total = 1;
        for (uint32_t i = n; i-- > 0;) {
            dims[i] = pick(1, 4);
            if (i + 1 == boundary && pick(0, 1))
                next += pick(0, 5) * commgemm_dtype_bytes(dtype); /* a gap between rows */
            strides[i] = dims[i] == 1 ? pick(0, 100) : next;
            next *= dims[i];
            total *= dims[i];
        }
        assert_int_equal(
            commgemm_collapse(dims, strides, n, boundary, dtype, &rows, &cols, &stride),
            COMMGEMM_OK);
        assert_int_equal(rows * cols, total);
        for (uint64_t number = 0; number < total; number++)
            assert_int_equal(byte_of(dims, strides, n, number),
                             number / cols * stride + number % cols * commgemm_dtype_bytes(dtype));
    }
}

static void test_without_strides(void **state)
{
    (void)state;
    static const uint64_t dims[] = {4, 8, 3, 5, 2};
    uint64_t rows, cols, stride;
    assert_int_equal(commgemm_collapse(dims, NULL, 5, 2, COMMGEMM_BF16, &rows, &cols, &stride), 0);
    assert_int_equal(rows, 32);
    assert_int_equal(cols, 30);
    assert_int_equal(stride, 60);
    assert_int_equal(commgemm_collapse(dims, NULL, 5, 0, COMMGEMM_INT8, &rows, &cols, NULL), 0);
    assert_int_equal(rows, 1);
    assert_int_equal(cols, 960);
    assert_int_equal(commgemm_collapse(dims, NULL, 5, 5, COMMGEMM_FP32, &rows, &cols, &stride), 0);
    assert_int_equal(rows, 960);
    assert_int_equal(cols, 1);
    assert_int_equal(stride, 4);
    assert_int_equal(commgemm_collapse(dims, NULL, 5, 1, COMMGEMM_FP32, NULL, NULL, NULL), 0);
}

#define HUGE (1ull << 62)

static const struct {
    uint64_t dims[4], strides[4];
    uint32_t n, boundary;
    int dtype;
    const char *words;
} refusals[] = {
    {{2, 3}, {12, 4}, 0, 0, COMMGEMM_FP32, "n_dims is 0"},
    {{2, 3}, {12, 4}, 17, 0, COMMGEMM_FP32, "n_dims is 17; the limits are 1 and 16"},
    {{2, 3}, {12, 4}, 2, 3, COMMGEMM_FP32, "axis_boundary is 3; the limits are 0 and 2"},
    {{2, 3}, {12, 4}, 2, 1, 77, "dtype is 77"},
    {{2, 0}, {12, 4}, 2, 1, COMMGEMM_FP32, "dims[1] is 0"},
    {{2, 3}, {12, 8}, 2, 1, COMMGEMM_FP32, "strides_bytes[1] is 8; the columns need 4"},
    {{2, 3, 4}, {64, 20, 4}, 3, 1, COMMGEMM_FP32, "strides_bytes[1] is 20; the columns need 16"},
    {{2, 3, 4}, {64, 16, 4}, 3, 2, COMMGEMM_FP32, "strides_bytes[0] is 64; the rows need 48"},
    {{2, 4}, {12, 4}, 2, 1, COMMGEMM_FP32, "rows are 12 bytes apart and have 16"},
    {{3, 4}, {0, 4}, 2, 1, COMMGEMM_FP32, "rows are 0 bytes apart and have 16"},
    {{2, HUGE}, {8, 4}, 2, 1, COMMGEMM_FP32, "dims[1]"},
    {{2, 3}, {2 * HUGE, 4}, 2, 1, COMMGEMM_FP32, "dims[0] is 2; so many distances"},
};

static void test_refusals(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(refusals) / sizeof(refusals[0]); i++) {
        uint64_t rows = 7, cols = 7, stride = 7;
        assert_int_equal(commgemm_collapse(refusals[i].dims, refusals[i].strides, refusals[i].n,
                                           refusals[i].boundary, refusals[i].dtype, &rows, &cols,
                                           &stride),
                         COMMGEMM_INVALID_ARGUMENT);
        if (!strstr(commgemm_last_error(), refusals[i].words))
            fail_msg("\"%s\" lacks \"%s\"", commgemm_last_error(), refusals[i].words);
        assert_true(rows == 7 && cols == 7 && stride == 7);
    }
    assert_int_equal(commgemm_collapse(NULL, NULL, 2, 1, 0, NULL, NULL, NULL),
                     COMMGEMM_INVALID_ARGUMENT);
}

int main(void)
{
    test_seed(&rng);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_element_is_where_it_was),
        cmocka_unit_test(test_without_strides),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
