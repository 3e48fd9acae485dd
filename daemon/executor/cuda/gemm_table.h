/* Products that were prepared: for each shape, types and alignment cuBLASLt's descriptors and the
 * algorithm that it chose. One table a device, of a fixed size; the oldest entry gives way. */
#ifndef CGM_CUDA_GEMM_TABLE_H
#define CGM_CUDA_GEMM_TABLE_H

#include "daemon/executor/cuda/cuda.h"

#define CGM_GEMM_WORKSPACE_BYTES (32ull << 20)
#define CGM_GEMM_CANDIDATES 6

/* Compared byte by byte: every byte is set. Row-major, as the operation has it. */
struct cgm_gemm_key {
    uint64_t m, n, k, a_stride, b_stride, out_stride;
    uint8_t dtype, out_dtype; /* of a and b; of out and bias */
    uint8_t transa, transb, accumulate, bias;
    uint8_t a_align, b_align, out_align; /* 1 to 16: what divides address and row distance */
    uint8_t tf32;
    uint8_t padding[2];
    uint32_t sms; /* that it may use; 0: all */
};

struct cgm_gemm_entry {
    struct cgm_gemm_key key;
    bool plain; /* cuBLASLt has nothing for it: our own kernel */
    cublasLtMatmulDesc_t product;
    cublasLtMatrixLayout_t a, b, out;
    cublasLtMatmulAlgo_t algorithm;
};

/* What cuBLASLt would take, the one that it holds to be the fastest first. */
struct cgm_gemm_candidates {
    cublasLtMatmulAlgo_t algorithm[CGM_GEMM_CANDIDATES];
    uint32_t count;
};

/* Describes the product and takes the first candidate; neither runs nor loads anything. */
void cgm_gemm_entry_init(struct cgm_gemm_entry *entry, cublasLtHandle_t handle,
                         const struct cgm_gemm_key *key,
                         struct cgm_gemm_candidates *ret_candidates);
void cgm_gemm_entry_fini(struct cgm_gemm_entry *entry);

struct cgm_gemm_table;

struct cgm_gemm_table *cgm_gemm_table_new(void); /* NULL: out of memory */
void cgm_gemm_table_free(struct cgm_gemm_table *table);

/* Takes an entry over, unless there is one with its key. */
void cgm_gemm_table_add(struct cgm_gemm_table *table, struct cgm_gemm_entry *entry);

/* The entry of a key, or NULL. Locks the table: until cgm_gemm_table_unlock, which follows in
 * either case, the entry stays and is the caller's alone. */
struct cgm_gemm_entry *cgm_gemm_table_lock(struct cgm_gemm_table *table,
                                           const struct cgm_gemm_key *key);
void cgm_gemm_table_unlock(struct cgm_gemm_table *table);

#endif
