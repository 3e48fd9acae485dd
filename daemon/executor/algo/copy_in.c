#include "daemon/executor/algo/emit.h"

#include "proto/status.h"

static int copy_chunk(const struct cgm_launch *launch, uint32_t rank, uint32_t chunk,
                      const struct cgm_view *src)
{
    struct cgm_copy copy = {
        .label = {.rank = (uint16_t)rank, .queue = 0, .chunk = chunk, .peer = rank},
        .dst = cgm_launch_chunk(launch, rank, chunk),
        .src = *src,
    };
    return launch->ops->copy(launch->ranks[rank].compute, &copy);
}

uint32_t cgm_copy_in_copies(const struct cgm_spec *spec, uint32_t chunk)
{
    return chunk == UINT32_MAX ? cgm_operation_chunks(spec) : 1;
}

int cgm_copy_in_enqueue(const struct cgm_launch *launch, uint32_t rank, uint32_t chunk)
{
    const struct cgm_view *lhs = cgm_launch_operand(launch, rank, CGM_OPERAND_LHS);
    uint32_t chunks = cgm_operation_chunks(launch->spec);
    if (chunk != UINT32_MAX)
        return chunk < chunks ? copy_chunk(launch, rank, chunk, lhs) : CGM_INVALID_ARGUMENT;
    uint64_t rows = lhs->rows / chunks;
    int status = CGM_OK;
    for (uint32_t i = 0; i < chunks && status == CGM_OK; i++) {
        struct cgm_view part = cgm_view_rows(lhs, i * rows, rows);
        status = copy_chunk(launch, rank, i, &part);
    }
    return status;
}
