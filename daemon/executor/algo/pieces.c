#include "daemon/executor/algo/pieces.h"

#include "daemon/executor/backend.h"
#include "proto/status.h"

/* A piece is pushed to every peer and told to it; what else there is fits into the rest. */
#define ROOM (CGM_QUEUE_ROOM - 100)

/* A unit is used from pieces of twice its size on. */
static const uint64_t units[] = {128, 8};

static uint64_t most_pieces(const struct cgm_spec *spec, uint64_t total)
{
    uint64_t room = ROOM / (2 * spec->world);
    return total < room ? total : room;
}

uint32_t cgm_piece_count(const struct cgm_spec *spec, uint64_t total)
{
    uint64_t most = most_pieces(spec, total);
    return spec->num_splits < most ? spec->num_splits : (uint32_t)most;
}

uint64_t cgm_piece_begin(uint64_t total, uint32_t pieces, uint32_t piece)
{
    uint64_t begin = total * piece / pieces;
    if (piece == pieces)
        return total;
    for (size_t i = 0; i < sizeof(units) / sizeof(units[0]); i++)
        if (total / pieces >= 2 * units[i])
            return begin / units[i] * units[i];
    return begin;
}

int cgm_piece_check(const struct cgm_spec *spec, const char *side, uint64_t total, char *ret_detail,
                    size_t detail_bytes)
{
    unsigned long long most = most_pieces(spec, total);
    if (!(spec->asked >> CGM_PARAMETER_NUM_SPLITS & 1) || spec->num_splits <= most)
        return CGM_OK;
    return cgm_detail(ret_detail, detail_bytes, CGM_INVALID_ARGUMENT,
                      "num_splits is %u; with %s %llu and %u ranks it may be at most %llu",
                      spec->num_splits, side, (unsigned long long)total, spec->world, most);
}
