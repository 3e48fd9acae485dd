#include "client/lib/plans.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/lib/error.h"
#include "proto/types.h"

#define TABLE_FIRST 16u

/* ---- comms ------------------------------------------------------------------------------------
 */

static struct cgm_comm *comm_find(const struct cgm_plans *plans, uint64_t id)
{
    struct cgm_comm *comm = plans->comms;
    while (comm && comm->id != id)
        comm = comm->next;
    return comm;
}

static void comm_unref(struct cgm_comm *comm)
{
    if (--comm->refs > 0)
        return;
    for (uint32_t rank = 0; rank < CGM_COMM_SIZE_MAX; rank++)
        cgm_numbers_free(comm->numbers[rank]);
    free(comm);
}

struct cgm_comm *cgm_comm_new(void)
{
    return calloc(1, sizeof(struct cgm_comm));
}

void cgm_comms_add(struct cgm_plans *plans, struct cgm_comm *comm, uint64_t id, uint32_t size)
{
    struct cgm_comm *known = comm_find(plans, id);
    if (known) {
        free(comm);
        comm = known;
    } else {
        comm->id = id;
        comm->refs = 1;
        comm->next = plans->comms;
        plans->comms = comm;
    }
    comm->size = size <= CGM_COMM_SIZE_MAX ? size : CGM_COMM_SIZE_MAX;
}

static int comm_ensure(struct cgm_plans *plans, uint64_t id)
{
    if (comm_find(plans, id))
        return CGM_OK;
    struct cgm_comm *comm = cgm_comm_new();
    if (!comm)
        return CGM_NO_MEMORY;
    cgm_comms_add(plans, comm, id, CGM_COMM_SIZE_MAX);
    return CGM_OK;
}

int cgm_comm_ensure_numbers(struct cgm_comm *comm, uint32_t rank)
{
    if (!comm->numbers[rank])
        comm->numbers[rank] = cgm_numbers_new();
    return comm->numbers[rank] ? CGM_OK : cgm_fail_plain(CGM_NO_MEMORY);
}

static void comm_unlink(struct cgm_plans *plans, uint64_t id)
{
    for (struct cgm_comm **at = &plans->comms; *at; at = &(*at)->next) {
        struct cgm_comm *comm = *at;
        if (comm->id != id)
            continue;
        *at = comm->next;
        comm_unref(comm);
        return;
    }
}

void cgm_comms_remove(struct cgm_plans *plans, uint64_t id)
{
    /* A removal moves plans into places already passed, so start again after each. */
    for (uint32_t i = 0; plans->table && i <= plans->mask; i++) {
        struct cgm_plan *plan = plans->table[i];
        if (!plan || plan->comm->id != id)
            continue;
        cgm_plans_remove(plans, plan->id);
        i = UINT32_MAX;
    }
    comm_unlink(plans, id);
}

/* ---- plans ------------------------------------------------------------------------------------
 */

void cgm_plan_unref(struct cgm_plan *plan)
{
    if (--plan->refs > 0)
        return;
    comm_unref(plan->comm);
    free(plan);
}

/* The place of a plan, or the free one where it belongs. */
static uint32_t place_of(struct cgm_plan *const *table, uint32_t mask, uint64_t id)
{
    uint32_t i = (uint32_t)id & mask;
    while (table[i] && table[i]->id != id)
        i = (i + 1) & mask;
    return i;
}

static int table_grow(struct cgm_plans *plans)
{
    uint32_t size = plans->table ? 2 * (plans->mask + 1) : TABLE_FIRST;
    struct cgm_plan **table = calloc(size, sizeof(struct cgm_plan *));
    if (!table)
        return CGM_NO_MEMORY;
    for (uint32_t i = 0; plans->table && i <= plans->mask; i++)
        if (plans->table[i])
            table[place_of(table, size - 1, plans->table[i]->id)] = plans->table[i];
    free(plans->table);
    plans->table = table;
    plans->mask = size - 1;
    return CGM_OK;
}

static struct cgm_plan *plan_new(struct cgm_comm *comm, const Cgm__PlanReply *reply)
{
    struct cgm_plan *plan = calloc(1, sizeof(*plan));
    if (!plan)
        return NULL;
    plan->id = reply->id;
    plan->op = (int)reply->op;
    plan->collective = cgm_op_is_collective(plan->op);
    plan->algorithm = (int)reply->algorithm;
    snprintf(plan->reason, sizeof(plan->reason), "%s", reply->reason);
    plan->refs = 1;
    plan->comm = comm;
    comm->refs++;
    return plan;
}

int cgm_plans_add(struct cgm_plans *plans, uint64_t comm, const Cgm__PlanReply *reply)
{
    int status = comm_ensure(plans, comm);
    if (status == CGM_OK && (!plans->table || 2 * (plans->count + 1) > plans->mask + 1))
        status = table_grow(plans);
    if (status != CGM_OK)
        return status;
    struct cgm_plan *plan = plan_new(comm_find(plans, comm), reply);
    if (!plan)
        return CGM_NO_MEMORY;
    assert(plans->table);
    struct cgm_plan **place = &plans->table[place_of(plans->table, plans->mask, plan->id)];
    if (*place)
        cgm_plan_unref(*place);
    else
        plans->count++;
    *place = plan;
    return CGM_OK;
}

struct cgm_plan *cgm_plans_find(const struct cgm_plans *plans, uint64_t id)
{
    return plans->table ? plans->table[place_of(plans->table, plans->mask, id)] : NULL;
}

/* Closes the gap at i: whoever was pushed past it by a collision moves back. */
static void close_gap(struct cgm_plans *plans, uint32_t i)
{
    for (uint32_t j = (i + 1) & plans->mask; plans->table[j]; j = (j + 1) & plans->mask) {
        struct cgm_plan *plan = plans->table[j];
        plans->table[j] = NULL;
        plans->table[place_of(plans->table, plans->mask, plan->id)] = plan;
    }
}

static void remove_at(struct cgm_plans *plans, uint32_t i)
{
    cgm_plan_unref(plans->table[i]);
    plans->table[i] = NULL;
    plans->count--;
    close_gap(plans, i);
}

void cgm_plans_remove(struct cgm_plans *plans, uint64_t id)
{
    if (cgm_plans_find(plans, id))
        remove_at(plans, place_of(plans->table, plans->mask, id));
}

void cgm_plans_remove_all(struct cgm_plans *plans)
{
    /* What a removal moves comes to its place, or to one that is not passed yet. */
    for (uint32_t i = 0; plans->table && i <= plans->mask; i++)
        while (plans->table[i])
            remove_at(plans, i);
}

void cgm_plans_fini(struct cgm_plans *plans)
{
    cgm_plans_remove_all(plans);
    free(plans->table);
    plans->table = NULL;
    while (plans->comms)
        comm_unlink(plans, plans->comms->id);
}
