/* Nothing is allocated on a job's way, by us or by what we call: malloc itself counts. */
#include "tests/unit/cpu_matrix.h"

#include <stdatomic.h>

static _Atomic bool counting;
static _Atomic uint64_t allocations;

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) && defined(__GLIBC__)
#define COUNTS 1
#define PUBLIC __attribute__((visibility("default")))

void *__libc_malloc(size_t bytes);
void *__libc_calloc(size_t count, size_t bytes);
void *__libc_realloc(void *old, size_t bytes);
void *__libc_memalign(size_t alignment, size_t bytes);

static void count(void)
{
    if (atomic_load(&counting))
        atomic_fetch_add(&allocations, 1);
}

PUBLIC void *malloc(size_t bytes)
{
    count();
    return __libc_malloc(bytes);
}

PUBLIC void *calloc(size_t n, size_t bytes)
{
    count();
    return __libc_calloc(n, bytes);
}

PUBLIC void *realloc(void *old, size_t bytes)
{
    count();
    return __libc_realloc(old, bytes);
}

PUBLIC void *aligned_alloc(size_t alignment, size_t bytes)
{
    count();
    return __libc_memalign(alignment, bytes);
}

PUBLIC int posix_memalign(void **ret, size_t alignment, size_t bytes)
{
    count();
    *ret = __libc_memalign(alignment, bytes);
    return *ret ? 0 : 12;
}
#else
#define COUNTS 0
#endif

static void enqueue_one_of_each(struct cgm_queue *queue, struct cgm_flag *flag, uint64_t epoch,
                                const struct tensor t[3])
{
    static const struct cgm_label label;
    struct cgm_gemm gemm = {.a = t[0].view, .b = t[1].view, .out = t[2].view};
    static struct cgm_reduce reduce;
    reduce =
        (struct cgm_reduce){.dst = t[2].view, .n_src = 3, .src = {t[0].view, t[1].view, t[0].view}};
    struct cgm_copy copy = {.dst = t[2].view, .src = t[2].view};
    copy.src.mem = copy.dst.mem;
    copy.src.rows = copy.dst.rows = t[2].view.rows / 2;
    copy.src.offset_bytes += copy.dst.rows * copy.dst.stride * cgm_dtype_bytes(copy.dst.dtype);
    assert_int_equal(ops->gemm(queue, &gemm), CGM_OK);
    assert_int_equal(ops->reduce(queue, &reduce), CGM_OK);
    assert_int_equal(ops->copy(queue, &copy), CGM_OK);
    assert_int_equal(ops->poison(queue, &t[2].view), CGM_OK);
    assert_int_equal(ops->signal(queue, flag, epoch), CGM_OK);
    assert_int_equal(ops->wait(queue, flag, epoch, &label), CGM_OK);
}

static void test_nothing_is_allocated(void **state)
{
    (void)state;
    struct cgm_backend *backend = fixture_open(0);
    struct cgm_queue *queue = fixture_queue(backend, 0);
    struct cgm_flag *flag = fixture_flag(backend, CGM_FLAG_HOST);
    struct tensor t[3];
    for (int i = 0; i < 3; i++)
        tensor_init(&t[i], backend, 900, 900, i, CGM_FILL_NORMAL);
    for (uint64_t epoch = 1; epoch <= 12; epoch++) {
        atomic_store(&counting, epoch > 2);
        enqueue_one_of_each(queue, flag, epoch, t);
        fixture_await(flag, epoch);
    }
    atomic_store(&counting, false);
    assert_int_equal(allocations, 0);
    assert_true(ops->allocations(backend) == 0);
    for (int i = 0; i < 3; i++)
        tensor_fini(&t[i]);
    ops->queue_free(queue);
    ops->flag_free(flag);
    ops->close(backend);
}

/* The counter itself works. */
static void test_counter(void **state)
{
    (void)state;
    uint64_t before = allocations;
    atomic_store(&counting, true);
    void *volatile block = malloc(1000);
    atomic_store(&counting, false);
    free(block);
    assert_int_equal(allocations, before + COUNTS);
}

int main(void)
{
    fixture_seed();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nothing_is_allocated),
        cmocka_unit_test(test_counter),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
