/* GELU in its tanh form, x (1 + tanh(u)) / 2 with u = sqrt(2 / pi) (x + 0.044715 x^3), and its
 * derivative, in fp32, for processors and devices alike.
 *
 * (1 + tanh(u)) / 2 is 1 / (1 + exp(-2u)), which loses no digits where tanh is near -1; written
 * with exp(-|2u|), neither does what it lacks to 1. Beyond CGM_GELU_EDGE GELU is 0 or x to the last
 * digit of fp32. */
#ifndef CGM_GELU_H
#define CGM_GELU_H

#include <math.h>

#ifdef __CUDACC__
#define CGM_GELU_FUNCTION __host__ __device__ static inline
#else
#define CGM_GELU_FUNCTION static inline
#endif

#define CGM_GELU_EDGE 10.0f
#define CGM_GELU_SLOPE 1.59576912160573f /* 2 sqrt(2 / pi) */
#define CGM_GELU_CUBE 0.044715f

/* exp(-|2u|); x is within the edge. */
CGM_GELU_FUNCTION float cgm_gelu_decay(float x)
{
    return expf(-fabsf(CGM_GELU_SLOPE * (x + CGM_GELU_CUBE * x * x * x)));
}

CGM_GELU_FUNCTION float cgm_gelu(float x)
{
    if (x < -CGM_GELU_EDGE)
        return -0.0f;
    if (x > CGM_GELU_EDGE)
        return x;
    float decay = cgm_gelu_decay(x);
    return x * (x < 0.0f ? decay : 1.0f) / (1.0f + decay);
}

/* gate + x gate' with gate = (1 + tanh(u)) / 2. */
CGM_GELU_FUNCTION float cgm_gelu_derivative(float x)
{
    if (x < -CGM_GELU_EDGE || x > CGM_GELU_EDGE)
        return x > 0.0f ? 1.0f : 0.0f;
    float decay = cgm_gelu_decay(x), unit = 1.0f / (1.0f + decay);
    float slope = CGM_GELU_SLOPE * (1.0f + 3.0f * CGM_GELU_CUBE * x * x);
    return (x < 0.0f ? decay * unit : unit) + x * slope * decay * unit * unit;
}

#endif
