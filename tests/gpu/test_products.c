/* How products get their code: rows that were not seen before are multiplied with what is loaded,
 * at once and while streams are blocked; products that spare multiprocessors. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <cmocka.h>

#include "kernels/number_format.h"
#include "tests/gpu/gpu_fixture.h"

#define SIDE 4096u
#define AREA ((uint64_t)SIDE * SIDE * 2)
#define PAD 8u /* another key, the same code */
#define TRIES 60

struct scene {
    struct memory memory; /* a, b, the whole product, a product of fewer rows */
    struct lane lane;
};

static struct cgm_gemm product_of(const struct scene *scene, uint64_t rows, uint64_t stride,
                                  uint32_t out)
{
    struct cgm_mem *mem = scene->memory.mem;
    return (struct cgm_gemm){
        .label = label,
        .a = view_of(mem, 0, rows, SIDE, SIDE, CGM_DTYPE_BF16),
        .b = view_of(mem, AREA, SIDE, SIDE, SIDE, CGM_DTYPE_BF16),
        .out = view_of(mem, out * (AREA + 2 * PAD * SIDE * 2), rows, SIDE, stride, CGM_DTYPE_BF16),
    };
}

static void scene_open(struct scene *scene)
{
    float *values = malloc(sizeof(float) * SIDE * SIDE);
    memory_open(&scene->memory, 0, 4 * (AREA + 2 * PAD * SIDE * 2));
    lane_open(&scene->lane, 0);
    for (int i = 0; i < 2; i++) {
        cgm_random_fill(&rng, CGM_FILL_NORMAL, values, SIDE * SIDE);
        cgm_format_store(CGM_FORMAT_BF16, values, SIDE * SIDE, scene->memory.view.base + i * AREA);
    }
    host_view_push(&scene->memory.view, 0, 2 * AREA);
    free(values);
    struct cgm_gemm whole = product_of(scene, SIDE, SIDE, 2);
    assert_int_equal(ops->prepare_gemm(scene->lane.queue, &whole, CGM_PREPARE_TRIALS), CGM_OK);
    assert_int_equal(ops->gemm(scene->lane.queue, &whole), CGM_OK);
    lane_finish(&scene->lane);
}

static void scene_close(struct scene *scene)
{
    lane_close(&scene->lane);
    memory_close(&scene->memory);
}

/* The same rows of the whole product, up to the rounding of another order of addition. */
static void expect_rows(struct scene *scene, uint64_t rows)
{
    float *whole = malloc(sizeof(float) * SIDE), *part = malloc(sizeof(float) * SIDE);
    uint64_t stride = AREA + 2 * PAD * SIDE * 2, at[] = {0, rows / 2, rows - 1};
    host_view_pull(&scene->memory.view, 2 * stride, 2 * stride);
    for (int i = 0; i < 3; i++) {
        const unsigned char *base = scene->memory.view.base + at[i] * SIDE * 2;
        cgm_format_load(CGM_FORMAT_BF16, base + 2 * stride, SIDE, whole);
        cgm_format_load(CGM_FORMAT_BF16, base + 3 * stride, SIDE, part);
        for (uint32_t col = 0; col < SIDE; col++) {
            float difference =
                whole[col] > part[col] ? whole[col] - part[col] : part[col] - whole[col];
            float size = whole[col] > 0 ? whole[col] : -whole[col];
            if (!(difference <= size / 64 + 0.01f))
                fail_msg("%llu rows, row %llu, column %u: %g, in the whole product %g",
                         (unsigned long long)rows, (unsigned long long)at[i], col,
                         (double)part[col], (double)whole[col]);
        }
    }
    free(whole);
    free(part);
}

static void test_unseen_rows_load_nothing(void **state)
{
    (void)state;
    struct scene scene;
    struct lane blocked;
    struct cgm_flag *gate;
    uint64_t longest_ns = 0, all_ns = 0, allocations = 0;
    int known = 0;
    scene_open(&scene);
    lane_open(&blocked, 0);
    assert_int_equal(ops->flag_new(backend, 0, CGM_FLAG_DEVICE, &gate), CGM_OK);
    assert_int_equal(ops->wait(blocked.queue, gate, 1, &label), CGM_OK);
    assert_int_equal(ops->signal(blocked.queue, blocked.done, ++blocked.epoch), CGM_OK);
    alarm(120); /* what is loaded or waits for the device here would wait for the gate for ever */
    for (int i = 0; i < TRIES; i++) {
        uint64_t rows = 1 + cgm_random_below(&rng, i % 2 ? 256 : SIDE);
        ops->warm_up(backend, 0);
        struct cgm_gemm gemm = product_of(&scene, rows, SIDE, 3);
        uint64_t begin_ns = now_ns();
        int status = ops->prepare_gemm(scene.lane.queue, &gemm, CGM_PREPARE_KNOWN);
        uint64_t ns = now_ns() - begin_ns;
        longest_ns = ns > longest_ns ? ns : longest_ns;
        all_ns += ns;
        if (status == CGM_NOT_FOUND)
            continue;
        assert_int_equal(status, CGM_OK);
        known++;
        allocations = ops->allocations(backend);
        assert_int_equal(ops->gemm(scene.lane.queue, &gemm), CGM_OK);
        lane_finish(&scene.lane);
        assert_int_equal(ops->allocations(backend), allocations);
        expect_rows(&scene, rows);
    }
    alarm(0);
    print_message(
        "%d of %d unseen numbers of rows had their code; chosen in %.0f us, at most %.0f\n", known,
        TRIES, (double)all_ns / TRIES / 1e3, (double)longest_ns / 1e3);
    assert_true(known > TRIES / 2);
    assert_false(lane_is_through(&blocked, 0));
    assert_int_equal(ops->signal(scene.lane.queue, gate, 1), CGM_OK);
    assert_true(lane_is_through(&blocked, 20000));
    lane_close(&blocked);
    ops->flag_free(gate);
    scene_close(&scene);
}

static double time_us(struct scene *scene, const struct cgm_gemm *gemm)
{
    struct cgm_phase phase;
    double best = 0;
    for (int i = 0; i < 10; i++) {
        scene->lane.run.phases = &phase;
        scene->lane.run.phases_max = 1;
        atomic_store(&scene->lane.run.n_phases, 0);
        scene->lane.run.begin_ns = now_ns();
        assert_int_equal(ops->gemm(scene->lane.queue, gemm), CGM_OK);
        lane_finish(&scene->lane);
        ops->finish_phases(backend, &scene->lane.run);
        double us = (double)(phase.end_ns - phase.begin_ns) / 1e3;
        best = i == 0 || us < best ? us : best;
    }
    scene->lane.run.phases = NULL;
    scene->lane.run.phases_max = 0;
    return best;
}

/* What it costs to take what is there; and how long launches would be held otherwise. */
static void test_times_of_the_ways(void **state)
{
    (void)state;
    struct scene scene;
    scene_open(&scene);
    for (uint64_t rows = 8; rows < SIDE; rows *= 2) {
        struct cgm_gemm known = product_of(&scene, rows + 1, SIDE, 3);
        struct cgm_gemm loaded = product_of(&scene, rows + 1, SIDE + PAD, 3);
        struct cgm_gemm tried = product_of(&scene, rows + 1, SIDE + 2 * PAD, 3);
        uint64_t begin_ns = now_ns();
        if (ops->prepare_gemm(scene.lane.queue, &known, CGM_PREPARE_KNOWN) != CGM_OK)
            continue;
        uint64_t known_ns = now_ns() - begin_ns;
        begin_ns = now_ns();
        assert_int_equal(ops->prepare_gemm(scene.lane.queue, &loaded, CGM_PREPARE_LOAD), CGM_OK);
        uint64_t loaded_ns = now_ns() - begin_ns;
        begin_ns = now_ns();
        assert_int_equal(ops->prepare_gemm(scene.lane.queue, &tried, CGM_PREPARE_TRIALS), CGM_OK);
        uint64_t tried_ns = now_ns() - begin_ns;
        print_message("%4llu rows: known %.1f us (chosen in %.2f ms), loaded %.1f us (%.2f ms), "
                      "tried %.1f us (%.2f ms)\n",
                      (unsigned long long)rows + 1, time_us(&scene, &known), (double)known_ns / 1e6,
                      time_us(&scene, &loaded), (double)loaded_ns / 1e6, time_us(&scene, &tried),
                      (double)tried_ns / 1e6);
    }
    scene_close(&scene);
}

static void test_margins(void **state)
{
    (void)state;
    struct scene scene;
    struct cgm_device_info info;
    scene_open(&scene);
    assert_int_equal(ops->device_info(backend, 0, &info), CGM_OK);
    for (uint32_t spared = 0; spared < info.sms; spared += 16) {
        struct cgm_gemm gemm = product_of(&scene, SIDE, SIDE, 3);
        gemm.spared_sms = spared;
        assert_int_equal(ops->prepare_gemm(scene.lane.queue, &gemm, CGM_PREPARE_TRIALS), CGM_OK);
        print_message("%u of %u multiprocessors spared: %.1f us\n", spared, info.sms,
                      time_us(&scene, &gemm));
        expect_rows(&scene, SIDE);
    }
    struct cgm_gemm gemm = product_of(&scene, SIDE, SIDE, 3);
    gemm.spared_sms = info.sms;
    assert_int_equal(ops->prepare_gemm(scene.lane.queue, &gemm, CGM_PREPARE_TRIALS),
                     CGM_INVALID_ARGUMENT);
    assert_int_equal(ops->gemm(scene.lane.queue, &gemm), CGM_INVALID_ARGUMENT);
    scene_close(&scene);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_unseen_rows_load_nothing),
        cmocka_unit_test(test_times_of_the_ways),
        cmocka_unit_test(test_margins),
    };
    take_filter(argc, argv);
    return cmocka_run_group_tests(tests, open_backend, close_backend);
}
