/* A view resolved to a pointer, and what is done with it element by element. */
#ifndef CGM_CPU_MATRIX_H
#define CGM_CPU_MATRIX_H

#include "daemon/executor/backend.h"
#include "daemon/executor/cpu/seats.h"
#include "daemon/executor/host/holes.h"

struct cgm_matrix {
    char *data;                  /* NULL: absent */
    uint64_t rows, cols, stride; /* in elements */
    int dtype;
    struct cgm_hole_watch *watch; /* of the memory; NULL: none */
};

/* *abort is not 0 (NULL: it never is), or what this thread works on has holes (host/holes.h). */
bool cgm_is_aborted(const _Atomic int *abort);

/* What may take long asks every few milliseconds whether it goes on; others may have had the seat
 * meanwhile. False: it is aborted. seat NULL: there are no others, and it never is, but for
 * holes. */
bool cgm_goes_on(struct cgm_seat *seat);

/* OK, or INVALID_ARGUMENT when the view is empty, misaligned, outside its memory, of an unknown
 * type, or to be written and read-only. An absent view gives an absent matrix. */
int cgm_matrix_resolve(const struct cgm_view *view, bool writes, struct cgm_matrix *ret_matrix);

/* Of an absent matrix: false. */
bool cgm_matrix_is_integer(const struct cgm_matrix *matrix);

bool cgm_matrix_same_shape(const struct cgm_matrix *a, const struct cgm_matrix *b);

/* Where element (row, col) lies. */
char *cgm_matrix_at(const struct cgm_matrix *matrix, uint64_t row, uint64_t col);

/* Elements of a block <-> fp32 values, side by side in row order. */
void cgm_matrix_load(const struct cgm_matrix *matrix, uint64_t row, uint64_t col, uint64_t rows,
                     uint64_t cols, float *ret_values);
void cgm_matrix_store(const struct cgm_matrix *matrix, uint64_t row, uint64_t col, uint64_t rows,
                      uint64_t cols, const float *values);

/* Adds `count` elements of a row to fp32 sums. */
void cgm_matrix_add(const struct cgm_matrix *matrix, uint64_t row, uint64_t col, uint64_t count,
                    float *sums);

void cgm_matrix_copy(const struct cgm_matrix *dst, const struct cgm_matrix *src,
                     struct cgm_seat *seat);
/* Not a number in every element, of integers the lowest one. False: not in all of them. */
bool cgm_matrix_poison(const struct cgm_matrix *matrix, struct cgm_seat *seat);

struct cgm_matrix_reduce {
    struct cgm_matrix dst, bias;
    uint32_t n_src;
    bool accumulate;
};

void cgm_matrix_reduce(const struct cgm_matrix_reduce *reduce, const struct cgm_matrix *sources,
                       struct cgm_seat *seat);

#endif
