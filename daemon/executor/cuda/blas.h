/* cuBLASLt of the machine that runs: loaded at run time, so that the executable starts without it
 * and says what is missing. */
#ifndef CGM_CUDA_BLAS_H
#define CGM_CUDA_BLAS_H

#include <cublasLt.h>
#include <stddef.h>

#define CGM_BLAS_FUNCTIONS(X)                                                                      \
    X(Create)                                                                                      \
    X(Destroy)                                                                                     \
    X(Matmul)                                                                                      \
    X(MatmulDescCreate)                                                                            \
    X(MatmulDescDestroy)                                                                           \
    X(MatmulDescSetAttribute)                                                                      \
    X(MatrixLayoutCreate)                                                                          \
    X(MatrixLayoutDestroy)                                                                         \
    X(MatmulPreferenceCreate)                                                                      \
    X(MatmulPreferenceDestroy)                                                                     \
    X(MatmulPreferenceSetAttribute)                                                                \
    X(MatmulAlgoGetHeuristic)                                                                      \
    X(MatmulAlgoCheck)                                                                             \
    X(MatmulAlgoConfigGetAttribute)                                                                \
    X(GetVersion)                                                                                  \
    X(GetStatusString)

struct cgm_blas {
#define X(name) __typeof__(&cublasLt##name) name;
    CGM_BLAS_FUNCTIONS(X)
#undef X
};

extern struct cgm_blas cgm_blas; /* written by cgm_blas_load alone */

/* OK, or NOT_SUPPORTED and a sentence. */
int cgm_blas_load(char *ret_detail, size_t detail_bytes);

#endif
