/* Number formats and the way between them: everything computes in fp32, and what is stored in a
 * narrower format was rounded to nearest, ties to even. Infinities stay; a NaN stays a NaN and
 * becomes quiet; what is too large becomes infinite; subnormal numbers are kept. Of the integers
 * what is too large becomes the largest one, a NaN 0, and an int32 may be rounded on its way to
 * fp32: whatever must be exact does not go through fp32. */
#ifndef CGM_NUMBER_FORMAT_H
#define CGM_NUMBER_FORMAT_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The numbers are those of enum cgm_dtype in proto/types.h. */
enum cgm_format {
    CGM_FORMAT_FP32 = 0,
    CGM_FORMAT_FP16 = 1,
    CGM_FORMAT_BF16 = 2,
    CGM_FORMAT_INT8 = 3,
    CGM_FORMAT_INT32 = 4,
    CGM_FORMAT_COUNT
};

struct cgm_format_info {
    size_t bytes;           /* of one element */
    double unit;            /* half the distance from 1 to the next number */
    double smallest_normal; /* below it numbers lose digits */
    double largest;         /* finite */
    uint32_t nan;           /* a quiet NaN, or the lowest integer, in the low bytes */
    int is_integer;         /* exact: unit and smallest_normal are 0 */
};

/* NULL for an unknown format. Static. */
const struct cgm_format_info *cgm_format_info(int format);

float cgm_fp16_to_float(uint16_t bits);
uint16_t cgm_fp16_from_float(float value);
float cgm_bf16_to_float(uint16_t bits);
uint16_t cgm_bf16_from_float(float value);

/* Arrays. `format` is a known one; source and destination do not overlap. */
void cgm_format_load(int format, const void *source, size_t count, float *ret_values);
void cgm_format_store(int format, const float *values, size_t count, void *ret_destination);

/* Element `index` of an array, exactly. */
double cgm_format_element(int format, const void *data, size_t index);

/* Replaces every value by the nearest number of the format. */
void cgm_format_round(int format, float *values, size_t count);

#ifdef __cplusplus
}
#endif

#endif
