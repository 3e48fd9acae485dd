/* Seeded random numbers for inputs: the same seed gives the same values on every machine with the
 * same libm. One generator belongs to one thread. */
#ifndef CGM_RANDOM_H
#define CGM_RANDOM_H

#include <stddef.h>
#include <stdint.h>

struct cgm_random {
    uint64_t state[4];
};

/* How matrices are filled. */
enum cgm_fill {
    CGM_FILL_NORMAL, /* N(0, 1) */
    CGM_FILL_WIDE,   /* N(0, 1) * 2^x, x uniform in [-6, 6) */
};

/* A seed that differs from call to call. */
uint64_t cgm_random_seed(void);

void cgm_random_init(struct cgm_random *random, uint64_t seed);

/* Uniform 64 bits. */
uint64_t cgm_random_next(struct cgm_random *random);

/* Uniform in 0 .. limit - 1; limit at least 1. */
uint64_t cgm_random_below(struct cgm_random *random, uint64_t limit);

void cgm_random_fill(struct cgm_random *random, enum cgm_fill fill, float *ret_values,
                     size_t count);

#endif
