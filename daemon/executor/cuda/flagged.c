/* Flagged products. */
#include "daemon/executor/cuda/cuda.h"
#include "daemon/executor/flagged_gemm.h"
#include "proto/status.h"

/* One product after the other, and the stream waits and signals between them. */
static int multiply_parts(struct cgm_queue *queue, const struct cgm_flagged_gemm *flagged)
{
    int status = CGM_OK;
    for (uint32_t i = 0; i < flagged->n_parts && status == CGM_OK; i++) {
        const struct cgm_gemm_part *part = &flagged->parts[i];
        struct cgm_gemm gemm = cgm_flagged_part_gemm(flagged, part);
        if (part->await.flag)
            status = cgm_cuda_wait(queue, part->await.flag, part->await.value, &gemm.label);
        if (status == CGM_OK)
            status = cgm_cuda_gemm(queue, &gemm);
        if (status == CGM_OK && part->publish.flag)
            status = cgm_cuda_signal(queue, part->publish.flag, part->publish.value);
    }
    return status;
}

int cgm_cuda_flagged_gemm(struct cgm_queue *queue, const struct cgm_flagged_gemm *flagged)
{
    return cgm_flagged_gemm_fits(flagged) ? multiply_parts(queue, flagged) : CGM_INVALID_ARGUMENT;
}

int cgm_cuda_prepare_flagged_gemm(struct cgm_queue *queue, const struct cgm_flagged_gemm *flagged,
                                  enum cgm_prepare how)
{
    int status = cgm_flagged_gemm_fits(flagged) ? CGM_OK : CGM_INVALID_ARGUMENT;
    for (uint32_t i = 0; i < flagged->n_parts && status == CGM_OK; i++) {
        struct cgm_gemm gemm = cgm_flagged_part_gemm(flagged, &flagged->parts[i]);
        status = cgm_cuda_prepare_gemm(queue, &gemm, how);
    }
    return status;
}
