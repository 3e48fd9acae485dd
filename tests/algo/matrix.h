/* The whole matrices of an operation, and which part of them each rank has. */
#ifndef MATRIX_H
#define MATRIX_H

#include "tests/algo/rig.h"

/* BY_COUNTS: rows of one rank behind those of the other, as many as the plan says. */
enum sharing { NOTHING, WHOLE, BY_ROWS, BY_COLS, OWN, BY_COUNTS };

/* Row-major fp32, holding numbers of the job's types. OWN: one for each rank, else the first. */
struct matrix {
    enum sharing sharing;
    uint64_t rows, cols;
    float *values[RIG_RANKS];
};

struct part {
    const float *values;
    uint64_t row, col, rows, cols, stride;
};

/* Of int8 every number, of int32 such that a sum of eight is an fp32 number. */
static inline void fill_integers(struct cgm_random *rng, int dtype, float *ret_values,
                                 uint64_t count)
{
    uint64_t span = dtype == CGM_DTYPE_INT8 ? 256 : 1u << 21, half = span / 2;
    for (uint64_t i = 0; i < count; i++)
        ret_values[i] = (float)cgm_random_below(rng, span) - (float)half;
}

static inline struct matrix matrix_new(enum sharing sharing, uint32_t world, uint64_t rows,
                                       uint64_t cols, int dtype, struct cgm_random *rng,
                                       enum cgm_fill fill)
{
    struct matrix matrix = {.sharing = sharing, .rows = rows, .cols = cols};
    uint32_t count = sharing == OWN ? world : sharing == NOTHING ? 0 : 1;
    for (uint32_t i = 0; i < count; i++) {
        matrix.values[i] = malloc(rows * cols * sizeof(float));
        assert_non_null(matrix.values[i]);
        if (dtype == CGM_DTYPE_INT8 || dtype == CGM_DTYPE_INT32)
            fill_integers(rng, dtype, matrix.values[i], rows * cols);
        else
            cgm_random_fill(rng, fill, matrix.values[i], rows * cols);
        cgm_format_round(dtype, matrix.values[i], rows * cols);
    }
    return matrix;
}

static inline void matrix_free(struct matrix *matrix)
{
    for (uint32_t i = 0; i < RIG_RANKS; i++)
        free(matrix->values[i]);
}

static inline struct part matrix_part(const struct matrix *matrix, uint32_t world, uint32_t rank)
{
    struct part part = {
        .values = matrix->values[matrix->sharing == OWN ? rank : 0],
        .rows = matrix->rows,
        .cols = matrix->cols,
        .stride = matrix->cols,
    };
    if (matrix->sharing == BY_ROWS) {
        part.rows /= world;
        part.row = rank * part.rows;
    }
    if (matrix->sharing == BY_COLS) {
        part.cols /= world;
        part.col = rank * part.cols;
    }
    part.values += part.row * part.stride + part.col;
    return part;
}

/* Rounds and stores a part as an operand is stored: view's shape is that of the part, or
 * transposed. */
static inline void part_store(const struct part *part, bool transposed, const struct cgm_view *view,
                              unsigned char *base)
{
    size_t bytes = cgm_dtype_bytes(view->dtype);
    float *line = malloc(view->cols * sizeof(float));
    assert_non_null(line);
    assert_int_equal(view->rows, transposed ? part->cols : part->rows);
    assert_int_equal(view->cols, transposed ? part->rows : part->cols);
    for (uint64_t i = 0; i < view->rows; i++) {
        for (uint64_t j = 0; j < view->cols; j++)
            line[j] = part->values[transposed ? j * part->stride + i : i * part->stride + j];
        cgm_format_store(view->dtype, line, view->cols,
                         base + view->offset_bytes + i * view->stride * bytes);
    }
    free(line);
}

#endif
