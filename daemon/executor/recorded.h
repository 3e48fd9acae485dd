/* What one rank's part of a launch puts into its two queues, kept to be enqueued again. */
#ifndef CGM_RECORDED_H
#define CGM_RECORDED_H

#include "daemon/executor/algorithm.h"

struct cgm_recorded {
    struct cgm_recording *compute, *comm;
    uint64_t epoch; /* that it was recorded with */
};

/* Of a launch whose operands exist; nothing of it is run. NOT_SUPPORTED: it cannot be kept. Mapper,
 * while launches are held (quiet.h). */
int cgm_recorded_make(const struct cgm_algorithm *algorithm, const struct cgm_launch *launch,
                      uint32_t rank, struct cgm_recorded *ret_recorded);
void cgm_recorded_free(const struct cgm_backend_ops *ops, struct cgm_recorded *recorded);

/* Whether it must be enqueued as usual just now (backend.h). Any thread. */
bool cgm_recorded_is_outdated(const struct cgm_recorded *recorded,
                              const struct cgm_backend_ops *ops, const struct cgm_backend *backend);

/* Enqueues the same for a launch on the same memory, as cgm_launch_enqueue would. */
int cgm_recorded_replay(const struct cgm_recorded *recorded, const struct cgm_launch *launch,
                        uint32_t rank);
/* Behind that: the launch `ahead` epochs later will probably be of the same memory. */
void cgm_recorded_foresee(const struct cgm_recorded *recorded, const struct cgm_launch *launch,
                          uint32_t rank, uint64_t ahead);

#endif
