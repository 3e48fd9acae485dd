#include "daemon/executor/turns.h"

#include <stddef.h>

static struct cgm_turn *first_of(struct cgm_turns *turns)
{
    pthread_mutex_lock(&turns->lock);
    struct cgm_turn *first = (struct cgm_turn *)turns->rota.first; /* its first member */
    pthread_mutex_unlock(&turns->lock);
    return first;
}

/* True: there is a next one. */
static bool move_on(struct cgm_turns *turns, bool through)
{
    pthread_mutex_lock(&turns->lock);
    cgm_rota_move_on(&turns->rota, through);
    bool goes_on = turns->rota.first != NULL;
    pthread_mutex_unlock(&turns->lock);
    return goes_on;
}

/* One turn at a time is in the worker's queue: what was posted before it goes first. */
static void turn_run(struct cgm_task *task)
{
    struct cgm_turns *turns = (struct cgm_turns *)task; /* its first member */
    struct cgm_turn *turn = first_of(turns);
    bool more = turn->slice && turn->slice(turn);
    if (move_on(turns, !more))
        cgm_worker_post(turns->worker, &turns->task);
    if (!more)
        turn->done(turn);
}

void cgm_turns_init(struct cgm_turns *turns, struct cgm_worker *worker)
{
    *turns = (struct cgm_turns){.task = {.run = turn_run}, .worker = worker};
    pthread_mutex_init(&turns->lock, NULL);
}

void cgm_turns_add(struct cgm_turns *turns, uint32_t uid, struct cgm_turn *turn)
{
    turn->entry.uid = uid;
    pthread_mutex_lock(&turns->lock);
    bool idle = !turns->rota.first;
    cgm_rota_add(&turns->rota, &turn->entry);
    pthread_mutex_unlock(&turns->lock);
    if (idle)
        cgm_worker_post(turns->worker, &turns->task);
}
