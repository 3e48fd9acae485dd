/* What of cuBLASLt's code a device has loaded, as far as it matters here: which configurations of
 * its algorithms were run, and for which products. The same configuration for a product that
 * differs in nothing but its rows and the distances between rows is the same code, so it can be
 * used at any time; anything else may have to be loaded first. The mapping thread's. */
#ifndef CGM_CUDA_GEMM_CODES_H
#define CGM_CUDA_GEMM_CODES_H

#include "daemon/executor/cuda/gemm_table.h"

struct cgm_gemm_codes;

struct cgm_gemm_codes *cgm_gemm_codes_new(void); /* NULL: out of memory */
void cgm_gemm_codes_free(struct cgm_gemm_codes *codes);

/* The entry's algorithm has been run for the entry's product. The oldest give way. */
void cgm_gemm_codes_add(struct cgm_gemm_codes *codes, const struct cgm_gemm_entry *entry);

bool cgm_gemm_codes_has(const struct cgm_gemm_codes *codes, const struct cgm_gemm_key *key,
                        const cublasLtMatmulAlgo_t *algorithm);

/* Gives the entry the algorithm that was run for the product nearest to it in rows, of those that
 * can do it. Returns the rows of that product; 0: there is none. */
uint64_t cgm_gemm_codes_nearest(const struct cgm_gemm_codes *codes, cublasLtHandle_t handle,
                                struct cgm_gemm_entry *entry);

#endif
