#include "daemon/executor/algo/flagged.h"

#include "daemon/executor/algo/cost.h"
#include "proto/status.h"

/* A product that holds its multiprocessors while it waits must not wait for a copy that needs some:
 * two such ranks would wait for each other. */
int cgm_awaiting_check(const struct cgm_spec *spec, char *ret_detail, size_t detail_bytes)
{
    if (spec->aggregate_ag)
        return cgm_detail(ret_detail, detail_bytes, CGM_NOT_SUPPORTED,
                          "aggregate_ag is set, and a GEMM in one piece has no pairs of chunks; "
                          "use split_pipelined_ag_p2p");
    if (!spec->use_ce)
        return cgm_detail(ret_detail, detail_bytes, CGM_NOT_SUPPORTED,
                          "use_ce is false, and a GEMM that waits for chunks needs a copy engine "
                          "to bring them; use split_pipelined_ag_p2p");
    return CGM_OK;
}

double cgm_awaiting_estimate(const struct cgm_spec *spec)
{
    double gemm = cgm_cost_flagged(spec);
    double transfer = cgm_cost_transfer(spec) + gemm / spec->world;
    return gemm > transfer ? gemm : transfer;
}

int cgm_publishing_check(const struct cgm_spec *spec, char *ret_detail, size_t detail_bytes)
{
    if (spec->rs_overlap_first_gemm)
        return cgm_detail(ret_detail, detail_bytes, CGM_NOT_SUPPORTED,
                          "rs_overlap_first_gemm is set, and a GEMM in one piece has no first one; "
                          "use method pipeline without atomic_gemm");
    return CGM_OK;
}

double cgm_publishing_estimate(const struct cgm_spec *spec)
{
    double gemm = cgm_cost_flagged(spec);
    double transfer = gemm / spec->world + cgm_cost_transfer(spec);
    return gemm > transfer ? gemm : transfer;
}
