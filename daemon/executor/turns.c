#include "daemon/executor/turns.h"

#include <stddef.h>

static void user_append(struct cgm_turns *turns, struct cgm_turn *turn)
{
    struct cgm_turn **end = &turns->first;
    while (*end)
        end = &(*end)->next;
    turn->next = NULL;
    *end = turn;
}

/* One slice at a time is in the mapper's queue: what was posted before it goes first. */
static void slice_run(struct cgm_task *task)
{
    struct cgm_turns *turns = (struct cgm_turns *)task; /* its first member */
    struct cgm_turn *turn = turns->first;
    bool more = turn->slice(turn);
    turns->first = turn->next;
    if (more)
        user_append(turns, turn);
    else if (turn->behind)
        user_append(turns, turn->behind);
    if (turns->first)
        cgm_worker_post(turns->mapper, &turns->task);
    if (!more)
        turn->done(turn);
}

void cgm_turns_init(struct cgm_turns *turns, struct cgm_worker *mapper)
{
    *turns = (struct cgm_turns){.task = {.run = slice_run}, .mapper = mapper};
}

void cgm_turns_add(struct cgm_turns *turns, struct cgm_turn *turn)
{
    bool idle = !turns->first;
    struct cgm_turn *at = turns->first;
    turn->behind = NULL;
    while (at && at->uid != turn->uid)
        at = at->next;
    if (!at) {
        user_append(turns, turn);
    } else {
        while (at->behind)
            at = at->behind;
        at->behind = turn;
    }
    if (idle)
        cgm_worker_post(turns->mapper, &turns->task);
}
