#include "daemon/executor/collectives.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "daemon/executor/executor.h"
#include "daemon/executor/plan.h"
#include "proto/status.h"

static void add_reason(struct cgm_plan *plan, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static void add_reason(struct cgm_plan *plan, const char *format, ...)
{
    size_t used = strlen(plan->reason);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(plan->reason + used, sizeof(plan->reason) - used, format, arguments);
    va_end(arguments);
}

/* Tried once for each comm. */
static void make_group(struct cgm_comm *comm, struct cgm_executor *executor)
{
    if (comm->group_tried)
        return;
    comm->group_tried = true;
    int status = executor->ops->group_new(executor->backend, comm->devices, comm->size,
                                          comm->group_text, sizeof(comm->group_text), &comm->group);
    if (status != CGM_OK)
        cgm_executor_log(4, "comm %llu: collectives are made of copies: %s",
                         (unsigned long long)comm->id, comm->group_text);
}

/* A library rounds to the type that it adds in at every step; numerics depend on it. */
static void name_library(struct cgm_plan *plan)
{
    bool gathers = plan->spec.op == CGM_OP_AG || plan->spec.op == CGM_OP_AG_GEMM ||
                   plan->spec.op == CGM_OP_BULK_AG;
    add_reason(plan, "; collectives by %s%s%s where operands are dense", plan->comm->group_text,
               gathers ? "" : " in ",
               gathers ? "" : cgm_type_name(CGM_TABLE_DTYPE, plan->spec.buffer_dtype));
}

void cgm_collectives_choose(struct cgm_plan *plan, struct cgm_executor *executor)
{
    struct cgm_comm *comm = plan->comm;
    if (!executor->ops->group_new || !(plan->algorithm->group_ops & 1u << plan->spec.op) ||
        plan->spec.world == 1 || !cgm_op_is_collective(plan->spec.op))
        return;
    if (cgm_spec_wants_copies(&plan->spec)) {
        add_reason(plan, "; collectives made of copies, as use_ce says");
        return;
    }
    if (comm->devices_shared) {
        add_reason(plan, "; ranks share a device: collectives made of copies");
        return;
    }
    make_group(comm, executor);
    if (!comm->group) {
        add_reason(plan, "; collectives made of copies: %s", comm->group_text);
        return;
    }
    for (uint32_t rank = 0; rank < plan->spec.world; rank++)
        plan->ranks[rank].group = comm->group;
    name_library(plan);
}
