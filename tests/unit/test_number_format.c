#include <math.h>
#include <setjmp.h>
#include <stdbool.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "kernels/number_format.h"
#include "tests/seed.h"

#define ALL 65536
#define COUNT 100003

static struct cgm_random rng;

static float from_bits(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof(value));
    return value;
}

/* Value of a narrow pattern by the definition of the format. */
static double defined_value(uint16_t bits, int digits, int bias)
{
    int exponent = (bits & 0x7fff) >> digits, fraction = bits & ((1 << digits) - 1);
    double sign = bits & 0x8000 ? -1 : 1;
    if (exponent == 0x7fff >> digits)
        return fraction ? (double)NAN : sign * (double)INFINITY;
    if (exponent == 0)
        return sign * ldexp(fraction, 1 - bias - digits);
    return sign * ldexp(fraction + (1 << digits), exponent - bias - digits);
}

static float to_float(int format, uint16_t bits)
{
    return format == CGM_FORMAT_FP16 ? cgm_fp16_to_float(bits) : cgm_bf16_to_float(bits);
}

static uint16_t from_float(int format, float value)
{
    return format == CGM_FORMAT_FP16 ? cgm_fp16_from_float(value) : cgm_bf16_from_float(value);
}

static void test_every_pattern(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < ALL; i++) {
        uint16_t bits = (uint16_t)i;
        for (int format = CGM_FORMAT_FP16; format <= CGM_FORMAT_BF16; format++) {
            bool half = format == CGM_FORMAT_FP16;
            double expected = defined_value(bits, half ? 10 : 7, half ? 15 : 127);
            float value = to_float(format, bits);
            if (isnan(expected)) {
                assert_true(isnan(value));
                assert_int_equal(from_float(format, value), bits | (half ? 0x200 : 0x40));
            } else {
                assert_true((double)value == expected && !signbit(value) == !(bits & 0x8000));
                assert_int_equal(from_float(format, value), bits);
            }
        }
    }
}

/* No number of the format is nearer, and of two that are as near the even one was taken. */
static void check_nearest(int format, float value)
{
    uint16_t bits = from_float(format, value), sign = bits & 0x8000;
    uint16_t magnitude = bits & 0x7fff, infinity = format == CGM_FORMAT_FP16 ? 0x7c00 : 0x7f80;
    double v = fabs((double)value), largest = cgm_format_info(format)->largest;
    double half_step = largest * cgm_format_info(format)->unit;
    assert_int_equal(!sign, !signbit(value));
    if (magnitude == infinity) {
        assert_true(v >= largest + half_step / (2 - 2 * cgm_format_info(format)->unit));
        return;
    }
    double distance = fabs((double)to_float(format, magnitude) - v);
    for (int step = -1; step <= 1; step += 2) {
        int other = magnitude + step;
        if (other < 0 || other >= infinity)
            continue;
        double there = fabs((double)to_float(format, (uint16_t)other) - v);
        assert_true(distance < there || (distance == there && (magnitude & 1) == 0));
    }
}

static float random_float(void)
{
    float value;
    do
        value = from_bits((uint32_t)(cgm_random_next(&rng) >> 32));
    while (isnan(value));
    return value;
}

static void test_rounding(void **state)
{
    (void)state;
    for (int format = CGM_FORMAT_FP16; format <= CGM_FORMAT_BF16; format++) {
        for (int i = 0; i < 2000000; i++)
            check_nearest(format, random_float());
        for (uint32_t i = 0; i < ALL / 2; i++) {
            /* Ties: halfway to the next number, and a step of fp32 beside it. */
            double low = (double)to_float(format, (uint16_t)i);
            double high = (double)to_float(format, (uint16_t)(i + 1));
            float middle = (float)((low + high) / 2);
            if (!isfinite(low) || !isfinite(high) || !isfinite(middle))
                continue;
            check_nearest(format, middle);
            check_nearest(format, -nextafterf(middle, 0));
            check_nearest(format, nextafterf(middle, INFINITY));
        }
    }
}

static uint32_t interesting_bits(void)
{
    uint64_t word = cgm_random_next(&rng);
    uint32_t bits = (uint32_t)(word >> 32);
    return word % 4 == 0 ? (bits & 0x807fffff) | 0x7f800000 : bits;
}

/* Arrays take other paths than single values: the same bits, also for NaN and odd lengths. */
static void test_arrays_equal_scalars(void **state)
{
    (void)state;
    float *values = malloc(COUNT * sizeof(float)), *back = malloc(COUNT * sizeof(float));
    uint16_t *narrow = malloc(COUNT * sizeof(uint16_t));
    for (int format = CGM_FORMAT_FP16; format <= CGM_FORMAT_BF16; format++) {
        for (int i = 0; i < COUNT; i++)
            values[i] = from_bits(interesting_bits());
        size_t at = cgm_random_below(&rng, 40), n = COUNT - at - cgm_random_below(&rng, 40);
        cgm_format_store(format, values + at, n, narrow + at);
        cgm_format_load(format, narrow + at, n, back + at);
        for (size_t i = at; i < at + n; i++) {
            assert_int_equal(narrow[i], from_float(format, values[i]));
            float single = to_float(format, narrow[i]);
            assert_memory_equal(&back[i], &single, sizeof(single));
        }
        cgm_format_round(format, values + at, n);
        assert_memory_equal(values + at, back + at, n * sizeof(float));
    }
    free(values);
    free(back);
    free(narrow);
}

static void test_info(void **state)
{
    (void)state;
    assert_null(cgm_format_info(-1));
    assert_null(cgm_format_info(CGM_FORMAT_COUNT));
    for (int format = CGM_FORMAT_FP16; format <= CGM_FORMAT_BF16; format++) {
        const struct cgm_format_info *info = cgm_format_info(format);
        assert_true(isnan(to_float(format, (uint16_t)info->nan)));
        float next = to_float(format, (uint16_t)(from_float(format, 1) + 1));
        assert_true((double)next == 1 + 2 * info->unit);
        uint16_t largest = (uint16_t)(from_float(format, INFINITY) - 1);
        assert_true((double)to_float(format, largest) == info->largest);
    }
}

static void test_integers(void **state)
{
    (void)state;
    static const float values[] = {0,      -0.5f,   0.5f,  1.5f,  -2.5f,  127,
                                   127.6f, -128.4f, -1000, 1e10f, -1e10f, 16777216};
    static const int8_t narrow[] = {0, 0, 0, 2, -2, 127, 127, -128, -128, 127, -128, 127};
    static const int32_t wide[] = {0,   0,    0,     2,         -2,        127,
                                   128, -128, -1000, INT32_MAX, INT32_MIN, 16777216};
    enum { EACH = sizeof(values) / sizeof(values[0]) };
    int8_t found[EACH];
    int32_t found_wide[EACH];
    float back[EACH], nan = NAN;
    cgm_format_store(CGM_FORMAT_INT8, values, EACH, found);
    cgm_format_store(CGM_FORMAT_INT32, values, EACH, found_wide);
    assert_memory_equal(found, narrow, sizeof(found));
    assert_memory_equal(found_wide, wide, sizeof(found_wide));
    cgm_format_load(CGM_FORMAT_INT8, found, EACH, back);
    for (int i = 0; i < EACH; i++)
        assert_true(back[i] == narrow[i]);
    cgm_format_load(CGM_FORMAT_INT32, found_wide, EACH, back);
    for (int i = 0; i < EACH; i++)
        assert_true(back[i] == (float)wide[i]);
    found_wide[1] = INT32_MAX - 1;
    assert_true(cgm_format_element(CGM_FORMAT_INT32, found_wide, 1) == INT32_MAX - 1.0);
    assert_true(cgm_format_element(CGM_FORMAT_INT8, found, 3) == 2);
    cgm_format_store(CGM_FORMAT_INT8, &nan, 1, found);
    assert_int_equal(found[0], 0);
    memcpy(back, values, sizeof(back));
    cgm_format_round(CGM_FORMAT_INT32, back, 5);
    assert_true(back[3] == 2 && back[4] == -2);
}

int main(void)
{
    test_seed(&rng);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_pattern),
        cmocka_unit_test(test_rounding),
        cmocka_unit_test(test_arrays_equal_scalars),
        cmocka_unit_test(test_info),
        cmocka_unit_test(test_integers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
