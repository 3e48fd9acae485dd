/* GELU, its derivative and sums on a device, against the float64 reference, and their times. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "kernels/number_format.h"
#include "kernels/reference.h"
#include "tests/gpu/gpu_fixture.h"

static float *numbers(uint64_t count, int dtype)
{
    float *values = malloc(count * sizeof(float));
    cgm_random_fill(&rng, CGM_FILL_NORMAL, values, count);
    cgm_format_round(dtype, values, count);
    return values;
}

/* Returns where the next matrix may begin. */
static uint64_t put(struct memory *memory, uint64_t at, const float *values, uint64_t rows,
                    uint64_t cols, uint64_t stride, int dtype)
{
    size_t bytes = cgm_dtype_bytes(dtype);
    for (uint64_t i = 0; i < rows; i++)
        cgm_format_store(dtype, values + i * cols, cols,
                         memory->view.base + at + i * stride * bytes);
    return (at + rows * stride * bytes + 255) / 256 * 256;
}

/* Two matrices of one shape and a row, in one memory. */
struct sheet {
    struct memory memory;
    struct cgm_view out, input, row;
    float *out_values, *input_values;
};

static void sheet_open(struct sheet *sheet, uint64_t rows, uint64_t cols, uint64_t pad, int dtype)
{
    uint64_t stride = cols + pad, begin = pad * cgm_dtype_bytes(dtype), bytes = 8 * MIB;
    sheet->out_values = numbers(rows * cols, dtype);
    sheet->input_values = numbers(rows * cols, dtype);
    memory_open(&sheet->memory, 0, bytes);
    uint64_t at = put(&sheet->memory, begin, sheet->out_values, rows, cols, stride, dtype) + begin;
    uint64_t end = put(&sheet->memory, at, sheet->input_values, rows, cols, stride, dtype) + begin;
    uint64_t longest = rows > cols ? rows : cols;
    assert_true(end + longest * 4 <= bytes);
    sheet->out = view_of(sheet->memory.mem, begin, rows, cols, stride, dtype);
    sheet->input = view_of(sheet->memory.mem, at, rows, cols, stride, dtype);
    sheet->row = view_of(sheet->memory.mem, end, 1, longest, longest, dtype);
    host_view_push(&sheet->memory.view, 0, bytes);
}

static void sheet_close(struct sheet *sheet)
{
    memory_close(&sheet->memory);
    free(sheet->out_values);
    free(sheet->input_values);
}

static double verdict_of(const struct sheet *sheet, const struct cgm_view *view,
                         const struct cgm_reference *reference)
{
    struct cgm_verdict verdict = {0};
    struct cgm_reference_found found = {.data = sheet->memory.view.base + view->offset_bytes,
                                        .format = view->dtype,
                                        .rows = view->rows,
                                        .cols = view->cols,
                                        .stride = view->stride};
    cgm_reference_check(reference, &found, &verdict);
    assert_int_equal(verdict.no_number, 0);
    return verdict.ratio;
}

static double try_gelu(struct sheet *sheet, struct lane *lane, bool backward, bool keep)
{
    uint64_t rows = sheet->out.rows, cols = sheet->out.cols;
    struct cgm_reference reference;
    struct cgm_activation activation = {.label = label,
                                        .kind =
                                            backward ? CGM_ACTIVATION_DGELU : CGM_ACTIVATION_GELU,
                                        .out = sheet->out};
    if (backward || keep)
        activation.input = sheet->input;
    assert_int_equal(ops->activate(lane->queue, &activation), CGM_OK);
    lane_finish(lane);
    host_view_pull(&sheet->memory.view, 0, sheet->memory.view.bytes);
    assert_int_equal(cgm_reference_init(&reference, rows, cols, false), 0);
    cgm_reference_add_matrix(&reference, keep ? sheet->out_values : sheet->input_values, cols);
    if (!backward)
        assert_true(verdict_of(sheet, &sheet->input, &reference) == 0);
    cgm_reference_fini(&reference);
    assert_int_equal(cgm_reference_init(&reference, rows, cols, false), 0);
    cgm_reference_add_matrix(&reference, sheet->out_values, cols);
    if (backward)
        assert_int_equal(cgm_reference_dgelu(&reference, sheet->input_values, cols), 0);
    else
        cgm_reference_gelu(&reference);
    double ratio = verdict_of(sheet, &sheet->out, &reference);
    cgm_reference_fini(&reference);
    return ratio;
}

static double try_sum(struct sheet *sheet, struct lane *lane, bool across)
{
    uint64_t rows = sheet->input.rows, cols = sheet->input.cols;
    uint64_t count = across ? rows : cols, bytes = count * cgm_dtype_bytes(sheet->row.dtype);
    struct cgm_sum sum = {.label = label, .dst = sheet->row, .src = sheet->input, .across = across};
    struct cgm_reference reference;
    float *line = malloc(count * sizeof(float));
    unsigned char *first = malloc(bytes);
    const unsigned char *found = sheet->memory.view.base + sheet->row.offset_bytes;
    sum.dst.cols = count;
    assert_int_equal(cgm_reference_init(&reference, 1, count, false), 0);
    for (uint64_t step = 0; step < (across ? cols : rows); step++) {
        for (uint64_t i = 0; i < count; i++)
            line[i] = sheet->input_values[across ? i * cols + step : step * cols + i];
        cgm_reference_add_bias(&reference, line);
    }
    for (int run = 0; run < 2; run++) {
        assert_int_equal(ops->sum(lane->queue, &sum), CGM_OK);
        lane_finish(lane);
        host_view_pull(&sheet->memory.view, 0, sheet->memory.view.bytes);
        if (run == 0)
            memcpy(first, found, bytes);
        assert_memory_equal(first, found, bytes);
    }
    double ratio = verdict_of(sheet, &sum.dst, &reference);
    cgm_reference_fini(&reference);
    free(first);
    free(line);
    return ratio;
}

static void test_epilogues_are_right(void **state)
{
    (void)state;
    static const uint64_t sizes[][2] = {{1, 1},     {3, 5},     {257, 640},
                                        {1000, 33}, {31, 4104}, {2048, 256}};
    double worst[3] = {0};
    struct lane lane;
    lane_open(&lane, 0);
    for (unsigned trial = 0; trial < 6 * 3 * 2 * 5; trial++) {
        const uint64_t *size = sizes[trial % 6];
        int dtype = (int)(trial / 6 % 3), part = (int)(trial / 36);
        struct sheet sheet;
        sheet_open(&sheet, size[0], size[1], trial / 18 % 2 ? 1 + cgm_random_below(&rng, 8) : 0,
                   dtype);
        double ratio = part < 3 ? try_gelu(&sheet, &lane, part == 2, part == 1)
                                : try_sum(&sheet, &lane, part == 4);
        if (ratio > 1)
            fail_msg("%llu x %llu, dtype %d, part %d: ratio %g", (unsigned long long)size[0],
                     (unsigned long long)size[1], dtype, part, ratio);
        worst[dtype] = ratio > worst[dtype] ? ratio : worst[dtype];
        sheet_close(&sheet);
    }
    lane_close(&lane);
    print_message("worst ratio: fp32 %.3f, fp16 %.3f, bf16 %.3f\n", worst[0], worst[1], worst[2]);
}

/* Against the bytes that they read and write. */
static void test_times_of_epilogues(void **state)
{
    (void)state;
    struct cgm_phase phases[8];
    struct memory memory;
    struct lane lane;
    memory_open(&memory, 0, 512 * MIB);
    lane_open(&lane, 0);
    struct cgm_view out = view_of(memory.mem, 0, 8192, 14336, 14336, CGM_DTYPE_BF16);
    struct cgm_activation activation = {.label = label, .out = out, .input = out};
    struct cgm_sum sum = {.label = label,
                          .dst = view_of(memory.mem, 480 * MIB, 1, 14336, 14336, CGM_DTYPE_BF16),
                          .src = out};
    activation.input.offset_bytes = 240 * MIB;
    lane.run = (struct cgm_run){.phases = phases, .phases_max = 8, .begin_ns = now_ns()};
    for (int i = 0; i < 2; i++) {
        activation.kind = i ? CGM_ACTIVATION_DGELU : CGM_ACTIVATION_GELU;
        assert_int_equal(ops->activate(lane.queue, &activation), CGM_OK);
    }
    assert_int_equal(ops->sum(lane.queue, &sum), CGM_OK);
    sum.across = true;
    sum.dst.cols = sum.dst.stride = 8192;
    assert_int_equal(ops->sum(lane.queue, &sum), CGM_OK);
    lane_finish(&lane);
    ops->finish_phases(backend, &lane.run);
    assert_int_equal(atomic_load(&lane.run.n_phases), 4);
    static const char *const names[] = {"gelu, kept", "dgelu", "sum of rows", "sum of columns"};
    for (int i = 0; i < 4; i++) {
        double us = (double)(phases[i].end_ns - phases[i].begin_ns) / 1e3;
        print_message("%s of 8192 x 14336 bf16: %.0f us, %.0f GB/s\n", names[i], us,
                      (i < 2 ? 3 : 1) * 224.0 * MIB / us / 1e3);
    }
    lane_close(&lane);
    memory_close(&memory);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_epilogues_are_right),
        cmocka_unit_test(test_times_of_epilogues),
    };
    take_filter(argc, argv);
    return cmocka_run_group_tests(tests, open_backend, close_backend);
}
