#include "daemon/executor/sweeps.h"

#include <stdlib.h>

#include "daemon/executor/slice.h"
#include "proto/thread.h"

/* So much of what one user lets several others write has a thread of its own; more than that waits
 * for some of it. */
#define OF_SEVERAL_MAX 32u

/* Of a user and a guest, until its thread finds nothing more. */
struct cgm_sweep {
    struct cgm_sweep *next;
    struct cgm_sweeps *sweeps;
    uint32_t uid, guest;
    unsigned turns;       /* under lock: with what is under way */
    struct cgm_rota rota; /* under lock; what is under way has left it */
};

static void run(struct cgm_turn *turn)
{
    while (turn->slice(turn))
        continue;
    turn->done(turn);
}

/* Under the lock. NULL: the user's thread finds nothing more, and its sweep is no more. */
static struct cgm_turn *take(struct cgm_sweep *sweep)
{
    struct cgm_sweep **at = &sweep->sweeps->first;
    struct cgm_rota_entry *first = sweep->rota.first;
    if (first) {
        cgm_rota_move_on(&sweep->rota, true);
        return (struct cgm_turn *)first;
    }
    while (*at != sweep)
        at = &(*at)->next;
    *at = sweep->next;
    free(sweep);
    return NULL;
}

static void *sweep_main(void *argument)
{
    struct cgm_sweep *sweep = argument;
    struct cgm_sweeps *sweeps = sweep->sweeps;
    struct cgm_turn *turn;
    pthread_setname_np(pthread_self(), "cgm-sweep");
    cgm_slice_shorten();
    pthread_mutex_lock(&sweeps->lock);
    while ((turn = take(sweep))) {
        pthread_mutex_unlock(&sweeps->lock);
        run(turn);
        pthread_mutex_lock(&sweeps->lock);
        sweep->turns--;
    }
    pthread_mutex_unlock(&sweeps->lock);
    return NULL;
}

/* Under the lock, without which its thread cannot go on. NULL: there is no room for one. */
static struct cgm_sweep *sweep_new(struct cgm_sweeps *sweeps, uint32_t uid, uint32_t guest)
{
    struct cgm_sweep *sweep = malloc(sizeof(*sweep));
    pthread_t thread;
    if (!sweep)
        return NULL;
    *sweep =
        (struct cgm_sweep){.next = sweeps->first, .sweeps = sweeps, .uid = uid, .guest = guest};
    if (cgm_thread_start(PTHREAD_CREATE_DETACHED, sweep_main, sweep, &thread) != 0) {
        free(sweep);
        return NULL;
    }
    sweeps->first = sweep;
    return sweep;
}

/* Under the lock: of those for the two the one that has least to do, and how many there are. */
static struct cgm_sweep *find(const struct cgm_sweeps *sweeps, uint32_t uid, uint32_t guest,
                              unsigned *ret_count)
{
    struct cgm_sweep *found = NULL;
    *ret_count = 0;
    for (struct cgm_sweep *sweep = sweeps->first; sweep; sweep = sweep->next) {
        if (sweep->uid != uid || sweep->guest != guest)
            continue;
        ++*ret_count;
        if (!found || sweep->turns < found->turns)
            found = sweep;
    }
    return found;
}

void cgm_sweeps_init(struct cgm_sweeps *sweeps)
{
    pthread_mutex_init(&sweeps->lock, NULL);
    sweeps->first = NULL;
}

void cgm_sweeps_add(struct cgm_sweeps *sweeps, uint32_t uid, uint32_t guest, struct cgm_turn *turn)
{
    unsigned count, most = guest == CGM_SEVERAL ? OF_SEVERAL_MAX : 1;
    pthread_mutex_lock(&sweeps->lock);
    struct cgm_sweep *sweep = find(sweeps, uid, guest, &count);
    struct cgm_sweep *another = count < most ? sweep_new(sweeps, uid, guest) : NULL;
    if (another)
        sweep = another;
    turn->entry.uid = uid;
    if (sweep) {
        sweep->turns++;
        cgm_rota_add(&sweep->rota, &turn->entry);
    }
    pthread_mutex_unlock(&sweeps->lock);
    if (!sweep)
        run(turn);
}
