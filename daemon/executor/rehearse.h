/* A launch without any work: what an algorithm would enqueue is shown to the backend beforehand, so
 * that nothing is chosen or loaded on the way of a job. */
#ifndef CGM_REHEARSE_H
#define CGM_REHEARSE_H

#include "daemon/executor/algorithm.h"

/* Prepares every product of one rank's part of a launch. No effect where the backend needs no
 * preparation. launch->ops is the real table. Mapping thread. NOT_FOUND: with KNOWN, something has
 * to be loaded. TIMEOUT: nothing more was begun after until_ns (0: never); the next call goes on
 * there. */
int cgm_rehearse(const struct cgm_algorithm *algorithm, const struct cgm_launch *launch,
                 uint32_t rank, enum cgm_prepare how, uint64_t until_ns);

/* All that is enqueued but products does nothing from then on. */
void cgm_rehearse_skip(struct cgm_backend_ops *ops);

#endif
