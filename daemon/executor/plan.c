#include "daemon/executor/plan.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/executor/collectives.h"
#include "daemon/executor/memory.h"
#include "daemon/executor/rehearse.h"
#include "proto/messages.h"
#include "proto/status.h"

typedef unsigned long long ull;

#define OPERAND_ALIGN 256u
/* Launches are held for about as long while a plan's products are chosen. */
#define SLICE_NS 5000000ull

void cgm_plan_ref(struct cgm_plan *plan)
{
    plan->users++;
}

/* ---- freeing, on the mapper ----------------------------------------------------------------- */

static void rank_fini(struct cgm_plan *plan, uint32_t rank, const struct cgm_backend_ops *ops)
{
    struct cgm_plan_rank *r = &plan->ranks[rank];
    for (uint32_t i = 0; r->flags && i < plan->n_flags; i++)
        if (r->flags[i])
            ops->flag_free(r->flags[i]);
    free(r->flags);
    if (plan->done[rank])
        ops->flag_free(plan->done[rank]);
    if (plan->sent[rank])
        ops->flag_free(plan->sent[rank]);
    if (r->scratch)
        ops->mem_free(r->scratch);
    if (r->user)
        ops->mem_free(r->user);
    free(plan->user[rank]);
    if (plan->warm[rank])
        ops->mem_free(plan->warm[rank]);
}

static void plan_free(struct cgm_plan *plan, const struct cgm_backend_ops *ops)
{
    for (uint32_t rank = 0; rank < plan->comm->size; rank++)
        rank_fini(plan, rank, ops);
    free(plan);
}

/* ---- making, on the mapper ------------------------------------------------------------------ */

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
                                  .generation = (uint32_t)executor->life,
                                  .device = plan->ranks[rank].device,
                                  .journal = journal,
                                  .mem = plan->ranks[rank].user,
                                  .bytes = bytes,
                                  .owner = plan};
    memory->mem_bytes = executor->ops->mem_bytes(memory->mem);
    return CGM_OK;
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
                     const Cgm__PlanAdd *m)
{
    struct cgm_plan_rank *r = &plan->ranks[rank];
    r->device = plan->comm->devices[rank];
    r->compute = plan->queues->compute[rank];
    r->comm = plan->queues->comm[rank];
    int status = make_user_buffer(plan, rank, executor, m->buffer_ids[rank], m->journals[rank]);
    if (status == CGM_OK && plan->scratch_bytes > 0)
        status = executor->ops->mem_alloc(executor->backend, r->device, plan->scratch_bytes, 0,
                                          &r->scratch);
    if (status == CGM_OK)
        status = make_flags(plan, rank, executor);
    return status;
}

/* The fewest rows that a job of this plan can have: enough to touch every kernel and buffer. */
static uint64_t warm_rows(const struct cgm_spec *spec)
{
    return cgm_operation_rows_step(spec);
}

/* Lays the operands of the first run behind each other; all of them optional ones included. */
static int make_warm_operands(struct cgm_plan *plan, uint32_t rank, struct cgm_executor *executor,
                              struct cgm_view *ret_views)
{
    uint64_t offset = 0;
    struct cgm_shape shape;
    for (int i = 0; i < CGM_OPERAND_COUNT; i++) {
        ret_views[i] = (struct cgm_view){0};
        if (cgm_operation_operand(&plan->spec, rank, warm_rows(&plan->spec), i, &shape) ==
            CGM_ABSENT)
            continue;
        ret_views[i] = (struct cgm_view){.offset_bytes = offset,
                                         .rows = shape.rows,
                                         .cols = shape.cols,
                                         .stride = shape.cols,
                                         .dtype = shape.dtype};
        uint64_t bytes = shape.rows * shape.cols * cgm_dtype_bytes(shape.dtype);
        offset += (bytes + OPERAND_ALIGN - 1) / OPERAND_ALIGN * OPERAND_ALIGN;
    }
    if (offset == 0) /* a rank of a2av that has no rows */
        offset = OPERAND_ALIGN;
    int status = executor->ops->mem_alloc(executor->backend, plan->ranks[rank].device, offset, 0,
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
        if (cgm_operation_operand(&plan->spec, rank, plan->spec.m, i, &shape) == CGM_REQUIRED)
            ret_views[i] = (struct cgm_view){.mem = plan->warm[rank],
                                             .rows = shape.rows,
                                             .cols = shape.cols,
                                             .stride = shape.cols,
                                             .dtype = shape.dtype};
    }
}

/* Prepares the products of jobs that use the whole capacity. TIMEOUT: there are more. */
static int rehearse(const struct cgm_plan *plan, const struct cgm_executor *executor)
{
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

static void plan_register_step(struct cgm_request *request);
static void plan_rehearse_step(struct cgm_request *request);
static void plan_discard_step(struct cgm_request *request);

static int plan_make(struct cgm_plan *plan, struct cgm_executor *executor, const Cgm__PlanAdd *m)
{
    struct cgm_comm *comm = plan->comm;
    plan->doing = "making queues of these priorities";
    int status =
        cgm_queue_set_get(executor, &comm->sets, comm->devices, comm->size,
                          plan->spec.gemm_priority, plan->spec.comm_priority, &plan->queues);
    if (status == CGM_OK)
        plan->doing = "memory for user buffers and workspace";
    plan->scratch_bytes =
        plan->algorithm->scratch_bytes ? plan->algorithm->scratch_bytes(&plan->spec) : 0;
    plan->n_flags = plan->algorithm->flags ? plan->algorithm->flags(&plan->spec) : 0;
    for (uint32_t rank = 0; rank < plan->spec.world && status == CGM_OK; rank++) {
        status = make_rank(plan, rank, executor, m);
        if (status == CGM_OK)
            status = make_warm_operands(plan, rank, executor, plan->flight->views[rank]);
    }
    return status;
}

static void plan_make_step(struct cgm_request *request)
{
    struct cgm_plan *plan = request->object;
    int status = plan_make(plan, request->executor, (const Cgm__PlanAdd *)request->message);
    request->status = status;
    cgm_request_to_poller(request, status == CGM_OK ? plan_rehearse_step : plan_discard_step);
}

static struct cgm_plan *plan_of_rehearsal(struct cgm_quiet *quiet)
{
    return (struct cgm_plan *)(void *)((char *)quiet - offsetof(struct cgm_plan, rehearsal));
}

static void rehearsal_run(struct cgm_quiet *quiet)
{
    struct cgm_request *request = plan_of_rehearsal(quiet)->creation;
    struct cgm_plan *plan = request->object;
    if (!plan->rehearsing)
        cgm_collectives_choose(plan, request->executor);
    plan->doing = "choosing the products' code";
    plan->rehearsing = true;
    request->status = rehearse(plan, request->executor);
    quiet->again = request->status == CGM_TIMEOUT;
}

static void rehearsal_done(struct cgm_quiet *quiet)
{
    struct cgm_request *request = plan_of_rehearsal(quiet)->creation;
    if (request->status == CGM_OK)
        plan_register_step(request);
    else
        plan_discard_step(request);
}

/* On the poller. */
static void plan_rehearse_step(struct cgm_request *request)
{
    struct cgm_plan *plan = request->object;
    plan->rehearsal.run = rehearsal_run;
    plan->rehearsal.done = rehearsal_done;
    cgm_quiet_post(&request->executor->poller, &plan->rehearsal);
}

/* ---- coming, on the poller ------------------------------------------------------------------ */

/* The mapper frees the plan, which needs its comm for that, before the comm. */
static void free_on_mapper(struct cgm_plan *plan, struct cgm_request *request,
                           void (*step)(struct cgm_request *request))
{
    struct cgm_comm *comm = plan->comm;
    request->object = plan;
    cgm_request_to_mapper(request, step);
    cgm_comm_unref(comm);
}

/* On each rank. */
static uint64_t plan_bytes(const struct cgm_plan *plan)
{
    struct cgm_shape user = cgm_operation_user_buffer(&plan->spec);
    return user.rows * user.cols * cgm_dtype_bytes(user.dtype) + plan->scratch_bytes;
}

static void plan_discarded_step(struct cgm_request *request)
{
    struct cgm_plan *plan = request->object;
    struct cgm_executor *executor = request->executor;
    const char *doing = plan->doing;
    uint64_t bytes = plan_bytes(plan);
    uint32_t device = plan->comm->devices[0];
    struct cgm_device_info info;
    plan_free(plan, executor->ops);
    if (request->status == CGM_NO_MEMORY &&
        executor->ops->device_info(executor->backend, device, &info) == CGM_OK)
        cgm_request_fail(request, request->status,
                         "plan: %s failed: it takes %llu bytes for each rank; of device %u %llu of "
                         "%llu are free",
                         doing, (ull)bytes, device, (ull)info.bytes_free, (ull)info.bytes_total);
    else
        cgm_request_fail(request, request->status, "plan: %s on the ranks' devices failed: %s",
                         doing, cgm_status_text(request->status));
}

static void plan_discard_step(struct cgm_request *request)
{
    struct cgm_plan *plan = request->object;
    cgm_flight_give(plan->comm, plan->flight);
    free_on_mapper(plan, request, plan_discarded_step);
}

static int register_user_buffers(struct cgm_plan *plan, struct cgm_poller *poller)
{
    int status = CGM_OK;
    for (uint32_t rank = 0; rank < plan->spec.world && status == CGM_OK; rank++)
        status = cgm_map_add(&poller->memories, plan->user[rank]->id, plan->user[rank]);
    return status;
}

static void unregister_user_buffers(struct cgm_plan *plan, struct cgm_poller *poller)
{
    for (uint32_t rank = 0; rank < plan->spec.world; rank++)
        if (cgm_map_get(&poller->memories, plan->user[rank]->id) == plan->user[rank])
            cgm_memory_forget(poller, plan->user[rank]);
}

static void plan_register_step(struct cgm_request *request)
{
    struct cgm_plan *plan = request->object;
    struct cgm_poller *poller = &request->executor->poller;
    int status = register_user_buffers(plan, poller);
    if (status == CGM_OK)
        status = cgm_map_add(&poller->plans, plan->id, plan);
    if (status != CGM_OK) {
        unregister_user_buffers(plan, poller);
        request->status = status;
        plan_discard_step(request);
        return;
    }
    struct cgm_flight *flight = plan->flight;
    plan->doing = "the first run";
    flight->plan = plan;
    flight->kind = CGM_FLIGHT_RUN;
    flight->ranks_mask = plan->spec.world == 64 ? UINT64_MAX : (1ull << plan->spec.world) - 1;
    flight->run.phases = NULL;
    flight->run.phases_max = 0;
    flight->launch.rows = warm_rows(&plan->spec);
    flight->launch.accumulate = plan->spec.epilogue & CGM_EPILOGUE_ACCUMULATE;
    plan->next_warming = poller->warming;
    poller->warming = plan;
    cgm_flight_start(flight, cgm_now_ns());
}

static void name_tf32(struct cgm_plan *plan, const struct cgm_backend_ops *ops)
{
    size_t used = strlen(plan->reason);
    if (plan->spec.allow_tf32)
        snprintf(plan->reason + used, sizeof(plan->reason) - used, "; %s",
                 ops->has_tf32 ? "products in TF32" : "strict fp32, this backend has no TF32");
}

/* A product needs one multiprocessor at least. */
static int check_margin(const struct cgm_plan *plan, char *detail, size_t bytes)
{
    const struct cgm_executor *executor = plan->comm->poller->executor;
    const struct cgm_spec *spec = &plan->spec;
    for (uint32_t rank = 0; spec->set_sm_margin && rank < spec->world; rank++) {
        const struct cgm_device_info *info = &executor->info[plan->comm->devices[rank]];
        if (info->sms && spec->num_comm_sm >= info->sms)
            return cgm_detail(detail, bytes, CGM_INVALID_ARGUMENT,
                              "num_comm_sm is %u with set_sm_margin; device %u has %u "
                              "multiprocessors, and a product needs one",
                              spec->num_comm_sm, plan->comm->devices[rank], info->sms);
    }
    return CGM_OK;
}

static int plan_init(struct cgm_plan *plan, const Cgm__PlanCreate *asked, char *detail,
                     size_t bytes)
{
    struct cgm_comm *comm = plan->comm;
    int status = cgm_spec_init(asked, comm->size, comm->devices_shared, detail, bytes, &plan->spec);
    if (status == CGM_OK)
        status = check_margin(plan, detail, bytes);
    if (status != CGM_OK)
        return status;
    status =
        cgm_algorithm_choose(&plan->spec, plan->reason, sizeof(plan->reason), &plan->algorithm);
    if (status != CGM_OK)
        return cgm_detail(detail, bytes, status, "%s", plan->reason);
    name_tf32(plan, comm->poller->executor->ops);
    plan->flight = cgm_flight_take(comm);
    return plan->flight ? CGM_OK
                        : cgm_detail(detail, bytes, CGM_NO_MEMORY, "plan: out of host memory");
}

static void plan_add(struct cgm_request *request, struct cgm_comm *comm,
                     const Cgm__PlanCreate *asked)
{
    const Cgm__PlanAdd *m = (const Cgm__PlanAdd *)request->message;
    char detail[400] = "plan: out of host memory";
    struct cgm_plan *plan = calloc(1, sizeof(*plan));
    int status = CGM_NO_MEMORY;
    if (plan) {
        plan->id = m->id;
        plan->comm = comm;
        plan->creation = request;
        status = plan_init(plan, asked, detail, sizeof(detail));
    }
    if (status != CGM_OK) {
        free(plan);
        cgm_request_fail(request, status, "%s", detail);
        return;
    }
    cgm_comm_ref(comm);
    request->object = plan;
    cgm_request_to_mapper(request, plan_make_step);
}

void cgm_plan_on_add(struct cgm_request *request)
{
    const Cgm__PlanAdd *m = (const Cgm__PlanAdd *)request->message;
    Cgm__PlanCreate *asked = cgm__plan_create__unpack(NULL, m->request.len, m->request.data);
    struct cgm_comm *comm =
        asked ? cgm_map_get(&request->executor->poller.comms, asked->comm) : NULL;
    if (comm && m->n_buffer_ids == comm->size && m->n_journals == comm->size)
        plan_add(request, comm, asked);
    else if (!asked) /* the broker has packed it: it is not malformed */
        cgm_request_fail(request, CGM_NO_MEMORY, "plan: out of host memory");
    else
        cgm_request_fail(request, CGM_NOT_FOUND,
                         "comm: %llu is not here, or there is not one buffer id a rank",
                         (ull)asked->comm);
    if (asked)
        cgm__plan_create__free_unpacked(asked, NULL);
}

/* On the mapper, after the first run: the plan is in use from the answer on. */
static void plan_answer_step(struct cgm_request *request)
{
    const struct cgm_backend_ops *ops = request->executor->ops;
    struct cgm_plan *plan = request->object;
    struct cgm_shape shape = cgm_operation_user_buffer(&plan->spec);
    Cgm__PlanAdded reply = CGM__PLAN_ADDED__INIT;
    int fds[CGM_COMM_SIZE_MAX], status = CGM_OK;
    uint32_t n = 0;
    for (uint32_t rank = 0; rank < plan->spec.world; rank++) {
        ops->mem_free(plan->warm[rank]);
        plan->warm[rank] = NULL;
    }
    while (n < plan->spec.world && status == CGM_OK)
        if ((status = ops->mem_export(plan->ranks[n].user, &fds[n])) == CGM_OK)
            n++;
    reply.algorithm = (uint32_t)plan->algorithm->number;
    reply.reason = plan->reason;
    reply.user_rows = shape.rows;
    reply.user_cols = shape.cols;
    reply.user_dtype = (uint32_t)shape.dtype;
    reply.user_bytes = plan->user[0]->mem_bytes;
    reply.chunks = cgm_operation_chunks(&plan->spec);
    reply.workspace_bytes = plan->user[0]->mem_bytes + plan->scratch_bytes;
    if (status == CGM_OK)
        cgm_request_answer(request, CGM_MSG_PLAN_ADDED, &reply.base, fds, n);
    else
        cgm_request_fail(request, status, "plan: its user buffers cannot be exported");
    while (n > 0)
        close(fds[--n]);
}

/* The first run is watched like a job. */
static void watch(struct cgm_plan *plan)
{
    char why[96];
    if (!cgm_flight_is_stuck(plan->flight, cgm_now_ns()))
        return;
    snprintf(why, sizeof(why), "the first run of plan %llu does not end after its abort",
             (ull)plan->id);
    cgm_executor_end(plan->comm->poller->executor, CGM_TROUBLE_STUCK, why);
}

bool cgm_plan_step_warming(struct cgm_poller *poller)
{
    bool busy = false;
    struct cgm_plan **link = &poller->warming;
    while (*link) {
        struct cgm_plan *plan = *link;
        struct cgm_request *request = plan->creation;
        if (!cgm_flight_is_done(plan->flight)) {
            cgm_flight_look(plan->flight, cgm_now_ns());
            watch(plan);
            link = &plan->next_warming;
            continue;
        }
        *link = plan->next_warming;
        int status = atomic_load(&plan->flight->run.status);
        busy = true;
        if (status != CGM_OK) {
            cgm_executor_log(4, "plan %llu: its first run failed: %s", (ull)plan->id,
                             cgm_status_text(status));
            cgm_map_remove(&poller->plans, plan->id);
            unregister_user_buffers(plan, poller);
            request->status = status;
            plan_discard_step(request);
            continue;
        }
        cgm_flight_give(plan->comm, plan->flight);
        plan->flight = NULL;
        plan->creation = NULL;
        cgm_request_to_mapper(request, plan_answer_step);
    }
    return busy;
}

/* ---- going ---------------------------------------------------------------------------------- */

static void plan_freed_step(struct cgm_request *request)
{
    struct cgm_plan *plan = request->object;
    plan_free(plan, request->executor->ops);
    cgm_request_ok(request);
}

static void plan_free_if_unused(struct cgm_plan *plan)
{
    if (plan->users > 0 || !plan->removal)
        return;
    for (uint32_t rank = 0; rank < plan->spec.world; rank++)
        if (plan->user[rank]->users > 0)
            return; /* a job of another plan uses it; on_unused comes back here */
    struct cgm_request *removal = plan->removal;
    plan->removal = NULL;
    free_on_mapper(plan, removal, plan_freed_step);
}

static void user_buffer_unused(struct cgm_memory *memory)
{
    plan_free_if_unused(memory->owner);
}

void cgm_plan_unref(struct cgm_plan *plan)
{
    plan->users--;
    plan_free_if_unused(plan);
}

void cgm_plan_on_remove(struct cgm_request *request)
{
    const Cgm__PlanRemove *m = (const Cgm__PlanRemove *)request->message;
    struct cgm_poller *poller = &request->executor->poller;
    struct cgm_plan *plan = cgm_map_get(&poller->plans, m->id);
    if (!plan || plan->creation) {
        cgm_request_fail(request, CGM_NOT_FOUND, "plan: %llu is not here", (ull)m->id);
        return;
    }
    cgm_map_remove(&poller->plans, m->id);
    unregister_user_buffers(plan, poller);
    plan->removal = request;
    for (uint32_t rank = 0; rank < plan->spec.world; rank++)
        plan->user[rank]->on_unused = user_buffer_unused;
    plan_free_if_unused(plan);
}
