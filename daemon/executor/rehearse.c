#include "daemon/executor/rehearse.h"

#include "daemon/executor/executor.h"
#include "proto/status.h"

static int skip_copy(struct cgm_queue *queue, const struct cgm_copy *copy)
{
    (void)queue;
    (void)copy;
    return CGM_OK;
}

static int skip_reduce(struct cgm_queue *queue, const struct cgm_reduce *reduce)
{
    (void)queue;
    (void)reduce;
    return CGM_OK;
}

static int skip_activate(struct cgm_queue *queue, const struct cgm_activation *activation)
{
    (void)queue;
    (void)activation;
    return CGM_OK;
}

static int skip_sum(struct cgm_queue *queue, const struct cgm_sum *sum)
{
    (void)queue;
    (void)sum;
    return CGM_OK;
}

static int skip_signal(struct cgm_queue *queue, struct cgm_flag *flag, uint64_t value)
{
    (void)queue;
    (void)flag;
    (void)value;
    return CGM_OK;
}

static int skip_wait(struct cgm_queue *queue, struct cgm_flag *flag, uint64_t value,
                     const struct cgm_label *label)
{
    (void)queue;
    (void)flag;
    (void)value;
    (void)label;
    return CGM_OK;
}

static int skip_signals(struct cgm_queue *queue, const struct cgm_flag_value *signals,
                        uint32_t count)
{
    (void)queue;
    (void)signals;
    (void)count;
    return CGM_OK;
}

static int skip_waits(struct cgm_queue *queue, const struct cgm_wait *waits, uint32_t count)
{
    (void)queue;
    (void)waits;
    (void)count;
    return CGM_OK;
}

static int skip_collective(struct cgm_queue *queue, struct cgm_group *group, uint32_t rank,
                           const struct cgm_collective *collective)
{
    (void)queue;
    (void)group;
    (void)rank;
    (void)collective;
    return CGM_OK;
}

void cgm_rehearse_skip(struct cgm_backend_ops *ops)
{
    ops->copy = skip_copy;
    ops->copy_all = NULL;
    ops->reduce = skip_reduce;
    ops->activate = skip_activate;
    ops->sum = skip_sum;
    ops->signal = skip_signal;
    ops->wait = skip_wait;
    ops->wait_all = skip_waits;
    ops->signal_all = skip_signals;
    ops->collective = skip_collective;
}

/* What the rehearsal of this thread is about. */
static _Thread_local struct {
    const struct cgm_backend_ops *ops;
    enum cgm_prepare how;
    uint64_t until_ns;
} current;

static bool is_over(void)
{
    return current.until_ns != 0 && cgm_now_ns() >= current.until_ns;
}

static int prepare(struct cgm_queue *queue, const struct cgm_gemm *gemm)
{
    return is_over() ? CGM_TIMEOUT : current.ops->prepare_gemm(queue, gemm, current.how);
}

static int prepare_flagged(struct cgm_queue *queue, const struct cgm_flagged_gemm *flagged)
{
    if (!current.ops->prepare_flagged_gemm)
        return CGM_OK;
    return is_over() ? CGM_TIMEOUT : current.ops->prepare_flagged_gemm(queue, flagged, current.how);
}

int cgm_rehearse(const struct cgm_algorithm *algorithm, const struct cgm_launch *launch,
                 uint32_t rank, enum cgm_prepare how, uint64_t until_ns)
{
    if (!launch->ops->prepare_gemm)
        return CGM_OK;
    current.ops = launch->ops;
    current.how = how;
    current.until_ns = until_ns;
    struct cgm_backend_ops ops = *launch->ops;
    cgm_rehearse_skip(&ops);
    ops.gemm = prepare;
    ops.flagged_gemm = prepare_flagged;
    struct cgm_launch rehearsal = *launch;
    rehearsal.ops = &ops;
    return cgm_launch_enqueue(algorithm, &rehearsal, rank);
}
