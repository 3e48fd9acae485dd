/* commgemm-bench without a daemon: comparisons, shards, statistics, workers, pictures. */
#include <fcntl.h>
#include <math.h>
#include <unistd.h>

#include "client/bench/bar_chart.h"
#include "client/bench/compare.h"
#include "client/bench/inputs.h"
#include "client/bench/machine.h"
#include "client/bench/stats.h"
#include "client/bench/timeline.h"
#include "tests/seed.h"
#include "tests/unit/bench_fixture.h"

static struct cgm_random rng;

static uint64_t below(uint64_t limit)
{
    return cgm_random_below(&rng, limit);
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
    const struct cgm_bar_chart chart = {"Title",        "sub",
                                        "floor / time", "shape",
                                        series,         2,
                                        groups,         2,
                                        values,         {"on <this>", "bench --x"}};
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
    assert_non_null(strstr(text, ">on &lt;this&gt;<"));
    assert_non_null(strstr(text, ">bench --x<"));
    assert_non_null(strstr(text, "</svg>"));
}

static void test_where_it_was_made(void **state)
{
    (void)state;
    char *argv[] = {(char *)"/some/where/commgemm-bench", (char *)"--op=gemm", (char *)"--csv",
                    (char *)"a b.csv", (char *)""};
    char text[512];
    cgm_machine_command(5, argv, text, sizeof(text));
    assert_string_equal(text, "commgemm-bench --op=gemm --csv 'a b.csv' ''");
    cgm_machine_command(5, argv, text, 20);
    assert_string_equal(text, "commgemm-bench --op");
    cgm_machine_caption("2 x GPU", text, sizeof(text));
    assert_non_null(strstr(text, ", 2 x GPU; "));
    assert_non_null(strstr(text, " processors"));
    json_t *object = json_object();
    assert_int_equal(cgm_machine_add_json("", "bench \xff", object), 0);
    const json_t *machine = json_object_get(object, "machine");
    assert_true(json_integer_value(json_object_get(machine, "processors")) > 0);
    assert_true(json_string_length(json_object_get(machine, "cpu")) > 0);
    assert_true(json_is_null(json_object_get(machine, "gpus")));
    assert_string_equal(json_string_value(json_object_get(object, "command")), "bench ?");
    assert_int_equal(json_string_length(json_object_get(object, "date")), 10);
    json_decref(object);
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
    struct cgm_bench_results results = {.backend = "cpu", .plans = {{3, "because a < b & c\xff"}}};
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
    close(fd); /* of the file that was there before */
    fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t got = read(fd, text, sizeof(text) - 1);
    assert_true(got > 0);
    text[got] = '\0';
    assert_non_null(strstr(text, "<svg "));
    assert_non_null(strstr(text, "a &lt; b &amp; c?"));
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
    test_seed(&rng);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sent_bytes), cmocka_unit_test(test_comparison),
        cmocka_unit_test(test_bar_chart),  cmocka_unit_test(test_where_it_was_made),
        cmocka_unit_test(test_shards),     cmocka_unit_test(test_exchange),
        cmocka_unit_test(test_statistics), cmocka_unit_test(test_failing_workers),
        cmocka_unit_test(test_picture),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
