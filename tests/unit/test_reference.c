#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "kernels/gelu.h"
#include "kernels/number_format.h"
#include "kernels/reference.h"
#include "tests/seed.h"

static struct cgm_random rng;

static uint64_t pick(uint64_t low, uint64_t high)
{
    return low + cgm_random_below(&rng, high - low + 1);
}

static float *random_matrix(uint64_t rows, uint64_t stride, enum cgm_fill fill)
{
    float *values = malloc(rows * stride * sizeof(float));
    cgm_random_fill(&rng, fill, values, rows * stride);
    return values;
}

/* Three loops, in extended precision where there is one. */
static void plain(const struct cgm_reference_product *p, uint64_t row, uint64_t col,
                  long double *ret_value, long double *ret_magnitude)
{
    *ret_value = *ret_magnitude = 0;
    for (uint64_t step = 0; step < p->depth; step++) {
        float a = p->transa ? p->a[step * p->a_stride + row] : p->a[row * p->a_stride + step];
        float b = p->transb ? p->b[col * p->b_stride + step] : p->b[step * p->b_stride + col];
        *ret_value += (long double)a * b;
        *ret_magnitude += fabsl((long double)a * b);
    }
}

static void check_product(const struct cgm_reference *reference,
                          const struct cgm_reference_product *p)
{
    for (uint64_t row = 0; row < reference->rows; row++) {
        for (uint64_t col = 0; col < reference->cols; col++) {
            long double value, magnitude;
            uint64_t at = row * reference->cols + col;
            plain(p, row, col, &value, &magnitude);
            long double limit = magnitude * (long double)p->depth * 0x1p-52L;
            assert_true(fabsl((long double)reference->value[at] - value) <= limit);
            assert_true(fabsl((long double)reference->magnitude[at] - magnitude) <= limit);
        }
    }
}

static void one_product(uint64_t m, uint64_t n, uint64_t k, unsigned layout, unsigned threads)
{
    bool transa = layout & 1, transb = layout & 2;
    uint64_t a_stride = (transa ? m : k) + pick(0, 5), b_stride = (transb ? k : n) + pick(0, 5);
    float *a = random_matrix(transa ? k : m, a_stride, CGM_FILL_WIDE);
    float *b = random_matrix(transb ? n : k, b_stride, CGM_FILL_NORMAL);
    struct cgm_reference_product p = {a, b, a_stride, b_stride, k, transa, transb, threads};
    struct cgm_reference reference;
    assert_int_equal(cgm_reference_init(&reference, m, n, false), 0);
    assert_int_equal(cgm_reference_add_product(&reference, &p), 0);
    assert_int_equal(reference.terms, k);
    check_product(&reference, &p);
    cgm_reference_fini(&reference);
    free(a);
    free(b);
}

static void test_products(void **state)
{
    (void)state;
    for (unsigned layout = 0; layout < 4; layout++) {
        for (int i = 0; i < 30; i++)
            one_product(pick(1, 40), pick(1, 40), pick(1, 60), layout, (unsigned)pick(0, 3));
        one_product(pick(129, 300), pick(257, 520), pick(1, 20), layout, 2);
        one_product(pick(1, 20), pick(1, 20), pick(129, 700), layout, 5);
    }
}

/* Depth in slices, as ranks do: R and G are sums, Q the sum of absolute partial products. */
static void test_partials_and_addends(void **state)
{
    (void)state;
    uint64_t m = 5, n = 7, k = 12;
    float *a = random_matrix(m, k, CGM_FILL_NORMAL), *b = random_matrix(k, n, CGM_FILL_NORMAL);
    float *c = random_matrix(m, n, CGM_FILL_NORMAL), *bias = random_matrix(1, n, CGM_FILL_NORMAL);
    struct cgm_reference reference;
    assert_int_equal(cgm_reference_init(&reference, m, n, true), 0);
    struct cgm_reference_product slices[3];
    for (uint64_t i = 0; i < 3; i++) {
        slices[i] = (struct cgm_reference_product){a + i * 4, b + i * 4 * n, k, n, 4, 0, 0, 0};
        assert_int_equal(cgm_reference_add_product(&reference, &slices[i]), 0);
    }
    cgm_reference_add_bias(&reference, bias);
    cgm_reference_add_matrix(&reference, c, n);
    assert_int_equal(reference.terms, k + 2);
    for (uint64_t at = 0; at < m * n; at++) {
        long double value, magnitude, r = (long double)bias[at % n] + c[at];
        long double g = fabsl((long double)bias[at % n]) + fabsl((long double)c[at]), q = 0;
        for (int i = 0; i < 3; i++) {
            plain(&slices[i], at / n, at % n, &value, &magnitude);
            r += value, g += magnitude, q += fabsl(value);
        }
        assert_true(fabsl((long double)reference.value[at] - r) < 1e-13L);
        assert_true(fabsl((long double)reference.magnitude[at] - g) < 1e-13L);
        assert_true(fabsl((long double)reference.partials[at] - q) < 1e-13L);
    }
    double before = cgm_reference_bound(&reference, 1, 1, CGM_FORMAT_BF16);
    double more =
        0x1p-8 * (reference.partials[n + 1] + 2 * (fabs((double)c[n + 1]) + fabs((double)bias[1])));
    cgm_reference_round_before_both(&reference, c, n, bias);
    assert_true(fabs(cgm_reference_bound(&reference, 1, 1, CGM_FORMAT_BF16) - before - more) <
                1e-13);
    cgm_reference_fini(&reference);
    free(a), free(b), free(c), free(bias);
}

#define ROWS 30
#define COLS 700

static struct cgm_verdict verdict_of(const struct cgm_reference *reference, int format,
                                     const void *data)
{
    struct cgm_reference_found found = {data, format, 0, 0, ROWS, COLS, COLS};
    struct cgm_verdict verdict = {0};
    cgm_reference_check(reference, &found, &verdict);
    assert_int_equal(verdict.checked, ROWS * COLS);
    return verdict;
}

/* What fp32 holds exactly is right; one element off by more than the bound is found. */
static void test_check_finds_one_element(void **state)
{
    (void)state;
    float *values = random_matrix(ROWS, COLS, CGM_FILL_WIDE);
    struct cgm_reference reference;
    assert_int_equal(cgm_reference_init(&reference, ROWS, COLS, false), 0);
    cgm_reference_add_matrix(&reference, values, COLS);
    for (int i = 0; i < 50; i++) {
        uint64_t at = pick(0, ROWS * COLS - 1);
        float kept = values[at];
        struct cgm_verdict verdict = verdict_of(&reference, CGM_FORMAT_FP32, values);
        assert_true(cgm_verdict_is_right(&verdict) && verdict.ratio == 0);
        values[at] = (float)((double)kept * (1 + 0x1p-21) + 0x1p-120);
        verdict = verdict_of(&reference, CGM_FORMAT_FP32, values);
        assert_false(cgm_verdict_is_right(&verdict));
        assert_int_equal(verdict.row * COLS + verdict.col, at);
        assert_true(verdict.ratio > 3 && verdict.ratio < 5);
        values[at] = NAN;
        verdict = verdict_of(&reference, CGM_FORMAT_FP32, values);
        assert_false(cgm_verdict_is_right(&verdict));
        assert_int_equal(verdict.no_number, 1);
        assert_int_equal(verdict.row * COLS + verdict.col, at);
        values[at] = kept;
    }
    cgm_reference_fini(&reference);
    free(values);
}

/* NaN where NaN is due is right, and nothing else is there. */
static void test_check_of_no_numbers(void **state)
{
    (void)state;
    float *values = random_matrix(ROWS, COLS, CGM_FILL_WIDE);
    struct cgm_reference reference;
    values[3] = NAN;
    values[4] = INFINITY;
    assert_int_equal(cgm_reference_init(&reference, ROWS, COLS, false), 0);
    cgm_reference_add_matrix(&reference, values, COLS);
    struct cgm_verdict verdict = verdict_of(&reference, CGM_FORMAT_FP32, values);
    assert_true(cgm_verdict_is_right(&verdict) && verdict.ratio == 0);
    for (int i = 3; i < 5; i++) {
        float kept = values[i];
        values[i] = i == 3 ? 1 : NAN;
        verdict = verdict_of(&reference, CGM_FORMAT_FP32, values);
        assert_false(cgm_verdict_is_right(&verdict));
        assert_int_equal(verdict.row * COLS + verdict.col, i);
        values[i] = kept;
    }
    cgm_reference_fini(&reference);
    free(values);
}

static void test_check_windows_and_formats(void **state)
{
    (void)state;
    float *values = random_matrix(ROWS, COLS, CGM_FILL_WIDE);
    uint16_t *narrow = malloc(ROWS * COLS * sizeof(uint16_t));
    struct cgm_reference reference;
    assert_int_equal(cgm_reference_init(&reference, ROWS, COLS, false), 0);
    cgm_reference_add_matrix(&reference, values, COLS);
    for (int format = CGM_FORMAT_FP16; format <= CGM_FORMAT_BF16; format++) {
        struct cgm_verdict verdict = {0};
        cgm_format_store(format, values, ROWS * COLS, narrow);
        for (uint64_t row = 0; row < ROWS; row += 10) {
            struct cgm_reference_found found = {
                narrow + row * COLS, format, row, 0, 10, COLS, COLS};
            cgm_reference_check(&reference, &found, &verdict);
        }
        assert_int_equal(verdict.checked, ROWS * COLS);
        assert_true(cgm_verdict_is_right(&verdict) && verdict.ratio > 0.8);
        struct cgm_reference_found shifted = {narrow, format, 0, 1, 1, COLS - 1, COLS};
        cgm_reference_check(&reference, &shifted, &verdict);
        assert_false(cgm_verdict_is_right(&verdict));
    }
    cgm_reference_fini(&reference);
    free(values);
    free(narrow);
}

static void test_infinity_only_beyond_the_largest(void **state)
{
    (void)state;
    float values[4] = {70000, -70000, 60000, 65519};
    uint16_t found_bits[4];
    struct cgm_reference reference;
    assert_int_equal(cgm_reference_init(&reference, 1, 4, false), 0);
    cgm_reference_add_matrix(&reference, values, 4);
    cgm_format_store(CGM_FORMAT_FP16, values, 4, found_bits);
    struct cgm_reference_found found = {found_bits, CGM_FORMAT_FP16, 0, 0, 1, 4, 4};
    struct cgm_verdict verdict = {0};
    cgm_reference_check(&reference, &found, &verdict);
    assert_true(cgm_verdict_is_right(&verdict));
    const uint16_t wrong[][2] = {{0, 0xfc00}, {1, 0x7c00}, {2, 0x7c00}};
    for (int i = 0; i < 3; i++) {
        uint16_t kept = found_bits[wrong[i][0]];
        verdict = (struct cgm_verdict){0};
        found_bits[wrong[i][0]] = wrong[i][1];
        cgm_reference_check(&reference, &found, &verdict);
        assert_false(cgm_verdict_is_right(&verdict));
        found_bits[wrong[i][0]] = kept;
    }
    cgm_reference_fini(&reference);
}

/* GELU of the formula, its derivative by differences; the fp32 ones are near to both. */
static long double exact_gelu(long double x)
{
    return x / 2 * (1 + tanhl(0.797884560802865355879892L * (x + 0.044715L * x * x * x)));
}

static struct cgm_reference single(float value)
{
    struct cgm_reference reference;
    assert_int_equal(cgm_reference_init(&reference, 1, 1, false), 0);
    cgm_reference_add_matrix(&reference, &value, 1);
    return reference;
}

static void test_gelu(void **state)
{
    (void)state;
    for (int i = 0; i < 100000; i++) {
        float x = (float)((double)cgm_random_below(&rng, 1u << 24) * 0x1p-19 - 16);
        struct cgm_reference forward = single(x), backward = single(1);
        cgm_reference_gelu(&forward);
        assert_int_equal(cgm_reference_dgelu(&backward, &x, 1), 0);
        double value = cgm_reference_value(&forward, 0, 0);
        double slope = cgm_reference_value(&backward, 0, 0);
        long double exact = exact_gelu(x), step = 0x1p-20L;
        long double rise = (exact_gelu(x + step) - exact_gelu(x - step)) / (2 * step);
        assert_true(fabsl(exact - (long double)value) <= 0x1p-50L * (1 + fabsl((long double)x)));
        assert_true(fabsl(rise - (long double)slope) <= 0x1p-35L);
        assert_true(fabs((double)cgm_gelu(x) - value) <= 0x1p-22 * fabs((double)x));
        assert_true(fabs((double)cgm_gelu_derivative(x) - slope) <= 0x1p-21);
        cgm_reference_fini(&forward);
        cgm_reference_fini(&backward);
    }
    assert_true(cgm_gelu(INFINITY) == INFINITY && cgm_gelu(-INFINITY) == 0);
    assert_true(cgm_gelu_derivative(INFINITY) == 1 && cgm_gelu_derivative(-INFINITY) == 0);
    assert_true(isnan(cgm_gelu(NAN)) && isnan(cgm_gelu_derivative(NAN)));
}

/* A sum's bound holds for sums of rounded summands, and one that is off by more is found. */
static void test_sums_of_rounded_elements(void **state)
{
    (void)state;
    float *values = random_matrix(ROWS, COLS, CGM_FILL_NORMAL), sums[COLS] = {0};
    struct cgm_reference reference, sum;
    assert_int_equal(cgm_reference_init(&reference, ROWS, COLS, false), 0);
    cgm_reference_add_matrix(&reference, values, COLS);
    cgm_reference_gelu(&reference);
    struct cgm_reference_window window = {3, 10, ROWS - 4, COLS - 10};
    assert_int_equal(cgm_reference_init_sum(&sum, &reference, &window, CGM_FORMAT_BF16), 0);
    for (uint64_t row = 3; row < ROWS - 1; row++)
        for (uint64_t col = 10; col < COLS; col++) {
            float value = values[row * COLS + col];
            cgm_format_round(CGM_FORMAT_BF16, &value, 1);
            value = cgm_gelu(value);
            cgm_format_round(CGM_FORMAT_BF16, &value, 1);
            sums[col - 10] += value;
        }
    cgm_format_round(CGM_FORMAT_BF16, sums, COLS);
    for (int wrong = 0; wrong < 2; wrong++) {
        uint16_t narrow[COLS];
        struct cgm_verdict verdict = {0};
        struct cgm_reference_found found = {narrow, CGM_FORMAT_BF16, 0, 0, 1, COLS - 10, COLS};
        sums[500] += wrong ? 2 * (float)cgm_reference_bound(&sum, 0, 500, CGM_FORMAT_BF16) : 0;
        cgm_format_store(CGM_FORMAT_BF16, sums, COLS, narrow);
        cgm_reference_check(&sum, &found, &verdict);
        assert_int_equal(cgm_verdict_is_right(&verdict), !wrong);
        assert_true(verdict.ratio > 0.02);
    }
    cgm_reference_fini(&sum);
    cgm_reference_fini(&reference);
    free(values);
}

static void test_random(void **state)
{
    (void)state;
    enum { N = 200001 };
    float *x = malloc(N * sizeof(float)), *y = malloc(N * sizeof(float));
    struct cgm_random one, two;
    cgm_random_init(&one, 42), cgm_random_init(&two, 42);
    cgm_random_fill(&one, CGM_FILL_NORMAL, x, N), cgm_random_fill(&two, CGM_FILL_NORMAL, y, N);
    assert_memory_equal(x, y, N * sizeof(float));
    cgm_random_fill(&rng, CGM_FILL_NORMAL, x, N);
    double sum = 0, square = 0, inside = 0;
    for (int i = 0; i < N; i++) {
        assert_true(isfinite(x[i]));
        sum += (double)x[i], square += (double)x[i] * (double)x[i], inside += fabsf(x[i]) < 1;
    }
    assert_true(fabs(sum / N) < 0.02 && fabs(square / N - 1) < 0.03);
    assert_true(fabs(inside / N - 0.6827) < 0.01);
    free(x);
    free(y);
}

int main(void)
{
    test_seed(&rng);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_products),
        cmocka_unit_test(test_partials_and_addends),
        cmocka_unit_test(test_check_finds_one_element),
        cmocka_unit_test(test_check_of_no_numbers),
        cmocka_unit_test(test_check_windows_and_formats),
        cmocka_unit_test(test_infinity_only_beyond_the_largest),
        cmocka_unit_test(test_gelu),
        cmocka_unit_test(test_sums_of_rounded_elements),
        cmocka_unit_test(test_random),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
