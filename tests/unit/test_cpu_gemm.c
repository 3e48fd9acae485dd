#include "tests/unit/cpu_fixture.h"
#include "tests/unit/cpu_matrix.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "daemon/executor/cpu/gemm.h"
#include "kernels/openblas.h"

/* Every operand is a window in a larger memory: other strides, other offsets. */
struct product {
    struct tensor a, b, out, bias;
    struct cgm_gemm gemm;
};

static void product_init(struct product *p, struct cgm_backend *backend, const uint64_t size[3],
                         const int types[3], unsigned layout)
{
    uint64_t m = size[0], n = size[1], k = size[2];
    bool transa = layout & 1, transb = layout & 2, bias = layout & 4;
    enum cgm_fill fill = layout & 16 ? CGM_FILL_WIDE : CGM_FILL_NORMAL;
    tensor_init(&p->a, backend, transa ? k : m, transa ? m : k, types[0], fill);
    tensor_init(&p->b, backend, transb ? n : k, transb ? k : n, types[1], CGM_FILL_NORMAL);
    tensor_init(&p->out, backend, m, n, types[2], CGM_FILL_NORMAL);
    tensor_init(&p->bias, backend, 1, n, types[(layout >> 5) % 3], CGM_FILL_NORMAL);
    p->gemm = (struct cgm_gemm){.a = p->a.view,
                                .b = p->b.view,
                                .out = p->out.view,
                                .transa = transa,
                                .transb = transb,
                                .accumulate = layout & 8};
    if (bias)
        p->gemm.bias = p->bias.view;
    if (!p->gemm.accumulate)
        tensor_poison(&p->out);
}

static void product_fini(struct product *p)
{
    tensor_fini(&p->a);
    tensor_fini(&p->b);
    tensor_fini(&p->out);
    tensor_fini(&p->bias);
}

static void product_check(struct product *p)
{
    const struct cgm_gemm *g = &p->gemm;
    struct cgm_reference reference;
    uint64_t depth = g->transa ? g->a.rows : g->a.cols;
    assert_int_equal(cgm_reference_init(&reference, g->out.rows, g->out.cols, false), 0);
    struct cgm_reference_product product = {.a = p->a.values,
                                            .b = p->b.values,
                                            .a_stride = g->a.cols,
                                            .b_stride = g->b.cols,
                                            .depth = depth,
                                            .transa = g->transa,
                                            .transb = g->transb};
    assert_int_equal(cgm_reference_add_product(&reference, &product), 0);
    if (g->bias.mem)
        cgm_reference_add_bias(&reference, p->bias.values);
    if (g->accumulate)
        cgm_reference_add_matrix(&reference, p->out.values, g->out.cols);
    tensor_check(&p->out, &reference);
    cgm_reference_fini(&reference);
}

static void multiply_and_check(struct cgm_backend *backend, struct cgm_queue *queue,
                               const uint64_t size[3], const int types[3], unsigned layout)
{
    struct product p;
    product_init(&p, backend, size, types, layout);
    assert_int_equal(ops->gemm(queue, &p.gemm), CGM_OK);
    fixture_drain(backend, queue);
    product_check(&p);
    product_fini(&p);
}

static void test_every_layout_and_type(void **state)
{
    (void)state;
    struct cgm_backend *backend = fixture_open(0);
    struct cgm_queue *queue = fixture_queue(backend, 1);
    for (unsigned layout = 0; layout < 32; layout++) {
        for (int combination = 0; combination < 27; combination++) {
            int types[3] = {combination % 3, combination / 3 % 3, combination / 9};
            uint64_t size[3] = {pick(1, 70), pick(1, 70), pick(1, 90)};
            multiply_and_check(backend, queue, size, types, layout | (unsigned)pick(0, 2) << 5);
        }
    }
    ops->queue_free(queue);
    ops->close(backend);
}

static void test_more_than_one_block(void **state)
{
    (void)state;
    struct cgm_backend *backend = fixture_open(0);
    struct cgm_queue *queue = fixture_queue(backend, 0);
    /* Each size above a block, with and without bias and accumulation. */
    for (int i = 0; i < 12; i++) {
        int types[3] = {(int)pick(0, 2), (int)pick(0, 2), (int)pick(0, 2)};
        types[pick(0, 2)] = (int)pick(1, 2);
        uint64_t size[3] = {pick(1, 100), pick(1, 100), pick(1, 100)};
        size[i % 3] = pick(769, 2500);
        size[(i + 1) % 3] = pick(500, 1000);
        unsigned epilogue = (unsigned)i / 3 << 2, others = (unsigned)pick(0, 95) & ~12u;
        multiply_and_check(backend, queue, size, types, epilogue | others);
    }
    ops->queue_free(queue);
    ops->close(backend);
}

/* Sums of the largest and smallest numbers, deeper than a block: exact, and far beyond what fp32
 * holds. */
static void test_int8_is_exact(void **state)
{
    (void)state;
    struct cgm_backend *backend = fixture_open(0);
    struct cgm_queue *queue = fixture_queue(backend, 0);
    for (unsigned i = 0; i < 40; i++) {
        struct product p;
        bool extreme = i % 2;
        uint64_t size[3] = {pick(1, 40), pick(1, 60), pick(1, 200)};
        size[2] = i % 4 == 0 ? pick(769, 9000) : i == 39 ? (1 << 17) - 1 : size[2];
        product_init(&p, backend, size, (int[]){CGM_DTYPE_INT8, CGM_DTYPE_INT8, CGM_DTYPE_INT32},
                     i / 2 % 4);
        struct tensor *factors[] = {&p.a, &p.b};
        for (int f = 0; f < 2; f++) {
            for (uint64_t at = 0; at < factors[f]->view.rows * factors[f]->view.cols; at++)
                factors[f]->values[at] = extreme ? -128 : (float)pick(0, 255) - 128;
            tensor_write(factors[f]);
        }
        assert_int_equal(ops->gemm(queue, &p.gemm), CGM_OK);
        fixture_drain(backend, queue);
        product_check(&p);
        product_fini(&p);
    }
    ops->queue_free(queue);
    ops->close(backend);
}

#define QUEUES 12
#define EACH 6

static void test_many_queues_at_once(void **state)
{
    (void)state;
    struct cgm_backend *backend = fixture_open(200);
    struct cgm_queue *queues[QUEUES];
    static struct product products[QUEUES][EACH];
    for (int i = 0; i < QUEUES; i++)
        queues[i] = fixture_queue(backend, (uint32_t)i % 4);
    for (int i = 0; i < QUEUES; i++) {
        for (int j = 0; j < EACH; j++) {
            int types[3] = {(int)pick(0, 2), (int)pick(0, 2), (int)pick(0, 2)};
            uint64_t size[3] = {pick(1, 200), pick(1, 200), pick(1, 300)};
            product_init(&products[i][j], backend, size, types, (unsigned)pick(0, 95));
            assert_int_equal(ops->gemm(queues[i], &products[i][j].gemm), CGM_OK);
        }
    }
    for (int i = 0; i < QUEUES; i++) {
        ops->queue_free(queues[i]);
        for (int j = 0; j < EACH; j++) {
            product_check(&products[i][j]);
            product_fini(&products[i][j]);
        }
    }
    ops->close(backend);
}

static void test_refusals(void **state)
{
    (void)state;
    struct cgm_backend *backend = fixture_open(0);
    struct cgm_queue *queue = fixture_queue(backend, 0);
    struct product p;
    product_init(&p, backend, (uint64_t[]){6, 7, 8}, (int[]){0, 1, 2}, 4);
    const struct cgm_gemm good = p.gemm;
#define REFUSED(change)                                                                            \
    do {                                                                                           \
        struct cgm_gemm bad = good;                                                                \
        change;                                                                                    \
        assert_int_equal(ops->gemm(queue, &bad), CGM_INVALID_ARGUMENT);                            \
    } while (0)
    REFUSED(bad.a.mem = NULL);
    REFUSED(bad.b.mem = NULL);
    REFUSED(bad.out.mem = NULL);
    REFUSED(bad.a.cols--);
    REFUSED(bad.b.cols--);
    REFUSED(bad.out.rows--);
    REFUSED(bad.bias.cols--);
    REFUSED(bad.transa = true);
    REFUSED(bad.transb = true);
    REFUSED(bad.a.rows = 0);
    REFUSED(bad.a.stride = bad.a.cols - 1);
    REFUSED(bad.a.offset_bytes++);
    REFUSED(bad.b.dtype = 99);
    REFUSED(bad.b.dtype = CGM_DTYPE_INT8);
    REFUSED(bad.a.dtype = bad.b.dtype = CGM_DTYPE_INT8);
    REFUSED(bad.out.dtype = CGM_DTYPE_INT32);
    REFUSED(bad.bias.dtype = CGM_DTYPE_INT32);
    REFUSED(bad.out.offset_bytes = UINT64_MAX - 1);
    REFUSED(bad.out.stride = UINT64_MAX / 4);
    REFUSED(bad.out.offset_bytes = ops->mem_bytes(bad.out.mem) - 2);
#undef REFUSED
    product_fini(&p);
    ops->queue_free(queue);
    ops->close(backend);
}

/* ---- how long until an abort is seen ----------------------------------------------------------
 */

/* What BLAS was asked for instead of doing it. */
static struct {
    uint64_t calls, steps, most; /* steps: multiplications and additions */
    uint64_t touched;            /* bytes of pages of one matrix by one call, at most */
    _Atomic int abort, abort_at_first;
} asked;

static void note_touched(int lines, int width, int stride)
{
    uint64_t line = 4 * (uint64_t)width + 8192, apart = 4 * (uint64_t)stride;
    uint64_t touched = (uint64_t)lines * (line < apart ? line : apart);
    asked.touched = touched > asked.touched ? touched : asked.touched;
}

static void note_sgemm(enum CBLAS_ORDER order, enum CBLAS_TRANSPOSE transa,
                       enum CBLAS_TRANSPOSE transb, int m, int n, int k, float alpha,
                       const float *a, int lda, const float *b, int ldb, float beta, float *c,
                       int ldc)
{
    uint64_t steps = (uint64_t)m * (uint64_t)n * (uint64_t)k;
    (void)order, (void)alpha, (void)a, (void)b, (void)beta, (void)c;
    asked.calls++;
    asked.steps += steps;
    asked.most = steps > asked.most ? steps : asked.most;
    note_touched(m, n, ldc);
    note_touched(transa == CblasTrans ? k : m, transa == CblasTrans ? m : k, lda);
    note_touched(transb == CblasTrans ? n : k, transb == CblasTrans ? k : n, ldb);
    asked.abort = asked.abort_at_first;
}

/* Addresses without memory are enough for fp32, which is multiplied where it lies. */
static void ask(struct cgm_gemm_panels *panels, char *data, uint64_t m, uint64_t n, uint64_t k,
                int dtype, bool abort_at_first)
{
    struct cgm_seats seats;
    struct cgm_seat seat = {.seats = &seats, .abort = &asked.abort};
    const struct cgm_matrix_gemm gemm = {.a = {data, m, k, k, dtype, NULL},
                                         .b = {data, k, n, n, dtype, NULL},
                                         .out = {data, m, n, n, dtype, NULL}};
    assert_int_equal(cgm_gemm_check(&gemm), CGM_OK);
    cgm_seats_init(&seats, CGM_SEATS, 1);
    memset(&asked, 0, sizeof(asked));
    asked.abort_at_first = abort_at_first;
    cgm_gemm_multiply(&gemm, panels, &seat);
    assert_int_equal(seats.n_taken, asked.calls > 0);
    cgm_seat_give(&seat);
    cgm_seats_fini(&seats);
}

/* A job that is aborted and does not end for seconds is taken for stuck, and ends the executor. */
static void test_no_call_takes_long(void **state)
{
    static const uint64_t sizes[][3] = {
        {1024, 65536, 32768}, {3000, 131072, 131072}, {1024, 1024, 1 << 20}, {8, 8, 1 << 26},
        {1, 1 << 30, 4},      {1 << 30, 4, 4},        {2000, 2000, 2000},
    };
    const uint64_t bytes = 1ull << 37;
    (void)state;
    char *data = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    assert_ptr_not_equal(data, MAP_FAILED);
    struct cgm_gemm_panels *panels = cgm_gemm_panels_new(1);
    struct cgm_openblas openblas = cgm_openblas;
    cgm_openblas.sgemm = note_sgemm;
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        const uint64_t *size = sizes[i];
        ask(panels, data, size[0], size[1], size[2], CGM_DTYPE_FP32, false);
        assert_int_equal(asked.steps, size[0] * size[1] * size[2]);
        assert_in_range(asked.most, 1, 1ull << 34);
        ask(panels, data, size[0], size[1], size[2], CGM_DTYPE_FP32, true);
        assert_int_equal(asked.calls, 1);
    }
    munmap(data, bytes);
    data = calloc(1, 1 << 22);
    assert_non_null(data);
    ask(panels, data, 4, 4, 1 << 18, CGM_DTYPE_BF16, true);
    assert_int_equal(asked.calls, 1);
    free(data);
    cgm_openblas = openblas;
    cgm_gemm_panels_free(panels, 1);
}

/* Lines that lie apart and long ones, however the operands are stored. */
static void test_memory_is_touched_in_pieces(void **state)
{
    static const uint64_t sizes[][4] = {/* m, n, k, and how far lines are apart at least */
                                        {1 << 24, 1, 1, 1024},      {1 << 24, 1, 1, 2},
                                        {1, 1 << 24, 1, 2048},      {1, 1, 1 << 24, 4096},
                                        {64, 1 << 26, 1, 1},        {1, 1, 1 << 29, 1},
                                        {5000, 9000, 8192, 1 << 14}};
    struct cgm_seats seats;
    struct cgm_seat seat = {.seats = &seats};
    struct cgm_gemm_panels *panels = cgm_gemm_panels_new(1);
    struct cgm_openblas openblas = cgm_openblas;
    char some;
    (void)state;
    cgm_seats_init(&seats, CGM_SEATS, 1);
    cgm_openblas.sgemm = note_sgemm;
    for (size_t i = 0; i < 4 * sizeof(sizes) / sizeof(sizes[0]); i++) {
        bool transa = i & 1, transb = i & 2;
        uint64_t m = sizes[i / 4][0], n = sizes[i / 4][1], k = sizes[i / 4][2];
        uint64_t apart = sizes[i / 4][3], cols_a = transa ? m : k, cols_b = transb ? k : n;
        const struct cgm_matrix_gemm gemm = {
            .a = {&some, transa ? k : m, cols_a, cols_a > apart ? cols_a : apart, CGM_DTYPE_FP32,
                  NULL},
            .b = {&some, transb ? n : k, cols_b, cols_b > apart ? cols_b : apart, CGM_DTYPE_FP32,
                  NULL},
            .out = {&some, m, n, n > apart ? n : apart, CGM_DTYPE_FP32, NULL},
            .transa = transa,
            .transb = transb};
        memset(&asked, 0, sizeof(asked));
        cgm_gemm_multiply(&gemm, panels, &seat);
        assert_int_equal(asked.steps, m * n * k);
        assert_in_range(asked.touched, 1, CGM_HOLES_BYTES);
    }
    cgm_seat_give(&seat);
    cgm_seats_fini(&seats);
    cgm_openblas = openblas;
    cgm_gemm_panels_free(panels, 1);
}

/* In the panel there may be what somebody else has left. */
static void test_an_aborted_block_is_not_stored(void **state)
{
    static const uint64_t depths[] = {2000, 1 << 18};
    struct cgm_gemm_panels *panels = cgm_gemm_panels_new(1);
    struct cgm_openblas openblas = cgm_openblas;
    char *data = calloc(1, 1 << 22);
    (void)state;
    assert_non_null(data);
    cgm_openblas.sgemm = note_sgemm;
    for (size_t i = 0; i < sizeof(depths) / sizeof(depths[0]); i++) {
        char out[4 * 4 * 2], before[sizeof(out)];
        struct cgm_seats seats;
        struct cgm_seat seat = {.seats = &seats, .abort = &asked.abort};
        const struct cgm_matrix_gemm gemm = {
            .a = {data, 4, depths[i], depths[i], CGM_DTYPE_BF16, NULL},
            .b = {data, depths[i], 4, 4, CGM_DTYPE_BF16, NULL},
            .out = {out, 4, 4, 4, CGM_DTYPE_BF16, NULL}};
        memset(out, 0x55, sizeof(out));
        memcpy(before, out, sizeof(out));
        cgm_seats_init(&seats, CGM_SEATS, 1);
        memset(&asked, 0, sizeof(asked));
        asked.abort_at_first = true;
        cgm_gemm_multiply(&gemm, panels, &seat);
        assert_int_equal(asked.calls, 1);
        assert_memory_equal(out, before, sizeof(out));
        cgm_seat_give(&seat);
        cgm_seats_fini(&seats);
    }
    free(data);
    cgm_openblas = openblas;
    cgm_gemm_panels_free(panels, 1);
}

/* ---- several threads that change seats --------------------------------------------------------
 */

#define GUESTS 3u
#define SEATS 2u
#define TIMES 10

struct guest {
    pthread_t thread;
    struct cgm_matrix_gemm gemm;
    struct cgm_gemm_panels *panels; /* of all seats */
    struct cgm_seat seat;
};

static void *guest_run(void *argument)
{
    struct guest *guest = argument;
    for (int i = 0; i < TIMES; i++)
        cgm_gemm_multiply(&guest->gemm, guest->panels, &guest->seat);
    cgm_seat_give(&guest->seat);
    return NULL;
}

static struct cgm_matrix random_matrix(uint64_t rows, uint64_t cols, int dtype)
{
    uint64_t bytes = rows * cols * cgm_dtype_bytes((enum cgm_dtype)dtype);
    unsigned char *data = malloc(bytes);
    assert_non_null(data);
    for (uint64_t i = 0; i < bytes; i++) /* of bf16: from 2^-126 to 4 */
        data[i] = (unsigned char)(rand() & (dtype == CGM_DTYPE_BF16 && i % 2 ? 0x40 : 0xff));
    return (struct cgm_matrix){(char *)data, rows, cols, cols, dtype, NULL};
}

static struct cgm_matrix_gemm random_gemm(const uint64_t size[3], int dtype)
{
    bool integer = dtype == CGM_DTYPE_INT8;
    struct cgm_matrix bias = {0};
    if (!integer)
        bias = random_matrix(1, size[1], dtype);
    return (struct cgm_matrix_gemm){
        .a = random_matrix(size[0], size[2], dtype),
        .b = random_matrix(size[2], size[1], dtype),
        .out = random_matrix(size[0], size[1], integer ? CGM_DTYPE_INT32 : dtype),
        .bias = bias,
        .accumulate = !integer};
}

static void gemm_free(const struct cgm_matrix_gemm *gemm)
{
    free(gemm->a.data);
    free(gemm->b.data);
    free(gemm->out.data);
    free(gemm->bias.data);
}

static uint64_t out_bytes(const struct guest *guest)
{
    const struct cgm_matrix *out = &guest->gemm.out;
    return out->rows * out->cols * cgm_dtype_bytes((enum cgm_dtype)out->dtype);
}

/* Results are copied; the caller frees them. */
static void multiply_all(struct guest *guests, unsigned at_once, void **ret_results)
{
    struct cgm_seats seats;
    struct cgm_gemm_panels *panels = cgm_gemm_panels_new(SEATS);
    cgm_seats_init(&seats, SEATS, 1);
    for (unsigned i = 0; i < GUESTS; i += at_once) {
        for (unsigned k = i; k < i + at_once; k++) {
            memset(guests[k].gemm.out.data, 0, out_bytes(&guests[k]));
            guests[k].panels = panels;
            guests[k].seat = (struct cgm_seat){.seats = &seats, .uid = k};
            assert_int_equal(pthread_create(&guests[k].thread, NULL, guest_run, &guests[k]), 0);
        }
        for (unsigned k = i; k < i + at_once; k++) {
            pthread_join(guests[k].thread, NULL);
            ret_results[k] = malloc(out_bytes(&guests[k]));
            assert_non_null(ret_results[k]);
            memcpy(ret_results[k], guests[k].gemm.out.data, out_bytes(&guests[k]));
        }
    }
    cgm_seats_fini(&seats);
    cgm_gemm_panels_free(panels, SEATS);
}

/* Each has another one's seat after a while, and its own results. */
static void test_threads_that_change_seats(void **state)
{
    static const struct {
        uint64_t size[3];
        int dtype;
    } cases[] = {{{900, 800, 60}, CGM_DTYPE_BF16},
                 {{300, 1000, 800}, CGM_DTYPE_BF16},
                 {{20, 70, 140000}, CGM_DTYPE_BF16},
                 {{70, 20, 40000}, CGM_DTYPE_BF16},
                 {{300, 900, 800}, CGM_DTYPE_INT8}};
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const uint64_t *size = cases[i].size;
        struct guest guests[GUESTS];
        void *alone[GUESTS], *beside[GUESTS];
        for (unsigned k = 0; k < GUESTS; k++)
            guests[k].gemm = random_gemm(size, cases[i].dtype);
        multiply_all(guests, 1, alone);
        multiply_all(guests, GUESTS, beside);
        for (unsigned k = 0; k < GUESTS; k++) {
            assert_memory_equal(alone[k], beside[k], out_bytes(&guests[k]));
            free(alone[k]);
            free(beside[k]);
            gemm_free(&guests[k].gemm);
        }
    }
}

int main(void)
{
    fixture_seed();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_layout_and_type),
        cmocka_unit_test(test_an_aborted_block_is_not_stored),
        cmocka_unit_test(test_threads_that_change_seats),
        cmocka_unit_test(test_more_than_one_block),
        cmocka_unit_test(test_int8_is_exact),
        cmocka_unit_test(test_many_queues_at_once),
        cmocka_unit_test(test_no_call_takes_long),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_memory_is_touched_in_pieces),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
