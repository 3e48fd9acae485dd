/* The table behind operation.h: one row for every operation that a plan can have. */
#ifndef CGM_OPERATION_TABLE_H
#define CGM_OPERATION_TABLE_H

#include "daemon/executor/operation.h"

/* One side of a matrix, before transposition. _SHARD: divided by the world. */
enum cgm_dim {
    CGM_DIM_NONE, /* there is no such matrix */
    CGM_DIM_ONE,
    CGM_DIM_M,
    CGM_DIM_M_SHARD,
    CGM_DIM_N,
    CGM_DIM_N_SHARD,
    CGM_DIM_K,
    CGM_DIM_K_SHARD,
    CGM_DIM_BUFFER_ROWS, /* of the other buffer of bulk_ag and bulk_rs: buffer_shape */
    CGM_DIM_BUFFER_SHARD,
    CGM_DIM_BUFFER_COLS,
    CGM_DIM_SENT, /* a2av: by counts, another number on each rank */
    CGM_DIM_RECEIVED,
    CGM_DIM_SENT_MOST, /* the largest of these numbers */
};

struct cgm_dims {
    enum cgm_dim rows, cols;
};

struct cgm_operation_row {
    int op;
    int comm_type;      /* what a plan must say */
    bool product;       /* there is a GEMM: k, transposition, fp32 output */
    bool partials;      /* the user buffer holds partial products: out_dtype or fp32 */
    bool uses_buffer;   /* jobs write the user buffer */
    bool moves_buffer;  /* the collective is about aux_in, aux_out and the user buffer alone */
    bool counted;       /* rows are those of the plan's counts */
    uint32_t epilogues; /* that have a meaning */
    uint32_t integers;  /* bits 1u << dtype: int8, int32, where it takes them */
    struct cgm_dims operand[CGM_OPERAND_COUNT];
    struct cgm_dims chunk; /* of the user buffer */
};

/* NULL when no plan can have this operation. */
const struct cgm_operation_row *cgm_operation_row(int op);

/* Writes "gemm, ag_gemm, ...": the operations that have a row and all these epilogues. */
void cgm_operation_list(uint32_t epilogues, char *ret_text, size_t size);

/* Writes "ring_exchange, none or auto": the methods of an operation that have an algorithm, with or
 * without atomic_gemm. "": there is none. */
void cgm_operation_methods(int op, bool atomic, char *ret_text, size_t size);

#endif
