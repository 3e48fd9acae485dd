#include "tests/chaos/data.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/bench/expected.h"
#include "client/bench/inputs.h"
#include "kernels/number_format.h"
#include "proto/types.h"
#include "tests/backend.h"

static bool is_input(const struct chaos_data *data, enum cgm_matrix_name name)
{
    if (name == CGM_MATRIX_OUT)
        return data->bench.cases[CGM_VARIANT_JOB].accumulate;
    return !cgm_matrix_is_output(name);
}

static bool take_memory(struct chaos_data *data)
{
    bool there = true;
    for (int i = 0; i < CGM_MATRIX_COUNT; i++) {
        const struct cgm_matrix *matrix = chaos_data_matrix(data, (enum cgm_matrix_name)i);
        if (matrix->present && is_input(data, (enum cgm_matrix_name)i))
            there = there && (data->bench.whole[i] = malloc(cgm_matrix_bytes(matrix) + 1));
    }
    return there;
}

struct chaos_data *chaos_data_new(const struct cgm_bench_options *plan, const char *reason,
                                  const struct chaos_job *job, uint64_t seed)
{
    struct chaos_data *data = calloc(1, sizeof(*data));
    if (!data)
        return NULL;
    data->options = *plan;
    data->options.rows = job->rows;
    data->bench.options = &data->options;
    data->bench.results = &data->results;
    snprintf(data->results.backend, sizeof(data->results.backend), "%s", test_backend());
    struct cgm_plan_answer *answer = &data->results.plans[CGM_VARIANT_JOB];
    snprintf(answer->reason, sizeof(answer->reason), "%s", reason);
    cgm_cases_derive(&data->options, data->bench.cases);
    if (!data->bench.cases[CGM_VARIANT_JOB].shaped || !take_memory(data)) {
        chaos_data_free(data);
        return NULL;
    }
    cgm_inputs_fill(&data->bench, job->wide ? CGM_FILL_WIDE : CGM_FILL_NORMAL, seed);
    if (cgm_expected_make(&data->bench, &data->reference)) {
        chaos_data_free(data);
        return NULL;
    }
    if (plan->op == CGM_OP_BULK_RS && cgm_expected_make_moved(&data->bench, &data->moved)) {
        chaos_data_free(data);
        return NULL;
    }
    cgm_expected_allow(&data->bench, CGM_VARIANT_JOB, &data->reference);
    cgm_expected_allow_moved(&data->bench, CGM_VARIANT_JOB, &data->moved);
    return data;
}

void chaos_data_free(struct chaos_data *data)
{
    if (!data)
        return;
    for (int i = 0; i < CGM_MATRIX_COUNT; i++)
        free(data->bench.whole[i]);
    cgm_reference_fini(&data->reference);
    cgm_reference_fini(&data->moved);
    free(data);
}

/* Numbers that were only moved must be the same, bit by bit. */
static void check_copy(const struct chaos_data *data, const struct cgm_matrix *matrix,
                       enum cgm_matrix_name source, uint32_t rank, const char *shard,
                       char *ret_text, size_t size)
{
    const struct cgm_sizes *sizes = &data->bench.cases[CGM_VARIANT_JOB].sizes;
    const char *whole = data->bench.whole[source];
    uint64_t bytes = matrix->shard_cols * cgm_dtype_bytes(matrix->dtype);
    for (uint64_t row = 0; row < matrix->shard_rows; row++) {
        uint64_t from = cgm_shards_source_row(sizes, rank, row);
        if (memcmp(shard + row * bytes, whole + from * bytes, bytes) == 0)
            continue;
        snprintf(ret_text, size, "row %llu is not row %llu of what the ranks have",
                 (unsigned long long)row, (unsigned long long)from);
        return;
    }
}

static void check_sum(const struct cgm_reference *reference, const struct cgm_matrix *matrix,
                      uint32_t rank, const void *shard, char *ret_text, size_t size, double *worst)
{
    struct cgm_verdict verdict = {0};
    struct cgm_reference_found found = {.data = shard,
                                        .format = matrix->dtype,
                                        .rows = matrix->shard_rows,
                                        .cols = matrix->shard_cols,
                                        .stride = matrix->shard_cols};
    cgm_matrix_origin(matrix, rank, &found.row, &found.col);
    cgm_reference_check(reference, &found, &verdict);
    if (verdict.ratio > *worst)
        *worst = verdict.ratio;
    if (!cgm_verdict_is_right(&verdict))
        snprintf(ret_text, size,
                 "[%llu, %llu] is %.9g, expected %.9g +- %.3g (%llu elements are no numbers)",
                 (unsigned long long)verdict.row, (unsigned long long)verdict.col, verdict.found,
                 verdict.expected, verdict.bound, (unsigned long long)verdict.no_number);
}

/* What GELU was applied to. */
static void check_pre_gelu(const struct chaos_data *data, const struct cgm_matrix *matrix,
                           uint32_t rank, const void *shard, char *ret_text, size_t size,
                           double *worst)
{
    struct cgm_reference linear = data->reference;
    linear.activation = CGM_REFERENCE_LINEAR;
    check_sum(&linear, matrix, rank, shard, ret_text, size, worst);
}

static void check_gradient(const struct chaos_data *data, const struct cgm_matrix *matrix,
                           uint32_t rank, const void *shard, char *ret_text, size_t size,
                           double *worst)
{
    struct cgm_reference sums;
    struct cgm_matrix all = *matrix; /* of the rank's own sums */
    if (cgm_expected_make_gradient(&data->bench, &data->reference, rank, &sums)) {
        snprintf(ret_text, size, "no memory for the sums of a gradient");
        return;
    }
    all.split = CGM_SPLIT_NONE;
    if (sums.cols == 1) { /* a column is there as a row */
        all.shard_rows = matrix->shard_cols;
        all.shard_cols = 1;
    }
    check_sum(&sums, &all, rank, shard, ret_text, size, worst);
    cgm_reference_fini(&sums);
}

void chaos_data_check(const struct chaos_data *data, enum cgm_matrix_name name, uint32_t rank,
                      const void *shard, char *ret_text, size_t size, uint64_t *checked,
                      double *worst)
{
    const struct cgm_matrix *matrix = chaos_data_matrix(data, name);
    bool beside = chaos_data_matrix(data, CGM_MATRIX_AUX_IN)->present;
    int op = data->options.op;
    ret_text[0] = '\0';
    *checked += matrix->shard_rows * matrix->shard_cols;
    if (name == CGM_MATRIX_OUT && op != CGM_OP_AG && op != CGM_OP_A2AV)
        check_sum(&data->reference, matrix, rank, shard, ret_text, size, worst);
    else if (name == CGM_MATRIX_PRE_GELU)
        check_pre_gelu(data, matrix, rank, shard, ret_text, size, worst);
    else if (name == CGM_MATRIX_BIAS_GRAD)
        check_gradient(data, matrix, rank, shard, ret_text, size, worst);
    else if (name == CGM_MATRIX_AUX && op == CGM_OP_BULK_RS)
        check_sum(&data->moved, matrix, rank, shard, ret_text, size, worst);
    else
        check_copy(data, matrix, beside ? CGM_MATRIX_AUX_IN : CGM_MATRIX_LHS, rank, shard, ret_text,
                   size);
}

bool chaos_data_is_poison(const struct cgm_matrix *matrix, const void *shard)
{
    uint64_t count = matrix->shard_rows * matrix->shard_cols;
    bool has_nan = matrix->dtype != CGM_DTYPE_INT8 && matrix->dtype != CGM_DTYPE_INT32;
    for (uint64_t i = 0; has_nan && i < count; i++)
        if (!isnan(cgm_format_element(matrix->dtype, shard, i)))
            return false;
    return true;
}
