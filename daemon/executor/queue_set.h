/* The queues of a comm's ranks at one pair of priorities: for each rank one for products and one
 * for communication. A comm has one set from the start, and another for each pair that a plan asks
 * for, up to CGM_QUEUE_SETS_MAX; the broker counts the ranks once for each. Plans of one comm run
 * in one order whatever sets they are on: see cgm_queue_set_leave. */
#ifndef CGM_QUEUE_SET_H
#define CGM_QUEUE_SET_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/executor/backend.h"
#include "proto/messages.h"

#define CGM_QUEUES_PER_RANK 2u /* a queue is a thread, or a stream */

/* Behind what says that they cannot be made: NO_MEMORY. */
#define CGM_QUEUES_NEED                                                                            \
    ": the executor is out of memory, or of threads (TasksMax, pids.max, RLIMIT_NPROC)"

struct cgm_executor;
struct cgm_spec;

struct cgm_queue_set {
    struct cgm_queue_set *next; /* in the comm's list; the mapper's */
    int gemm_priority, comm_priority;
    uint32_t size, made;       /* ranks */
    uint32_t n_queues, n_left; /* ranks of which there may be some */
    struct cgm_queue *compute[CGM_COMM_SIZE_MAX], *comm[CGM_COMM_SIZE_MAX];
    /* Reached when a rank's queues are through with what was before a change to another set. */
    struct cgm_flag *left[CGM_COMM_SIZE_MAX][CGM_QUEUES_PER_RANK];
    /* The thread of the rank's device: */
    uint64_t turn[CGM_COMM_SIZE_MAX];
    bool apart[CGM_COMM_SIZE_MAX]; /* the communication queue may have work that none waits for */
};

/* The set of these priorities in a comm's list: found there, or made and added. Priorities that a
 * device does not have become the nearest that all of them have. *ret_more: there are queues to
 * make still, by the next call. QUOTA when the comm has as many sets as it may. Mapper. */
int cgm_queue_set_get(struct cgm_executor *executor, struct cgm_queue_set **list,
                      const uint32_t *devices, uint32_t size, int gemm_priority, int comm_priority,
                      bool *ret_more, struct cgm_queue_set **ret_set);
/* A slice of that; true: there is more. Every device's thread is through with them; their own
 * threads may not be. Mapper. */
bool cgm_queue_sets_free(struct cgm_executor *executor, struct cgm_queue_set **list);

/* A rank's next work is on another set than its work until now: cgm_queue_set_leave signals behind
 * everything that is in the queues of `from`, and cgm_queue_set_follow makes those of `to` wait for
 * it. On the thread of the rank's device. Queues of two sets may share what they run on: all ranks
 * of a device leave before work that one of them does for others may stand before that. */
int cgm_queue_set_leave(const struct cgm_backend_ops *ops, struct cgm_queue_set *from,
                        uint32_t rank);
int cgm_queue_set_follow(const struct cgm_backend_ops *ops, const struct cgm_queue_set *from,
                         const struct cgm_queue_set *to, uint32_t rank);

/* Makes the rank's queue for products wait for the other one where that may be behind: see
 * cgm_launch.apart. Likewise. */
int cgm_queue_set_join(const struct cgm_backend_ops *ops, struct cgm_queue_set *set, uint32_t rank);

#endif
