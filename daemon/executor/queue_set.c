#include "daemon/executor/queue_set.h"

#include <stdlib.h>

#include "daemon/executor/executor.h"
#include "proto/status.h"

static struct cgm_queue **queue_of(struct cgm_queue_set *set, uint32_t rank, uint32_t index)
{
    return index == 0 ? &set->compute[rank] : &set->comm[rank];
}

/* How many queues of the set are on the device already: these run side by side. */
static uint32_t queues_on(const uint32_t *devices, uint32_t rank)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < rank; i++)
        count += devices[i] == devices[rank] ? CGM_QUEUES_PER_RANK : 0;
    return count;
}

/* What is there already, from an attempt before, stays. */
static int make_rank(struct cgm_executor *executor, struct cgm_queue_set *set,
                     const uint32_t *devices, uint32_t rank)
{
    const int priorities[CGM_QUEUES_PER_RANK] = {set->gemm_priority, set->comm_priority};
    const struct cgm_backend_ops *ops = executor->ops;
    uint32_t beside = queues_on(devices, rank), device = devices[rank];
    int status = CGM_OK;
    for (uint32_t i = 0; i < CGM_QUEUES_PER_RANK && status == CGM_OK; i++) {
        struct cgm_queue **queue = queue_of(set, rank, i);
        struct cgm_flag **left = &set->left[rank][i];
        if (!*queue)
            status = ops->queue_new(executor->backend, device, priorities[i], beside + i, queue);
        if (status == CGM_OK && !*left)
            status = ops->flag_new(executor->backend, device, CGM_FLAG_DEVICE, left);
    }
    return status;
}

static void free_queues(struct cgm_executor *executor, struct cgm_queue_set *set, uint32_t rank)
{
    for (uint32_t i = 0; i < CGM_QUEUES_PER_RANK; i++)
        if (*queue_of(set, rank, i)) {
            executor->ops->queue_free(*queue_of(set, rank, i));
            *queue_of(set, rank, i) = NULL;
        }
}

static void free_left(struct cgm_executor *executor, struct cgm_queue_set *set, uint32_t rank)
{
    for (uint32_t i = 0; i < CGM_QUEUES_PER_RANK; i++)
        if (set->left[rank][i]) {
            executor->ops->flag_free(set->left[rank][i]);
            set->left[rank][i] = NULL;
        }
}

static void free_all(struct cgm_executor *executor, struct cgm_queue_set *set)
{
    for (uint32_t rank = 0; rank < set->n_queues; rank++)
        free_queues(executor, set, rank);
    for (uint32_t rank = 0; rank < set->n_left; rank++)
        free_left(executor, set, rank);
    set->made = set->n_queues = set->n_left = 0;
}

/* Where queues may share what they run on, those of a set must be made one after the other: all of
 * them again after a failure. */
static int make_slice(struct cgm_executor *executor, struct cgm_queue_set *set,
                      const uint32_t *devices)
{
    uint64_t until_ns = executor->ops->queues_max ? UINT64_MAX : cgm_now_ns() + CGM_TURN_NS;
    int status = CGM_OK;
    while (set->made < set->size && status == CGM_OK) {
        set->n_queues = set->n_left = set->made + 1;
        status = make_rank(executor, set, devices, set->made);
        set->made += status == CGM_OK;
        if (cgm_now_ns() >= until_ns)
            break;
    }
    if (status != CGM_OK && executor->ops->queues_max)
        free_all(executor, set);
    return status;
}

/* The smaller, the more urgent; the least urgent is 0 everywhere. */
static int nearest(const struct cgm_executor *executor, const uint32_t *devices, uint32_t size,
                   int priority)
{
    priority = priority < 0 ? priority : 0;
    for (uint32_t rank = 0; rank < size; rank++) {
        int greatest = executor->info[devices[rank]].priority_greatest;
        priority = priority > greatest ? priority : greatest;
    }
    return priority;
}

static struct cgm_queue_set *set_new(uint32_t size, int gemm_priority, int comm_priority)
{
    struct cgm_queue_set *set = calloc(1, sizeof(*set));
    if (!set)
        return NULL;
    set->gemm_priority = gemm_priority;
    set->comm_priority = comm_priority;
    set->size = size;
    return set;
}

int cgm_queue_set_get(struct cgm_executor *executor, struct cgm_queue_set **list,
                      const uint32_t *devices, uint32_t size, int gemm_priority, int comm_priority,
                      bool *ret_more, struct cgm_queue_set **ret_set)
{
    int gemm = nearest(executor, devices, size, gemm_priority);
    int comm = nearest(executor, devices, size, comm_priority);
    unsigned count = 0;
    *ret_more = false;
    for (; *list && ((*list)->gemm_priority != gemm || (*list)->comm_priority != comm); count++)
        list = &(*list)->next;
    if (!*list && count == CGM_QUEUE_SETS_MAX)
        return CGM_QUOTA;
    if (!*list && !(*list = set_new(size, gemm, comm)))
        return CGM_NO_MEMORY;
    int status = make_slice(executor, *list, devices);
    *ret_more = status == CGM_OK && (*list)->made < size;
    *ret_set = *list;
    return status;
}

/* The first that has queues; NULL: they are all through. */
static struct cgm_queue_set *with_queues(struct cgm_queue_set *set)
{
    while (set && set->n_queues == 0)
        set = set->next;
    return set;
}

/* What one set has left the queues of another may wait for still: first go the queues of all. */
bool cgm_queue_sets_free(struct cgm_executor *executor, struct cgm_queue_set **list)
{
    uint64_t until_ns = cgm_now_ns() + CGM_TURN_NS;
    struct cgm_queue_set *set;
    while ((set = with_queues(*list)) && cgm_now_ns() < until_ns)
        free_queues(executor, set, --set->n_queues);
    while (!set && *list && cgm_now_ns() < until_ns) {
        struct cgm_queue_set *first = *list;
        if (first->n_left > 0) {
            free_left(executor, first, --first->n_left);
        } else {
            *list = first->next;
            free(first);
        }
    }
    return *list != NULL;
}

/* Of no run, as the waits below: they hold whatever becomes of the jobs before and after. */
int cgm_queue_set_leave(const struct cgm_backend_ops *ops, struct cgm_queue_set *from,
                        uint32_t rank)
{
    struct cgm_queue *const before[] = {from->compute[rank], from->comm[rank]};
    uint64_t turn = ++from->turn[rank];
    int status = CGM_OK;
    from->apart[rank] = false;
    for (uint32_t i = 0; i < CGM_QUEUES_PER_RANK && status == CGM_OK; i++) {
        ops->set_run(before[i], NULL);
        status = ops->signal(before[i], from->left[rank][i], turn);
    }
    return status;
}

int cgm_queue_set_follow(const struct cgm_backend_ops *ops, const struct cgm_queue_set *from,
                         const struct cgm_queue_set *to, uint32_t rank)
{
    static const struct cgm_label nobody;
    struct cgm_queue *const after[] = {to->compute[rank], to->comm[rank]};
    int status = CGM_OK;
    for (uint32_t i = 0; i < CGM_QUEUES_PER_RANK; i++)
        ops->set_run(after[i], NULL);
    for (uint32_t i = 0; i < CGM_QUEUES_PER_RANK * CGM_QUEUES_PER_RANK && status == CGM_OK; i++)
        status = ops->wait(after[i / 2], from->left[rank][i % 2], from->turn[rank], &nobody);
    return status;
}

int cgm_queue_set_join(const struct cgm_backend_ops *ops, struct cgm_queue_set *set, uint32_t rank)
{
    static const struct cgm_label nobody;
    struct cgm_flag *left = set->left[rank][CGM_QUEUES_PER_RANK - 1];
    if (!set->apart[rank])
        return CGM_OK;
    set->apart[rank] = false;
    ops->set_run(set->comm[rank], NULL);
    ops->set_run(set->compute[rank], NULL);
    int status = ops->signal(set->comm[rank], left, ++set->turn[rank]);
    return status == CGM_OK ? ops->wait(set->compute[rank], left, set->turn[rank], &nobody)
                            : status;
}
