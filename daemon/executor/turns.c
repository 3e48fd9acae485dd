#include "daemon/executor/turns.h"

#include <stddef.h>

/* One slice at a time is in the worker's queue: what was posted before it goes first. */
static void slice_run(struct cgm_task *task)
{
    struct cgm_turns *turns = (struct cgm_turns *)task; /* its first member */
    struct cgm_turn *turn = (struct cgm_turn *)turns->rota.first;
    bool more = turn->slice(turn);
    cgm_rota_move_on(&turns->rota, !more);
    if (turns->rota.first)
        cgm_worker_post(turns->worker, &turns->task);
    if (!more)
        turn->done(turn);
}

void cgm_turns_init(struct cgm_turns *turns, struct cgm_worker *worker)
{
    *turns = (struct cgm_turns){.task = {.run = slice_run}, .worker = worker};
}

void cgm_turns_add(struct cgm_turns *turns, uint32_t uid, struct cgm_turn *turn)
{
    bool idle = !turns->rota.first;
    turn->entry.uid = uid;
    cgm_rota_add(&turns->rota, &turn->entry);
    if (idle)
        cgm_worker_post(turns->worker, &turns->task);
}
