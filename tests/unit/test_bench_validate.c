/* Whether commgemm-bench's validator sees what is wrong, on results that a stand-in computes. */
#include <math.h>

#include "client/bench/validate.h"
#include "kernels/number_format.h"
#include "tests/unit/bench_fixture.h"

enum sabotage { NOTHING, SIGN, UNWRITTEN, SHIFTED, ONE_RANK, SERIAL_ONLY, SABOTAGES };

struct stand_in {
    struct cgm_bench *bench;
    enum sabotage sabotage;
};

static double load(const struct cgm_bench *bench, enum cgm_matrix_name name, uint64_t row,
                   uint64_t col)
{
    const struct cgm_matrix *matrix = &bench->cases[CGM_VARIANT_JOB].matrix[name];
    float value;
    cgm_format_load(matrix->dtype,
                    (char *)bench->whole[name] +
                        (row * matrix->cols + col) * cgm_dtype_bytes(matrix->dtype),
                    1, &value);
    return (double)value;
}

static double product(const struct cgm_bench *bench, uint64_t row, uint64_t col)
{
    const struct cgm_sizes *s = &bench->cases[CGM_VARIANT_JOB].sizes;
    double sum = 0;
    for (uint64_t i = 0; i < s->k; i++)
        sum +=
            (s->transa ? load(bench, CGM_MATRIX_LHS, i, row)
                       : load(bench, CGM_MATRIX_LHS, row, i)) *
            (s->transb ? load(bench, CGM_MATRIX_RHS, col, i) : load(bench, CGM_MATRIX_RHS, i, col));
    return sum;
}

static double reduction(const struct cgm_bench *bench, uint64_t row, uint64_t col)
{
    const struct cgm_matrix *lhs = &bench->cases[CGM_VARIANT_JOB].matrix[CGM_MATRIX_LHS];
    double sum = 0;
    for (uint64_t i = row; i < lhs->rows; i += bench->cases[CGM_VARIANT_JOB].sizes.m)
        sum += load(bench, CGM_MATRIX_LHS, i, col);
    return sum;
}

static float result(const struct cgm_bench *bench, uint64_t row, uint64_t col)
{
    const struct cgm_case *job = &bench->cases[CGM_VARIANT_JOB];
    double value =
        job->matrix[CGM_MATRIX_RHS].present ? product(bench, row, col) : reduction(bench, row, col);
    if (job->sizes.bias)
        value += load(bench, CGM_MATRIX_BIAS, 0, col);
    if (job->accumulate)
        value += load(bench, CGM_MATRIX_OUT, row, col);
    return (float)value;
}

static void compute(const struct cgm_bench *bench, uint32_t rank)
{
    const struct cgm_matrix *out = &bench->cases[CGM_VARIANT_JOB].matrix[CGM_MATRIX_OUT];
    char *shard = cgm_bench_shard(bench, CGM_MATRIX_OUT, rank);
    uint64_t row0, col0;
    cgm_matrix_origin(out, rank, &row0, &col0);
    for (uint64_t i = 0; i < out->shard_rows * out->shard_cols; i++) {
        float value = result(bench, row0 + i / out->shard_cols, col0 + i % out->shard_cols);
        cgm_format_store(out->dtype, &value, 1, shard + i * cgm_dtype_bytes(out->dtype));
    }
}

/* Spoils one shard; the element that it spoils is about as large as the others. */
static void spoil(const struct cgm_bench *bench, enum sabotage sabotage, uint32_t rank)
{
    const struct cgm_matrix *out = &bench->cases[CGM_VARIANT_JOB].matrix[CGM_MATRIX_OUT];
    char *shard = cgm_bench_shard(bench, CGM_MATRIX_OUT, rank);
    uint64_t size = cgm_dtype_bytes(out->dtype), bytes = cgm_matrix_shard_bytes(out);
    char first[8];
    float value;
    uint64_t at = 0;
    for (uint64_t i = 0; i < bytes / size; i++) {
        float largest;
        cgm_format_load(out->dtype, shard + at * size, 1, &largest);
        cgm_format_load(out->dtype, shard + i * size, 1, &value);
        at = fabsf(value) > fabsf(largest) ? i : at;
    }
    cgm_format_load(out->dtype, shard + at * size, 1, &value);
    switch (sabotage) {
    case SHIFTED:
        memcpy(first, shard, size);
        memmove(shard, shard + size, bytes - size);
        memcpy(shard + bytes - size, first, size);
        return;
    case UNWRITTEN:
        value = NAN;
        break;
    default:
        value = -value;
    }
    cgm_format_store(out->dtype, &value, 1, shard + at * size);
}

static void stand_in_obey(void *state, struct cgm_seat *seat, uint32_t verb, uint32_t argument)
{
    const struct stand_in *stand_in = state;
    const struct cgm_bench *bench = stand_in->bench;
    uint32_t world = (uint32_t)bench->options->world;
    (void)seat;
    if (verb != CGM_DO_RUN)
        return;
    for (uint32_t rank = 0; rank < world; rank++)
        compute(bench, rank);
    bool serial = argument == CGM_VARIANT_SERIAL;
    if (stand_in->sabotage == NOTHING || serial != (stand_in->sabotage == SERIAL_ONLY))
        return;
    spoil(bench, stand_in->sabotage, stand_in->sabotage == ONE_RANK ? world - 1 : 0);
}

static void share(struct cgm_bench *bench)
{
    const struct cgm_case *job = &bench->cases[CGM_VARIANT_JOB];
    bench->results = cgm_shared_alloc(sizeof(*bench->results));
    for (int i = 0; i < CGM_MATRIX_COUNT; i++) {
        if (!job->matrix[i].present)
            continue;
        if (i < CGM_MATRIX_OUT || job->accumulate)
            bench->whole[i] = cgm_shared_alloc(cgm_matrix_bytes(&job->matrix[i]));
        if (i >= CGM_MATRIX_OUT)
            bench->shards[i] =
                cgm_shared_alloc(bench->options->world * cgm_matrix_shard_bytes(&job->matrix[i]));
    }
    bench->results->wanted[CGM_VARIANT_JOB] = true;
    bench->results->wanted[CGM_VARIANT_SERIAL] = bench->cases[CGM_VARIANT_SERIAL].exists;
}

static struct cgm_validation judge(const char *line, enum sabotage sabotage)
{
    struct cgm_bench_options options;
    struct cgm_bench bench = {.options = &options, .workers = 1};
    struct stand_in stand_in = {&bench, sabotage};
    struct cgm_input_files files = {0};
    struct cgm_validation validation;
    struct cgm_crew crew;
    char detail[CGM_BENCH_DETAIL_BYTES];
    assert_int_equal(parse(line, detail, &options), CGM_OK);
    cgm_cases_derive(&options, bench.cases);
    share(&bench);
    assert_int_equal(cgm_crew_start(&crew, 1, "rank", CGM_DO_LEAVE, stand_in_obey, &stand_in),
                     CGM_OK);
    assert_int_equal(cgm_validate(&bench, &crew, &files, detail, &validation), CGM_OK);
    assert_int_equal(cgm_crew_order(&crew, CGM_DO_LEAVE, 0, NULL, 0), CGM_OK);
    cgm_crew_stop(&crew, true);
    return validation;
}

static const char *const jobs[] = {
    "--validate --op gemm --world 1 -m 9 -n 7 -k 11",
    "--validate --op ag_gemm --world 3 -m 9 -n 6 -k 11 --bias --transa",
    "--validate --op ag_gemm --world 2 -m 8 -n 6 -k 5 --datatype bf16 --accumulate",
    "--validate --op gemm_rs --world 2 -m 8 -n 5 -k 6 --datatype fp16 --bias --transb",
    "--validate --op gemm_ar --world 4 -m 3 -n 5 -k 8 --out-datatype bf16",
    "--validate --op gemm_as --world 3 -m 3 -n 6 -k 8 --datatype bf16",
    "--validate --op rs --world 4 -m 8 -n 5",
    "--validate --op ar --world 3 -m 3 -n 5 --datatype fp16",
    "--validate --op ag --world 2 -m 4 -n 5",
};
#define JOBS (sizeof(jobs) / sizeof(jobs[0]))

static void test_right_results(void **state)
{
    (void)state;
    for (size_t i = 0; i < JOBS; i++) {
        struct cgm_validation validation = judge(jobs[i], NOTHING);
        if (!validation.right)
            fail_msg("%s: ratio %g", jobs[i], validation.worst[CGM_COMPARE_JOB].ratio);
        assert_true(validation.done && validation.checked > 0);
    }
}

static void test_wrong_results(void **state)
{
    (void)state;
    for (size_t i = 0; i < JOBS; i++)
        for (int sabotage = SIGN; sabotage < SABOTAGES; sabotage++) {
            bool serial_runs = strstr(jobs[i], "gemm_") || strstr(jobs[i], "_gemm");
            if (sabotage == SERIAL_ONLY && !serial_runs)
                continue;
            struct cgm_validation validation = judge(jobs[i], (enum sabotage)sabotage);
            if (validation.right)
                fail_msg("%s: sabotage %d was not seen", jobs[i], sabotage);
            const struct cgm_finding *worst =
                &validation.worst[sabotage == SERIAL_ONLY ? CGM_COMPARE_SERIAL : CGM_COMPARE_JOB];
            assert_false(cgm_finding_is_right(worst));
            if (sabotage == UNWRITTEN && !strstr(jobs[i], "--op ag "))
                assert_true(worst->no_number > 0);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_right_results),
        cmocka_unit_test(test_wrong_results),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
