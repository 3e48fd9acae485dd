/* Lines and files of what was measured: what is written is read again, and nothing else. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "proto/status.h"
#include "proto/timing.h"
#include "proto/types.h"

#define LINE                                                                                       \
    "at=1795132800 times=fused_ag:487123,no_overlap:751000,fused_ag/num_splits=2:0 "               \
    "release=0.1.0 platform=\"cpu: A Processor (R) @ 2 GHz\" ranks=0,1,1,3 op=ag_gemm "            \
    "comm_type=ag m=8192 n=14336 k=8192 dtype=bf16 out_dtype=fp32 transb=1 gemm_priority=-3"

static void assert_refused(const char *line, const char *why)
{
    struct cgm_timing timing;
    char detail[128] = "";
    if (cgm_timing_read(line, detail, sizeof(detail), &timing) != CGM_INVALID_ARGUMENT ||
        !strstr(detail, why))
        fail_msg("\"%s\": \"%s\" is not in \"%s\"", line, why, detail);
}

static void test_line(void **state)
{
    (void)state;
    struct cgm_timing timing;
    char detail[128], line[CGM_TIMING_LINE_BYTES];
    const char *key;
    if (cgm_timing_read(LINE, detail, sizeof(detail), &timing) != CGM_OK)
        fail_msg("%s", detail);
    assert_int_equal(timing.times.at_s, 1795132800);
    assert_int_equal(timing.times.n, 3);
    assert_int_equal(timing.times.algorithm[0], CGM_ALGO_FUSED_AG);
    assert_int_equal(timing.times.ns[0], 487123);
    assert_int_equal(timing.times.ns[2], 0);
    assert_int_equal(timing.times.variant[1], 0);
    assert_int_equal(timing.times.variant[2], cgm_variant_of(CGM_PARAMETER_NUM_SPLITS, 2));
    assert_int_equal(timing.world, 4);
    assert_int_equal(timing.devices[3], 3);
    assert_int_equal(timing.fields[CGM_TIMING_n], 14336);
    assert_int_equal(timing.fields[CGM_TIMING_gemm_priority], -3);
    cgm_timing_write(&timing, line, &key);
    assert_string_equal(line, LINE);
    assert_string_equal(key, strstr(LINE, "release="));
}

/* One part of the good line replaced by another. */
static void assert_change_refused(const char *part, const char *by, const char *why)
{
    char line[CGM_TIMING_LINE_BYTES * 2];
    const char *at = strstr(LINE, part);
    assert_non_null(at);
    snprintf(line, sizeof(line), "%.*s%s%s", (int)(at - LINE), LINE, by, at + strlen(part));
    assert_refused(line, why);
}

static void test_bad_lines(void **state)
{
    static const struct {
        const char *part, *by, *why;
    } rows[] = {
        {"at=1795132800", "at=0", "at is"},
        {"at=1795132800", "at=01795132800", "not written so"},
        {"at=1795132800", "at=99999999999999999999", "at is"},
        {"at=1795132800 ", "", "at is"},
        {"fused_ag", "fastest", "times is"},
        {"fused_ag", "auto", "times is"},
        {"fused_ag", "no_overlap", "times is"},
        {":487123", ":0", "times is"},
        {":487123", ":-1", "times is"},
        {":487123", "", "times is"},
        {":487123", ":1000000000000001", "times is"},
        {"fused_ag/num_splits=2", "fused_ag", "times is"},
        {"fused_ag/num_splits=2", "fused_ag/", "times is"},
        {"fused_ag/num_splits=2", "fused_ag/num_splits", "times is"},
        {"fused_ag/num_splits=2", "fused_ag/num_splits=", "times is"},
        {"fused_ag/num_splits=2", "fused_ag/num_splits=-2", "times is"},
        {"fused_ag/num_splits=2", "fused_ag/num_splits=65536", "times is"},
        {"fused_ag/num_splits=2", "fused_ag/num_splits=02", "not written so"},
        {"fused_ag/num_splits=2", "fused_ag/colour=2", "times is"},
        {"fused_ag/num_splits=2", "fused_ag/num_splits=2/use_ce=0", "times is"},
        {"fused_ag:487123,no_overlap:751000,fused_ag/num_splits=2:0", "fused_ag:5", "times is"},
        {":0 ", ":0, ", "not written so"},
        {"release=0.1.0", "release=", "release"},
        {"0.1.0", "0.1;0", "release"},
        {"platform=\"", "platform=", "platform is"},
        {"GHz\"", "GHz", "ranks is"},
        {"GHz", "\x01", "platform"},
        {"ranks=0,1,1,3", "ranks=0", "ranks is"},
        {"ranks=0,1,1,3", "ranks=0,1,1,65536", "ranks is"},
        {"ranks=0,1,1,3", "ranks=0,1,,3", "ranks is"},
        {"op=ag_gemm", "op=matmul", "op is"},
        {"op=ag_gemm ", "", "op is"},
        {"m=8192", "m=8192.5", "m is"},
        {"m=8192", "m=1099511627777", "m is"},
        {"m=8192", "m=0x10", "m is"},
        {"m=8192 n=14336", "n=14336 m=8192", "m is"},
        {"transb=1", "transb=2", "transb is"},
        {"transb=1", "transb=1 transb=1", "not known"},
        {"transb=1", "colour=1", "not known"},
        {"gemm_priority=-3", "gemm_priority=-3 ", "not written so"},
        {"gemm_priority=-3", "gemm_priority=-2147483649", "gemm_priority is"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        assert_change_refused(rows[i].part, rows[i].by, rows[i].why);
    assert_refused("", "at is");
}

static void test_longest_line(void **state)
{
    (void)state;
    struct cgm_timing timing = {.world = CGM_COMM_SIZE_MAX}, again;
    char line[CGM_TIMING_LINE_BYTES], detail[128];
    memset(timing.release, 'r', sizeof(timing.release) - 1);
    memset(timing.platform, 'p', sizeof(timing.platform) - 1);
    timing.times.at_s = 253402300799;
    for (uint32_t i = 0; timing.times.n < CGM_TIMES_MAX; i++)
        if (cgm_type_name(CGM_TABLE_ALGO, (int)i)) {
            timing.times.algorithm[timing.times.n] = i;
            timing.times.variant[timing.times.n] =
                cgm_variant_of(CGM_PARAMETER_RS_OVERLAP_FIRST_GEMM, CGM_VARIANT_VALUE_MAX);
            timing.times.ns[timing.times.n++] = 1000000000000000;
        }
    for (uint32_t rank = 0; rank < timing.world; rank++)
        timing.devices[rank] = 65535;
    timing.has = (1u << CGM_TIMING_FIELD_COUNT) - 1;
    for (size_t i = 0; i < CGM_TIMING_FIELD_COUNT; i++)
        timing.fields[i] = 1;
    timing.fields[CGM_TIMING_m] = timing.fields[CGM_TIMING_n] = timing.fields[CGM_TIMING_k] =
        timing.fields[CGM_TIMING_buffer_rows] = timing.fields[CGM_TIMING_buffer_cols] = 1ll << 40;
    cgm_timing_write(&timing, line, NULL);
    if (cgm_timing_read(line, detail, sizeof(detail), &again) != CGM_OK)
        fail_msg("%s: %s", detail, line);
    assert_memory_equal(&timing, &again, sizeof(timing));
}

static void test_plan(void **state)
{
    static const uint32_t devices[] = {0, 0};
    (void)state;
    Cgm__PlanCreate plan = CGM__PLAN_CREATE__INIT;
    struct cgm_timing timing, again;
    char line[CGM_TIMING_LINE_BYTES], detail[128];
    uint32_t count = 0;
    plan.op = CGM_OP_GEMM_RS;
    plan.comm_type = CGM_COMM_TYPE_RS;
    plan.m = plan.n = plan.k = 64;
    assert_true(cgm_timing_of_plan(&plan, "1 0", "a \"b\"\n", devices, 2, &timing));
    timing.times = (struct cgm_times){.n = 2, .algorithm = {0, 4}, .ns = {1, 2}, .at_s = 3};
    cgm_timing_write(&timing, line, NULL);
    assert_string_equal(line, "at=3 times=no_overlap:1,split_pipelined_rs:2 release=1-0 "
                              "platform=\"a -b--\" ranks=0,0 op=gemm_rs comm_type=rs m=64 n=64 "
                              "k=64 dtype=fp32");
    assert_int_equal(cgm_timing_read(line, detail, sizeof(detail), &again), CGM_OK);
    assert_false(cgm_timing_of_plan(&plan, "1", "", devices, 2, &timing));
    plan.dtype = 77;
    assert_false(cgm_timing_of_plan(&plan, "1", "a", devices, 2, &timing));
    plan.dtype = 0;
    plan.n_counts = 1;
    plan.counts = &count;
    assert_false(cgm_timing_of_plan(&plan, "1", "a", devices, 2, &timing));
}

/* ---- files ------------------------------------------------------------------------------------
 */

static void count_line(void *context, const char *line, const struct cgm_timing *timing)
{
    assert_int_equal(timing->world, 4);
    assert_int_equal(strlen(line), strlen(LINE));
    ++*(int *)context;
}

static int read_text(const char *text, size_t size, char *ret_detail, size_t detail_bytes)
{
    int lines = 0;
    FILE *file = fmemopen((char *)(uintptr_t)text, size, "r");
    assert_non_null(file);
    int status = cgm_timings_read(file, count_line, &lines, ret_detail, detail_bytes);
    fclose(file);
    return status == CGM_OK ? lines : status;
}

static char *write_file(int lines, size_t *ret_size)
{
    char *text;
    struct cgm_timings_out out;
    FILE *file = open_memstream(&text, ret_size);
    assert_non_null(file);
    cgm_timings_begin(&out, file);
    for (int i = 0; i < lines; i++)
        cgm_timings_line(&out, LINE);
    cgm_timings_end(&out);
    fclose(file);
    return text;
}

static void test_files(void **state)
{
    (void)state;
    char detail[128];
    size_t size;
    for (int lines = 0; lines < 3; lines++) {
        char *text = write_file(lines, &size);
        assert_int_equal(read_text(text, size, detail, sizeof(detail)), lines);
        for (size_t cut = 1; cut < size; cut++) /* wherever it was cut off */
            assert_int_equal(read_text(text, size - cut, detail, sizeof(detail)),
                             CGM_INVALID_ARGUMENT);
        free(text);
    }
}

static void test_changed_files(void **state)
{
    (void)state;
    char detail[128];
    size_t size;
    char *text = write_file(2, &size);
    for (size_t i = 0; i < size; i++) {
        char was = text[i];
        text[i] ^= 1;
        if (read_text(text, size, detail, sizeof(detail)) != CGM_INVALID_ARGUMENT)
            fail_msg("byte %zu of \"%s\"", i, text);
        assert_memory_equal(detail, "line ", 5);
        text[i] = was;
    }
    text[strlen("commgemm-timings ")] = '1';
    assert_int_equal(read_text(text, size, detail, sizeof(detail)), CGM_INVALID_ARGUMENT);
    assert_string_equal(detail, "line 1: the file is of another release: this one reads version 2");
    free(text);
    text = write_file(CGM_TIMINGS_MAX + 1, &size);
    assert_int_equal(read_text(text, size, detail, sizeof(detail)), CGM_INVALID_ARGUMENT);
    assert_non_null(strstr(detail, "too many"));
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_line),         cmocka_unit_test(test_bad_lines),
        cmocka_unit_test(test_longest_line), cmocka_unit_test(test_plan),
        cmocka_unit_test(test_files),        cmocka_unit_test(test_changed_files),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
