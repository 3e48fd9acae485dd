/* Fresh random numbers for every run of a test, and the same ones again with what it printed. */
#ifndef TEST_SEED_H
#define TEST_SEED_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "kernels/random.h"

/* $CGM_TEST_SEED, else a new seed; prints it. */
static inline void test_seed(struct cgm_random *ret_random)
{
    const char *text = getenv("CGM_TEST_SEED");
    uint64_t seed = text ? strtoull(text, NULL, 0) : cgm_random_seed();
    printf("CGM_TEST_SEED=0x%llx\n", (unsigned long long)seed);
    cgm_random_init(ret_random, seed);
}

#endif
