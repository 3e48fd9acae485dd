/* Products of int8 and sums of int32 on a device, by cuBLASLt and by the kernel for what that does
 * not take: exact to the last bit. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "kernels/number_format.h"
#include "kernels/reference.h"
#include "tests/gpu/gpu_fixture.h"

struct product {
    uint64_t m, n, k;
    bool transa, transb, extreme;
    uint64_t pad; /* elements between rows, and before the first */
};

static float *numbers(uint64_t count, bool extreme)
{
    float *values = malloc(count * sizeof(float));
    for (uint64_t i = 0; i < count; i++)
        values[i] = extreme ? -128 : (float)cgm_random_below(&rng, 256) - 128;
    return values;
}

/* Returns where the next matrix may begin. */
static uint64_t put(struct memory *memory, uint64_t at, const float *values, uint64_t rows,
                    uint64_t cols, uint64_t stride)
{
    for (uint64_t i = 0; i < rows; i++)
        cgm_format_store(CGM_FORMAT_INT8, values + i * cols, cols,
                         memory->view.base + at + i * stride);
    return (at + rows * stride + 255) / 256 * 256;
}

static void judge(const struct product *p, const struct memory *memory, uint64_t out_at,
                  const float *a, const float *b)
{
    struct cgm_reference reference;
    struct cgm_verdict verdict = {0};
    struct cgm_reference_product factors = {.a = a,
                                            .b = b,
                                            .a_stride = p->transa ? p->m : p->k,
                                            .b_stride = p->transb ? p->k : p->n,
                                            .depth = p->k,
                                            .transa = p->transa,
                                            .transb = p->transb,
                                            .threads = 8};
    struct cgm_reference_found found = {.data = memory->view.base + out_at,
                                        .format = CGM_FORMAT_INT32,
                                        .rows = p->m,
                                        .cols = p->n,
                                        .stride = p->n + p->pad};
    assert_int_equal(cgm_reference_init(&reference, p->m, p->n, false), 0);
    assert_int_equal(cgm_reference_add_product(&reference, &factors), 0);
    cgm_reference_check(&reference, &found, &verdict);
    cgm_reference_fini(&reference);
    if (!cgm_verdict_is_right(&verdict))
        fail_msg("%llu x %llu x %llu %c%c pad %llu: (%llu, %llu) is %.0f, expected %.0f",
                 (unsigned long long)p->m, (unsigned long long)p->n, (unsigned long long)p->k,
                 p->transa ? 'T' : 'N', p->transb ? 'T' : 'N', (unsigned long long)p->pad,
                 (unsigned long long)verdict.row, (unsigned long long)verdict.col, verdict.found,
                 verdict.expected);
}

static void try_product(const struct product *p)
{
    const uint64_t bytes = 32 * MIB;
    struct memory memory;
    struct lane lane;
    float *a = numbers(p->m * p->k, p->extreme), *b = numbers(p->k * p->n, p->extreme);
    uint64_t a_rows = p->transa ? p->k : p->m, a_cols = p->transa ? p->m : p->k;
    uint64_t b_rows = p->transb ? p->n : p->k, b_cols = p->transb ? p->k : p->n;
    memory_open(&memory, 0, bytes);
    lane_open(&lane, 0);
    uint64_t b_at = put(&memory, p->pad, a, a_rows, a_cols, a_cols + p->pad) + p->pad;
    uint64_t out_at = put(&memory, b_at, b, b_rows, b_cols, b_cols + p->pad) + 4 * p->pad;
    assert_true(out_at + p->m * (p->n + p->pad) * 4 <= bytes);
    host_view_push(&memory.view, 0, bytes);
    struct cgm_gemm gemm = {
        .label = label,
        .a = view_of(memory.mem, p->pad, a_rows, a_cols, a_cols + p->pad, CGM_DTYPE_INT8),
        .b = view_of(memory.mem, b_at, b_rows, b_cols, b_cols + p->pad, CGM_DTYPE_INT8),
        .out = view_of(memory.mem, out_at, p->m, p->n, p->n + p->pad, CGM_DTYPE_INT32),
        .transa = p->transa,
        .transb = p->transb,
    };
    assert_int_equal(ops->poison(lane.queue, &gemm.out), CGM_OK);
    assert_int_equal(ops->prepare_gemm(lane.queue, &gemm, CGM_PREPARE_TRIALS), CGM_OK);
    uint64_t allocations = ops->allocations(backend);
    assert_int_equal(ops->gemm(lane.queue, &gemm), CGM_OK);
    assert_int_equal(ops->allocations(backend), allocations);
    lane_finish(&lane);
    host_view_pull(&memory.view, 0, bytes);
    judge(p, &memory, out_at, a, b);
    gemm.accumulate = true;
    assert_int_equal(ops->gemm(lane.queue, &gemm), CGM_INVALID_ARGUMENT);
    lane_close(&lane);
    memory_close(&memory);
    free(a);
    free(b);
}

static void test_products_are_exact(void **state)
{
    (void)state;
    static const uint64_t sizes[][3] = {{1, 1, 1},        {384, 512, 1024}, {256, 256, 16384},
                                        {257, 129, 1001}, {4, 8, 12},       {1, 640, 4096},
                                        {65, 63, 131071}};
    for (unsigned trial = 0; trial < 7 * 16; trial++) {
        const uint64_t *size = sizes[trial / 16];
        struct product p = {.m = size[0],
                            .n = size[1],
                            .k = size[2],
                            .transa = trial & 1,
                            .transb = trial & 2,
                            .extreme = trial & 4,
                            .pad = trial & 8 ? 1 + cgm_random_below(&rng, 16) : 0};
        try_product(&p);
    }
}

/* Of each layout, in the shape of a large layer. */
static void test_times(void **state)
{
    (void)state;
    struct cgm_mem *mem;
    struct lane lane;
    assert_int_equal(ops->mem_alloc(backend, 0, 512 * MIB, 0, &mem), CGM_OK);
    lane_open(&lane, 0);
    for (int layout = 0; layout < 4; layout++) {
        struct cgm_gemm gemm = {
            .label = label,
            .a = view_of(mem, 0, 4096, 4096, 4096, CGM_DTYPE_INT8),
            .b = view_of(mem, 64 * MIB, 4096, 4096, 4096, CGM_DTYPE_INT8),
            .out = view_of(mem, 128 * MIB, 4096, 4096, 4096, CGM_DTYPE_INT32),
            .transa = layout & 1,
            .transb = layout & 2,
        };
        assert_int_equal(ops->prepare_gemm(lane.queue, &gemm, CGM_PREPARE_TRIALS), CGM_OK);
        assert_int_equal(ops->gemm(lane.queue, &gemm), CGM_OK);
        lane_finish(&lane);
        uint64_t begin_ns = now_ns();
        for (int i = 0; i < 20; i++)
            assert_int_equal(ops->gemm(lane.queue, &gemm), CGM_OK);
        lane_finish(&lane);
        double ns = (double)(now_ns() - begin_ns) / 20;
        print_message("4096 x 4096 x 4096 %c%c: %.0f us, %.1f Tops/s\n", layout & 1 ? 'T' : 'N',
                      layout & 2 ? 'T' : 'N', ns / 1e3, 2 * 4096.0 * 4096 * 4096 / ns / 1e3);
    }
    lane_close(&lane);
    ops->mem_free(mem);
}

/* Modulo 2^32; and what poison leaves. */
static void test_sums_are_exact(void **state)
{
    (void)state;
    enum { ROWS = 33, COLS = 130, STRIDE = 140, SOURCES = 5 };
    static struct cgm_reduce reduce;
    struct memory memory;
    struct lane lane;
    memory_open(&memory, 0, MIB);
    lane_open(&lane, 0);
    uint32_t *words = (uint32_t *)(void *)memory.view.base;
    for (uint64_t i = 0; i < MIB / 4; i++)
        words[i] = (uint32_t)cgm_random_next(&rng);
    host_view_push(&memory.view, 0, MIB);
    uint32_t *before = malloc(MIB);
    memcpy(before, words, MIB);
    for (int accumulate = 0; accumulate < 2; accumulate++) {
        uint64_t step = ROWS * STRIDE;
        reduce = (struct cgm_reduce){.label = label, .n_src = SOURCES, .accumulate = accumulate};
        reduce.dst = view_of(memory.mem, (SOURCES + (unsigned)accumulate) * step * 4, ROWS, COLS,
                             STRIDE, CGM_DTYPE_INT32);
        for (uint32_t i = 0; i < SOURCES; i++)
            reduce.src[i] = view_of(memory.mem, i * step * 4, ROWS, COLS, STRIDE, CGM_DTYPE_INT32);
        assert_int_equal(ops->reduce(lane.queue, &reduce), CGM_OK);
        lane_finish(&lane);
        host_view_pull(&memory.view, 0, MIB);
        for (uint64_t at = 0; at < step; at++) {
            uint64_t out = (SOURCES + (unsigned)accumulate) * step + at;
            uint32_t sum = accumulate ? before[out] : 0;
            for (uint64_t i = 0; i < SOURCES; i++)
                sum += before[i * step + at];
            assert_int_equal(words[out], at % STRIDE < COLS ? sum : before[out]);
        }
    }
    struct cgm_view bytes = view_of(memory.mem, 3, 1, 5, 5, CGM_DTYPE_INT8);
    assert_int_equal(ops->poison(lane.queue, &reduce.dst), CGM_OK);
    assert_int_equal(ops->poison(lane.queue, &bytes), CGM_OK);
    lane_finish(&lane);
    host_view_pull(&memory.view, 0, MIB);
    assert_int_equal(words[reduce.dst.offset_bytes / 4], 0x80000000u);
    for (int i = 3; i < 8; i++)
        assert_int_equal(memory.view.base[i], 0x80);
    free(before);
    lane_close(&lane);
    memory_close(&memory);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_products_are_exact),
        cmocka_unit_test(test_times),
        cmocka_unit_test(test_sums_are_exact),
    };
    return cmocka_run_group_tests(tests, open_backend, close_backend);
}
