/* The enumerations that both sides agree on, each as one table of number, symbol and spelling. */
#ifndef CGM_TYPES_H
#define CGM_TYPES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* X(number, SYMBOL, spelling, bytes of one element) */
#define CGM_DTYPES(X)                                                                              \
    X(0, FP32, "fp32", 4)                                                                          \
    X(1, FP16, "fp16", 2)                                                                          \
    X(2, BF16, "bf16", 2)                                                                          \
    X(3, INT8, "int8", 1)                                                                          \
    X(4, INT32, "int32", 4)

/* X(number, SYMBOL, spelling, takes part with every rank of the comm) */
#define CGM_OPS(X)                                                                                 \
    X(0, NOOP, "noop", false)                                                                      \
    X(1, GEMM, "gemm", false)                                                                      \
    X(2, AG_GEMM, "ag_gemm", true)                                                                 \
    X(3, GEMM_RS, "gemm_rs", true)                                                                 \
    X(4, GEMM_AR, "gemm_ar", true)                                                                 \
    X(5, GEMM_AS, "gemm_as", true)                                                                 \
    X(6, BULK_AG, "bulk_ag", true)                                                                 \
    X(7, BULK_RS, "bulk_rs", true)                                                                 \
    X(8, AG, "ag", true)                                                                           \
    X(9, RS, "rs", true)                                                                           \
    X(10, AR, "ar", true)                                                                          \
    X(11, A2AV, "a2av", true)                                                                      \
    X(12, COPY_IN, "copy_in", false)

/* Seed numbering of CommOverlapMethod; AUTO is ours. X(number, SYMBOL, spelling) */
#define CGM_METHODS(X)                                                                             \
    X(0, NONE, "none")                                                                             \
    X(1, BULK, "bulk")                                                                             \
    X(2, PIPELINE, "pipeline")                                                                     \
    X(3, RING_EXCHANGE, "ring_exchange")                                                           \
    X(4, AUTO, "auto")

/* Seed numbering of CommOverlapType. X(number, SYMBOL, spelling) */
#define CGM_COMM_TYPES(X)                                                                          \
    X(0, NONE, "none")                                                                             \
    X(1, RS, "rs")                                                                                 \
    X(2, AG, "ag")

/* Seed numbering of CommOverlapAlgo; from 16 on ours. X(number, SYMBOL, spelling) */
#define CGM_ALGORITHMS(X)                                                                          \
    X(0, NO_OVERLAP, "no_overlap")                                                                 \
    X(1, BULK_OVERLAP_AG, "bulk_overlap_ag")                                                       \
    X(2, BULK_OVERLAP_RS, "bulk_overlap_rs")                                                       \
    X(3, SPLIT_PIPELINED_AG_P2P, "split_pipelined_ag_p2p")                                         \
    X(4, SPLIT_PIPELINED_RS, "split_pipelined_rs")                                                 \
    X(5, SPLIT_PIPELINED_RS_P2P, "split_pipelined_rs_p2p")                                         \
    X(6, ATOMIC_GEMM_RS, "atomic_gemm_rs")                                                         \
    X(7, ATOMIC_GEMM_AG_P2P, "atomic_gemm_ag_p2p")                                                 \
    X(8, ATOMIC_GEMM_RS_P2P, "atomic_gemm_rs_p2p")                                                 \
    X(16, FUSED_AG, "fused_ag")                                                                    \
    X(17, FUSED_RS, "fused_rs")                                                                    \
    X(18, FUSED_AR, "fused_ar")                                                                    \
    X(19, FUSED_AS, "fused_as")                                                                    \
    X(20, ONE_SHOT_AR, "one_shot_ar")                                                              \
    X(21, TWO_SHOT_AR, "two_shot_ar")                                                              \
    X(22, SPLIT_AS, "split_as")                                                                    \
    X(23, ATOMIC_GEMM_AS, "atomic_gemm_as")                                                        \
    X(255, AUTO, "auto")

/* What a phase of a job was spent on. X(number, SYMBOL, spelling) */
#define CGM_PHASES(X)                                                                              \
    X(0, GEMM, "gemm")                                                                             \
    X(1, COPY, "copy")                                                                             \
    X(2, REDUCE, "reduce")                                                                         \
    X(3, COLLECTIVE, "collective")                                                                 \
    X(4, WAIT, "wait")                                                                             \
    X(5, FILL, "fill")                                                                             \
    X(6, EPILOGUE, "epilogue")

#define CGM_TYPE_ENUM(PREFIX, number, SYMBOL) PREFIX##SYMBOL = (number),
enum cgm_dtype {
#define X(number, SYMBOL, spelling, bytes) CGM_TYPE_ENUM(CGM_DTYPE_, number, SYMBOL)
    CGM_DTYPES(X)
#undef X
};
enum cgm_op {
#define X(number, SYMBOL, spelling, collective) CGM_TYPE_ENUM(CGM_OP_, number, SYMBOL)
    CGM_OPS(X)
#undef X
};
#define X(number, SYMBOL, spelling) CGM_TYPE_ENUM(CGM_METHOD_, number, SYMBOL)
enum cgm_method { CGM_METHODS(X) };
#undef X
#define X(number, SYMBOL, spelling) CGM_TYPE_ENUM(CGM_COMM_TYPE_, number, SYMBOL)
enum cgm_comm_type { CGM_COMM_TYPES(X) };
#undef X
#define X(number, SYMBOL, spelling) CGM_TYPE_ENUM(CGM_ALGO_, number, SYMBOL)
enum cgm_algo { CGM_ALGORITHMS(X) };
#undef X
#define X(number, SYMBOL, spelling) CGM_TYPE_ENUM(CGM_PHASE_, number, SYMBOL)
enum cgm_phase_kind { CGM_PHASES(X) };
#undef X

/* Which table to look into. */
enum cgm_type_table {
    CGM_TABLE_DTYPE,
    CGM_TABLE_OP,
    CGM_TABLE_METHOD,
    CGM_TABLE_COMM_TYPE,
    CGM_TABLE_ALGO,
    CGM_TABLE_PHASE,
};

/* The spelling of a number, or NULL when the table has no such number. Static. Any thread. */
const char *cgm_type_name(enum cgm_type_table table, int number);

/* The number of a spelling, or -1. */
int cgm_type_number(enum cgm_type_table table, const char *name);

/* Writes "a, b, c": every spelling of the table, for error texts and usage lines. */
void cgm_type_list(enum cgm_type_table table, char *ret_text, size_t size);

/* Bytes of one element; 0 for an unknown type. */
size_t cgm_dtype_bytes(int dtype);

/* True when every rank of the comm must submit the job before it is launched. */
bool cgm_op_is_collective(int op);

#endif
