#include "daemon/executor/algo/cost.h"

/* Orders of magnitude of one H200 and its links. */
#define FLOPS_16_BIT 790e12
#define FLOPS_FP32 50e12
#define LINK_BYTES_PER_S 365e9
#define MEMORY_BYTES_PER_S 4e12
#define PIECE_S 20e-6
#define START_S 8e-6
#define FLAGGED_RATE 0.85 /* of the library's */
#define PUSH_S 15e-6
#define STEP_S 4e-6

double cgm_cost_gemm(const struct cgm_spec *spec)
{
    double flops = 2.0 * (double)spec->m * (double)spec->n * (double)spec->k;
    bool own = spec->op == CGM_OP_BULK_AG || spec->op == CGM_OP_BULK_RS;
    double ranks = cgm_op_is_collective(spec->op) && !own ? spec->world : 1;
    return flops / ranks / (spec->dtype == CGM_DTYPE_FP32 ? FLOPS_FP32 : FLOPS_16_BIT);
}

double cgm_cost_flagged(const struct cgm_spec *spec)
{
    return START_S + cgm_cost_gemm(spec) / FLAGGED_RATE;
}

/* Of what is gathered, scattered or spread as a whole. */
static double moved_bytes(const struct cgm_spec *spec)
{
    struct cgm_shape shape = cgm_operation_user_buffer(spec);
    if (spec->op == CGM_OP_GEMM_AS) /* out, not lhs */
        shape = (struct cgm_shape){spec->m, spec->n, spec->out_dtype};
    return (double)shape.rows * (double)shape.cols * (double)cgm_dtype_bytes(shape.dtype);
}

double cgm_cost_transfer(const struct cgm_spec *spec)
{
    double halves = spec->op == CGM_OP_AR || spec->op == CGM_OP_GEMM_AR ? 2 : 1;
    return halves * moved_bytes(spec) * (spec->world - 1) / spec->world / LINK_BYTES_PER_S;
}

double cgm_cost_step(void)
{
    return STEP_S;
}

double cgm_cost_pipeline(const struct cgm_spec *spec, uint32_t pieces, double transfer)
{
    double gemm = cgm_cost_gemm(spec), cutting = gemm > 0 ? (pieces - 1) * PIECE_S : 0;
    double compute = gemm + cutting + transfer / pieces, link = gemm / pieces + transfer;
    return (compute > link ? compute : link) + STEP_S;
}

double cgm_cost_bulk(const struct cgm_spec *spec)
{
    double gemm = cgm_cost_gemm(spec), transfer = cgm_cost_transfer(spec);
    return (gemm > transfer ? gemm : transfer) + STEP_S;
}

bool cgm_cost_is_product(const struct cgm_spec *spec)
{
    return cgm_cost_gemm(spec) > cgm_cost_transfer(spec);
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
