#include "client/bench/expected.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/number_format.h"
#include "proto/status.h"
#include "proto/types.h"

#define TF32_UNIT 0x1p-11

/* A whole matrix as fp32 numbers; NULL when there is no memory. */
static float *decode(const struct cgm_bench *bench, enum cgm_matrix_name name)
{
    const struct cgm_matrix *matrix = &bench->cases[CGM_VARIANT_JOB].matrix[name];
    uint64_t count = matrix->rows * matrix->cols;
    float *values = malloc(count * sizeof(*values) + 1);
    if (values)
        cgm_format_load(matrix->dtype, bench->whole[name], count, values);
    return values;
}

static bool has_partials(int op)
{
    return op == CGM_OP_GEMM_RS || op == CGM_OP_GEMM_AR;
}

/* A device's library may round a product before it adds the bias, and before it adds what is in
 * out: how often. */
static int rounds_before_addends(const struct cgm_bench *bench)
{
    const struct cgm_matrix *matrix = bench->cases[CGM_VARIANT_JOB].matrix;
    if (strcmp(bench->results->backend, "cuda") != 0 || !matrix[CGM_MATRIX_RHS].present)
        return 0;
    return (matrix[CGM_MATRIX_BIAS].present ? 1 : 0) + (bench->whole[CGM_MATRIX_OUT] ? 1 : 0);
}

/* One product for every partial product that the operation rounds: the ranks' slices of K. */
static int add_products(const struct cgm_bench *bench, const float *a, const float *b,
                        uint32_t slices, struct cgm_reference *reference)
{
    const struct cgm_sizes *s = &bench->cases[CGM_VARIANT_JOB].sizes;
    uint64_t depth = s->k / slices;
    for (uint32_t i = 0; i < slices; i++) {
        struct cgm_reference_product product = {
            .a = a + i * depth * (s->transa ? s->m : 1),
            .b = b + i * depth * (s->transb ? 1 : s->n),
            .a_stride = s->transa ? s->m : s->k,
            .b_stride = s->transb ? s->k : s->n,
            .depth = depth,
            .transa = s->transa,
            .transb = s->transb,
            .threads = (unsigned)bench->options->threads,
        };
        if (cgm_reference_add_product(reference, &product))
            return CGM_NO_MEMORY;
    }
    return CGM_OK;
}

static int add_product(const struct cgm_bench *bench, struct cgm_reference *reference)
{
    const struct cgm_matrix *matrix = bench->cases[CGM_VARIANT_JOB].matrix;
    bool divided = has_partials(bench->cases[CGM_VARIANT_JOB].sizes.op) &&
                   matrix[CGM_MATRIX_LHS].split != CGM_SPLIT_NONE &&
                   matrix[CGM_MATRIX_RHS].split != CGM_SPLIT_NONE;
    float *a = decode(bench, CGM_MATRIX_LHS), *b = decode(bench, CGM_MATRIX_RHS);
    int status = CGM_NO_MEMORY;
    if (a && b)
        status =
            add_products(bench, a, b, divided ? (uint32_t)bench->options->world : 1, reference);
    free(b);
    free(a);
    return status;
}

/* What is summed without a product: every M x N matrix in `name`, one behind the other. Summands
 * are what a collective adds up. */
static int add_matrices(const struct cgm_bench *bench, enum cgm_matrix_name name, bool summands,
                        struct cgm_reference *reference)
{
    const struct cgm_matrix *matrix = &bench->cases[CGM_VARIANT_JOB].matrix[name];
    float *values = decode(bench, name);
    if (!values)
        return CGM_NO_MEMORY;
    for (uint64_t row = 0; row < matrix->rows; row += reference->rows)
        cgm_reference_add_matrix(reference, values + row * matrix->cols, matrix->cols);
    for (uint64_t i = 0; summands && i < matrix->rows * matrix->cols; i++)
        reference->partials[i % (reference->rows * matrix->cols)] += fabs((double)values[i]);
    free(values);
    return CGM_OK;
}

static int add_bias(const struct cgm_bench *bench, struct cgm_reference *reference)
{
    float *bias = decode(bench, CGM_MATRIX_BIAS);
    if (!bias)
        return CGM_NO_MEMORY;
    cgm_reference_add_bias(reference, bias);
    free(bias);
    return CGM_OK;
}

static int round_before_both(const struct cgm_bench *bench, struct cgm_reference *reference)
{
    float *out = decode(bench, CGM_MATRIX_OUT), *bias = decode(bench, CGM_MATRIX_BIAS);
    if (out && bias)
        cgm_reference_round_before_both(reference, out, reference->cols, bias);
    int status = out && bias ? CGM_OK : CGM_NO_MEMORY;
    free(out);
    free(bias);
    return status;
}

static int activate(const struct cgm_bench *bench, struct cgm_reference *reference)
{
    if (!bench->whole[CGM_MATRIX_GELU_INPUT]) {
        cgm_reference_gelu(reference);
        return CGM_OK;
    }
    float *input = decode(bench, CGM_MATRIX_GELU_INPUT);
    int failed = !input || cgm_reference_dgelu(reference, input, reference->cols);
    free(input);
    return failed ? CGM_NO_MEMORY : CGM_OK;
}

static bool is_sum(int op)
{
    return op == CGM_OP_RS || op == CGM_OP_AR;
}

static bool by_library(const struct cgm_bench *bench, enum cgm_variant variant)
{
    return strstr(bench->results->plans[variant].reason, "collectives by ");
}

void cgm_expected_allow(const struct cgm_bench *bench, enum cgm_variant variant,
                        struct cgm_reference *reference)
{
    const struct cgm_case *job = &bench->cases[CGM_VARIANT_JOB];
    bool addends = job->matrix[CGM_MATRIX_BIAS].present || bench->whole[CGM_MATRIX_OUT];
    reference->partial_rounding = rounds_before_addends(bench);
    if (has_partials(job->sizes.op) && reference->partial_rounding == 0)
        reference->partial_rounding = 1;
    reference->input_rounding =
        strstr(bench->results->plans[variant].reason, "in TF32") ? TF32_UNIT : 0;
    if (job->matrix[CGM_MATRIX_AUX_IN].present)
        return; /* its collective is not about the product */
    if (by_library(bench, variant))
        reference->partial_rounding = (double)bench->options->world - 1 + addends;
}

void cgm_expected_allow_moved(const struct cgm_bench *bench, enum cgm_variant variant,
                              struct cgm_reference *reference)
{
    reference->partial_rounding =
        by_library(bench, variant) ? (double)bench->options->world - 1 : 0;
}

int cgm_expected_make_moved(const struct cgm_bench *bench, struct cgm_reference *ret_reference)
{
    const struct cgm_sizes *s = &bench->cases[CGM_VARIANT_JOB].sizes;
    if (cgm_reference_init(ret_reference, s->buffer_rows, s->buffer_cols, true))
        return CGM_NO_MEMORY;
    int status = add_matrices(bench, CGM_MATRIX_AUX_IN, true, ret_reference);
    if (status)
        cgm_reference_fini(ret_reference);
    return status;
}

int cgm_expected_make(const struct cgm_bench *bench, struct cgm_reference *ret_reference)
{
    const struct cgm_case *job = &bench->cases[CGM_VARIANT_JOB];
    struct cgm_reference reference;
    if (cgm_reference_init(&reference, job->sizes.m, job->sizes.n,
                           has_partials(job->sizes.op) || is_sum(job->sizes.op) ||
                               rounds_before_addends(bench) > 0))
        return CGM_NO_MEMORY;
    int status = job->matrix[CGM_MATRIX_RHS].present
                     ? add_product(bench, &reference)
                     : add_matrices(bench, CGM_MATRIX_LHS, is_sum(job->sizes.op), &reference);
    if (!status && bench->whole[CGM_MATRIX_OUT])
        status = add_matrices(bench, CGM_MATRIX_OUT, false, &reference);
    if (!status && job->matrix[CGM_MATRIX_BIAS].present)
        status = add_bias(bench, &reference);
    if (!status && rounds_before_addends(bench) == 2)
        status = round_before_both(bench, &reference);
    if (!status && job->sizes.gelu)
        status = activate(bench, &reference);
    if (status)
        cgm_reference_fini(&reference);
    else
        *ret_reference = reference;
    return status;
}

/* lhs times a column of ones. */
static int sum_lhs(const struct cgm_bench *bench, struct cgm_reference *reference)
{
    const struct cgm_sizes *s = &bench->cases[CGM_VARIANT_JOB].sizes;
    float *lhs = decode(bench, CGM_MATRIX_LHS), *ones = malloc(s->k * sizeof(*ones));
    struct cgm_reference_product product = {.a = lhs,
                                            .b = ones,
                                            .a_stride = s->transa ? s->m : s->k,
                                            .b_stride = 1,
                                            .depth = s->k,
                                            .transa = s->transa};
    for (uint64_t i = 0; ones && i < s->k; i++)
        ones[i] = 1;
    int failed = !lhs || !ones || cgm_reference_add_product(reference, &product);
    free(ones);
    free(lhs);
    return failed ? CGM_NO_MEMORY : CGM_OK;
}

int cgm_expected_make_gradient(const struct cgm_bench *bench, const struct cgm_reference *of,
                               uint32_t rank, struct cgm_reference *ret_reference)
{
    const struct cgm_case *job = &bench->cases[CGM_VARIANT_JOB];
    const struct cgm_matrix *out = &job->matrix[CGM_MATRIX_OUT];
    struct cgm_reference_window window = {.rows = out->shard_rows, .cols = out->shard_cols};
    cgm_matrix_origin(out, rank, &window.row, &window.col);
    if (job->sizes.gelu)
        return cgm_reference_init_sum(ret_reference, of, &window, out->dtype) ? CGM_NO_MEMORY
                                                                              : CGM_OK;
    if (cgm_reference_init(ret_reference, job->sizes.m, 1, false))
        return CGM_NO_MEMORY;
    int status = sum_lhs(bench, ret_reference);
    if (status)
        cgm_reference_fini(ret_reference);
    return status;
}
