#include "daemon/executor/idle_imports.h"

#include <stddef.h>
#include <stdlib.h>

#include "daemon/executor/executor.h"
#include "daemon/executor/memory.h"
#include "proto/messages.h"

/* On the sweeper where the backend lets it, else on the mapper. */
struct closing {
    struct cgm_task task; /* first */
    struct cgm_turn turn;
    struct cgm_executor *executor;
    struct cgm_reclaim reclaim; /* of its memory */
    uint64_t id;
    uint32_t generation, uid;
};

static struct closing *closing_of(struct cgm_turn *turn)
{
    return (struct closing *)(void *)((char *)turn - offsetof(struct closing, turn));
}

static bool closing_slice(struct cgm_turn *turn)
{
    const struct closing *closing = closing_of(turn);
    return cgm_mem_drain_slice(closing->executor->ops, closing->reclaim.mem);
}

/* The broker has the memory until it is told: it is not here that it goes. */
static void closing_gone(struct cgm_reclaim *reclaim)
{
    struct closing *closing =
        (struct closing *)(void *)((char *)reclaim - offsetof(struct closing, reclaim));
    Cgm__ImportIdle event = CGM__IMPORT_IDLE__INIT;
    event.id = closing->id;
    event.generation = closing->generation;
    cgm_event_send(closing->executor, CGM_MSG_IMPORT_IDLE, &event.base);
    free(closing);
}

static void closing_done(struct cgm_turn *turn)
{
    struct closing *closing = closing_of(turn);
    cgm_reclaim(closing->executor, &closing->reclaim);
}

static void closing_run(struct cgm_task *task)
{
    struct closing *closing = (struct closing *)task;
    struct cgm_executor *executor = closing->executor;
    if (executor->ops->mem_freed_anywhere)
        cgm_sweeps_add(&executor->sweeps, closing->uid, CGM_NOBODY, &closing->turn);
    else
        cgm_turns_add(&executor->slices, closing->uid, &closing->turn);
}

static void close_import(struct cgm_executor *executor, struct cgm_memory *memory)
{
    struct closing *closing = malloc(sizeof(*closing));
    if (!closing)
        return; /* the next look tries again */
    *closing = (struct closing){.task = {.run = closing_run},
                                .turn = {.slice = closing_slice, .done = closing_done},
                                .executor = executor,
                                .reclaim = {.mem = memory->mem, .done = closing_gone},
                                .id = memory->id,
                                .generation = ++memory->generation,
                                .uid = memory->uid};
    memory->mem = NULL;
    cgm_worker_post(executor->ops->mem_freed_anywhere ? &executor->sweeper : &executor->mapper,
                    &closing->task);
}

struct idle_look {
    struct cgm_executor *executor;
    uint64_t now_ns;
};

static void look_at_import(void *context, uint64_t id, void *value)
{
    const struct idle_look *look = context;
    struct cgm_memory *memory = value;
    (void)id;
    if (memory->session != 0 && memory->mem && memory->users == 0 &&
        look->now_ns - memory->unused_since_ns >= look->executor->limits.import_idle_ns)
        close_import(look->executor, memory);
}

void cgm_memory_leave(struct cgm_executor *executor, struct cgm_memory *memory)
{
    bool holes = memory->users == 1 && memory->mem && !memory->removal &&
                 cgm_memory_has_holes(memory, executor->ops);
    cgm_memory_unref(memory);
    if (!holes)
        return;
    memory->holes = true;
    close_import(executor, memory);
}

void cgm_imports_close_idle(struct cgm_poller *poller, uint64_t now_ns)
{
    struct idle_look look = {poller->executor, now_ns};
    cgm_map_each(&poller->memories, look_at_import, &look);
}
