/* The CUDA backend by itself: memory, products of real size, a run that fails half-way,
 * times, and that nothing allocates once it is warm. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>

#include "daemon/executor/cuda/cuda.h"
#include "kernels/number_format.h"
#include "kernels/reference.h"
#include "tests/gpu/gpu_fixture.h"

/* ---- devices and memory -----------------------------------------------------------------------
 */

static void test_devices_are_named(void **state)
{
    (void)state;
    uint32_t count = ops->device_count(backend);
    assert_true(count >= 1);
    for (uint32_t i = 0; i < count; i++) {
        struct cgm_device_info info;
        assert_int_equal(ops->device_info(backend, i, &info), CGM_OK);
        print_message("%u: %s %s, %.1f of %.1f GiB free\n", i, info.uuid, info.name,
                      (double)info.bytes_free / (1 << 30), (double)info.bytes_total / (1 << 30));
        assert_int_equal(strlen(info.uuid), 40);
        assert_true(info.bytes_free > 0 && info.bytes_free <= info.bytes_total);
    }
    struct cgm_device_info info;
    assert_int_equal(ops->device_info(backend, count, &info), CGM_INVALID_ARGUMENT);
}

static void test_memory_is_zeroed_and_outlives_its_maker(void **state)
{
    (void)state;
    struct memory first;
    struct cgm_mem *adopted;
    int fd;
    memory_open(&first, 0, 5 * MIB);
    assert_int_equal(ops->mem_bytes(first.mem), 6 * MIB);
    for (size_t i = 0; i < 5 * MIB; i++)
        assert_int_equal(first.view.base[i], 0);
    memset(first.view.base, 0x5a, 5 * MIB);
    host_view_push(&first.view, 0, 5 * MIB);
    assert_int_equal(ops->mem_export(first.mem, &fd), CGM_OK);
    memory_close(&first);
    assert_int_equal(ops->mem_adopt(backend, 0, fd, 5 * MIB, &adopted), CGM_OK);
    struct host_view view;
    assert_int_equal(host_view_open(&view, fd, 5 * MIB), 0);
    close(fd);
    for (size_t i = 0; i < 5 * MIB; i++)
        assert_int_equal(view.base[i], 0x5a);
    host_view_close(&view);
    ops->mem_free(adopted);
    assert_int_equal(ops->mem_alloc(backend, 99, MIB, 0, &adopted), CGM_INVALID_ARGUMENT);
    assert_int_equal(ops->mem_alloc(backend, 0, 0, 0, &adopted), CGM_INVALID_ARGUMENT);
    assert_int_equal(ops->mem_alloc(backend, 0, 1ull << 44, 0, &adopted), CGM_NO_MEMORY);
}

static void test_ipc_memory_has_a_handle(void **state)
{
    (void)state;
    struct cgm_mem *mem;
    uint8_t handle[64];
    int fd;
    assert_int_equal(ops->mem_alloc(backend, 0, MIB, CGM_MEMORY_IPC, &mem), CGM_OK);
    assert_int_equal(ops->mem_export(mem, &fd), CGM_NOT_SUPPORTED);
    assert_int_equal(ops->mem_ipc_handle(mem, handle), CGM_OK);
    ops->mem_free(mem);
}

/* ---- products ---------------------------------------------------------------------------------
 */

struct product {
    uint64_t m, n, k;
    int dtype, out_dtype;
    bool transa, transb, bias, accumulate;
    uint64_t pad; /* elements between rows, and before the first */
};

static uint64_t put(struct memory *memory, uint64_t at, const float *values, uint64_t rows,
                    uint64_t cols, uint64_t stride, int dtype)
{
    size_t bytes = cgm_dtype_bytes(dtype);
    for (uint64_t i = 0; i < rows; i++)
        cgm_format_store(dtype, values + i * cols, cols,
                         memory->view.base + at + i * stride * bytes);
    return (at + rows * stride * bytes + 255) / 256 * 256;
}

static float *numbers(uint64_t count, int dtype)
{
    float *values = malloc(count * sizeof(float));
    cgm_random_fill(&rng, CGM_FILL_NORMAL, values, count);
    cgm_format_round(dtype, values, count);
    return values;
}

static double judge(const struct product *p, const struct memory *memory, uint64_t out_at,
                    const float *a, const float *b, const float *bias, const float *before)
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
    /* Rounded once more before each addend. */
    assert_int_equal(cgm_reference_init(&reference, p->m, p->n, p->bias || p->accumulate), 0);
    assert_int_equal(cgm_reference_add_product(&reference, &factors), 0);
    if (p->accumulate)
        cgm_reference_add_matrix(&reference, before, p->n);
    if (p->bias)
        cgm_reference_add_bias(&reference, bias);
    if (p->bias && p->accumulate)
        cgm_reference_round_before_both(&reference, before, p->n, bias);
    struct cgm_reference_found found = {.data = memory->view.base + out_at,
                                        .format = p->out_dtype,
                                        .rows = p->m,
                                        .cols = p->n,
                                        .stride = p->n + p->pad};
    cgm_reference_check(&reference, &found, &verdict);
    cgm_reference_fini(&reference);
    assert_int_equal(verdict.no_number, 0);
    return verdict.ratio;
}

static double try_product(const struct product *p)
{
    struct memory memory;
    struct lane lane;
    float *a = numbers(p->m * p->k, p->dtype), *b = numbers(p->k * p->n, p->dtype);
    float *bias = numbers(p->n, p->out_dtype), *before = numbers(p->m * p->n, p->out_dtype);
    uint64_t a_rows = p->transa ? p->k : p->m, a_cols = p->transa ? p->m : p->k;
    uint64_t b_rows = p->transb ? p->n : p->k, b_cols = p->transb ? p->k : p->n;
    uint64_t begin = p->pad * cgm_dtype_bytes(p->out_dtype), bytes = 64 * MIB;
    memory_open(&memory, 0, bytes);
    lane_open(&lane, 0);
    uint64_t b_at = put(&memory, begin, a, a_rows, a_cols, a_cols + p->pad, p->dtype) + begin;
    uint64_t bias_at = put(&memory, b_at, b, b_rows, b_cols, b_cols + p->pad, p->dtype) + begin;
    uint64_t out_at = put(&memory, bias_at, bias, 1, p->n, p->n, p->out_dtype) + begin;
    assert_true(put(&memory, out_at, before, p->m, p->n, p->n + p->pad, p->out_dtype) <= bytes);
    host_view_push(&memory.view, 0, bytes);
    struct cgm_gemm gemm = {
        .label = label,
        .a = view_of(memory.mem, begin, a_rows, a_cols, a_cols + p->pad, p->dtype),
        .b = view_of(memory.mem, b_at, b_rows, b_cols, b_cols + p->pad, p->dtype),
        .out = view_of(memory.mem, out_at, p->m, p->n, p->n + p->pad, p->out_dtype),
        .transa = p->transa,
        .transb = p->transb,
        .accumulate = p->accumulate,
        .spared_sms = (uint32_t)cgm_random_below(&rng, 3) * 16,
    };
    if (p->bias)
        gemm.bias = view_of(memory.mem, bias_at, 1, p->n, p->n, p->out_dtype);
    assert_int_equal(ops->prepare_gemm(lane.queue, &gemm, CGM_PREPARE_TRIALS), CGM_OK);
    uint64_t allocations = ops->allocations(backend);
    assert_int_equal(ops->gemm(lane.queue, &gemm), CGM_OK);
    assert_int_equal(ops->allocations(backend), allocations); /* it was prepared */
    lane_finish(&lane);
    host_view_pull(&memory.view, 0, bytes);
    double ratio = judge(p, &memory, out_at, a, b, bias, before);
    lane_close(&lane);
    memory_close(&memory);
    free(a);
    free(b);
    free(bias);
    free(before);
    return ratio;
}

static void test_products_are_right(void **state)
{
    (void)state;
    static const struct {
        int dtype, out_dtype;
    } types[] = {{CGM_DTYPE_BF16, CGM_DTYPE_BF16},
                 {CGM_DTYPE_FP16, CGM_DTYPE_FP16},
                 {CGM_DTYPE_BF16, CGM_DTYPE_FP32},
                 {CGM_DTYPE_FP16, CGM_DTYPE_FP32},
                 {CGM_DTYPE_FP32, CGM_DTYPE_FP32}};
    /* The last one is drawn each time, in steps of a vector. */
    uint64_t sizes[][3] = {{384, 512, 1024}, {1, 640, 4096}, {257, 129, 1001}, {0}};
    for (size_t t = 0; t < sizeof(types) / sizeof(types[0]); t++) {
        double worst = 0;
        for (unsigned trial = 0; trial < 128; trial++) {
            const uint64_t *size = sizes[trial / 32];
            unsigned bits = trial % 32;
            for (int i = 0; i < 3; i++)
                sizes[3][i] = 8 * (1 + cgm_random_below(&rng, trial % 2 ? 128 : 8));
            struct product p = {
                .m = size[0],
                .n = size[1],
                .k = size[2],
                .dtype = types[t].dtype,
                .out_dtype = types[t].out_dtype,
                .transa = bits & 1,
                .transb = bits & 2,
                .bias = bits & 4,
                .accumulate = bits & 8,
                .pad = bits & 16 ? (trial < 96 ? 1 : 8) * (1 + cgm_random_below(&rng, 8)) : 0};
            double ratio = try_product(&p);
            if (ratio > 1)
                fail_msg("%llu x %llu x %llu, dtype %d to %d, bits %u, pad %llu: ratio %g",
                         (unsigned long long)p.m, (unsigned long long)p.n, (unsigned long long)p.k,
                         p.dtype, p.out_dtype, bits, (unsigned long long)p.pad, ratio);
            worst = ratio > worst ? ratio : worst;
        }
        print_message("dtype %d to %d: worst ratio %.3f\n", types[t].dtype, types[t].out_dtype,
                      worst);
    }
}

/* ---- waits, failure, times --------------------------------------------------------------------
 */

static void test_flags_hold_queues_of_all_devices(void **state)
{
    (void)state;
    uint32_t count = ops->device_count(backend);
    for (uint32_t a = 0; a < count; a++)
        for (uint32_t b = 0; b < count; b++) {
            struct lane waiter, signaller;
            struct cgm_flag *flag;
            lane_open(&waiter, a);
            lane_open(&signaller, b);
            /* The flag is on the waiter's device, then on the signaller's. */
            for (int own = 0; own < 2; own++) {
                assert_int_equal(ops->flag_new(backend, own ? a : b, CGM_FLAG_DEVICE, &flag),
                                 CGM_OK);
                assert_int_equal(ops->wait(waiter.queue, flag, 5, &label), CGM_OK);
                assert_int_equal(ops->signal(waiter.queue, waiter.done, ++waiter.epoch), CGM_OK);
                assert_false(lane_is_through(&waiter, 5));
                assert_int_equal(ops->signal(signaller.queue, flag, 4), CGM_OK);
                assert_false(lane_is_through(&waiter, 5));
                assert_int_equal(ops->signal(signaller.queue, flag, 5), CGM_OK);
                assert_true(lane_is_through(&waiter, 5000));
                ops->queue_free(signaller.queue);
                assert_int_equal(ops->queue_new(backend, b, 0, 8, &signaller.queue), CGM_OK);
                ops->flag_free(flag);
            }
            lane_close(&waiter);
            lane_close(&signaller);
        }
}

static void test_several_waits_hold_a_queue(void **state)
{
    (void)state;
    struct lane waiter, signaller;
    struct cgm_wait waits[CGM_FLAGS_AT_ONCE];
    struct cgm_flag_value signals[CGM_FLAGS_AT_ONCE];
    lane_open(&waiter, 0);
    lane_open(&signaller, ops->device_count(backend) - 1);
    for (uint32_t i = 0; i < CGM_FLAGS_AT_ONCE; i++) {
        waits[i] = (struct cgm_wait){.until.value = i + 1, .label = label};
        assert_int_equal(ops->flag_new(backend, 0, CGM_FLAG_DEVICE, &waits[i].until.flag), CGM_OK);
    }
    for (uint32_t count = 1; count <= CGM_FLAGS_AT_ONCE; count *= 4) {
        uint32_t last = (uint32_t)cgm_random_below(&rng, count);
        for (uint32_t i = 0; i < count; i++)
            waits[i].until.value++;
        assert_int_equal(ops->wait_all(waiter.queue, waits, count), CGM_OK);
        assert_int_equal(ops->signal(waiter.queue, waiter.done, ++waiter.epoch), CGM_OK);
        for (uint32_t i = 0; i < count; i++)
            signals[i] =
                (struct cgm_flag_value){waits[i].until.flag, waits[i].until.value - (i == last)};
        assert_int_equal(ops->signal_all(signaller.queue, signals, count), CGM_OK);
        assert_false(lane_is_through(&waiter, 5));
        assert_int_equal(
            ops->signal(signaller.queue, waits[last].until.flag, waits[last].until.value), CGM_OK);
        assert_true(lane_is_through(&waiter, 5000));
    }
    assert_int_equal(ops->wait_all(waiter.queue, waits, 0), CGM_INVALID_ARGUMENT);
    assert_int_equal(ops->signal_all(waiter.queue, signals, 0), CGM_INVALID_ARGUMENT);
    assert_int_equal(ops->signal_all(waiter.queue, signals, CGM_FLAGS_AT_ONCE + 1),
                     CGM_INVALID_ARGUMENT);
    assert_int_equal(ops->wait_all(waiter.queue, waits, CGM_FLAGS_AT_ONCE + 1),
                     CGM_INVALID_ARGUMENT);
    lane_close(&waiter);
    lane_close(&signaller);
    for (uint32_t i = 0; i < CGM_FLAGS_AT_ONCE; i++)
        ops->flag_free(waits[i].until.flag);
}

static void test_waits_of_a_failed_run_give_up(void **state)
{
    (void)state;
    struct lane lane, other;
    struct cgm_flag *never, *late;
    lane_open(&lane, 0);
    lane_open(&other, ops->device_count(backend) - 1);
    assert_int_equal(ops->flag_new(backend, 0, CGM_FLAG_DEVICE, &never), CGM_OK);
    assert_int_equal(ops->flag_new(backend, 0, CGM_FLAG_DEVICE, &late), CGM_OK);
    /* What waits for a signal that is in a queue stays held; what waits for none is let go. */
    const struct cgm_wait both[] = {{{late, 0}, label}, {{never, 7}, label}};
    assert_int_equal(ops->wait_all(other.queue, both, 2), CGM_OK);
    assert_int_equal(ops->signal(other.queue, late, 3), CGM_OK);
    assert_int_equal(ops->wait(lane.queue, late, 3, &label), CGM_OK);
    assert_int_equal(ops->signal(lane.queue, lane.done, ++lane.epoch), CGM_OK);
    assert_false(lane_is_through(&lane, 20));
    atomic_store(&lane.run.status, CGM_INTERNAL);
    ops->release_waits(backend, &lane.run);
    assert_false(lane_is_through(&lane, 20));
    atomic_store(&other.run.status, CGM_INTERNAL);
    ops->release_waits(backend, &other.run);
    assert_true(lane_is_through(&lane, 5000));
    lane_close(&lane);
    lane_close(&other);
    ops->flag_free(never);
    ops->flag_free(late);
}

static void test_phases_have_times(void **state)
{
    (void)state;
    struct cgm_phase phases[8];
    struct memory memory;
    struct lane lane;
    struct cgm_mem *mem;
    memory_open(&memory, 0, 512 * MIB);
    mem = memory.mem;
    lane_open(&lane, 0);
    lane.run.phases = phases;
    lane.run.phases_max = 8;
    lane.run.begin_ns = now_ns();
    struct cgm_copy copy = {.label = label,
                            .dst = view_of(mem, 256 * MIB, 8192, 8192, 8192, CGM_DTYPE_FP32),
                            .src = view_of(mem, 0, 8192, 8192, 8192, CGM_DTYPE_FP32)};
    struct cgm_reduce reduce = {.label = label, .dst = copy.dst, .src = {copy.src}, .n_src = 1};
    assert_int_equal(ops->copy(lane.queue, &copy), CGM_OK);
    assert_int_equal(ops->reduce(lane.queue, &reduce), CGM_OK);
    lane_finish(&lane);
    uint64_t end_ns = now_ns() - lane.run.begin_ns;
    ops->finish_phases(backend, &lane.run);
    assert_int_equal(atomic_load(&lane.run.n_phases), 2);
    for (int i = 0; i < 2; i++) {
        uint64_t ns = phases[i].end_ns - phases[i].begin_ns;
        print_message("phase %d: %.1f to %.1f us of %.1f: %.0f GB/s\n", phases[i].kind,
                      (double)phases[i].begin_ns / 1e3, (double)phases[i].end_ns / 1e3,
                      (double)end_ns / 1e3, 512.0 * MIB / (double)ns);
        assert_true(phases[i].begin_ns < phases[i].end_ns && phases[i].end_ns < end_ns + 100000);
        assert_int_equal(phases[i].rank, 1);
        assert_int_equal(phases[i].chunk, 2);
    }
    assert_true(phases[0].end_ns <= phases[1].begin_ns + 2000);
    lane_close(&lane);
    memory_close(&memory);
}

static void test_nothing_allocates_when_warm(void **state)
{
    (void)state;
    struct memory memory;
    struct lane lane;
    memory_open(&memory, 0, 64 * MIB);
    lane_open(&lane, 0);
    struct cgm_gemm gemm = {
        .label = label,
        .a = view_of(memory.mem, 0, 512, 1024, 1024, CGM_DTYPE_BF16),
        .b = view_of(memory.mem, 8 * MIB, 1024, 512, 512, CGM_DTYPE_BF16),
        .out = view_of(memory.mem, 16 * MIB, 512, 512, 512, CGM_DTYPE_BF16),
    };
    assert_int_equal(ops->prepare_gemm(lane.queue, &gemm, CGM_PREPARE_TRIALS), CGM_OK);
    uint64_t before = ops->allocations(backend), begin_ns = now_ns();
    for (int i = 0; i < 500; i++)
        assert_int_equal(ops->gemm(lane.queue, &gemm), CGM_OK);
    print_message("a product is enqueued in %.2f us\n", (double)(now_ns() - begin_ns) / 500e3);
    lane_finish(&lane);
    assert_int_equal(ops->allocations(backend), before);
    lane_close(&lane);
    memory_close(&memory);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_devices_are_named),
        cmocka_unit_test(test_memory_is_zeroed_and_outlives_its_maker),
        cmocka_unit_test(test_ipc_memory_has_a_handle),
        cmocka_unit_test(test_flags_hold_queues_of_all_devices),
        cmocka_unit_test(test_several_waits_hold_a_queue),
        cmocka_unit_test(test_waits_of_a_failed_run_give_up),
        cmocka_unit_test(test_phases_have_times),
        cmocka_unit_test(test_products_are_right),
        cmocka_unit_test(test_nothing_allocates_when_warm),
    };
    take_filter(argc, argv);
    return cmocka_run_group_tests(tests, open_backend, close_backend);
}
