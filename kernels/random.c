#include "kernels/random.h"

#include <math.h>
#include <sys/random.h>
#include <time.h>

#define WIDE_EXPONENT 6

/* splitmix64: spreads one word over the generator's state. */
static uint64_t splitmix(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15ull;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ z >> 27) * 0x94d049bb133111ebull;
    return z ^ z >> 31;
}

static uint64_t rotate(uint64_t x, int bits)
{
    return x << bits | x >> (64 - bits);
}

uint64_t cgm_random_seed(void)
{
    uint64_t seed;
    if (getrandom(&seed, sizeof(seed), GRND_NONBLOCK) == (ssize_t)sizeof(seed))
        return seed;
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    seed = (uint64_t)now.tv_sec * 1000000007u + (uint64_t)now.tv_nsec;
    return splitmix(&seed);
}

void cgm_random_init(struct cgm_random *random, uint64_t seed)
{
    for (int i = 0; i < 4; i++)
        random->state[i] = splitmix(&seed);
}

/* xoshiro256++ of Blackman and Vigna. */
uint64_t cgm_random_next(struct cgm_random *random)
{
    uint64_t *s = random->state;
    uint64_t result = rotate(s[0] + s[3], 23) + s[0];
    uint64_t t = s[1] << 17;
    s[2] ^= s[0];
    s[3] ^= s[1];
    s[1] ^= s[2];
    s[0] ^= s[3];
    s[2] ^= t;
    s[3] = rotate(s[3], 45);
    return result;
}

uint64_t cgm_random_below(struct cgm_random *random, uint64_t limit)
{
    return cgm_random_next(random) % limit;
}

/* In [0, 1), with as many digits as a float has. */
static float unit_float(uint32_t bits)
{
    return (float)(bits >> 8) * 0x1p-24f;
}

/* Box-Muller: two independent normal numbers from one word. */
static void normal_pair(struct cgm_random *random, float ret_pair[2])
{
    uint64_t word = cgm_random_next(random);
    float radius = sqrtf(-2 * logf(unit_float((uint32_t)word) + 0x1p-25f));
    float angle = 6.28318530717958647f * unit_float((uint32_t)(word >> 32));
    ret_pair[0] = radius * cosf(angle);
    ret_pair[1] = radius * sinf(angle);
}

static float wide_factor(struct cgm_random *random)
{
    float x = unit_float((uint32_t)(cgm_random_next(random) >> 32));
    return exp2f((2 * x - 1) * WIDE_EXPONENT);
}

void cgm_random_fill(struct cgm_random *random, enum cgm_fill fill, float *ret_values, size_t count)
{
    for (size_t i = 0; i < count; i += 2) {
        float pair[2];
        normal_pair(random, pair);
        for (size_t j = 0; j < 2 && i + j < count; j++) {
            float factor = fill == CGM_FILL_WIDE ? wide_factor(random) : 1;
            ret_values[i + j] = pair[j] * factor;
        }
    }
}
