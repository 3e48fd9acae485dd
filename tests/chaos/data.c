#include "tests/chaos/data.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/bench/expected.h"
#include "client/bench/inputs.h"
#include "kernels/number_format.h"
#include "proto/types.h"

static bool is_input(const struct chaos_data *data, enum cgm_matrix_name name)
{
    if (name == CGM_MATRIX_OUT)
        return data->bench.cases[CGM_VARIANT_JOB].accumulate;
    return name != CGM_MATRIX_AUX;
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

struct chaos_data *chaos_data_new(const struct cgm_bench_options *plan, const struct chaos_job *job,
                                  uint64_t seed)
{
    struct chaos_data *data = calloc(1, sizeof(*data));
    if (!data)
        return NULL;
    data->options = *plan;
    data->options.rows = job->rows;
    data->bench.options = &data->options;
    data->bench.results = &data->results;
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
    cgm_expected_allow(&data->bench, CGM_VARIANT_JOB, &data->reference);
    return data;
}

void chaos_data_free(struct chaos_data *data)
{
    if (!data)
        return;
    for (int i = 0; i < CGM_MATRIX_COUNT; i++)
        free(data->bench.whole[i]);
    cgm_reference_fini(&data->reference);
    free(data);
}

/* Numbers that were only moved must be the same, bit by bit. */
static void check_copy(const struct chaos_data *data, const struct cgm_matrix *matrix,
                       const void *shard, char *ret_text, size_t size)
{
    if (memcmp(shard, data->bench.whole[CGM_MATRIX_LHS], cgm_matrix_shard_bytes(matrix)))
        snprintf(ret_text, size, "the gathered matrix is not what the ranks have");
}

void chaos_data_check(const struct chaos_data *data, enum cgm_matrix_name name, uint32_t rank,
                      const void *shard, char *ret_text, size_t size, uint64_t *checked,
                      double *worst)
{
    const struct cgm_matrix *matrix = chaos_data_matrix(data, name);
    struct cgm_verdict verdict = {0};
    struct cgm_reference_found found = {.data = shard,
                                        .format = matrix->dtype,
                                        .rows = matrix->shard_rows,
                                        .cols = matrix->shard_cols,
                                        .stride = matrix->shard_cols};
    ret_text[0] = '\0';
    *checked += matrix->shard_rows * matrix->shard_cols;
    if (name == CGM_MATRIX_AUX || data->options.op == CGM_OP_AG) {
        check_copy(data, matrix, shard, ret_text, size);
        return;
    }
    cgm_matrix_origin(matrix, rank, &found.row, &found.col);
    cgm_reference_check(&data->reference, &found, &verdict);
    if (verdict.ratio > *worst)
        *worst = verdict.ratio;
    if (!cgm_verdict_is_right(&verdict))
        snprintf(ret_text, size,
                 "[%llu, %llu] is %.9g, expected %.9g +- %.3g (%llu elements are no numbers)",
                 (unsigned long long)verdict.row, (unsigned long long)verdict.col, verdict.found,
                 verdict.expected, verdict.bound, (unsigned long long)verdict.no_number);
}

bool chaos_data_is_poison(const struct cgm_matrix *matrix, const void *shard)
{
    uint64_t count = matrix->shard_rows * matrix->shard_cols;
    size_t bytes = cgm_dtype_bytes(matrix->dtype);
    for (uint64_t i = 0; i < count; i++) {
        float value;
        cgm_format_load(matrix->dtype, (const char *)shard + i * bytes, 1, &value);
        if (!isnan(value))
            return false;
    }
    return true;
}
