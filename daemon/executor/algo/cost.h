/* Rough times, for auto as long as nothing was measured: what matters is their order. */
#ifndef CGM_COST_H
#define CGM_COST_H

#include "daemon/executor/operation.h"

/* Seconds of one rank's GEMM as a whole; 0 without a product. */
double cgm_cost_gemm(const struct cgm_spec *spec);

/* Seconds of one rank's flagged GEMM, which the library's own is a little faster than. */
double cgm_cost_flagged(const struct cgm_spec *spec);

/* Seconds to send what one rank has to send. */
double cgm_cost_transfer(const struct cgm_spec *spec);

/* Seconds that one more step from rank to rank takes, however little it moves. */
double cgm_cost_step(void);

/* Seconds of a GEMM in so many pieces, each of which is sent while the next one is multiplied. */
double cgm_cost_pipeline(const struct cgm_spec *spec, uint32_t pieces, double transfer);

/* Seconds of a GEMM beside a transfer that has nothing to do with it. */
double cgm_cost_bulk(const struct cgm_spec *spec);

/* Whether the product takes longer than the transfer. */
bool cgm_cost_is_product(const struct cgm_spec *spec);

/* Seconds that cutting the GEMM into one piece for each rank adds to it. */
double cgm_cost_cutting(const struct cgm_spec *spec);

/* Seconds of the GEMM of some rows on one rank of ag_gemm, with its start. */
double cgm_cost_rows(const struct cgm_spec *spec, uint64_t rows);

/* Seconds until a shard of lhs of so many rows is at a peer. */
double cgm_cost_shard(const struct cgm_spec *spec, uint64_t rows);

#endif
