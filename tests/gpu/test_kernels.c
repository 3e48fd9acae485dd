/* Our own kernels on small cases, without anything that waits: what compute-sanitizer looks at. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <math.h>
#include <stdlib.h>
#include <cmocka.h>

#include "kernels/number_format.h"
#include "tests/gpu/gpu_fixture.h"

#define AREA MIB
#define PLACES 4u

struct scene {
    struct memory memory; /* PLACES areas */
    struct lane lane;
};

static void scene_open(struct scene *scene)
{
    memory_open(&scene->memory, 0, PLACES * AREA);
    lane_open(&scene->lane, 0);
}

static void scene_close(struct scene *scene)
{
    lane_close(&scene->lane);
    memory_close(&scene->memory);
}

/* A dense matrix of random numbers in an area, `skip` elements after its begin. */
static struct cgm_view fill(struct scene *scene, uint32_t place, uint64_t skip, uint64_t rows,
                            uint64_t cols, int dtype, float *ret_values)
{
    uint64_t offset = place * AREA + skip * cgm_dtype_bytes(dtype);
    cgm_random_fill(&rng, CGM_FILL_NORMAL, ret_values, rows * cols);
    cgm_format_round(dtype, ret_values, rows * cols);
    cgm_format_store(dtype, ret_values, rows * cols, scene->memory.view.base + offset);
    host_view_push(&scene->memory.view, place * AREA, AREA);
    return view_of(scene->memory.mem, offset, rows, cols, cols, dtype);
}

static float *pull(struct scene *scene, const struct cgm_view *view)
{
    float *values = malloc(view->rows * view->cols * sizeof(float));
    lane_finish(&scene->lane);
    host_view_pull(&scene->memory.view, 0, PLACES * AREA);
    cgm_format_load(view->dtype, scene->memory.view.base + view->offset_bytes,
                    view->rows * view->cols, values);
    return values;
}

static void expect_near(double expected, float got, int dtype)
{
    double unit = dtype == CGM_DTYPE_FP32 ? 1e-5 : dtype == CGM_DTYPE_FP16 ? 2e-3 : 1e-2;
    if (!(fabs(expected - (double)got) <= unit * (fabs(expected) + 1)))
        fail_msg("%g instead of %g", (double)got, expected);
}

/* One that was not prepared takes the slow way. */
static void test_plain_products(void **state)
{
    static const uint64_t sizes[][3] = {{1, 1, 1}, {33, 17, 65}, {64, 96, 40}};
    float a[64 * 96], b[64 * 96];
    (void)state;
    for (size_t i = 0; i < 3 * 4 * 3; i++) {
        uint64_t m = sizes[i % 3][0], n = sizes[i % 3][1], k = sizes[i % 3][2];
        bool transa = i / 3 & 1, transb = i / 6 & 1;
        int dtype = (int)(i / 12);
        struct scene scene;
        scene_open(&scene);
        struct cgm_gemm gemm = {
            .label = label,
            .a = fill(&scene, 0, 1, transa ? k : m, transa ? m : k, dtype, a),
            .b = fill(&scene, 1, 3, transb ? n : k, transb ? k : n, dtype, b),
            .out = view_of(scene.memory.mem, 2 * AREA, m, n, n, dtype),
            .transa = transa,
            .transb = transb,
        };
        assert_int_equal(ops->gemm(scene.lane.queue, &gemm), CGM_OK);
        float *out = pull(&scene, &gemm.out);
        for (uint64_t row = 0; row < m; row++)
            for (uint64_t col = 0; col < n; col++) {
                double sum = 0;
                for (uint64_t d = 0; d < k; d++)
                    sum += (double)a[transa ? d * m + row : row * k + d] *
                           (double)b[transb ? col * k + d : d * n + col];
                expect_near(sum, out[row * n + col], dtype);
            }
        free(out);
        scene_close(&scene);
    }
}

static void test_sums(void **state)
{
    float a[1200], b[1200];
    (void)state;
    for (size_t i = 0; i < 3 * 2 * 2; i++) {
        int dtype = (int)(i % 3);
        uint64_t skip = i / 3 % 2, cols = i / 6 ? 48 : 47; /* wide accesses and narrow ones */
        struct scene scene;
        scene_open(&scene);
        struct cgm_reduce reduce = {
            .label = label,
            .src = {fill(&scene, 0, skip, 25, cols, dtype, a),
                    fill(&scene, 1, skip, 25, cols, dtype, b)},
            .n_src = 2,
            .dst = view_of(scene.memory.mem, 2 * AREA, 25, cols, cols, CGM_DTYPE_FP32),
        };
        assert_int_equal(ops->reduce(scene.lane.queue, &reduce), CGM_OK);
        float *out = pull(&scene, &reduce.dst);
        for (uint64_t j = 0; j < 25 * cols; j++)
            expect_near((double)a[j] + (double)b[j], out[j], CGM_DTYPE_FP32);
        free(out);
        scene_close(&scene);
    }
}

static void test_poison_and_copies(void **state)
{
    float a[1200];
    (void)state;
    for (int dtype = 0; dtype < 3; dtype++) {
        struct scene scene;
        scene_open(&scene);
        struct cgm_copy copy = {.label = label,
                                .src = fill(&scene, 0, 1, 30, 40, dtype, a),
                                .dst = view_of(scene.memory.mem, AREA, 30, 40, 40, dtype),
                                .sms = 3};
        struct cgm_view poisoned = view_of(scene.memory.mem, 2 * AREA, 30, 40, 50, dtype);
        assert_int_equal(ops->copy(scene.lane.queue, &copy), CGM_OK);
        assert_int_equal(ops->poison(scene.lane.queue, &poisoned), CGM_OK);
        float *out = pull(&scene, &copy.dst);
        assert_memory_equal(out, a, sizeof(a));
        free(out);
        out = pull(&scene, &poisoned);
        assert_true(isnan(out[0]) && isnan(out[39]));
        free(out);
        scene_close(&scene);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plain_products),
        cmocka_unit_test(test_sums),
        cmocka_unit_test(test_poison_and_copies),
    };
    take_filter(argc, argv);
    return cmocka_run_group_tests(tests, open_backend, close_backend);
}
