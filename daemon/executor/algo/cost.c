#include "daemon/executor/algo/cost.h"

/* Orders of magnitude of one H200 and its links. */
#define FLOPS_16_BIT 790e12
#define FLOPS_FP32 50e12
#define LINK_BYTES_PER_S 365e9
#define MEMORY_BYTES_PER_S 4e12
#define PIECE_S 20e-6
#define START_S 8e-6
#define FLAGGED_RATE 0.9 /* of the library's */
#define PUSH_S 15e-6

double cgm_cost_gemm(const struct cgm_spec *spec)
{
    double flops = 2.0 * (double)spec->m * (double)spec->n * (double)spec->k;
    double ranks = cgm_op_is_collective(spec->op) ? spec->world : 1;
    return flops / ranks / (spec->dtype == CGM_DTYPE_FP32 ? FLOPS_FP32 : FLOPS_16_BIT);
}

double cgm_cost_flagged(const struct cgm_spec *spec)
{
    return START_S + cgm_cost_gemm(spec) / FLAGGED_RATE;
}

double cgm_cost_transfer(const struct cgm_spec *spec)
{
    struct cgm_shape shape = cgm_operation_user_buffer(spec);
    double bytes = (double)shape.rows * (double)shape.cols * (double)cgm_dtype_bytes(shape.dtype);
    double halves = spec->op == CGM_OP_AR || spec->op == CGM_OP_GEMM_AR ? 2 : 1;
    return halves * bytes * (spec->world - 1) / spec->world / LINK_BYTES_PER_S;
}

double cgm_cost_cutting(const struct cgm_spec *spec)
{
    return (spec->world - 1) * PIECE_S;
}

double cgm_cost_rows(const struct cgm_spec *spec, uint64_t rows)
{
    double cols = (double)spec->n / spec->world, depth = (double)spec->k;
    double rate = spec->dtype == CGM_DTYPE_FP32 ? FLOPS_FP32 : FLOPS_16_BIT;
    double compute = 2.0 * (double)rows * cols * depth / rate;
    double load = cols * depth * (double)cgm_dtype_bytes(spec->dtype) / MEMORY_BYTES_PER_S;
    return START_S + (compute > load ? compute : load);
}

double cgm_cost_shard(const struct cgm_spec *spec, uint64_t rows)
{
    double bytes = (double)rows * (double)spec->k * (double)cgm_dtype_bytes(spec->dtype);
    return PUSH_S + bytes / LINK_BYTES_PER_S;
}
