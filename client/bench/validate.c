#include "client/bench/validate.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/bench/expected.h"
#include "client/bench/stats.h"
#include "kernels/number_format.h"
#include "proto/status.h"
#include "proto/types.h"

/* One set of inputs. */
struct input_set {
    const char *name;
    enum cgm_fill fill;
};

static const struct input_set random_sets[] = {
    {"N(0,1)", CGM_FILL_NORMAL},
    {"wide range", CGM_FILL_WIDE},
};
#define RANDOM_SETS (sizeof(random_sets) / sizeof(random_sets[0]))

/* What the checking thread works on; it may outlive a run that is broken off. */
struct checking {
    struct cgm_bench *bench;
    struct cgm_reference reference;
    struct cgm_reference moved; /* bulk_rs: of the buffer that it scatters */
    const struct input_set *set;
    uint64_t seed;
    char *job_out; /* the job's results, kept for the comparison with no_overlap's */
    struct cgm_finding findings[CGM_COMPARE_COUNT];
    enum cgm_comparison comparison;
    uint64_t checked;
    int status;
};

bool cgm_finding_is_right(const struct cgm_finding *finding)
{
    return finding->ratio <= 1 && finding->no_number == 0;
}

void cgm_finding_text(const struct cgm_finding *finding, char *ret_text, size_t size)
{
    int used =
        snprintf(ret_text, size, "rank %u's %s[%llu, %llu] is %.9g, expected %.9g", finding->rank,
                 cgm_matrix_text(finding->matrix), (unsigned long long)finding->row,
                 (unsigned long long)finding->col, finding->found, finding->expected);
    if (finding->no_number && used > 0 && (size_t)used < size)
        snprintf(ret_text + used, size - (size_t)used, "; %llu elements are no numbers",
                 (unsigned long long)finding->no_number);
}

const char *cgm_comparison_text(enum cgm_comparison comparison, char *ret_text, size_t size)
{
    static const char *const names[CGM_COMPARE_ALGORITHM] = {
        "job and float64 reference", "no_overlap and float64 reference", "job and no_overlap"};
    int variant = CGM_VARIANT_ALGORITHM + (int)comparison - CGM_COMPARE_ALGORITHM;
    if (comparison < CGM_COMPARE_ALGORITHM)
        snprintf(ret_text, size, "%s", names[comparison]);
    else
        snprintf(ret_text, size, "%s and float64 reference",
                 cgm_variant_name((enum cgm_variant)variant));
    return ret_text;
}

static void keep_worst(struct cgm_finding *worst, const struct cgm_finding *finding)
{
    uint64_t no_number = worst->no_number + finding->no_number;
    if (!worst->made || finding->ratio > worst->ratio)
        *worst = *finding;
    worst->no_number = no_number;
}

/* ---- against the reference ---- */

static void check_part(struct checking *checking, uint32_t rank, enum cgm_matrix_name name,
                       const struct cgm_reference_found *found,
                       const struct cgm_reference *reference)
{
    struct cgm_verdict verdict = {0};
    cgm_reference_check(reference, found, &verdict);
    struct cgm_finding finding = {true,        verdict.ratio, verdict.no_number,
                                  rank,        name,          verdict.row,
                                  verdict.col, verdict.found, verdict.expected};
    keep_worst(&checking->findings[checking->comparison], &finding);
    checking->checked += verdict.checked;
}

static struct cgm_reference_found part_of(const struct cgm_bench *bench, uint32_t rank,
                                          enum cgm_matrix_name name)
{
    const struct cgm_matrix *matrix = &bench->cases[CGM_VARIANT_JOB].matrix[name];
    return (struct cgm_reference_found){.data = cgm_bench_shard(bench, name, rank),
                                        .format = matrix->dtype,
                                        .rows = matrix->shard_rows,
                                        .cols = matrix->shard_cols,
                                        .stride = matrix->shard_cols};
}

static void check_result(struct checking *checking, uint32_t rank, enum cgm_matrix_name name,
                         const struct cgm_reference *reference)
{
    const struct cgm_bench *bench = checking->bench;
    struct cgm_reference_found found = part_of(bench, rank, name);
    cgm_matrix_origin(&bench->cases[CGM_VARIANT_JOB].matrix[name], rank, &found.row, &found.col);
    check_part(checking, rank, name, &found, reference);
}

/* What GELU was applied to. */
static void check_pre_gelu(struct checking *checking, uint32_t rank)
{
    struct cgm_reference linear = checking->reference;
    linear.activation = CGM_REFERENCE_LINEAR;
    check_result(checking, rank, CGM_MATRIX_PRE_GELU, &linear);
}

static void check_gradient(struct checking *checking, uint32_t rank)
{
    const struct cgm_bench *bench = checking->bench;
    struct cgm_reference_found found = part_of(bench, rank, CGM_MATRIX_BIAS_GRAD);
    struct cgm_reference sums;
    if (cgm_expected_make_gradient(bench, &checking->reference, rank, &sums)) {
        checking->status = CGM_NO_MEMORY;
        return;
    }
    if (sums.cols == 1) { /* a column is there as a row */
        found.rows = found.cols;
        found.cols = found.stride = 1;
    }
    check_part(checking, rank, CGM_MATRIX_BIAS_GRAD, &found, &sums);
    cgm_reference_fini(&sums);
}

/* The first element of a row that is another one. */
static void find_difference(const char *found, const char *expected,
                            const struct cgm_matrix *matrix, uint64_t row,
                            struct cgm_finding *finding)
{
    uint64_t size = cgm_dtype_bytes(matrix->dtype), col = 0;
    while (!memcmp(found + col * size, expected + col * size, size))
        col++;
    finding->ratio = INFINITY;
    finding->row = row;
    finding->col = col;
    finding->found = cgm_format_element(matrix->dtype, found, col);
    finding->expected = cgm_format_element(matrix->dtype, expected, col);
}

/* Data that was only moved must be the same, bit by bit. */
static void check_copy(struct checking *checking, uint32_t rank, enum cgm_matrix_name name,
                       enum cgm_matrix_name source)
{
    const struct cgm_bench *bench = checking->bench;
    const struct cgm_case *job = &bench->cases[CGM_VARIANT_JOB];
    const struct cgm_matrix *matrix = &job->matrix[name];
    const char *found = cgm_bench_shard(bench, name, rank), *whole = bench->whole[source];
    uint64_t row_bytes = matrix->shard_cols * cgm_dtype_bytes(matrix->dtype);
    struct cgm_finding finding = {.made = true, .rank = rank, .matrix = name};
    for (uint64_t row = 0; row < matrix->shard_rows && finding.ratio == 0; row++) {
        const char *expected = whole + cgm_shards_source_row(&job->sizes, rank, row) * row_bytes;
        if (row == 0) { /* the example of what is right */
            finding.found = cgm_format_element(matrix->dtype, found, 0);
            finding.expected = cgm_format_element(matrix->dtype, expected, 0);
        }
        if (memcmp(found + row * row_bytes, expected, row_bytes) != 0)
            find_difference(found + row * row_bytes, expected, matrix, row, &finding);
    }
    keep_worst(&checking->findings[checking->comparison], &finding);
    checking->checked += matrix->shard_rows * matrix->shard_cols;
}

static void check_aux(struct checking *checking, uint32_t rank)
{
    const struct cgm_case *job = &checking->bench->cases[CGM_VARIANT_JOB];
    if (job->sizes.op == CGM_OP_BULK_RS)
        check_result(checking, rank, CGM_MATRIX_AUX, &checking->moved);
    else
        check_copy(checking, rank, CGM_MATRIX_AUX,
                   job->matrix[CGM_MATRIX_AUX_IN].present ? CGM_MATRIX_AUX_IN : CGM_MATRIX_LHS);
}

/* Without a product and without a sum. */
static bool only_moves(int op)
{
    return op == CGM_OP_AG || op == CGM_OP_A2AV;
}

static void check_reference(void *context)
{
    struct checking *checking = context;
    const struct cgm_bench *bench = checking->bench;
    const struct cgm_case *job = &bench->cases[CGM_VARIANT_JOB];
    for (uint32_t rank = 0; rank < bench->options->world; rank++) {
        if (only_moves(job->sizes.op))
            check_copy(checking, rank, CGM_MATRIX_OUT, CGM_MATRIX_LHS);
        else
            check_result(checking, rank, CGM_MATRIX_OUT, &checking->reference);
        if (job->matrix[CGM_MATRIX_AUX].present)
            check_aux(checking, rank);
        if (job->matrix[CGM_MATRIX_PRE_GELU].present)
            check_pre_gelu(checking, rank);
        if (job->matrix[CGM_MATRIX_BIAS_GRAD].present)
            check_gradient(checking, rank);
    }
}

/* ---- job against no_overlap ---- */

/* Both are roundings of nearly the same number: the bound, and the rounding of the other one. */
static double difference_ratio(const struct cgm_reference *reference, uint64_t row, uint64_t col,
                               double job, double serial, int dtype)
{
    if (job == serial)
        return 0;
    if (!isfinite(job) || !isfinite(serial))
        return INFINITY;
    double bound = cgm_reference_bound(reference, row, col, dtype) +
                   cgm_format_info(dtype)->unit * fabs(serial);
    return fabs(job - serial) / bound;
}

static void compare_shard(struct checking *checking, uint32_t rank)
{
    const struct cgm_bench *bench = checking->bench;
    const struct cgm_matrix *out = &bench->cases[CGM_VARIANT_JOB].matrix[CGM_MATRIX_OUT];
    const char *serial = cgm_bench_shard(bench, CGM_MATRIX_OUT, rank);
    const char *job = checking->job_out + rank * cgm_matrix_shard_bytes(out);
    struct cgm_finding finding = {
        .made = true, .rank = rank, .matrix = CGM_MATRIX_OUT, .ratio = -1};
    uint64_t row0, col0, count = out->shard_rows * out->shard_cols;
    cgm_matrix_origin(out, rank, &row0, &col0);
    for (uint64_t at = 0; at < count; at++) {
        uint64_t row = row0 + at / out->shard_cols, col = col0 + at % out->shard_cols;
        double a = cgm_format_element(out->dtype, job, at),
               b = cgm_format_element(out->dtype, serial, at);
        double ratio = difference_ratio(&checking->reference, row, col, a, b, out->dtype);
        finding.no_number += isnan(a) || isnan(b);
        if (ratio > finding.ratio) {
            finding.ratio = ratio;
            finding.row = row, finding.col = col;
            finding.found = a, finding.expected = b;
        }
    }
    keep_worst(&checking->findings[CGM_COMPARE_BOTH], &finding);
}

static void compare_runs(void *context)
{
    struct checking *checking = context;
    for (uint32_t rank = 0; rank < checking->bench->options->world; rank++)
        compare_shard(checking, rank);
}

/* ---- one set ---- */

static void make_inputs(void *context)
{
    struct checking *checking = context;
    cgm_inputs_fill(checking->bench, checking->set->fill, checking->seed);
}

static void fini_references(struct checking *checking)
{
    cgm_reference_fini(&checking->reference);
    cgm_reference_fini(&checking->moved);
}

static void make_reference(void *context)
{
    struct checking *checking = context;
    bool moved = checking->bench->cases[CGM_VARIANT_JOB].sizes.op == CGM_OP_BULK_RS;
    checking->status = cgm_expected_make(checking->bench, &checking->reference);
    if (checking->status == CGM_OK && moved)
        checking->status = cgm_expected_make_moved(checking->bench, &checking->moved);
}

static uint64_t out_bytes(const struct cgm_bench *bench)
{
    return bench->options->world *
           cgm_matrix_shard_bytes(&bench->cases[CGM_VARIANT_JOB].matrix[CGM_MATRIX_OUT]);
}

static int run(struct cgm_crew *crew, const struct cgm_bench *bench, enum cgm_variant variant,
               struct cgm_validation *validation)
{
    int status = cgm_crew_order(crew, CGM_DO_RUN, variant, NULL, 0);
    if (!status)
        validation->times_ns[variant] = cgm_bench_job_ns(bench->results->last, bench->workers, 1);
    return status;
}

/* Runs a variant and compares its results with the reference. */
static int check_variant(struct cgm_crew *crew, struct checking *checking, enum cgm_variant variant,
                         const char *label, struct cgm_validation *validation)
{
    int status = run(crew, checking->bench, variant, validation);
    checking->comparison = cgm_comparison_of(variant);
    cgm_expected_allow(checking->bench, variant, &checking->reference);
    cgm_expected_allow_moved(checking->bench, variant, &checking->moved);
    return status ? status : cgm_crew_compute(crew, label, check_reference, checking);
}

static int check_serial(struct cgm_crew *crew, struct checking *checking,
                        struct cgm_validation *validation)
{
    const struct cgm_bench *bench = checking->bench;
    memcpy(checking->job_out, bench->shards[CGM_MATRIX_OUT], out_bytes(bench));
    int status =
        check_variant(crew, checking, CGM_VARIANT_SERIAL, "checking no_overlap", validation);
    if (!status)
        status = cgm_crew_compute(crew, "comparing with no_overlap", compare_runs, checking);
    return status;
}

static int check_algorithms(struct cgm_crew *crew, struct checking *checking,
                            struct cgm_validation *validation)
{
    int status = CGM_OK;
    for (int v = CGM_VARIANT_ALGORITHM; !status && v < CGM_VARIANT_COUNT; v++)
        if (checking->bench->results->wanted[v])
            status = check_variant(crew, checking, (enum cgm_variant)v, "checking algorithms",
                                   validation);
    return status;
}

static int check_set(struct cgm_crew *crew, struct checking *checking,
                     struct cgm_validation *validation, char *ret_detail)
{
    int status = cgm_crew_order(crew, CGM_DO_LOAD, 0, NULL, 0);
    if (!status)
        status = cgm_crew_compute(crew, "float64 reference", make_reference, checking);
    if (status)
        return status;
    if (checking->status) {
        snprintf(ret_detail, CGM_BENCH_DETAIL_BYTES, "no memory for the float64 reference");
        return checking->status;
    }
    status = check_variant(crew, checking, CGM_VARIANT_JOB, "checking", validation);
    if (!status && checking->bench->results->wanted[CGM_VARIANT_SERIAL])
        status = check_serial(crew, checking, validation);
    if (!status)
        status = check_algorithms(crew, checking, validation);
    if (!status && checking->status) {
        snprintf(ret_detail, CGM_BENCH_DETAIL_BYTES, "no memory for the bias gradient's reference");
        status = checking->status;
    }
    if (!crew->abandoned)
        fini_references(checking);
    return status;
}

static void merge(const struct checking *checking, struct cgm_validation *validation)
{
    for (int i = 0; i < CGM_COMPARE_COUNT; i++) {
        const struct cgm_finding *finding = &checking->findings[i];
        if (!finding->made)
            continue;
        if (!validation->worst[i].made || finding->ratio > validation->worst[i].ratio)
            validation->set[i] = checking->set ? checking->set->name : "files";
        validation->right = validation->right && cgm_finding_is_right(finding);
        keep_worst(&validation->worst[i], finding);
    }
    validation->checked += checking->checked;
}

static int validate_random(struct cgm_crew *crew, struct checking *checking, unsigned number,
                           struct cgm_validation *validation, char *ret_detail)
{
    checking->set = &random_sets[number];
    checking->seed = checking->bench->options->seed + number;
    int status = cgm_crew_compute(crew, "random inputs", make_inputs, checking);
    return status ? status : check_set(crew, checking, validation, ret_detail);
}

int cgm_validate(struct cgm_bench *bench, struct cgm_crew *crew,
                 const struct cgm_input_files *files, char *ret_detail,
                 struct cgm_validation *ret_validation)
{
    struct checking *checking = calloc(1, sizeof(*checking));
    struct cgm_validation *validation = ret_validation;
    bool from_files = files->open[CGM_MATRIX_LHS];
    int status = CGM_OK;
    memset(validation, 0, sizeof(*validation));
    validation->right = true;
    char *job_out = checking ? malloc(out_bytes(bench) + 1) : NULL;
    if (!job_out) {
        free(checking);
        snprintf(ret_detail, CGM_BENCH_DETAIL_BYTES, "no memory for the results");
        return CGM_NO_MEMORY;
    }
    for (unsigned i = 0; !status && i < (from_files ? 1 : RANDOM_SETS); i++) {
        memset(checking, 0, sizeof(*checking));
        checking->bench = bench;
        checking->job_out = job_out;
        status = from_files ? check_set(crew, checking, validation, ret_detail)
                            : validate_random(crew, checking, i, validation, ret_detail);
        if (!status)
            merge(checking, validation);
    }
    if (crew->abandoned) /* its thread still uses them */
        return status;   /* NOLINT(clang-analyzer-unix.Malloc) */
    validation->done = status == CGM_OK;
    fini_references(checking);
    free(job_out);
    free(checking);
    return status;
}
