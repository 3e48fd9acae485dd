#include "daemon/executor/algo/table.h"

const struct cgm_algorithm *const cgm_algorithms[] = {
    &cgm_no_overlap,         &cgm_bulk_overlap_ag,
    &cgm_bulk_overlap_rs,    &cgm_split_pipelined_ag_p2p,
    &cgm_split_pipelined_rs, &cgm_split_pipelined_rs_p2p,
    &cgm_atomic_gemm_rs,     &cgm_atomic_gemm_ag_p2p,
    &cgm_atomic_gemm_rs_p2p, &cgm_one_shot_ar,
    &cgm_two_shot_ar,        &cgm_split_as,
    &cgm_fused_ag,           &cgm_fused_rs,
    &cgm_fused_ar,           &cgm_fused_as,
    &cgm_atomic_gemm_as,
};
const size_t cgm_algorithm_count = sizeof(cgm_algorithms) / sizeof(cgm_algorithms[0]);

const struct cgm_algorithm *cgm_algorithm_find(int number)
{
    for (size_t i = 0; i < cgm_algorithm_count; i++)
        if ((int)cgm_algorithms[i]->number == number)
            return cgm_algorithms[i];
    return NULL;
}
