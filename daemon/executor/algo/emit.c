#include "daemon/executor/algo/emit.h"

#include <assert.h>

#include "proto/status.h"

static_assert(CGM_EMIT_STEPS > CGM_COMM_SIZE_MAX + 1, "a step for each chunk");
static_assert(CGM_COMM_SIZE_MAX <= 64, "a bit for each peer");

uint32_t cgm_emit_flags(const struct cgm_spec *spec)
{
    return CGM_EMIT_ARRIVED + spec->world;
}

uint64_t cgm_launch_raise(uint64_t epochs)
{
    return epochs * CGM_EMIT_STEPS;
}

static struct cgm_queue *queue_of(const struct cgm_emit *emit, enum cgm_emit_queue queue)
{
    return queue == CGM_EMIT_COMM ? emit->self->comm : emit->self->compute;
}

static struct cgm_label label_of(const struct cgm_emit *emit, enum cgm_emit_queue queue,
                                 uint32_t chunk, uint32_t peer)
{
    return (struct cgm_label){(uint16_t)emit->rank, (uint16_t)queue, chunk, peer};
}

static uint64_t value_of(const struct cgm_emit *emit, uint32_t step)
{
    assert(step > 0 && step < CGM_EMIT_STEPS);
    return emit->launch->epoch * CGM_EMIT_STEPS + step;
}

/* Left out with everything else after a failure. */
static void enqueue_waits(struct cgm_emit *emit, enum cgm_emit_queue queue)
{
    const struct cgm_backend_ops *ops = emit->launch->ops;
    struct cgm_emit_waits *waits = &emit->waits[queue];
    const struct cgm_wait *first = &waits->wait[0];
    uint32_t count = waits->count;
    waits->count = 0;
    if (emit->status != CGM_OK || count == 0)
        return;
    emit->status = count == 1 ? ops->wait(queue_of(emit, queue), first->until.flag,
                                          first->until.value, &first->label)
                              : ops->wait_all(queue_of(emit, queue), waits->wait, count);
}

static void enqueue_copies(struct cgm_emit *emit)
{
    const struct cgm_backend_ops *ops = emit->launch->ops;
    const struct cgm_emit_pushes *pushes = &emit->pushes;
    if (pushes->count > 1 && pushes->copy[0].sms && ops->copy_all) {
        emit->status = ops->copy_all(emit->self->compute, pushes->copy, pushes->count);
        return;
    }
    for (uint32_t i = 0; i < pushes->count && emit->status == CGM_OK; i++)
        emit->status = ops->copy(emit->self->compute, &pushes->copy[i]);
}

/* Left out after a failure, as everything else. */
static void enqueue_pushes(struct cgm_emit *emit)
{
    struct cgm_emit_pushes *pushes = &emit->pushes;
    if (pushes->count + pushes->n_arrivals == 0)
        return;
    enqueue_waits(emit, CGM_EMIT_COMPUTE);
    if (emit->status == CGM_OK)
        enqueue_copies(emit);
    if (emit->status == CGM_OK && pushes->n_arrivals > 0)
        emit->status =
            emit->launch->ops->signal_all(emit->self->compute, pushes->arrival, pushes->n_arrivals);
    pushes->count = pushes->n_arrivals = 0;
}

/* Before every operation on a queue: what that waits for is before it. False after a failure. */
static bool may_enqueue(struct cgm_emit *emit, enum cgm_emit_queue queue)
{
    if (queue == CGM_EMIT_COMPUTE)
        enqueue_pushes(emit);
    enqueue_waits(emit, queue);
    return emit->status == CGM_OK;
}

/* Sets a flag of rank `owner` after everything that this rank's queue has before it. */
static void signal_flag(struct cgm_emit *emit, enum cgm_emit_queue queue, uint32_t owner,
                        uint32_t flag, uint32_t step)
{
    if (may_enqueue(emit, queue))
        emit->status = emit->launch->ops->signal(
            queue_of(emit, queue), emit->launch->ranks[owner].flags[flag], value_of(emit, step));
}

/* Of waits and pushes that are not enqueued yet, those come first that a push waits for. */
static void await_flag(struct cgm_emit *emit, enum cgm_emit_queue queue, uint32_t owner,
                       uint32_t flag, uint32_t step, uint32_t chunk, uint32_t peer)
{
    struct cgm_emit_waits *waits = &emit->waits[queue];
    if (flag != CGM_EMIT_BEGUN && queue == CGM_EMIT_COMPUTE)
        enqueue_pushes(emit);
    emit->uses_comm |= queue == CGM_EMIT_COMM;
    if (waits->count == CGM_FLAGS_AT_ONCE)
        enqueue_waits(emit, queue);
    waits->wait[waits->count++] = (struct cgm_wait){
        {emit->launch->ranks[owner].flags[flag], value_of(emit, step)},
        label_of(emit, queue, chunk, peer),
    };
}

static uint32_t sms_of(const struct cgm_emit *emit)
{
    return emit->launch->spec->use_ce ? 0 : emit->launch->spec->num_comm_sm;
}

static void copy_on(struct cgm_emit *emit, enum cgm_emit_queue queue, const struct cgm_view *src,
                    const struct cgm_view *dst, uint32_t chunk, uint32_t peer)
{
    struct cgm_copy copy = {
        .label = label_of(emit, queue, chunk, peer),
        .dst = *dst,
        .src = *src,
        .sms = queue == CGM_EMIT_COMM ? sms_of(emit) : 0,
    };
    emit->uses_comm |= queue == CGM_EMIT_COMM;
    if (src->rows > 0 && may_enqueue(emit, queue))
        emit->status = emit->launch->ops->copy(queue_of(emit, queue), &copy);
}

struct cgm_emit cgm_emit_begin(const struct cgm_launch *launch, uint32_t rank)
{
    struct cgm_emit emit = {
        .launch = launch, .self = &launch->ranks[rank], .rank = rank, .world = launch->spec->world};
    if (!launch->quiet)
        signal_flag(&emit, CGM_EMIT_COMPUTE, rank, CGM_EMIT_BEGUN, 1);
    return emit;
}

struct cgm_emit cgm_emit_begin_serial(const struct cgm_launch *launch, uint32_t rank)
{
    struct cgm_emit emit = cgm_emit_begin(launch, rank);
    emit.serial = true;
    return emit;
}

/* A GELU changes what may still be on its way to others. */
static bool must_join(const struct cgm_emit *emit)
{
    return emit->uses_comm &&
           (!emit->launch->apart || emit->launch->spec->epilogue & CGM_EPILOGUE_GELU);
}

int cgm_emit_end(struct cgm_emit *emit)
{
    enqueue_pushes(emit);
    if (emit->uses_comm)
        enqueue_waits(emit, CGM_EMIT_COMM);
    if (!must_join(emit)) {
        enqueue_waits(emit, CGM_EMIT_COMPUTE);
        return emit->status;
    }
    /* Whatever failed: what was pushed before is joined, so that no push outlives the job. */
    int failure = emit->status;
    if (failure != CGM_OK)
        emit->waits[CGM_EMIT_COMPUTE].count = 0;
    emit->status = CGM_OK;
    signal_flag(emit, CGM_EMIT_COMM, emit->rank, CGM_EMIT_SENT, 1);
    await_flag(emit, CGM_EMIT_COMPUTE, emit->rank, CGM_EMIT_SENT, 1, 0, emit->rank);
    enqueue_waits(emit, CGM_EMIT_COMPUTE);
    return failure != CGM_OK ? failure : emit->status;
}

uint32_t cgm_emit_target(const struct cgm_emit *emit, uint32_t distance)
{
    return (emit->rank + distance) % emit->world;
}

uint32_t cgm_emit_source(const struct cgm_emit *emit, uint32_t distance)
{
    return (emit->rank + emit->world - distance) % emit->world;
}

void cgm_emit_publish(struct cgm_emit *emit, uint32_t step)
{
    if (!emit->serial)
        signal_flag(emit, CGM_EMIT_COMPUTE, emit->rank, CGM_EMIT_SOURCE, step);
    emit->published = step;
}

void cgm_emit_await_source(struct cgm_emit *emit, uint32_t step)
{
    if (!emit->serial)
        await_flag(emit, CGM_EMIT_COMM, emit->rank, CGM_EMIT_SOURCE, step, 0, emit->rank);
}

void cgm_emit_await_start(struct cgm_emit *emit)
{
    if (!emit->launch->quiet && !emit->serial)
        await_flag(emit, CGM_EMIT_COMM, emit->rank, CGM_EMIT_BEGUN, 1, 0, emit->rank);
}

static void hold_copy(struct cgm_emit *emit, const struct cgm_view *src, const struct cgm_view *dst,
                      uint32_t chunk, uint32_t peer)
{
    struct cgm_emit_pushes *pushes = &emit->pushes;
    if (src->rows == 0)
        return;
    if (pushes->count == CGM_COPIES_AT_ONCE)
        enqueue_pushes(emit);
    pushes->copy[pushes->count++] = (struct cgm_copy){
        .label = label_of(emit, CGM_EMIT_COMPUTE, chunk, peer),
        .dst = *dst,
        .src = *src,
        .sms = sms_of(emit),
    };
}

static void hold_push(struct cgm_emit *emit, const struct cgm_view *src, const struct cgm_view *dst,
                      uint32_t peer, uint32_t chunk, uint32_t step)
{
    struct cgm_emit_pushes *pushes = &emit->pushes;
    struct cgm_flag *arrived = emit->launch->ranks[peer].flags[CGM_EMIT_ARRIVED + emit->rank];
    if (pushes->n_arrivals == CGM_COPIES_AT_ONCE)
        enqueue_pushes(emit);
    hold_copy(emit, src, dst, chunk, peer);
    pushes->arrival[pushes->n_arrivals++] = (struct cgm_flag_value){arrived, value_of(emit, step)};
}

void cgm_emit_push(struct cgm_emit *emit, const struct cgm_view *src, const struct cgm_view *dst,
                   uint32_t peer, uint32_t chunk, uint32_t step)
{
    enum cgm_emit_queue queue = emit->serial ? CGM_EMIT_COMPUTE : CGM_EMIT_COMM;
    if (!(emit->met >> peer & 1) && !emit->launch->quiet)
        await_flag(emit, queue, peer, CGM_EMIT_BEGUN, 1, chunk, peer);
    emit->met |= 1ull << peer;
    if (emit->serial) {
        hold_push(emit, src, dst, peer, chunk, step);
        return;
    }
    copy_on(emit, CGM_EMIT_COMM, src, dst, chunk, peer);
    signal_flag(emit, CGM_EMIT_COMM, peer, CGM_EMIT_ARRIVED + emit->rank, step);
}

void cgm_emit_announce(struct cgm_emit *emit, uint32_t step)
{
    struct cgm_flag_value signals[CGM_FLAGS_AT_ONCE];
    for (uint32_t distance = 1, count = 0; distance < emit->world; distance++) {
        struct cgm_flag **there = emit->launch->ranks[cgm_emit_target(emit, distance)].flags;
        signals[count++] =
            (struct cgm_flag_value){there[CGM_EMIT_ARRIVED + emit->rank], value_of(emit, step)};
        if (count < CGM_FLAGS_AT_ONCE && distance < emit->world - 1)
            continue;
        if (may_enqueue(emit, CGM_EMIT_COMPUTE))
            emit->status = emit->launch->ops->signal_all(emit->self->compute, signals, count);
        count = 0;
    }
}

void cgm_emit_await_arrival(struct cgm_emit *emit, uint32_t peer, uint32_t step)
{
    await_flag(emit, CGM_EMIT_COMPUTE, emit->rank, CGM_EMIT_ARRIVED + peer, step, peer, peer);
}

struct cgm_flag_value cgm_emit_arrival(const struct cgm_emit *emit, uint32_t peer, uint32_t step)
{
    return (struct cgm_flag_value){emit->self->flags[CGM_EMIT_ARRIVED + peer],
                                   value_of(emit, step)};
}

struct cgm_flag_value cgm_emit_block(const struct cgm_emit *emit, uint32_t owner, uint32_t block)
{
    return (struct cgm_flag_value){
        emit->launch->ranks[owner].flags[CGM_EMIT_ARRIVED + emit->world + block],
        value_of(emit, 1)};
}

void cgm_emit_await_block(struct cgm_emit *emit, enum cgm_emit_queue queue, uint32_t block,
                          uint32_t chunk, uint32_t peer)
{
    await_flag(emit, queue, emit->rank, CGM_EMIT_ARRIVED + emit->world + block, 1, chunk, peer);
}

void cgm_emit_await_begun(struct cgm_emit *emit, uint32_t peer)
{
    if (!emit->launch->quiet)
        await_flag(emit, CGM_EMIT_COMPUTE, peer, CGM_EMIT_BEGUN, 1, peer, peer);
}

static bool same_place(const struct cgm_view *a, const struct cgm_view *b)
{
    return a->mem == b->mem && a->offset_bytes == b->offset_bytes && a->stride == b->stride;
}

void cgm_emit_copy(struct cgm_emit *emit, enum cgm_emit_queue queue, const struct cgm_view *src,
                   const struct cgm_view *dst, uint32_t chunk)
{
    bool joins_pushes = emit->serial && queue == CGM_EMIT_COMPUTE && sms_of(emit) > 0;
    if (same_place(src, dst))
        return;
    if (joins_pushes) {
        hold_copy(emit, src, dst, chunk, emit->rank);
        return;
    }
    if (emit->serial && queue == CGM_EMIT_COMM && !emit->launch->quiet)
        await_flag(emit, CGM_EMIT_COMM, emit->rank, CGM_EMIT_BEGUN, 1, chunk, emit->rank);
    copy_on(emit, queue, src, dst, chunk, emit->rank);
}

void cgm_emit_gemm(struct cgm_emit *emit, const struct cgm_gemm *gemm, uint32_t chunk)
{
    struct cgm_gemm labelled = *gemm;
    const struct cgm_spec *spec = emit->launch->spec;
    labelled.label = label_of(emit, CGM_EMIT_COMPUTE, chunk, emit->rank);
    labelled.spared_sms = spec->set_sm_margin ? spec->num_comm_sm : 0;
    if (gemm->out.rows > 0 && may_enqueue(emit, CGM_EMIT_COMPUTE))
        emit->status = emit->launch->ops->gemm(emit->self->compute, &labelled);
}

static bool shares_device(const struct cgm_emit *emit)
{
    uint32_t ranks = 0;
    for (uint32_t rank = 0; rank < emit->world; rank++)
        ranks += emit->launch->ranks[rank].device == emit->self->device;
    return ranks > 1;
}

void cgm_emit_flagged_gemm(struct cgm_emit *emit, const struct cgm_flagged_gemm *flagged)
{
    const struct cgm_spec *spec = emit->launch->spec;
    struct cgm_flagged_gemm labelled = *flagged;
    labelled.gemm.label = label_of(emit, CGM_EMIT_COMPUTE, 0, emit->rank);
    labelled.gemm.spared_sms = spec->set_sm_margin ? spec->num_comm_sm : 0;
    labelled.shared = shares_device(emit);
    if (may_enqueue(emit, CGM_EMIT_COMPUTE))
        emit->status = emit->launch->ops->flagged_gemm(emit->self->compute, &labelled);
}

void cgm_emit_collective(struct cgm_emit *emit, const struct cgm_collective *collective)
{
    struct cgm_collective labelled = *collective;
    labelled.label = label_of(emit, CGM_EMIT_COMPUTE, emit->rank, emit->rank);
    enqueue_waits(emit, CGM_EMIT_COMPUTE);
    int status = emit->launch->ops->collective(emit->self->compute, emit->self->group, emit->rank,
                                               &labelled);
    if (emit->status == CGM_OK)
        emit->status = status;
}

void cgm_emit_reduce(struct cgm_emit *emit, const struct cgm_reduce *reduce, uint32_t chunk)
{
    struct cgm_reduce labelled = *reduce;
    labelled.label = label_of(emit, CGM_EMIT_COMPUTE, chunk, emit->rank);
    if (reduce->dst.rows > 0 && may_enqueue(emit, CGM_EMIT_COMPUTE))
        emit->status = emit->launch->ops->reduce(emit->self->compute, &labelled);
}
