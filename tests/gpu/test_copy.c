/* Copies, by copy engine and by multiprocessors: any shape, stride and alignment, within a device
 * and to a peer, byte for byte; nothing outside the destination is touched. And how fast they are.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "tests/gpu/gpu_fixture.h"

#define AREA (4 * MIB) /* of one memory in the tests of contents */
#define LARGE (128 * MIB)

static void fill(struct memory *memory)
{
    for (size_t i = 0; i + 8 <= AREA; i += 8) {
        uint64_t bits = cgm_random_next(&rng);
        memcpy(memory->view.base + i, &bits, 8);
    }
    host_view_push(&memory->view, 0, AREA);
}

/* A matrix that fits into AREA, its rows up to 64 elements further apart than they are long. */
static struct cgm_view random_view(struct cgm_mem *mem, uint64_t rows, uint64_t cols, int dtype,
                                   bool aligned)
{
    uint64_t element = cgm_dtype_bytes(dtype), unit = aligned ? 16 / element : 1;
    uint64_t stride = cols + cgm_random_below(&rng, 64) / unit * unit;
    uint64_t offset = cgm_random_below(&rng, 1000) / unit * unit * element;
    return view_of(mem, offset, rows, cols, stride, dtype);
}

static void expect(unsigned char *expected, const struct memory *from, const struct cgm_copy *copy)
{
    uint64_t element = cgm_dtype_bytes(copy->dst.dtype);
    for (uint64_t row = 0; row < copy->dst.rows; row++)
        memcpy(expected + copy->dst.offset_bytes + row * copy->dst.stride * element,
               from->view.base + copy->src.offset_bytes + row * copy->src.stride * element,
               copy->dst.cols * element);
}

static void check_copy(struct lane *lane, struct memory *from, struct memory *to,
                       unsigned char *expected)
{
    static const int dtypes[] = {CGM_DTYPE_FP32, CGM_DTYPE_FP16, CGM_DTYPE_BF16, CGM_DTYPE_INT8,
                                 CGM_DTYPE_INT32};
    static const uint32_t sms[] = {0, 1, 4, 16, 200};
    bool aligned = cgm_random_below(&rng, 2);
    int dtype = dtypes[cgm_random_below(&rng, 5)];
    uint64_t unit = aligned ? 16 / cgm_dtype_bytes(dtype) : 1;
    uint64_t rows = 1 + cgm_random_below(&rng, 300);
    uint64_t cols = (1 + cgm_random_below(&rng, 2000) / unit) * unit;
    struct cgm_copy copy = {.label = label,
                            .dst = random_view(to->mem, rows, cols, dtype, aligned),
                            .src = random_view(from->mem, rows, cols, dtype, aligned),
                            .sms = sms[cgm_random_below(&rng, 5)]};
    if (cgm_random_below(&rng, 4) == 0)
        copy.dst.stride = copy.src.stride = cols;
    fill(to);
    memcpy(expected, to->view.base, AREA);
    expect(expected, from, &copy);
    assert_int_equal(ops->copy(lane->queue, &copy), CGM_OK);
    lane_finish(lane);
    host_view_pull(&to->view, 0, AREA);
    if (memcmp(expected, to->view.base, AREA) != 0)
        fail_msg("%llu x %llu of %llu bytes, strides %llu and %llu, offsets %llu and %llu, %u "
                 "multiprocessors: wrong",
                 (unsigned long long)rows, (unsigned long long)cols,
                 (unsigned long long)cgm_dtype_bytes(dtype), (unsigned long long)copy.dst.stride,
                 (unsigned long long)copy.src.stride, (unsigned long long)copy.dst.offset_bytes,
                 (unsigned long long)copy.src.offset_bytes, copy.sms);
}

static void test_every_byte_arrives_and_no_other(void **state)
{
    (void)state;
    unsigned char *expected = malloc(AREA);
    for (uint32_t device = 0; device < ops->device_count(backend); device++) {
        struct memory from, to;
        struct lane lane;
        lane_open(&lane, 0);
        memory_open(&from, 0, AREA);
        memory_open(&to, device, AREA);
        fill(&from);
        for (int i = 0; i < 60; i++)
            check_copy(&lane, &from, &to, expected);
        memory_close(&from);
        memory_close(&to);
        lane_close(&lane);
    }
    free(expected);
}

/* Each in its own slice of both memories, so that none writes what another one does. */
static void check_copies(struct lane *lane, struct memory *from, struct memory *to,
                         unsigned char *expected)
{
    struct cgm_copy copies[CGM_COPIES_AT_ONCE];
    uint32_t count = 1 + (uint32_t)cgm_random_below(&rng, CGM_COPIES_AT_ONCE);
    fill(to);
    memcpy(expected, to->view.base, AREA);
    for (uint32_t i = 0; i < count; i++) {
        bool aligned = cgm_random_below(&rng, 4) > 0;
        uint64_t unit = aligned ? 8 : 1, rows = 1 + cgm_random_below(&rng, 100);
        uint64_t cols = (1 + cgm_random_below(&rng, 2000) / unit) * unit;
        copies[i] = (struct cgm_copy){
            .label = label,
            .dst = random_view(to->mem, rows, cols, CGM_DTYPE_BF16, aligned),
            .src = random_view(from->mem, rows, cols, CGM_DTYPE_BF16, aligned),
            .sms = 1 + (uint32_t)cgm_random_below(&rng, 20),
        };
        copies[i].dst.offset_bytes += i * (AREA / CGM_COPIES_AT_ONCE);
        copies[i].src.offset_bytes += i * (AREA / CGM_COPIES_AT_ONCE);
        expect(expected, from, &copies[i]);
    }
    assert_int_equal(ops->copy_all(lane->queue, copies, count), CGM_OK);
    lane_finish(lane);
    host_view_pull(&to->view, 0, AREA);
    if (memcmp(expected, to->view.base, AREA) != 0)
        fail_msg("%u copies at once: wrong", count);
}

static void test_copies_at_once(void **state)
{
    (void)state;
    unsigned char *expected = malloc(AREA);
    struct memory from, to;
    struct lane lane;
    lane_open(&lane, 0);
    memory_open(&from, 0, AREA);
    memory_open(&to, ops->device_count(backend) - 1, AREA);
    fill(&from);
    for (int i = 0; i < 60; i++)
        check_copies(&lane, &from, &to, expected);
    assert_int_equal(ops->copy_all(lane.queue, NULL, 0), CGM_INVALID_ARGUMENT);
    assert_int_equal(ops->copy_all(lane.queue, NULL, CGM_COPIES_AT_ONCE + 1), CGM_INVALID_ARGUMENT);
    memory_close(&from);
    memory_close(&to);
    lane_close(&lane);
    free(expected);
}

static void test_failed_runs_copy_nothing(void **state)
{
    (void)state;
    struct memory from, to;
    struct lane lane;
    memory_open(&from, 0, AREA);
    memory_open(&to, 0, AREA);
    fill(&from);
    lane_open(&lane, 0);
    atomic_store(&lane.run.status, CGM_INTERNAL);
    for (uint32_t sms = 0; sms < 2; sms++) {
        struct cgm_copy copy = {.label = label,
                                .dst = view_of(to.mem, 0, 4, 1024, 1024, CGM_DTYPE_FP32),
                                .src = view_of(from.mem, 0, 4, 1024, 1024, CGM_DTYPE_FP32),
                                .sms = sms};
        assert_int_equal(ops->copy(lane.queue, &copy), CGM_OK);
    }
    atomic_store(&lane.run.status, CGM_OK);
    lane_finish(&lane);
    host_view_pull(&to.view, 0, AREA);
    for (size_t i = 0; i < AREA; i++)
        assert_int_equal(to.view.base[i], 0);
    lane_close(&lane);
    memory_close(&from);
    memory_close(&to);
}

/* The best of five; the phases are the clock. */
static double rate(struct lane *lane, const struct cgm_copy *copy)
{
    uint64_t best_ns = UINT64_MAX, bytes = copy->dst.rows * copy->dst.cols * 2;
    struct cgm_phase phase;
    for (int i = 0; i < 5; i++) {
        lane->run.phases = &phase;
        lane->run.phases_max = 1;
        atomic_store(&lane->run.n_phases, 0);
        lane->run.begin_ns = now_ns();
        assert_int_equal(ops->copy(lane->queue, copy), CGM_OK);
        lane_finish(lane);
        ops->finish_phases(backend, &lane->run);
        assert_int_equal(atomic_load(&lane->run.n_phases), 1);
        assert_int_equal(phase.kind, CGM_PHASE_COPY);
        assert_int_equal(phase.rank, label.rank);
        assert_true(phase.end_ns > phase.begin_ns);
        if (phase.end_ns - phase.begin_ns < best_ns)
            best_ns = phase.end_ns - phase.begin_ns;
    }
    return (double)bytes / (double)best_ns;
}

/* As an algorithm pushes: rows that lie further apart at the peer. */
static void test_rates(void **state)
{
    static const uint32_t sms[] = {0, 1, 4, 8, 16, 32, 64};
    uint32_t last = ops->device_count(backend) - 1;
    struct cgm_mem *from, *to;
    (void)state;
    assert_int_equal(ops->mem_alloc(backend, 0, LARGE, 0, &from), CGM_OK);
    for (uint32_t device = 0; device <= last; device += last ? last : 1) {
        struct lane lane;
        lane_open(&lane, 0);
        assert_int_equal(ops->mem_alloc(backend, device, 2 * LARGE, 0, &to), CGM_OK);
        for (uint64_t rows = 128; rows <= 8192; rows *= 8)
            for (size_t i = 0; i < sizeof(sms) / sizeof(sms[0]); i++) {
                struct cgm_copy copy = {.label = label,
                                        .dst = view_of(to, 0, rows, 8192, 16384, CGM_DTYPE_BF16),
                                        .src = view_of(from, 0, rows, 8192, 8192, CGM_DTYPE_BF16),
                                        .sms = sms[i]};
                double strided = rate(&lane, &copy);
                copy.dst.stride = 8192;
                print_message("0 -> %u, %5.1f MB, %2u multiprocessors: %.0f GB/s, strided %.0f\n",
                              device, (double)rows * 8192 * 2 / 1e6, sms[i], rate(&lane, &copy),
                              strided);
            }
        ops->mem_free(to);
        lane_close(&lane);
    }
    ops->mem_free(from);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_byte_arrives_and_no_other),
        cmocka_unit_test(test_copies_at_once),
        cmocka_unit_test(test_failed_runs_copy_nothing),
        cmocka_unit_test(test_rates),
    };
    take_filter(argc, argv);
    return cmocka_run_group_tests(tests, open_backend, close_backend);
}
