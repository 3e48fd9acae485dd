/* commgemm-bench: its command line and its files of shapes. */
#include "client/bench/shapes.h"
#include "tests/unit/bench_fixture.h"

static void test_refusals(void **state)
{
    (void)state;
    static const struct {
        const char *line, *words;
    } wrong[] = {
        {"--datatype fp8", "fp8"},
        {"--datatype int4", "int4"},
        {"--op transpose", "transpose"},
        {"--op copy_in", "one of noop, gemm, ag_gemm, gemm_rs, gemm_ar, gemm_as, bulk_ag, bulk_rs, "
                         "ag, rs, ar, a2av"},
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_refusals),       cmocka_unit_test(test_defaults_and_spellings),
        cmocka_unit_test(test_shape_lines),    cmocka_unit_test(test_bad_shape_lines),
        cmocka_unit_test(test_shipped_shapes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
