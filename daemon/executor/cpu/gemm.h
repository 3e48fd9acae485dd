/* out = op(a) * op(b) [+ out] [+ bias] by OpenBLAS. What is fp32 is multiplied where it lies;
 * anything else goes through fp32 panels, block by block, and the sum of a block is rounded once.
 * Sums of int8 products are exact: those of one panel are fp32 numbers, and are added as integers.
 * The panels are the seat's: there are as many as threads that compute at a time. */
#ifndef CGM_CPU_GEMM_H
#define CGM_CPU_GEMM_H

#include "daemon/executor/cpu/matrix.h"
#include "daemon/executor/cpu/seats.h"

struct cgm_matrix_gemm {
    struct cgm_matrix a, b, out, bias;
    bool transa, transb, accumulate;
};

struct cgm_gemm_panels; /* of one seat */

/* By the number of the seat. NULL: no memory. */
struct cgm_gemm_panels *cgm_gemm_panels_new(unsigned seats);
void cgm_gemm_panels_free(struct cgm_gemm_panels *panels, unsigned seats);

/* OK, or INVALID_ARGUMENT when shapes do not fit together or a size is above what BLAS takes. */
int cgm_gemm_check(const struct cgm_matrix_gemm *gemm);

/* Takes the seat for what takes some tenths of a second, whatever the shape is, and does not give
 * it back. Ends early between two calls of BLAS when the work is aborted. panels: of all seats. */
void cgm_gemm_multiply(const struct cgm_matrix_gemm *gemm, struct cgm_gemm_panels *panels,
                       struct cgm_seat *seat);

#endif
