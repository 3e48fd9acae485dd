#include "kernels/number_format.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#define FP32_INFINITY 0x7f800000u
#define FP32_QUIET 0x00400000u
#define FP32_SIGN 0x80000000u

static const struct cgm_format_info formats[CGM_FORMAT_COUNT] = {
    [CGM_FORMAT_FP32] = {4, 0x1p-24, 0x1p-126, 0x1.fffffep127, 0x7fc00000, 0},
    [CGM_FORMAT_FP16] = {2, 0x1p-11, 0x1p-14, 65504, 0x7e00, 0},
    [CGM_FORMAT_BF16] = {2, 0x1p-8, 0x1p-126, 0x1.fep127, 0x7fc0, 0},
    [CGM_FORMAT_INT8] = {1, 0, 0, INT8_MAX, 0x80, 1},
    [CGM_FORMAT_INT32] = {4, 0, 0, INT32_MAX, 0x80000000, 1},
};

const struct cgm_format_info *cgm_format_info(int format)
{
    return format >= 0 && format < CGM_FORMAT_COUNT ? &formats[format] : NULL;
}

static uint32_t float_bits(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof(bits));
    return bits;
}

static float bits_float(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof(value));
    return value;
}

float cgm_bf16_to_float(uint16_t bits)
{
    uint32_t wide = (uint32_t)bits << 16;
    if ((wide & ~FP32_SIGN) > FP32_INFINITY)
        wide |= FP32_QUIET;
    return bits_float(wide);
}

uint16_t cgm_bf16_from_float(float value)
{
    uint32_t bits = float_bits(value);
    uint32_t quiet = bits | FP32_QUIET;
    uint32_t rounded = bits + 0x7fff + (bits >> 16 & 1);
    bool nan = (bits & ~FP32_SIGN) > FP32_INFINITY;
    return (uint16_t)((nan ? quiet : rounded) >> 16);
}

/* The exponent is moved by multiplication, so that subnormal numbers need no loop. */
float cgm_fp16_to_float(uint16_t bits)
{
    uint32_t sign = (uint32_t)(bits & 0x8000) << 16;
    uint32_t rest = (uint32_t)(bits & 0x7fff) << 13;
    if (rest >= 0x0f800000) {
        uint32_t quiet = rest > 0x0f800000 ? FP32_QUIET : 0;
        return bits_float(sign | FP32_INFINITY | rest | quiet);
    }
    return bits_float(sign | float_bits(bits_float(rest) * 0x1p112f));
}

/* Adding 2^-1, whose last digit is the last digit of a subnormal fp16, lets the addition round. */
static uint16_t fp16_from_small(uint32_t magnitude)
{
    return (uint16_t)(float_bits(bits_float(magnitude) + 0.5f) - float_bits(0.5f));
}

uint16_t cgm_fp16_from_float(float value)
{
    uint32_t bits = float_bits(value);
    uint32_t magnitude = bits & ~FP32_SIGN;
    uint16_t sign = (uint16_t)(bits >> 16 & 0x8000);
    if (magnitude > FP32_INFINITY)
        return (uint16_t)(sign | 0x7e00 | (magnitude >> 13 & 0x1ff));
    if (magnitude >= 0x47800000) /* 65536 */
        return sign | 0x7c00;
    if (magnitude < 0x38800000) /* 2^-14 */
        return sign | fp16_from_small(magnitude);
    /* A carry out of the digits moves the exponent up, to infinity too. */
    uint32_t rounded = magnitude - 0x38000000 + 0xfff + (magnitude >> 13 & 1);
    return (uint16_t)(sign | rounded >> 13);
}

#if defined(__x86_64__)
#define WIDE __attribute__((target("avx2,f16c")))

static bool wide_available(void)
{
    /* Every processor with AVX2 has F16C; clang 14 cannot be asked for the latter. */
    return __builtin_cpu_supports("avx2");
}

/* Both return how many values they converted: a multiple of 8. */
WIDE static size_t fp16_load_wide(const uint16_t *source, size_t count, float *values)
{
    size_t i = 0;
    for (; i + 8 <= count; i += 8) {
        __m128i half = _mm_loadu_si128((const __m128i *)(const void *)(source + i));
        _mm256_storeu_ps(values + i, _mm256_cvtph_ps(half));
    }
    return i;
}

WIDE static size_t fp16_store_wide(const float *values, size_t count, uint16_t *destination)
{
    size_t i = 0;
    for (; i + 8 <= count; i += 8) {
        __m128i half = _mm256_cvtps_ph(_mm256_loadu_ps(values + i), _MM_FROUND_TO_NEAREST_INT);
        _mm_storeu_si128((__m128i *)(void *)(destination + i), half);
    }
    return i;
}
#else
#define WIDE

static bool wide_available(void)
{
    return false;
}

static size_t fp16_load_wide(const uint16_t *source, size_t count, float *values)
{
    (void)source, (void)count, (void)values;
    return 0;
}

static size_t fp16_store_wide(const float *values, size_t count, uint16_t *destination)
{
    (void)values, (void)count, (void)destination;
    return 0;
}
#endif

static void fp16_load(const uint16_t *source, size_t count, float *values)
{
    size_t i = wide_available() ? fp16_load_wide(source, count, values) : 0;
    for (; i < count; i++)
        values[i] = cgm_fp16_to_float(source[i]);
}

static void fp16_store(const float *values, size_t count, uint16_t *destination)
{
    size_t i = wide_available() ? fp16_store_wide(values, count, destination) : 0;
    for (; i < count; i++)
        destination[i] = cgm_fp16_from_float(values[i]);
}

static inline __attribute__((always_inline)) void
bf16_load_body(const uint16_t *restrict source, size_t count, float *restrict values)
{
    for (size_t i = 0; i < count; i++)
        values[i] = cgm_bf16_to_float(source[i]);
}

static inline __attribute__((always_inline)) void
bf16_store_body(const float *restrict values, size_t count, uint16_t *restrict destination)
{
    for (size_t i = 0; i < count; i++)
        destination[i] = cgm_bf16_from_float(values[i]);
}

WIDE static void bf16_load_wide(const uint16_t *source, size_t count, float *values)
{
    bf16_load_body(source, count, values);
}

WIDE static void bf16_store_wide(const float *values, size_t count, uint16_t *destination)
{
    bf16_store_body(values, count, destination);
}

static void bf16_load(const uint16_t *source, size_t count, float *values)
{
    if (wide_available())
        bf16_load_wide(source, count, values);
    else
        bf16_load_body(source, count, values);
}

static void bf16_store(const float *values, size_t count, uint16_t *destination)
{
    if (wide_available())
        bf16_store_wide(values, count, destination);
    else
        bf16_store_body(values, count, destination);
}

/* ---- integers ---- */

static void int8_load(const int8_t *source, size_t count, float *values)
{
    for (size_t i = 0; i < count; i++)
        values[i] = source[i];
}

static void int32_load(const int32_t *source, size_t count, float *values)
{
    for (size_t i = 0; i < count; i++)
        values[i] = (float)source[i];
}

/* To the nearest integer from low to high, ties to even. */
static double to_integer(float value, double low, double high)
{
    double nearest = isnan(value) ? 0 : nearbyint((double)value);
    return nearest < low ? low : nearest > high ? high : nearest;
}

static void int8_store(const float *values, size_t count, int8_t *destination)
{
    for (size_t i = 0; i < count; i++)
        destination[i] = (int8_t)to_integer(values[i], INT8_MIN, INT8_MAX);
}

static void int32_store(const float *values, size_t count, int32_t *destination)
{
    for (size_t i = 0; i < count; i++)
        destination[i] = (int32_t)to_integer(values[i], INT32_MIN, INT32_MAX);
}

/* ---- any format ---- */

void cgm_format_load(int format, const void *source, size_t count, float *ret_values)
{
    switch (format) {
    case CGM_FORMAT_FP16:
        fp16_load(source, count, ret_values);
        break;
    case CGM_FORMAT_BF16:
        bf16_load(source, count, ret_values);
        break;
    case CGM_FORMAT_INT8:
        int8_load(source, count, ret_values);
        break;
    case CGM_FORMAT_INT32:
        int32_load(source, count, ret_values);
        break;
    default:
        memcpy(ret_values, source, count * sizeof(float));
    }
}

void cgm_format_store(int format, const float *values, size_t count, void *ret_destination)
{
    switch (format) {
    case CGM_FORMAT_FP16:
        fp16_store(values, count, ret_destination);
        break;
    case CGM_FORMAT_BF16:
        bf16_store(values, count, ret_destination);
        break;
    case CGM_FORMAT_INT8:
        int8_store(values, count, ret_destination);
        break;
    case CGM_FORMAT_INT32:
        int32_store(values, count, ret_destination);
        break;
    default:
        memcpy(ret_destination, values, count * sizeof(float));
    }
}

double cgm_format_element(int format, const void *data, size_t index)
{
    float value;
    if (format == CGM_FORMAT_INT32)
        return ((const int32_t *)data)[index];
    cgm_format_load(format, (const char *)data + index * formats[format].bytes, 1, &value);
    return (double)value;
}

#define ROUND_BLOCK 512

void cgm_format_round(int format, float *values, size_t count)
{
    uint32_t block[ROUND_BLOCK];
    if (format == CGM_FORMAT_FP32)
        return;
    while (count > 0) {
        size_t n = count < ROUND_BLOCK ? count : ROUND_BLOCK;
        cgm_format_store(format, values, n, block);
        cgm_format_load(format, block, n, values);
        values += n;
        count -= n;
    }
}
