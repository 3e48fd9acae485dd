/* commgemm-bench without a daemon: command lines, shards, numbers, and whether its validator sees
 * what is wrong. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "client/bench/bar_chart.h"
#include "client/bench/bench.h"
#include "client/bench/compare.h"
#include "client/bench/inputs.h"
#include "client/bench/shapes.h"
#include "client/bench/stats.h"
#include "client/bench/timeline.h"
#include "client/bench/validate.h"
#include "kernels/number_format.h"
#include "kernels/random.h"
#include "proto/status.h"
#include "proto/types.h"

static struct cgm_random rng;

static uint64_t below(uint64_t limit)
{
    return cgm_random_below(&rng, limit);
}

/* ---- command lines ---- */

static int parse(const char *line, char *ret_detail, struct cgm_bench_options *ret_options)
{
    static char words[512];
    char *argv[64] = {(char *)"commgemm-bench"}, *rest = NULL;
    int argc = 1;
    snprintf(words, sizeof(words), "%s", line);
    for (char *word = strtok_r(words, " ", &rest); word; word = strtok_r(NULL, " ", &rest))
        argv[argc++] = word;
    ret_detail[0] = '\0';
    return cgm_bench_options_parse(argc, argv, ret_detail, ret_options);
}

static void test_refusals(void **state)
{
    (void)state;
    static const struct {
        const char *line, *words;
    } wrong[] = {
        {"--datatype fp8", "fp8"},
        {"--datatype int4", "int4"},
        {"--op transpose", "transpose"},
        {"--method fast", "fast"},
        {"--algorithm quick", "quick"},
        {"--algorithm all_reduce --op ag", "all_reduce"},
        {"--world 0", "world"},
        {"--world 65", "65"},
        {"-m 0", "m"},
        {"-k -3", "-3"},
        {"--rows 65 -m 64", "65"},
        {"--iters 0", "iters"},
        {"--rhs B.npy", "rhs"},
        {"--bias-file b.npy", "bias-file"},
        {"--save-out D.npy", "save-out"},
        {"--set spin_us=1", "set"},
        {"--socket s --private", "socket"},
        {"--op noop --debug", "noop"},
        {"--buffer-shape 3", "buffer-shape"},
        {"--buffer-shape 3x", "3x"},
        {"--buffer-shape 3x4x", "3x4x"},
        {"--private=tpu", "tpu"},
        {"--no-such-option", "no-such-option"},
        {"left over", "left"},
        {"--csv x.csv", "needs --compare or --shapes"},
        {"--plot x.svg", "needs --compare or --shapes"},
        {"--compare --csv -", "--csv -: must be the name of a file"},
        {"--timeline -", "--timeline -: must be the name of a file"},
        {"--compare --debug", "does not go with --compare"},
        {"--compare --timeline x.svg", "timeline"},
        {"--compare --op noop", "noop"},
        {"--shapes x --lhs A.npy", "does not go with --shapes"},
        {"--shapes x --op ag", "the file says it"},
        {"--shapes x -k 3", "the file says it"},
        {"--BLK_M 256", "the backend chooses the tiles"},
        {"--benchmark --mfmaInstrSize=16", "--mfmaInstrSize: no counterpart"},
        {"--gemm_sms 256", "--num-comm-sm"},
    };
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        struct cgm_bench_options options;
        char detail[CGM_BENCH_DETAIL_BYTES];
        assert_int_equal(parse(wrong[i].line, detail, &options), CGM_INVALID_ARGUMENT);
        if (!strstr(detail, wrong[i].words))
            fail_msg("%s: \"%s\" lacks \"%s\"", wrong[i].line, detail, wrong[i].words);
    }
}

static void test_defaults_and_spellings(void **state)
{
    (void)state;
    struct cgm_bench_options o;
    char detail[CGM_BENCH_DETAIL_BYTES];
    assert_int_equal(parse("", detail, &o), CGM_OK);
    assert_int_equal(o.m, 4864);
    assert_int_equal(o.n, 4096);
    assert_int_equal(o.k, 8256);
    assert_true(o.benchmark);
    assert_int_equal(parse("--validate --output_file x.json", detail, &o), CGM_OK);
    assert_false(o.benchmark);
    assert_string_equal(o.output_file, "x.json");
    assert_int_equal(parse("--algorithm one_shot", detail, &o), CGM_OK);
    assert_int_equal(o.op, CGM_OP_GEMM_AR);
    assert_int_equal(o.algorithm, CGM_ALGO_ONE_SHOT_AR);
    assert_true(o.note[0] != '\0');
    assert_int_equal(parse("--algorithm all_scatter", detail, &o), CGM_OK);
    assert_int_equal(o.op, CGM_OP_GEMM_AS);
    assert_int_equal(parse("--private --num-splits 4 --buffer-shape 8x16", detail, &o), CGM_OK);
    assert_int_equal(o.private_daemon, CGM_PRIVATE_AUTO);
    assert_int_equal(o.buffer_shape[1], 16);
}

/* ---- files of shapes ---- */

static int parse_shapes(const char *text, char *ret_detail, struct cgm_shapes *ret_shapes)
{
    FILE *file = fmemopen((void *)(uintptr_t)text, strlen(text), "r");
    assert_non_null(file);
    ret_detail[0] = '\0';
    int status = cgm_shapes_parse(file, "x.shapes", ret_detail, ret_shapes);
    fclose(file);
    return status;
}

static void test_shape_lines(void **state)
{
    (void)state;
    struct cgm_shapes shapes;
    struct cgm_bench_options defaults, o;
    char detail[CGM_BENCH_DETAIL_BYTES];
    assert_int_equal(parse_shapes("# only a comment\n\n ag_gemm\t8 16 24 TN name=a bf16 # b\n"
                                  "rs 4 4 0\ngemm 16777216 1 1 int8",
                                  detail, &shapes),
                     CGM_OK);
    assert_int_equal(shapes.count, 3);
    assert_string_equal(shapes.all[0].name, "a");
    assert_string_equal(shapes.all[1].name, "rs-4-4-0");
    assert_int_equal(parse("--datatype fp16 --transb --bias", detail, &defaults), CGM_OK);
    o = cgm_shape_options(&shapes.all[0], &defaults);
    assert_true(o.transa && !o.transb && o.bias && o.dtype == CGM_DTYPE_BF16);
    assert_true(o.op == CGM_OP_AG_GEMM && o.m == 8 && o.n == 16 && o.k == 24);
    o = cgm_shape_options(&shapes.all[1], &defaults);
    assert_true(!o.transa && o.transb && o.dtype == CGM_DTYPE_FP16 && o.k == 1);
    cgm_shapes_fini(&shapes);
}

static void test_bad_shape_lines(void **state)
{
    (void)state;
    static const struct {
        const char *line, *words;
    } wrong[] = {
        {"ag_gemm 8 8", "op m n k [type]"},
        {"ag_gem 8 8 8", "op 'ag_gem': it must be one of"},
        {"noop 8 8 8", "op 'noop': it must be one of gemm, "},
        {"copy_in 8 8 8", ", ar, a2av"},
        {"ag_gemm 8 8 8 fp32 NN bf16", "field 'bf16': it must be the only one of its kind"},
        {"ag_gemm 8 8 8 NT NT", "field 'NT': it must be the only one"},
        {"ag_gemm 8 8 8 name=a name=b", "field 'name=b': it must be the only one"},
        {"ag_gemm 0 8 8", "m '0': it must be 1 to 16777216"},
        {"ag_gemm 8 -8 8", "n '-8': it must be 1 to 16777216"},
        {"ag_gemm 8 8 0", "k '0': it must be 1 to 16777216"},
        {"ag 8 8 16777217", "k '16777217': it must be 0 to 16777216"},
        {"ag_gemm 8 8x 8", "n '8x'"},
        {"ag_gemm 8 8 99999999999999999999", "k '99999999999999999999'"},
        {"ag_gemm 8 8 8 fp8", "field 'fp8': it must be a type (fp32, "},
        {"ag_gemm 8 8 8 NX", "field 'NX'"},
        {"ag_gemm 8 8 8 name=", "field 'name='"},
        {"ag_gemm 8 8 8 fp32 NN name=a fp32 fp32 fp32", "field 'fp32': it must be the end"},
    };
    char text[700], where[64];
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        struct cgm_shapes shapes;
        char detail[CGM_BENCH_DETAIL_BYTES];
        snprintf(text, sizeof(text), "# a\nag 8 8 8\n%s\n", wrong[i].line);
        assert_int_equal(parse_shapes(text, detail, &shapes), CGM_INVALID_ARGUMENT);
        snprintf(where, sizeof(where), "x.shapes:3: ");
        if (!strstr(detail, wrong[i].words) || strncmp(detail, where, strlen(where)) != 0)
            fail_msg("%s: \"%s\" lacks \"%s\"", wrong[i].line, detail, wrong[i].words);
    }
    struct cgm_shapes shapes;
    char detail[CGM_BENCH_DETAIL_BYTES];
    memset(text, 'x', 600);
    text[600] = '\0';
    assert_int_equal(parse_shapes(text, detail, &shapes), CGM_INVALID_ARGUMENT);
    assert_non_null(strstr(detail, "x.shapes:1: line"));
    FILE *file = fmemopen((char[]){"ag 8 8 8\nag 8 8\0 8\n"}, 20, "r");
    assert_int_equal(cgm_shapes_parse(file, "x.shapes", detail, &shapes), CGM_INVALID_ARGUMENT);
    fclose(file);
    assert_non_null(strstr(detail, "x.shapes:2: line"));
    assert_int_equal(parse_shapes("# none\n", detail, &shapes), CGM_INVALID_ARGUMENT);
    assert_non_null(strstr(detail, "no shape"));
    assert_int_equal(cgm_shapes_read("/nonexistent/x", detail, &shapes), CGM_INVALID_ARGUMENT);
    assert_non_null(strstr(detail, "/nonexistent/x"));
}

static void test_shipped_shapes(void **state)
{
    (void)state;
    static const char *const files[] = {"peers", "frameworks"};
    for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
        struct cgm_shapes shapes;
        char detail[CGM_BENCH_DETAIL_BYTES], path[512];
        snprintf(path, sizeof(path), "%s/client/bench/shapes/%s.shapes", CGM_SOURCE_DIR, files[i]);
        if (cgm_shapes_read(path, detail, &shapes))
            fail_msg("%s", detail);
        assert_true(shapes.count > 10);
        cgm_shapes_fini(&shapes);
    }
}

/* ---- comparisons ---- */

static void test_sent_bytes(void **state)
{
    (void)state;
    static const struct {
        const char *line;
        uint64_t bytes;
    } jobs[] = {
        {"--op gemm -m 8 -n 16 -k 24", 0},
        {"--op ag_gemm -m 8 -n 16 -k 24 --datatype bf16", 8 * 24 * 2 * 3 / 4},
        {"--op gemm_rs -m 8 -n 16 -k 24 --datatype bf16 --out-datatype fp32", 8 * 16 * 4 * 3 / 4},
        {"--op gemm_ar -m 8 -n 16 -k 24", 2 * 8 * 16 * 4 * 3 / 4},
        {"--op gemm_as -m 8 -n 16 -k 24", 8 * 16 * 4 * 3 / 4},
        {"--op bulk_ag -m 8 -n 16 -k 24 --buffer-shape 4x5", 4 * 5 * 4 * 3 / 4},
        {"--op ag -m 8 -n 16 --world 2", 8 * 16 * 4 / 2},
        {"--op ar -m 8 -n 16 --world 1", 0},
    };
    for (size_t i = 0; i < sizeof(jobs) / sizeof(jobs[0]); i++) {
        struct cgm_bench_options o;
        static struct cgm_case cases[CGM_VARIANT_COUNT];
        char detail[CGM_BENCH_DETAIL_BYTES];
        assert_int_equal(parse(jobs[i].line, detail, &o), CGM_OK);
        cgm_cases_derive(&o, cases);
        assert_int_equal(cgm_case_sent_bytes(&cases[CGM_VARIANT_JOB]), jobs[i].bytes);
        for (int v = CGM_VARIANT_ALGORITHM; v < CGM_VARIANT_COUNT; v++)
            assert_false(cases[v].exists);
    }
}

/* Milliseconds as one client saw them, in a single iteration. */
static void set_time(struct cgm_bench *bench, enum cgm_variant variant, uint64_t ms)
{
    *cgm_bench_samples(bench, variant, 0) = (struct cgm_sample){1000, 1000 + ms * 1000000, ms};
    bench->results->wanted[variant] = true;
}

static enum cgm_variant variant_of(int algorithm)
{
    int v = CGM_VARIANT_ALGORITHM;
    while (cgm_variant_algorithm((enum cgm_variant)v) != algorithm)
        v++;
    return (enum cgm_variant)v;
}

static void test_comparison(void **state)
{
    (void)state;
    static struct cgm_bench bench;
    static struct cgm_bench_results results;
    static struct cgm_sample samples[CGM_VARIANT_COUNT];
    static struct cgm_bench_options o;
    struct cgm_report report;
    struct cgm_validation validation = {0};
    struct cgm_compare c;
    const struct cgm_link link = {576 / 5.0, "test"}; /* 8 x 24 x 4 x 3 / 4 bytes take 5 ms */
    char detail[CGM_BENCH_DETAIL_BYTES];
    enum cgm_variant fused = variant_of(CGM_ALGO_FUSED_AG),
                     ring = variant_of(CGM_ALGO_SPLIT_PIPELINED_AG_P2P);
    assert_int_equal(parse("--op ag_gemm -m 8 -n 16 -k 24 --compare --iters 1", detail, &o),
                     CGM_OK);
    cgm_cases_derive(&o, bench.cases);
    assert_true(bench.cases[fused].exists && bench.cases[fused].algorithm == CGM_ALGO_FUSED_AG);
    assert_false(bench.cases[variant_of(CGM_ALGO_NO_OVERLAP)].exists);
    bench.options = &o, bench.workers = 1, bench.results = &results, bench.samples = samples;
    results.iterations = 1;
    set_time(&bench, CGM_VARIANT_JOB, 10);
    set_time(&bench, CGM_VARIANT_SERIAL, 16);
    set_time(&bench, CGM_VARIANT_GEMM, 4);
    set_time(&bench, ring, 8);
    results.refusals[fused].teller = 1;
    strcpy(results.refusals[fused].why, "no \"room\"");
    cgm_report_make(&bench, &validation, &report);
    cgm_compare_make(&report, &link, &c);
    assert_int_equal(c.count, 5);
    assert_true(fabs(c.floor_ms - 5) < 1e-9);
    assert_true(fabs(cgm_compare_find(&c, CGM_VARIANT_JOB)->fraction - 0.5) < 1e-9);
    assert_true(fabs(cgm_compare_find(&c, ring)->speedup - 2) < 1e-9);
    assert_true(cgm_compare_best(&c) == cgm_compare_find(&c, ring));
    assert_true(isnan(cgm_compare_find(&c, CGM_VARIANT_GEMM)->fraction));
    assert_string_equal(cgm_compare_find(&c, fused)->refusal, "no \"room\"");
    assert_true(isnan(cgm_compare_find(&c, fused)->fraction));
    set_time(&bench, CGM_VARIANT_GEMM, 7); /* now the product is the longer one */
    cgm_report_make(&bench, &validation, &report);
    cgm_compare_make(&report, &link, &c);
    assert_true(fabs(c.floor_ms - 7) < 1e-9);
    const struct cgm_link unknown = {0};
    cgm_compare_make(&report, &unknown, &c);
    assert_true(isnan(c.floor_ms));
}

static void test_bar_chart(void **state)
{
    (void)state;
    char text[16384] = "";
    const struct cgm_bar_series series[] = {{"auto", "#111111"}, {"a<b", "#222222"}};
    const struct cgm_bar_group groups[] = {{"one", "8 8 8"}, {"two & three", "9 9 9"}};
    const double values[] = {0.5, NAN, 1.25, 0.75};
    const struct cgm_bar_chart chart = {"Title", "sub", "floor / time", "shape", series, 2,
                                        groups,  2,     values};
    FILE *out = fmemopen(text, sizeof(text) - 1, "w");
    cgm_bar_chart_draw(&chart, out);
    fclose(out);
    assert_non_null(strstr(text, "<title>auto, one: 0.500</title>"));
    assert_non_null(strstr(text, "<title>a&lt;b, two &amp; three: 0.750</title>"));
    assert_null(strstr(text, "a&lt;b, one"));
    assert_non_null(strstr(text, "<rect x=\"588.0\"")); /* two shapes fill the width */
    assert_null(strstr(text, "nan"));
    assert_non_null(strstr(text, ">1.3<")); /* the axis reaches what is above 1 */
    assert_non_null(strstr(text, "floor / time"));
    assert_non_null(strstr(text, "</svg>"));
}

/* ---- shards ---- */

static const int shaped_ops[] = {CGM_OP_GEMM,    CGM_OP_AG_GEMM, CGM_OP_GEMM_RS, CGM_OP_GEMM_AR,
                                 CGM_OP_GEMM_AS, CGM_OP_BULK_AG, CGM_OP_BULK_RS, CGM_OP_AG,
                                 CGM_OP_RS,      CGM_OP_AR,      CGM_OP_A2AV};
#define SHAPED_OPS (sizeof(shaped_ops) / sizeof(shaped_ops[0]))

static void check_round_trip(const struct cgm_matrix *matrix, uint32_t world)
{
    uint64_t bytes = cgm_matrix_bytes(matrix), shard = cgm_matrix_shard_bytes(matrix);
    uint8_t *whole = malloc(bytes), *again = calloc(1, bytes), *part = malloc(shard);
    for (uint64_t i = 0; i < bytes; i++)
        whole[i] = (uint8_t)cgm_random_next(&rng);
    for (uint32_t rank = 0; rank < world; rank++) {
        cgm_matrix_take(matrix, whole, rank, part);
        cgm_matrix_put(matrix, part, rank, again);
    }
    assert_memory_equal(whole, again, bytes);
    if (matrix->split != CGM_SPLIT_NONE)
        assert_int_equal(shard * world, bytes);
    free(whole);
    free(again);
    free(part);
}

static void test_shards(void **state)
{
    (void)state;
    for (unsigned trial = 0; trial < 200; trial++) {
        uint32_t world = (uint32_t)(1 + below(5));
        struct cgm_sizes sizes = {.op = shaped_ops[below(SHAPED_OPS)],
                                  .m = world * (1 + below(6)),
                                  .n = world * (1 + below(6)),
                                  .k = world * (1 + below(6)),
                                  .world = world,
                                  .dtype = (int)below(3),
                                  .out_dtype = (int)below(3),
                                  .transa = below(2),
                                  .transb = below(2),
                                  .bias = below(2),
                                  .aux = below(2),
                                  .buffer_rows = world * (1 + below(6)),
                                  .buffer_cols = 1 + below(6),
                                  .buffer_dtype = (int)below(3)};
        struct cgm_matrix matrix[CGM_MATRIX_COUNT];
        assert_true(cgm_shards_describe(&sizes, matrix));
        assert_true(matrix[CGM_MATRIX_LHS].present && matrix[CGM_MATRIX_OUT].present);
        for (int i = 0; i < CGM_MATRIX_COUNT; i++)
            if (matrix[i].present)
                check_round_trip(&matrix[i], world);
    }
}

/* Every rank sends and receives as much, every row comes from one place, and the place is where the
 * counts say. */
static void test_exchange(void **state)
{
    (void)state;
    for (unsigned trial = 0; trial < 50; trial++) {
        uint32_t w = (uint32_t)(1 + below(8)), counts[64];
        uint64_t rows = 1 + below(40);
        struct cgm_sizes sizes = {.op = CGM_OP_A2AV, .m = w * rows, .world = w};
        cgm_shards_count(&sizes, counts);
        for (uint32_t rank = 0; rank < w; rank++) {
            uint64_t sent = 0, received = 0;
            for (uint32_t from = 0; from < w; from++) {
                uint64_t before = 0;
                for (uint32_t to = 0; to < rank; to++)
                    before += counts[from * w + to];
                for (uint64_t i = 0; i < counts[from * w + rank]; i++)
                    assert_int_equal(cgm_shards_source_row(&sizes, rank, received + i),
                                     from * rows + before + i);
                received += counts[from * w + rank];
                sent += counts[rank * w + from];
            }
            assert_int_equal(sent, rows);
            assert_int_equal(received, rows);
        }
    }
}

/* ---- statistics ---- */

static void test_statistics(void **state)
{
    (void)state;
    double odd[] = {3, 1, 2}, even[] = {4, 1, 3, 2}, many[200];
    for (int i = 0; i < 200; i++)
        many[i] = 200 - i;
    assert_true(cgm_stats_of(odd, 3).median == 2);
    assert_true(cgm_stats_of(even, 4).median == 2.5);
    struct cgm_stats stats = cgm_stats_of(many, 200);
    assert_true(stats.min == 1 && stats.max == 200 && stats.p99 == 198 && stats.count == 200);
    assert_int_equal(cgm_stats_of(NULL, 0).count, 0);
    const struct cgm_sample samples[] = {{100, 500, 0}, {0, 0, 0}, {150, 450, 0}, {9, 9, 9}};
    assert_int_equal(cgm_bench_job_ns(samples, 2, 2), 350);
}

/* ---- the validator, on results that a stand-in computes ---- */

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

/* ---- a worker that fails ---- */

static void failing_obey(void *state, struct cgm_seat *seat, uint32_t verb, uint32_t argument)
{
    (void)state;
    if (verb == 1 && seat->worker == argument)
        cgm_seat_fail(seat, CGM_QUOTA, "rank %u has had enough", seat->worker);
    if (verb == 2 && seat->worker == argument)
        abort();
    cgm_barrier_wait(&seat->board->step);
}

static void test_failing_workers(void **state)
{
    (void)state;
    for (uint32_t verb = 1; verb <= 2; verb++) {
        struct cgm_crew crew;
        uint32_t who = (uint32_t)below(3);
        char name[16];
        assert_int_equal(cgm_crew_start(&crew, 3, "rank", 9, failing_obey, NULL), CGM_OK);
        assert_int_equal(cgm_crew_order(&crew, 0, 0, NULL, 0), CGM_OK);
        assert_int_equal(cgm_crew_order(&crew, verb, who, NULL, 0),
                         verb == 1 ? CGM_QUOTA : CGM_PEER_LOST);
        snprintf(name, sizeof(name), "rank %u", who);
        assert_non_null(strstr(crew.failure.text, name));
        cgm_crew_stop(&crew, false);
    }
}

/* ---- the picture ---- */

static void test_picture(void **state)
{
    (void)state;
    struct cgm_bench_options options = {.world = 2, .op = CGM_OP_AG_GEMM};
    struct cgm_bench_results results = {.backend = "cpu", .plans = {{3, "because a < b & c"}}};
    struct cgm_trace traces[2] = {{.count = 2}, {.count = 2}};
    struct cgm_bench bench = {.options = &options, .results = &results, .traces = traces};
    char path[] = "/tmp/test_bench_picture.XXXXXX", detail[CGM_BENCH_DETAIL_BYTES], text[8192];
    const struct commgemm_phase gemm = {1000, 5000, CGM_PHASE_GEMM, 0, 0, 0, 0, 0};
    const struct commgemm_phase copy = {2000, 3000, CGM_PHASE_COPY, 1, 1, 1, 0, 0};
    for (int i = 0; i < 2; i++)
        traces[i].phases[0] = gemm, traces[i].phases[1] = copy;
    struct cgm_timeline timeline;
    assert_int_equal(cgm_timeline_make(&bench, &timeline), 0);
    assert_int_equal(timeline.count, 2); /* each phase once */
    assert_int_equal(timeline.end_ns, 5000);
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(cgm_timeline_draw(&timeline, &bench, path, detail), CGM_OK);
    ssize_t got = read(fd, text, sizeof(text) - 1);
    assert_true(got > 0);
    text[got] = '\0';
    assert_non_null(strstr(text, "<svg "));
    assert_non_null(strstr(text, "a &lt; b &amp; c"));
    assert_non_null(strstr(text, "device 0 compute"));
    assert_non_null(strstr(text, "device 1 communication"));
    assert_non_null(strstr(text, "</svg>"));
    close(fd);
    unlink(path);
    assert_int_equal(cgm_timeline_draw(&timeline, &bench, "/nonexistent/x.svg", detail), CGM_IO);
    assert_non_null(strstr(detail, "/nonexistent/x.svg"));
    cgm_timeline_fini(&timeline);
}

int main(void)
{
    uint64_t seed = cgm_random_seed();
    printf("seed %llu\n", (unsigned long long)seed);
    cgm_random_init(&rng, seed);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_refusals),       cmocka_unit_test(test_defaults_and_spellings),
        cmocka_unit_test(test_shape_lines),    cmocka_unit_test(test_bad_shape_lines),
        cmocka_unit_test(test_shipped_shapes), cmocka_unit_test(test_sent_bytes),
        cmocka_unit_test(test_comparison),     cmocka_unit_test(test_bar_chart),
        cmocka_unit_test(test_shards),         cmocka_unit_test(test_exchange),
        cmocka_unit_test(test_statistics),     cmocka_unit_test(test_right_results),
        cmocka_unit_test(test_wrong_results),  cmocka_unit_test(test_failing_workers),
        cmocka_unit_test(test_picture),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
