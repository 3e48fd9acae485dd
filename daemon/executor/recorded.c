#include "daemon/executor/recorded.h"

#include <string.h>

#include "proto/messages.h"
#include "proto/status.h"

static int enqueue(const struct cgm_algorithm *algorithm, const struct cgm_launch *launch,
                   uint32_t rank, const struct cgm_plan_rank *stand_ins)
{
    struct cgm_plan_rank ranks[CGM_COMM_SIZE_MAX];
    struct cgm_launch to_stand_ins = *launch;
    memcpy(ranks, launch->ranks, launch->spec->world * sizeof(ranks[0]));
    ranks[rank] = *stand_ins;
    to_stand_ins.ranks = ranks;
    return cgm_launch_enqueue(algorithm, &to_stand_ins, rank);
}

int cgm_recorded_make(const struct cgm_algorithm *algorithm, const struct cgm_launch *launch,
                      uint32_t rank, struct cgm_recorded *ret_recorded)
{
    const struct cgm_backend_ops *ops = launch->ops;
    const struct cgm_plan_rank *self = &launch->ranks[rank];
    struct cgm_plan_rank stand_ins = *self;
    int ended = CGM_OK, comm_ended = CGM_OK;
    *ret_recorded = (struct cgm_recorded){.epoch = launch->epoch};
    int status = ops->record_begin(self->compute, &stand_ins.compute);
    if (status != CGM_OK)
        return status;
    status = ops->record_begin(self->comm, &stand_ins.comm);
    if (status == CGM_OK) {
        status = enqueue(algorithm, launch, rank, &stand_ins);
        comm_ended = ops->record_end(stand_ins.comm, &ret_recorded->comm);
    }
    ended = ops->record_end(stand_ins.compute, &ret_recorded->compute);
    status = status != CGM_OK ? status : comm_ended != CGM_OK ? comm_ended : ended;
    if (status != CGM_OK)
        cgm_recorded_free(ops, ret_recorded);
    return status;
}

void cgm_recorded_free(const struct cgm_backend_ops *ops, struct cgm_recorded *recorded)
{
    if (recorded->compute)
        ops->recording_free(recorded->compute);
    if (recorded->comm)
        ops->recording_free(recorded->comm);
    *recorded = (struct cgm_recorded){0};
}

bool cgm_recorded_is_outdated(const struct cgm_recorded *recorded,
                              const struct cgm_backend_ops *ops, const struct cgm_backend *backend)
{
    return ops->recording_is_outdated && recorded->compute &&
           (ops->recording_is_outdated(backend, recorded->compute) ||
            ops->recording_is_outdated(backend, recorded->comm));
}

int cgm_recorded_replay(const struct cgm_recorded *recorded, const struct cgm_launch *launch,
                        uint32_t rank)
{
    const struct cgm_plan_rank *self = &launch->ranks[rank];
    uint64_t raise = cgm_launch_raise(launch->epoch - recorded->epoch);
    int status = launch->ops->replay(self->compute, recorded->compute, raise);
    return status == CGM_OK ? launch->ops->replay(self->comm, recorded->comm, raise) : status;
}

void cgm_recorded_foresee(const struct cgm_recorded *recorded, const struct cgm_launch *launch,
                          uint32_t rank, uint64_t ahead)
{
    const struct cgm_plan_rank *self = &launch->ranks[rank];
    uint64_t raise = cgm_launch_raise(launch->epoch + ahead - recorded->epoch);
    if (!launch->ops->foresee)
        return;
    launch->ops->foresee(self->compute, recorded->compute, raise);
    launch->ops->foresee(self->comm, recorded->comm, raise);
}
