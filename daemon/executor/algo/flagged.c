#include "daemon/executor/algo/flagged.h"

#include "daemon/executor/algo/cost.h"
#include "daemon/executor/backend.h"
#include "proto/status.h"

#define BAND_ROWS_MIN 256u
#define BANDS_DEFAULT 4u

static uint32_t most_bands(uint32_t blocks, uint64_t rows)
{
    uint32_t parts = CGM_GEMM_PARTS_MAX / blocks;
    return rows == 0 ? 1 : rows < parts ? (uint32_t)rows : parts;
}

bool cgm_band_is_asked(const struct cgm_spec *spec)
{
    return spec->asked >> CGM_PARAMETER_NUM_SPLITS & 1;
}

uint32_t cgm_band_count(const struct cgm_spec *spec, uint32_t blocks, uint64_t rows)
{
    uint64_t count = cgm_band_is_asked(spec) ? spec->num_splits : rows / BAND_ROWS_MIN;
    uint32_t most = most_bands(blocks, rows);
    if (!cgm_band_is_asked(spec) && most > BANDS_DEFAULT)
        most = BANDS_DEFAULT;
    count = count < most ? count : most;
    return count > 0 ? (uint32_t)count : 1;
}

int cgm_band_check(const struct cgm_spec *spec, uint32_t blocks, uint64_t rows, char *ret_detail,
                   size_t detail_bytes)
{
    uint32_t most = most_bands(blocks, rows);
    if (!cgm_band_is_asked(spec) || spec->num_splits <= most)
        return CGM_OK;
    return cgm_detail(ret_detail, detail_bytes, CGM_INVALID_ARGUMENT,
                      "num_splits is %u; with m %llu and %u ranks it may be at most %u",
                      spec->num_splits, (unsigned long long)spec->m, spec->world, most);
}

int cgm_everywhere_check(const struct cgm_spec *spec, const char *instead, char *ret_detail,
                         size_t detail_bytes)
{
    if (spec->world <= 1 + CGM_ALSO_MAX)
        return CGM_OK;
    return cgm_detail(ret_detail, detail_bytes, CGM_NOT_SUPPORTED,
                      "the comm has %u ranks, and results are stored in at most %u places at once; "
                      "use %s",
                      spec->world, 1 + CGM_ALSO_MAX, instead);
}

/* A product that holds its multiprocessors while it waits must not wait for a copy that needs some:
 * two such ranks would wait for each other. */
int cgm_awaiting_check(const struct cgm_spec *spec, char *ret_detail, size_t detail_bytes)
{
    bool is_all = (spec->asked & ~(1u << CGM_PARAMETER_USE_CE)) == 0;
    if (!spec->use_ce)
        return cgm_detail(ret_detail, detail_bytes, CGM_NOT_SUPPORTED,
                          "use_ce is false, and a GEMM that waits for chunks needs a copy engine "
                          "to bring them; %s%s",
                          is_all ? "use split_pipelined_ag_p2p" : "leave it out",
                          is_all && spec->atomic_gemm ? " without atomic_gemm" : "");
    return CGM_OK;
}

double cgm_awaiting_estimate(const struct cgm_spec *spec)
{
    double gemm = cgm_cost_flagged(spec);
    double transfer = cgm_cost_transfer(spec) + gemm / spec->world;
    return gemm > transfer ? gemm : transfer;
}

double cgm_publishing_estimate(const struct cgm_spec *spec)
{
    double gemm = cgm_cost_flagged(spec);
    double transfer = gemm / spec->world + cgm_cost_transfer(spec);
    return gemm > transfer ? gemm : transfer;
}
