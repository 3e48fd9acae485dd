/* The algorithms that the table is made of, one file each. */
#ifndef CGM_ALGORITHM_TABLE_H
#define CGM_ALGORITHM_TABLE_H

#include "daemon/executor/algorithm.h"

extern const struct cgm_algorithm cgm_no_overlap;
extern const struct cgm_algorithm cgm_bulk_overlap_ag;
extern const struct cgm_algorithm cgm_bulk_overlap_rs;
extern const struct cgm_algorithm cgm_split_pipelined_ag_p2p;
extern const struct cgm_algorithm cgm_split_pipelined_rs;
extern const struct cgm_algorithm cgm_split_pipelined_rs_p2p;
extern const struct cgm_algorithm cgm_atomic_gemm_rs;
extern const struct cgm_algorithm cgm_atomic_gemm_ag_p2p;
extern const struct cgm_algorithm cgm_atomic_gemm_rs_p2p;
extern const struct cgm_algorithm cgm_fused_ag;
extern const struct cgm_algorithm cgm_fused_rs;
extern const struct cgm_algorithm cgm_fused_ar;
extern const struct cgm_algorithm cgm_fused_as;
extern const struct cgm_algorithm cgm_one_shot_ar;
extern const struct cgm_algorithm cgm_two_shot_ar;
extern const struct cgm_algorithm cgm_split_as;
extern const struct cgm_algorithm cgm_atomic_gemm_as;

#endif
