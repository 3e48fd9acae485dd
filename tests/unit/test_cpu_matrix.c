/* copy, reduce and poison against the definition. */
#include "tests/unit/cpu_matrix.h"

#include "daemon/executor/cpu/matrix.h"

static struct cgm_backend *backend;
static struct cgm_queue *queue;

static int setup(void **state)
{
    (void)state;
    backend = fixture_open(0);
    queue = fixture_queue(backend, 2);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    ops->queue_free(queue);
    ops->close(backend);
    return 0;
}

static void random_shape(uint64_t *ret_rows, uint64_t *ret_cols)
{
    *ret_rows = pick(1, 20);
    *ret_cols = pick(0, 3) ? pick(1, 50) : pick(1000, 5000);
}

static void test_copy(void **state)
{
    (void)state;
    for (int i = 0; i < 200; i++) {
        struct tensor dst, src;
        uint64_t rows, cols;
        int dtype = i % 3;
        random_shape(&rows, &cols);
        tensor_init(&dst, backend, rows, cols, dtype, CGM_FILL_NORMAL);
        tensor_init(&src, backend, rows, cols, dtype, CGM_FILL_WIDE);
        struct cgm_copy copy = {.dst = dst.view, .src = src.view};
        assert_int_equal(ops->copy(queue, &copy), CGM_OK);
        fixture_drain(backend, queue);
        for (uint64_t row = 0; row < rows; row++)
            assert_memory_equal(tensor_at(&dst, row, 0), tensor_at(&src, row, 0),
                                cols * cgm_dtype_bytes(dtype));
        tensor_check_outside(&dst);
        assert_memory_equal(src.before, src.bytes, src.n_bytes);
        tensor_fini(&dst);
        tensor_fini(&src);
    }
}

/* Operands of two ranks may lie across each other. */
static void test_copy_onto_its_source(void **state)
{
    struct tensor tensor;
    uint64_t element = cgm_dtype_bytes(CGM_DTYPE_FP32);
    (void)state;
    tensor_init(&tensor, backend, 1, 1000, CGM_DTYPE_FP32, CGM_FILL_NORMAL);
    struct cgm_copy copy = {.dst = tensor.view, .src = tensor.view};
    copy.dst.cols = copy.src.cols = copy.dst.stride = copy.src.stride = 900;
    copy.dst.offset_bytes += 100 * element;
    assert_int_equal(ops->copy(queue, &copy), CGM_OK);
    fixture_drain(backend, queue);
    assert_memory_equal(tensor_at(&tensor, 0, 100),
                        tensor.before + (tensor_at(&tensor, 0, 0) - tensor.bytes), 900 * element);
    tensor_check_outside(&tensor);
    tensor_fini(&tensor);
}

/* The definition, in fp32 and in this order, down to the bit. */
static void check_reduce(const struct tensor *dst, const struct tensor *src, uint32_t n_src,
                         const struct tensor *bias, bool accumulate)
{
    uint64_t cols = dst->view.cols;
    for (uint64_t at = 0; at < dst->view.rows * cols; at++) {
        float sum = src[0].values[at];
        for (uint32_t i = 1; i < n_src; i++)
            sum += src[i].values[at];
        if (accumulate)
            sum += dst->values[at];
        if (bias)
            sum += bias->values[at % cols];
        uint32_t expected;
        cgm_format_store(dst->view.dtype, &sum, 1, &expected);
        assert_memory_equal(tensor_at(dst, at / cols, at % cols), &expected,
                            cgm_dtype_bytes(dst->view.dtype));
    }
    tensor_check_outside(dst);
}

static void test_reduce(void **state)
{
    (void)state;
    static struct tensor src[CGM_REDUCE_SOURCES_MAX];
    for (int i = 0; i < 300; i++) {
        struct tensor dst, bias;
        static struct cgm_reduce reduce;
        uint64_t rows, cols;
        random_shape(&rows, &cols);
        const uint32_t n_src = (uint32_t)(i % 10 ? pick(1, 9) : pick(10, 64));
        reduce = (struct cgm_reduce){.n_src = n_src, .accumulate = pick(0, 1)};
        tensor_init(&dst, backend, rows, cols, (int)pick(0, 2), CGM_FILL_NORMAL);
        tensor_init(&bias, backend, 1, cols, (int)pick(0, 2), CGM_FILL_WIDE);
        if (!reduce.accumulate)
            tensor_poison(&dst);
        for (uint32_t j = 0; j < n_src; j++) {
            tensor_init(&src[j], backend, rows, cols, (int)pick(0, 2), CGM_FILL_WIDE);
            reduce.src[j] = src[j].view;
        }
        bool with_bias = pick(0, 1);
        reduce.dst = dst.view;
        if (with_bias)
            reduce.bias = bias.view;
        assert_int_equal(ops->reduce(queue, &reduce), CGM_OK);
        fixture_drain(backend, queue);
        check_reduce(&dst, src, n_src, with_bias ? &bias : NULL, reduce.accumulate);
        for (uint32_t j = 0; j < n_src; j++)
            tensor_fini(&src[j]);
        tensor_fini(&dst);
        tensor_fini(&bias);
    }
}

/* Modulo 2^32. */
static void test_reduce_integers(void **state)
{
    (void)state;
    static struct cgm_reduce reduce;
    struct tensor src[3], dst;
    for (int i = 0; i < 50; i++) {
        uint64_t rows, cols;
        random_shape(&rows, &cols);
        reduce = (struct cgm_reduce){.n_src = 3, .accumulate = i % 2};
        for (int j = 0; j < 3; j++) {
            tensor_init(&src[j], backend, rows, cols, CGM_DTYPE_INT32, CGM_FILL_NORMAL);
            for (uint64_t at = 0; at < rows * cols; at++) {
                int32_t value = (int32_t)cgm_random_next(&rng);
                memcpy(tensor_at(&src[j], at / cols, at % cols), &value, sizeof(value));
            }
            reduce.src[j] = src[j].view;
        }
        tensor_init(&dst, backend, rows, cols, CGM_DTYPE_INT32, CGM_FILL_NORMAL);
        reduce.dst = dst.view;
        assert_int_equal(ops->reduce(queue, &reduce), CGM_OK);
        fixture_drain(backend, queue);
        for (uint64_t at = 0; at < rows * cols; at++) {
            uint32_t sum = reduce.accumulate ? (uint32_t)(int32_t)dst.values[at] : 0, part, found;
            for (int j = 0; j < 3; j++) {
                memcpy(&part, tensor_at(&src[j], at / cols, at % cols), sizeof(part));
                sum += part;
            }
            memcpy(&found, tensor_at(&dst, at / cols, at % cols), sizeof(found));
            assert_int_equal(found, sum);
        }
        tensor_check_outside(&dst);
        tensor_fini(&dst);
        for (int j = 0; j < 3; j++)
            tensor_fini(&src[j]);
    }
}

static void test_poison(void **state)
{
    (void)state;
    for (int i = 0; i < 100; i++) {
        struct tensor t;
        uint64_t rows, cols;
        random_shape(&rows, &cols);
        tensor_init(&t, backend, rows, cols, i % 5, CGM_FILL_NORMAL);
        assert_int_equal(ops->poison(queue, &t.view), CGM_OK);
        fixture_drain(backend, queue);
        for (uint64_t at = 0; at < rows * cols; at++) {
            float value;
            cgm_format_load(t.view.dtype, tensor_at(&t, at / cols, at % cols), 1, &value);
            if (t.view.dtype == CGM_DTYPE_INT8 || t.view.dtype == CGM_DTYPE_INT32)
                assert_true(value == (t.view.dtype == CGM_DTYPE_INT8 ? -128.0f : -0x1p31f));
            else
                assert_true(value != value);
        }
        tensor_check_outside(&t);
        tensor_fini(&t);
    }
}

static void test_refusals(void **state)
{
    (void)state;
    static struct cgm_reduce reduce;
    struct tensor a, b;
    tensor_init(&a, backend, 4, 5, CGM_DTYPE_FP16, CGM_FILL_NORMAL);
    tensor_init(&b, backend, 4, 5, CGM_DTYPE_BF16, CGM_FILL_NORMAL);
    struct cgm_copy copy = {.dst = a.view, .src = b.view};
    assert_int_equal(ops->copy(queue, &copy), CGM_INVALID_ARGUMENT);
    copy.src = a.view;
    copy.src.rows = 3;
    assert_int_equal(ops->copy(queue, &copy), CGM_INVALID_ARGUMENT);
    copy.src.mem = NULL;
    assert_int_equal(ops->copy(queue, &copy), CGM_INVALID_ARGUMENT);
    assert_int_equal(ops->poison(queue, &copy.src), CGM_INVALID_ARGUMENT);
    reduce = (struct cgm_reduce){.dst = a.view, .n_src = 0};
    assert_int_equal(ops->reduce(queue, &reduce), CGM_INVALID_ARGUMENT);
    reduce.n_src = CGM_REDUCE_SOURCES_MAX + 1;
    assert_int_equal(ops->reduce(queue, &reduce), CGM_INVALID_ARGUMENT);
    reduce.n_src = 2;
    reduce.src[0] = a.view;
    assert_int_equal(ops->reduce(queue, &reduce), CGM_INVALID_ARGUMENT);
    reduce.src[1] = b.view;
    reduce.bias = b.view;
    assert_int_equal(ops->reduce(queue, &reduce), CGM_INVALID_ARGUMENT);
    reduce = (struct cgm_reduce){.dst = a.view, .n_src = 1, .src = {a.view}};
    reduce.dst.dtype = CGM_DTYPE_INT8;
    assert_int_equal(ops->reduce(queue, &reduce), CGM_INVALID_ARGUMENT);
    reduce.src[0].dtype = CGM_DTYPE_INT8;
    assert_int_equal(ops->reduce(queue, &reduce), CGM_INVALID_ARGUMENT);
    reduce.dst.dtype = CGM_DTYPE_FP16;
    assert_int_equal(ops->reduce(queue, &reduce), CGM_INVALID_ARGUMENT);
    fixture_drain(backend, queue);
    assert_memory_equal(a.before, a.bytes, a.n_bytes);
    tensor_fini(&a);
    tensor_fini(&b);
}

/* The first number that is written is the abort: the rest is left as it was. */
static void test_what_is_aborted_ends(void **state)
{
    struct cgm_seats seats;
    struct cgm_seat seat = {.seats = &seats};
    int32_t ones[16], copied[16] = {0}, reduced[16] = {0}, poisoned[16] = {0};
    const struct cgm_matrix source = {(char *)ones, 2, 4, 8, CGM_DTYPE_INT32, NULL};
    struct cgm_matrix dst = source;
    struct cgm_matrix_reduce reduce = {.n_src = 1};
    (void)state;
    for (size_t i = 0; i < 16; i++)
        ones[i] = 1;
    dst.data = (char *)copied;
    cgm_seats_init(&seats, CGM_SEATS, 1);
    seat.abort = (const _Atomic int *)copied;
    cgm_matrix_copy(&dst, &source, &seat);
    reduce.dst = dst;
    reduce.dst.data = (char *)reduced;
    seat.abort = (const _Atomic int *)reduced;
    cgm_matrix_reduce(&reduce, &source, &seat);
    dst.data = (char *)poisoned;
    seat.abort = (const _Atomic int *)poisoned;
    cgm_matrix_poison(&dst, &seat);
    for (size_t i = 0; i < 16; i++) {
        assert_int_equal(copied[i], i < 4);
        assert_int_equal(reduced[i], i < 4);
        assert_int_equal(poisoned[i], i < 4 ? INT32_MIN : 0);
    }
    cgm_seat_give(&seat);
    cgm_seats_fini(&seats);
}

enum { LARGE = 1 << 24 };

struct shared_seats {
    struct cgm_seats seats;
    struct cgm_matrix matrix, source;
    void (*work)(struct shared_seats *shared, struct cgm_seat *seat);
    _Atomic bool begun, over;
};

static void poison(struct shared_seats *shared, struct cgm_seat *seat)
{
    cgm_matrix_poison(&shared->matrix, seat);
}

static void copy(struct shared_seats *shared, struct cgm_seat *seat)
{
    cgm_matrix_copy(&shared->matrix, &shared->source, seat);
}

static void reduce_one(struct shared_seats *shared, struct cgm_seat *seat)
{
    struct cgm_matrix_reduce reduce = {.dst = shared->matrix, .n_src = 1};
    cgm_matrix_reduce(&reduce, &shared->source, seat);
}

/* Its turn is over from the beginning, and somebody waits. */
static void *work_long(void *argument)
{
    struct shared_seats *shared = argument;
    struct cgm_seat seat = {.seats = &shared->seats};
    assert_true(cgm_seat_take(&seat));
    shared->begun = true;
    while (atomic_load(&shared->seats.n_waiting) == 0)
        usleep(1000);
    seat.until_ns = 0;
    shared->work(shared, &seat);
    shared->over = true;
    cgm_seat_give(&seat);
    return NULL;
}

/* There is one, and who waits gets it before the long work is over. */
static void test_seats_are_shared_within_long_work(void **state)
{
    static void (*const works[])(struct shared_seats * shared,
                                 struct cgm_seat * seat) = {poison, copy, reduce_one};
    struct shared_seats shared = {0};
    char *bytes = calloc(2, LARGE);
    (void)state;
    shared.matrix = (struct cgm_matrix){bytes, LARGE / 4096, 1024, 1024, CGM_DTYPE_FP32, NULL};
    shared.source = shared.matrix;
    shared.source.data = bytes + LARGE;
    for (size_t i = 0; i < sizeof(works) / sizeof(works[0]); i++) {
        struct cgm_seat seat = {.seats = &shared.seats};
        pthread_t thread;
        cgm_seats_init(&shared.seats, CGM_SEATS, 1);
        shared.work = works[i];
        shared.begun = shared.over = false;
        assert_int_equal(pthread_create(&thread, NULL, work_long, &shared), 0);
        while (!shared.begun)
            usleep(1000);
        assert_true(cgm_seat_take(&seat));
        assert_false(shared.over);
        cgm_seat_give(&seat);
        pthread_join(thread, NULL);
        assert_true(shared.over);
        cgm_seats_fini(&shared.seats);
    }
    free(bytes);
}

int main(void)
{
    fixture_seed();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_copy),     cmocka_unit_test(test_copy_onto_its_source),
        cmocka_unit_test(test_reduce),   cmocka_unit_test(test_reduce_integers),
        cmocka_unit_test(test_poison),   cmocka_unit_test(test_what_is_aborted_ends),
        cmocka_unit_test(test_refusals), cmocka_unit_test(test_seats_are_shared_within_long_work),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
