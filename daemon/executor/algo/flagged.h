/* What algorithms have in common whose product is one piece and awaits or publishes flags while it
 * runs: members of cgm_algorithm. */
#ifndef CGM_FLAGGED_H
#define CGM_FLAGGED_H

#include "daemon/executor/operation.h"

/* Into how many bands a GEMM in one piece cuts each rank's block of so many rows: num_splits where
 * the plan asks for it, else as many as have tiles enough each. At least 1. `blocks`: of the whole
 * product. */
uint32_t cgm_band_count(const struct cgm_spec *spec, uint32_t blocks, uint64_t rows);
bool cgm_band_is_asked(const struct cgm_spec *spec);
/* OK, or INVALID_ARGUMENT when the plan asks for more bands than there may be. */
int cgm_band_check(const struct cgm_spec *spec, uint32_t blocks, uint64_t rows, char *ret_detail,
                   size_t detail_bytes);

/* OK, or NOT_SUPPORTED when results go straight to more ranks than one operation can reach. */
int cgm_everywhere_check(const struct cgm_spec *spec, const char *instead, char *ret_detail,
                         size_t detail_bytes);

/* It waits for chunks that peers push. */
int cgm_awaiting_check(const struct cgm_spec *spec, char *ret_detail, size_t detail_bytes);
double cgm_awaiting_estimate(const struct cgm_spec *spec);

/* It publishes which blocks are done. */
double cgm_publishing_estimate(const struct cgm_spec *spec);

#endif
