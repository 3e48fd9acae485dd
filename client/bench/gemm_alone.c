/* OpenBLAS in the client itself, for the comparison of the daemon's gemm with what a program would
 * get without it. */
#include "client/bench/worker.h"
#include "kernels/openblas.h"

void cgm_worker_blas(const struct cgm_worker *worker, const struct cgm_worker_rank *rank)
{
    const struct cgm_sizes *sizes = &worker->bench->cases[CGM_VARIANT_BLAS].sizes;
    const struct cgm_tensor *tensor = cgm_worker_tensors(rank, CGM_VARIANT_BLAS);
    int m = (int)sizes->m, n = (int)sizes->n, k = (int)sizes->k;
    cgm_openblas.sgemm(CblasRowMajor, sizes->transa ? CblasTrans : CblasNoTrans,
                       sizes->transb ? CblasTrans : CblasNoTrans, m, n, k, 1.0f,
                       tensor[CGM_MATRIX_LHS].address, sizes->transa ? m : k,
                       tensor[CGM_MATRIX_RHS].address, sizes->transb ? k : n, 0.0f,
                       tensor[CGM_MATRIX_OUT].address, n);
}
