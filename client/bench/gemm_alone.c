/* OpenBLAS in the client itself, for the comparison of the daemon's gemm with what a program would
 * get without it. */
#include <cblas.h>

#include "client/bench/worker.h"

void cgm_worker_blas(const struct cgm_worker *worker, const struct cgm_worker_rank *rank)
{
    const struct cgm_sizes *sizes = &worker->bench->cases[CGM_VARIANT_BLAS].sizes;
    const struct cgm_tensor *memory = cgm_worker_memory(rank, CGM_VARIANT_BLAS);
    int m = (int)sizes->m, n = (int)sizes->n, k = (int)sizes->k;
    openblas_set_num_threads((int)worker->bench->options->blas_threads);
    cblas_sgemm(CblasRowMajor, sizes->transa ? CblasTrans : CblasNoTrans,
                sizes->transb ? CblasTrans : CblasNoTrans, m, n, k, 1.0f,
                memory[CGM_MATRIX_LHS].address, sizes->transa ? m : k,
                memory[CGM_MATRIX_RHS].address, sizes->transb ? k : n, 0.0f,
                memory[CGM_MATRIX_OUT].address, n);
}
