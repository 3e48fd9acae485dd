/* GELU, its derivative and sums on the CPU backend's queues: strided windows of every type. */
#include "tests/unit/cpu_matrix.h"

#include "daemon/executor/cpu/epilogue.h"
#include "kernels/gelu.h"

static struct cgm_backend *backend;
static struct cgm_queue *queue;

static void random_shape(uint64_t *ret_rows, uint64_t *ret_cols)
{
    *ret_rows = pick(1, 40);
    *ret_cols = pick(0, 9) ? pick(1, 70) : pick(1000, 2100);
}

static float element(const struct tensor *t, uint64_t row, uint64_t col)
{
    float value;
    cgm_format_load(t->view.dtype, tensor_at(t, row, col), 1, &value);
    return value;
}

static float rounded(int dtype, float value)
{
    cgm_format_round(dtype, &value, 1);
    return value;
}

static void check_gelu(const struct tensor *out, const struct tensor *input, bool backward)
{
    for (uint64_t at = 0; at < out->view.rows * out->view.cols; at++) {
        uint64_t row = at / out->view.cols, col = at % out->view.cols;
        float value = out->values[at];
        float expected =
            backward ? value * cgm_gelu_derivative(input->values[at]) : cgm_gelu(value);
        assert_true(element(out, row, col) == rounded(out->view.dtype, expected));
    }
}

static void test_gelu(void **state)
{
    (void)state;
    for (int i = 0; i < 300; i++) {
        struct tensor out, input;
        uint64_t rows, cols;
        bool backward = i & 1, keeps = backward || i & 2;
        int dtype = (int)pick(0, 2);
        random_shape(&rows, &cols);
        tensor_init(&out, backend, rows, cols, dtype, CGM_FILL_NORMAL);
        tensor_init(&input, backend, rows, cols, dtype, CGM_FILL_NORMAL);
        struct cgm_activation activation = {
            .kind = backward ? CGM_ACTIVATION_DGELU : CGM_ACTIVATION_GELU, .out = out.view};
        if (keeps)
            activation.input = input.view;
        assert_int_equal(ops->activate(queue, &activation), CGM_OK);
        fixture_drain(backend, queue);
        check_gelu(&out, &input, backward);
        for (uint64_t at = 0; at < rows * cols; at++)
            assert_true(element(&input, at / cols, at % cols) ==
                        (keeps && !backward ? out.values[at] : input.values[at]));
        tensor_check_outside(&out);
        tensor_check_outside(&input);
        tensor_fini(&out);
        tensor_fini(&input);
    }
}

static void test_sum(void **state)
{
    (void)state;
    for (int i = 0; i < 300; i++) {
        struct tensor src, dst;
        uint64_t rows, cols;
        bool across = i & 1;
        random_shape(&rows, &cols);
        tensor_init(&src, backend, rows, cols, (int)pick(0, 2), CGM_FILL_NORMAL);
        tensor_init(&dst, backend, 1, across ? rows : cols, (int)pick(0, 2), CGM_FILL_NORMAL);
        struct cgm_sum sum = {.dst = dst.view, .src = src.view, .across = across};
        assert_int_equal(ops->sum(queue, &sum), CGM_OK);
        fixture_drain(backend, queue);
        for (uint64_t j = 0; j < dst.view.cols; j++) {
            float total = 0;
            for (uint64_t step = 0; step < (across ? cols : rows); step++)
                total += src.values[across ? j * cols + step : step * cols + j];
            assert_true(element(&dst, 0, j) == rounded(dst.view.dtype, total));
        }
        tensor_check_outside(&dst);
        tensor_fini(&src);
        tensor_fini(&dst);
    }
}

static void test_refusals(void **state)
{
    (void)state;
    struct tensor a, b;
    tensor_init(&a, backend, 4, 5, CGM_DTYPE_FP16, CGM_FILL_NORMAL);
    tensor_init(&b, backend, 1, 5, CGM_DTYPE_FP16, CGM_FILL_NORMAL);
    struct cgm_activation activation = {.kind = CGM_ACTIVATION_DGELU, .out = a.view};
    assert_int_equal(ops->activate(queue, &activation), CGM_INVALID_ARGUMENT);
    activation.input = b.view;
    assert_int_equal(ops->activate(queue, &activation), CGM_INVALID_ARGUMENT);
    activation.kind = CGM_ACTIVATION_GELU;
    assert_int_equal(ops->activate(queue, &activation), CGM_INVALID_ARGUMENT);
    activation = (struct cgm_activation){.kind = (enum cgm_activation_kind)7, .out = a.view};
    assert_int_equal(ops->activate(queue, &activation), CGM_INVALID_ARGUMENT);
    struct cgm_sum sum = {.dst = b.view, .src = a.view, .across = true};
    assert_int_equal(ops->sum(queue, &sum), CGM_INVALID_ARGUMENT);
    sum = (struct cgm_sum){.dst = a.view, .src = a.view};
    assert_int_equal(ops->sum(queue, &sum), CGM_INVALID_ARGUMENT);
    sum = (struct cgm_sum){.dst = b.view};
    assert_int_equal(ops->sum(queue, &sum), CGM_INVALID_ARGUMENT);
    fixture_drain(backend, queue);
    assert_memory_equal(a.before, a.bytes, a.n_bytes);
    tensor_fini(&a);
    tensor_fini(&b);
}

static int open_queue(void **state)
{
    (void)state;
    backend = fixture_open(0);
    queue = fixture_queue(backend, 0);
    return 0;
}

static int close_queue(void **state)
{
    (void)state;
    ops->queue_free(queue);
    ops->close(backend);
    return 0;
}

/* The first number that is written is the abort. */
static void test_what_is_aborted_ends(void **state)
{
    enum { COLS = 4096 };
    static float values[2 * COLS], input[2 * COLS], down[COLS], across[2];
    struct cgm_matrix matrix = {(char *)values, 2, COLS, COLS, CGM_DTYPE_FP32, NULL};
    struct cgm_matrix_activation gelu = {.kind = CGM_ACTIVATION_GELU, .out = matrix};
    struct cgm_matrix_sum sum = {.src = matrix};
    struct cgm_seats seats;
    struct cgm_seat seat = {.seats = &seats};
    (void)state;
    cgm_seats_init(&seats, CGM_SEATS, 1);
    for (size_t i = 0; i < 2 * COLS; i++)
        values[i] = 1;
    sum.dst = (struct cgm_matrix){(char *)down, 1, COLS, COLS, CGM_DTYPE_FP32, NULL};
    seat.abort = (const _Atomic int *)(const void *)down;
    cgm_matrix_sum(&sum, &seat);
    sum.across = true;
    sum.dst = (struct cgm_matrix){(char *)across, 1, 2, 2, CGM_DTYPE_FP32, NULL};
    seat.abort = (const _Atomic int *)(const void *)across;
    cgm_matrix_sum(&sum, &seat);
    gelu.input = matrix;
    gelu.input.data = (char *)input;
    seat.abort = (const _Atomic int *)(const void *)input;
    cgm_matrix_activate(&gelu, &seat);
    assert_true(down[0] == 2 && down[COLS - 1] == 0);
    assert_true(across[0] == COLS && across[1] == 0);
    assert_true(input[0] == 1 && input[2 * COLS - 1] == 0 && values[2 * COLS - 1] == 1);
    cgm_seat_give(&seat);
    cgm_seats_fini(&seats);
}

int main(void)
{
    fixture_seed();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gelu),
        cmocka_unit_test(test_sum),
        cmocka_unit_test(test_what_is_aborted_ends),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, open_queue, close_queue);
}
