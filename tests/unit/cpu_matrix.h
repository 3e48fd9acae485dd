/* A random matrix inside a larger memory, and what must be left of that memory. */
#ifndef CPU_MATRIX_H
#define CPU_MATRIX_H

#include <sys/mman.h>
#include <unistd.h>

#include "tests/unit/cpu_fixture.h"

struct tensor {
    struct cgm_view view;
    struct cgm_mem *mem;
    char *bytes; /* the memory, as the test maps it */
    uint64_t n_bytes;
    float *values; /* rows x cols, rounded to the type */
    char *before;  /* the memory as it was filled */
};

/* The test's own mapping of a memory. */
static inline char *fixture_map(struct cgm_mem *mem)
{
    int fd = -1;
    assert_int_equal(ops->mem_export(mem, &fd), CGM_OK);
    void *at = mmap(NULL, ops->mem_bytes(mem), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    assert_true(at != MAP_FAILED);
    close(fd);
    return at;
}

static inline char *tensor_at(const struct tensor *t, uint64_t row, uint64_t col)
{
    uint64_t element = cgm_dtype_bytes(t->view.dtype);
    return t->bytes + t->view.offset_bytes + (row * t->view.stride + col) * element;
}

/* The values become the matrix. */
static inline void tensor_write(struct tensor *t)
{
    for (uint64_t row = 0; row < t->view.rows; row++)
        cgm_format_store(t->view.dtype, t->values + row * t->view.cols, t->view.cols,
                         tensor_at(t, row, 0));
    memcpy(t->before, t->bytes, t->n_bytes);
}

static inline void tensor_init(struct tensor *t, struct cgm_backend *backend, uint64_t rows,
                               uint64_t cols, int dtype, enum cgm_fill fill)
{
    uint64_t element = cgm_dtype_bytes(dtype);
    uint64_t stride = cols + (pick(0, 2) ? pick(0, 9) : 0);
    uint64_t offset = pick(0, 20) * element;
    t->view = (struct cgm_view){NULL, offset, rows, cols, stride, dtype};
    assert_int_equal(
        ops->mem_alloc(backend, (uint32_t)pick(0, 3), offset + rows * stride * element, 0, &t->mem),
        CGM_OK);
    t->view.mem = t->mem;
    t->n_bytes = ops->mem_bytes(t->mem);
    t->bytes = fixture_map(t->mem);
    t->values = malloc(rows * cols * sizeof(float));
    t->before = malloc(t->n_bytes);
    for (uint64_t i = 0; i < t->n_bytes; i++)
        t->bytes[i] = (char)cgm_random_next(&rng);
    cgm_random_fill(&rng, fill, t->values, rows * cols);
    cgm_format_round(dtype, t->values, rows * cols);
    tensor_write(t);
}

static inline void tensor_fini(struct tensor *t)
{
    munmap(t->bytes, t->n_bytes);
    ops->mem_free(t->mem);
    free(t->values);
    free(t->before);
}

/* Makes the matrix NaN. */
static inline void tensor_poison(struct tensor *t)
{
    for (uint64_t i = 0; i < t->view.rows * t->view.cols; i++)
        t->values[i] = __builtin_nanf("");
    tensor_write(t);
}

/* Nothing outside of the matrix was written. */
static inline void tensor_check_outside(const struct tensor *t)
{
    uint64_t element = cgm_dtype_bytes(t->view.dtype);
    for (uint64_t row = 0; row < t->view.rows; row++) {
        uint64_t at = (uint64_t)(tensor_at(t, row, 0) - t->bytes);
        memcpy(t->before + at, t->bytes + at, t->view.cols * element);
    }
    assert_memory_equal(t->before, t->bytes, t->n_bytes);
}

static inline void tensor_check(const struct tensor *t, const struct cgm_reference *reference)
{
    struct cgm_reference_found found = {.data = tensor_at(t, 0, 0),
                                        .format = t->view.dtype,
                                        .rows = t->view.rows,
                                        .cols = t->view.cols,
                                        .stride = t->view.stride};
    struct cgm_verdict verdict = {0};
    cgm_reference_check(reference, &found, &verdict);
    if (!cgm_verdict_is_right(&verdict))
        fail_msg("ratio %g at (%llu, %llu) of %llu x %llu: found %g, expected %g +- %g",
                 verdict.ratio, (unsigned long long)verdict.row, (unsigned long long)verdict.col,
                 (unsigned long long)t->view.rows, (unsigned long long)t->view.cols, verdict.found,
                 verdict.expected, verdict.bound);
    tensor_check_outside(t);
}

#endif
