/* The matrices of an operation: their sizes, and which part of them a rank has. Whole matrices and
 * shards are stored row by row in the job's types; rows and columns below are those of the stored
 * matrix, so a transposed lhs has K rows. */
#ifndef CGM_BENCH_SHARDS_H
#define CGM_BENCH_SHARDS_H

#include <stdbool.h>
#include <stdint.h>

enum cgm_split {
    CGM_SPLIT_NONE, /* every rank has all of it */
    CGM_SPLIT_ROWS,
    CGM_SPLIT_COLS,
};

enum cgm_matrix_name {
    CGM_MATRIX_LHS,
    CGM_MATRIX_RHS,
    CGM_MATRIX_BIAS,
    CGM_MATRIX_OUT,
    CGM_MATRIX_AUX,    /* what comes out besides: aux_out */
    CGM_MATRIX_AUX_IN, /* what bulk_ag and bulk_rs move */
    CGM_MATRIX_GELU_INPUT,
    CGM_MATRIX_PRE_GELU,
    CGM_MATRIX_BIAS_GRAD,
    CGM_MATRIX_COUNT,
};

struct cgm_matrix {
    bool present;
    enum cgm_split split;
    int dtype;
    uint64_t rows, cols;             /* of the whole */
    uint64_t shard_rows, shard_cols; /* of one rank's part */
};

/* What decides the shapes. */
struct cgm_sizes {
    int op;
    uint64_t m, n, k; /* m: active rows */
    uint32_t world;
    int dtype, out_dtype;
    bool transa, transb, bias, aux, gelu, grad;
    uint64_t buffer_rows, buffer_cols; /* of what bulk_ag and bulk_rs move */
    int buffer_dtype;
};

/* False when there are no shapes for the operation here. A size that the world does not divide is
 * rounded down: the daemon refuses such a plan. */
bool cgm_shards_describe(const struct cgm_sizes *sizes,
                         struct cgm_matrix ret_matrices[CGM_MATRIX_COUNT]);

/* a2av: rows from each rank to each, [from * world + to]. Every rank sends and receives m / world,
 * as unequal a number to each as adds up to that. */
void cgm_shards_count(const struct cgm_sizes *sizes, uint32_t *ret_counts);

/* Row `row` of rank's shard of what is only moved (AG's out, aux_out): where it comes from in the
 * whole that is moved. */
uint64_t cgm_shards_source_row(const struct cgm_sizes *sizes, uint32_t rank, uint64_t row);

/* What a job writes; of the others out may be one of its inputs too. */
bool cgm_matrix_is_output(enum cgm_matrix_name name);

/* "lhs", "rhs", ... Static. */
const char *cgm_matrix_text(enum cgm_matrix_name name);

uint64_t cgm_matrix_bytes(const struct cgm_matrix *matrix);
uint64_t cgm_matrix_shard_bytes(const struct cgm_matrix *matrix);

/* Where rank's part begins in the whole. */
void cgm_matrix_origin(const struct cgm_matrix *matrix, uint32_t rank, uint64_t *ret_row,
                       uint64_t *ret_col);

/* Copies rank's part out of the whole, and into it. */
void cgm_matrix_take(const struct cgm_matrix *matrix, const void *whole, uint32_t rank,
                     void *ret_shard);
void cgm_matrix_put(const struct cgm_matrix *matrix, const void *shard, uint32_t rank,
                    void *ret_whole);

#endif
