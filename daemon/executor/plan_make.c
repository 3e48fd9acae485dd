#include "daemon/executor/plan_make.h"

#include <stdlib.h>

#include "daemon/executor/contents.h"
#include "daemon/executor/executor.h"
#include "daemon/executor/memory.h"
#include "daemon/executor/plan.h"
#include "daemon/executor/recordings.h"
#include "daemon/executor/rehearse.h"
#include "proto/status.h"

#define OPERAND_ALIGN 256u
/* Launches are held for about as long while a plan's products are chosen. */
#define SLICE_NS 5000000ull

/* ---- freeing -------------------------------------------------------------------------------- */

static void rank_fini(struct cgm_plan *plan, uint32_t rank, const struct cgm_backend_ops *ops)
{
    struct cgm_plan_rank *r = &plan->ranks[rank];
    for (uint32_t i = 0; r->flags && i < plan->n_flags; i++)
        if (r->flags[i])
            ops->flag_free(r->flags[i]);
    free(r->flags);
    r->flags = NULL;
    if (plan->done[rank])
        ops->flag_free(plan->done[rank]);
    if (plan->sent[rank])
        ops->flag_free(plan->sent[rank]);
    plan->done[rank] = plan->sent[rank] = NULL;
    if (r->scratch)
        ops->mem_free(r->scratch);
    if (plan->warm[rank])
        ops->mem_free(plan->warm[rank]);
    r->scratch = plan->warm[rank] = NULL;
}

bool cgm_plan_fini(struct cgm_plan *plan, struct cgm_executor *executor)
{
    uint64_t until_ns = cgm_now_ns() + CGM_TURN_NS;
    cgm_recordings_free(executor, plan->recordings);
    plan->recordings = NULL;
    while (plan->n_begun > 0 && cgm_now_ns() < until_ns)
        rank_fini(plan, --plan->n_begun, executor->ops);
    return plan->n_begun > 0;
}

void cgm_plan_free_user_buffers(struct cgm_plan *plan, struct cgm_executor *executor)
{
    for (uint32_t rank = 0; rank < plan->spec.world; rank++) {
        if (plan->ranks[rank].user)
            executor->ops->mem_free(plan->ranks[rank].user);
        if (plan->user[rank])
            cgm_contents_free(plan->user[rank]->contents);
        free(plan->user[rank]);
        plan->ranks[rank].user = NULL;
        plan->user[rank] = NULL;
    }
}

/* What a plan has on a rank's device; some of it may not be there. */
static struct cgm_mem *plan_mem(const struct cgm_plan *plan, uint32_t rank,
                                enum cgm_plan_memory which)
{
    switch (which) {
    case CGM_PLAN_OPERANDS:
        return plan->warm[rank];
    case CGM_PLAN_SCRATCH:
        return plan->ranks[rank].scratch;
    case CGM_PLAN_USER_BUFFERS:
        return plan->ranks[rank].user;
    }
    return NULL;
}

bool cgm_plan_drain(struct cgm_plan *plan, struct cgm_executor *executor,
                    enum cgm_plan_memory first, enum cgm_plan_memory last)
{
    const struct cgm_backend_ops *ops = executor->ops;
    uint64_t bytes = CGM_MEM_SLICE;
    for (uint32_t rank = 0; ops->mem_drain && rank < plan->spec.world; rank++)
        for (enum cgm_plan_memory which = first; which <= last; which++)
            if (plan_mem(plan, rank, which))
                ops->mem_drain(plan_mem(plan, rank, which), &bytes);
    return bytes == 0;
}

void cgm_plan_free_operands(struct cgm_plan *plan)
{
    const struct cgm_backend_ops *ops = plan->comm->poller->executor->ops;
    for (uint32_t rank = 0; rank < plan->spec.world; rank++) {
        if (plan->warm[rank])
            ops->mem_free(plan->warm[rank]);
        plan->warm[rank] = NULL;
    }
}

/* ---- making --------------------------------------------------------------------------------- */

/* The user buffer of one rank, made like a buffer but owned by the plan. */
static int make_user_buffer(struct cgm_plan *plan, uint32_t rank, struct cgm_executor *executor,
                            uint64_t id, uint32_t journal)
{
    struct cgm_shape shape = cgm_operation_user_buffer(&plan->spec);
    uint64_t bytes = shape.rows * shape.cols * cgm_dtype_bytes(shape.dtype);
    struct cgm_memory *memory = plan->user[rank] = calloc(1, sizeof(*memory));
    if (!memory)
        return CGM_NO_MEMORY;
    int status = executor->ops->mem_alloc(executor->backend, plan->ranks[rank].device, bytes, 0,
                                          &plan->ranks[rank].user);
    if (status != CGM_OK)
        return status;
    *memory = (struct cgm_memory){.id = id,
                                  .uid = plan->uid,
                                  .guest = CGM_NOBODY,
                                  .generation = (uint32_t)executor->life,
                                  .device = plan->ranks[rank].device,
                                  .journal = journal,
                                  .mem = plan->ranks[rank].user,
                                  .bytes = bytes,
                                  .owner = plan,
                                  .contents = cgm_contents_new(&plan->spec, plan->lost)};
    memory->mem_bytes = executor->ops->mem_bytes(memory->mem);
    return memory->contents ? CGM_OK : CGM_NO_MEMORY;
}

static int make_flags(struct cgm_plan *plan, uint32_t rank, struct cgm_executor *executor)
{
    struct cgm_plan_rank *r = &plan->ranks[rank];
    int status =
        executor->ops->flag_new(executor->backend, r->device, CGM_FLAG_HOST, &plan->done[rank]);
    if (status == CGM_OK)
        status =
            executor->ops->flag_new(executor->backend, r->device, CGM_FLAG_HOST, &plan->sent[rank]);
    r->flags = calloc(plan->n_flags + 1, sizeof(struct cgm_flag *));
    if (!r->flags)
        return CGM_NO_MEMORY;
    for (uint32_t i = 0; i < plan->n_flags && status == CGM_OK; i++)
        status =
            executor->ops->flag_new(executor->backend, r->device, CGM_FLAG_DEVICE, &r->flags[i]);
    return status;
}

static int make_rank(struct cgm_plan *plan, uint32_t rank, struct cgm_executor *executor,
                     uint64_t buffer_id, uint32_t journal)
{
    struct cgm_plan_rank *r = &plan->ranks[rank];
    r->device = plan->comm->devices[rank];
    r->compute = plan->queues->compute[rank];
    r->comm = plan->queues->comm[rank];
    int status = make_user_buffer(plan, rank, executor, buffer_id, journal);
    if (status == CGM_OK && plan->scratch_bytes > 0)
        status = executor->ops->mem_alloc(executor->backend, r->device, plan->scratch_bytes, 0,
                                          &r->scratch);
    if (status == CGM_OK)
        status = make_flags(plan, rank, executor);
    return status;
}

uint64_t cgm_plan_operands_rows(const struct cgm_spec *spec, enum cgm_plan_operands operands)
{
    return operands == CGM_PLAN_OPERANDS_ALL ? spec->m : cgm_operation_rows_step(spec);
}

static bool has_operand(const struct cgm_spec *spec, uint32_t rank, enum cgm_plan_operands operands,
                        int operand, struct cgm_shape *ret_shape)
{
    uint64_t rows = cgm_plan_operands_rows(spec, operands);
    enum cgm_presence presence = cgm_operation_operand(spec, rank, rows, operand, ret_shape);
    return presence == CGM_REQUIRED ||
           (presence == CGM_OPTIONAL && operands == CGM_PLAN_OPERANDS_FEW);
}

/* Lays them behind each other. Their bytes. */
static uint64_t place_operands(const struct cgm_spec *spec, uint32_t rank,
                               enum cgm_plan_operands operands, struct cgm_view *ret_views)
{
    uint64_t offset = 0;
    struct cgm_shape shape;
    for (int i = 0; i < CGM_OPERAND_COUNT; i++) {
        ret_views[i] = (struct cgm_view){0};
        if (!has_operand(spec, rank, operands, i, &shape))
            continue;
        ret_views[i] = (struct cgm_view){.offset_bytes = offset,
                                         .rows = shape.rows,
                                         .cols = shape.cols,
                                         .stride = shape.cols,
                                         .dtype = shape.dtype};
        uint64_t bytes = shape.rows * shape.cols * cgm_dtype_bytes(shape.dtype);
        offset += (bytes + OPERAND_ALIGN - 1) / OPERAND_ALIGN * OPERAND_ALIGN;
    }
    return offset > 0 ? offset : OPERAND_ALIGN; /* a rank of a2av may have no rows */
}

uint64_t cgm_plan_operands_bytes(const struct cgm_spec *spec, uint32_t rank,
                                 enum cgm_plan_operands operands)
{
    struct cgm_view views[CGM_OPERAND_COUNT];
    return place_operands(spec, rank, operands, views);
}

static int make_operands(struct cgm_plan *plan, uint32_t rank, struct cgm_executor *executor,
                         enum cgm_plan_operands operands, struct cgm_view *ret_views)
{
    uint64_t bytes = place_operands(&plan->spec, rank, operands, ret_views);
    int status = executor->ops->mem_alloc(executor->backend, plan->ranks[rank].device, bytes, 0,
                                          &plan->warm[rank]);
    for (int i = 0; i < CGM_OPERAND_COUNT; i++)
        if (ret_views[i].rows > 0)
            ret_views[i].mem = plan->warm[rank];
    return status;
}

/* Every operand as large as a job of the plan can have it. Only shapes count: no memory behind. */
static void full_operands(const struct cgm_plan *plan, uint32_t rank, struct cgm_view *ret_views)
{
    struct cgm_shape shape;
    for (int i = 0; i < CGM_OPERAND_COUNT; i++) {
        ret_views[i] = (struct cgm_view){0};
        if (has_operand(&plan->spec, rank, CGM_PLAN_OPERANDS_ALL, i, &shape))
            ret_views[i] = (struct cgm_view){.mem = plan->warm[rank],
                                             .rows = shape.rows,
                                             .cols = shape.cols,
                                             .stride = shape.cols,
                                             .dtype = shape.dtype};
    }
}

int cgm_plan_rehearse(const struct cgm_plan *plan)
{
    const struct cgm_executor *executor = plan->comm->poller->executor;
    struct cgm_view(*views)[CGM_OPERAND_COUNT] = calloc(plan->spec.world, sizeof(*views));
    int status = views ? CGM_OK : CGM_NO_MEMORY;
    for (uint32_t rank = 0; views && rank < plan->spec.world; rank++)
        full_operands(plan, rank, views[rank]);
    struct cgm_launch launch = {
        .ops = executor->ops,
        .spec = &plan->spec,
        .ranks = plan->ranks,
        .epoch = 1,
        .rows = plan->spec.m,
        .accumulate = plan->spec.epilogue & CGM_EPILOGUE_ACCUMULATE,
        .operands = (const struct cgm_view(*)[CGM_OPERAND_COUNT])views,
    };
    uint64_t until_ns = cgm_now_ns() + SLICE_NS;
    for (uint32_t rank = 0; status == CGM_OK && rank < plan->spec.world; rank++)
        status = cgm_rehearse(plan->algorithm, &launch, rank, CGM_PREPARE_TRIALS, until_ns);
    free(views);
    return status;
}

uint64_t cgm_plan_scratch_bytes(const struct cgm_plan *plan, const struct cgm_algorithm *algorithm)
{
    return algorithm->scratch_bytes ? algorithm->scratch_bytes(&plan->spec) : 0;
}

uint32_t cgm_plan_flags(const struct cgm_plan *plan, const struct cgm_algorithm *algorithm)
{
    return algorithm->flags ? algorithm->flags(&plan->spec) : 0;
}

bool cgm_plan_has_first_run(const struct cgm_plan *plan)
{
    return !plan->lost || !plan->comm->poller->executor->ops->runs_are_alike;
}

uint64_t cgm_plan_bytes(const struct cgm_plan *plan, uint32_t rank)
{
    struct cgm_shape user = cgm_operation_user_buffer(&plan->spec);
    return user.rows * user.cols * cgm_dtype_bytes(user.dtype) + plan->scratch_bytes +
           cgm_plan_operands_bytes(&plan->spec, rank, CGM_PLAN_OPERANDS_FEW);
}

int cgm_plan_make(struct cgm_plan *plan, enum cgm_plan_operands operands,
                  const uint64_t *buffer_ids, const uint32_t *journals, bool *ret_more)
{
    struct cgm_comm *comm = plan->comm;
    struct cgm_executor *executor = comm->poller->executor;
    uint64_t until_ns = cgm_now_ns() + CGM_TURN_NS;
    plan->doing = "making queues of gemm_priority and comm_priority, of which a comm has at most "
                  "4 pairs,"; /* CGM_QUEUE_SETS_MAX */
    int status = cgm_queue_set_get(executor, &comm->sets, comm->devices, comm->size,
                                   plan->spec.gemm_priority, plan->spec.comm_priority, ret_more,
                                   &plan->queues);
    if (status != CGM_OK || *ret_more)
        return status;
    plan->doing = "memory for user buffers and workspace";
    while (plan->n_begun < plan->spec.world && status == CGM_OK && cgm_now_ns() < until_ns) {
        uint32_t rank = plan->n_begun++;
        status = make_rank(plan, rank, executor, buffer_ids ? buffer_ids[rank] : 0,
                           journals ? journals[rank] : 0);
        if (status == CGM_OK && (operands == CGM_PLAN_OPERANDS_ALL || cgm_plan_has_first_run(plan)))
            status = make_operands(plan, rank, executor, operands, plan->flight->views[rank]);
    }
    *ret_more = status == CGM_OK && plan->n_begun < plan->spec.world;
    return status;
}

int cgm_plan_fill(struct cgm_plan *plan, bool *ret_more)
{
    const struct cgm_backend_ops *ops = plan->comm->poller->executor->ops;
    uint64_t bytes = CGM_MEM_SLICE;
    int status = CGM_OK;
    for (uint32_t rank = 0; ops->mem_fill && rank < plan->spec.world; rank++)
        for (enum cgm_plan_memory which = CGM_PLAN_OPERANDS; which <= CGM_PLAN_USER_BUFFERS;
             which++)
            if (status == CGM_OK && plan_mem(plan, rank, which))
                status = ops->mem_fill(plan_mem(plan, rank, which), &bytes);
    *ret_more = status == CGM_OK && bytes == 0;
    return status;
}
