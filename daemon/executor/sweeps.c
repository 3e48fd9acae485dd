#include "daemon/executor/sweeps.h"

#include <stdlib.h>
#include <unistd.h>

#include "daemon/executor/executor.h"
#include "daemon/executor/slice.h"
#include "proto/status.h"
#include "proto/thread.h"

/* So much of what one user lets several others write has a thread of its own; more than that waits
 * for some of it. */
#define OF_SEVERAL_MAX 32u
/* Whether there is room for a thread, or for a few bytes, while there was none. */
#define AGAIN_US 100000u
#define NO_MEMORY_NAP_US 1000u
/* Users can bring it about as often as they like. */
#define TOLD_NS 60000000000ull

/* Of a user and a guest, until there is nothing more. */
struct cgm_sweep {
    struct cgm_rota_entry entry; /* while it waits for a thread; first */
    struct cgm_sweep *next;
    struct cgm_sweep_crew *crew;
    uint32_t guest;
    bool on_reserve;      /* under lock */
    unsigned turns;       /* under lock: with what is under way */
    struct cgm_rota rota; /* under lock: its turns; the first one is under way */
};

/* ---- which one is next: all under the lock ----------------------------------------------------
 */

static void await_thread(struct cgm_sweep *sweep)
{
    cgm_rota_add(&sweep->crew->waiting, &sweep->entry);
    sweep->crew->n_waiting++;
}

static bool is_short(const struct cgm_sweep_crew *crew)
{
    return crew->n_waiting > crew->n_coming;
}

/* NULL: nobody waits. */
static struct cgm_sweep *take(struct cgm_sweep_crew *crew)
{
    struct cgm_sweep *sweep = (struct cgm_sweep *)crew->waiting.first;
    if (!sweep)
        return NULL;
    cgm_rota_move_on(&crew->waiting, true);
    crew->n_waiting--;
    if (is_short(crew))
        pthread_cond_signal(&crew->more);
    return sweep;
}

/* One of a user's, who may keep it for ever. */
static bool has_reserve(const struct cgm_sweep_crew *crew, uint32_t uid)
{
    for (const struct cgm_sweep *sweep = crew->sweeps->first; sweep; sweep = sweep->next)
        if (sweep->on_reserve && sweep->crew == crew && sweep->entry.uid == uid)
            return true;
    return false;
}

/* NULL: nobody waits for whom no thread comes, or who may have one of the reserve. */
static struct cgm_sweep *take_for_reserve(struct cgm_sweep_crew *crew)
{
    const struct cgm_rota_entry *begin = crew->waiting.first;
    if (!is_short(crew))
        return NULL;
    while (has_reserve(crew, crew->waiting.first->uid)) {
        cgm_rota_move_on(&crew->waiting, false);
        if (crew->waiting.first == begin)
            return NULL;
    }
    struct cgm_sweep *sweep = take(crew);
    sweep->on_reserve = true;
    return sweep;
}

static void sweep_free(struct cgm_sweep *sweep)
{
    struct cgm_sweep **at = &sweep->crew->sweeps->first;
    while (*at != sweep)
        at = &(*at)->next;
    *at = sweep->next;
    free(sweep);
}

/* Behind all others of its crew. */
static void put_back(struct cgm_sweep *sweep)
{
    sweep->on_reserve = false;
    if (sweep->rota.first)
        await_thread(sweep);
    else
        sweep_free(sweep);
}

/* ---- threads ----------------------------------------------------------------------------------
 */

/* Under the lock, which it leaves while anything is called. */
static void have_slice(struct cgm_sweep *sweep)
{
    struct cgm_turn *turn = (struct cgm_turn *)sweep->rota.first;
    pthread_mutex_t *lock = &sweep->crew->sweeps->lock;
    pthread_mutex_unlock(lock);
    bool more = turn->slice(turn);
    pthread_mutex_lock(lock);
    if (more)
        return;
    cgm_rota_move_on(&sweep->rota, true);
    pthread_mutex_unlock(lock);
    turn->done(turn);
    pthread_mutex_lock(lock);
    sweep->turns--;
}

static void begin(const char *name)
{
    pthread_setname_np(pthread_self(), name);
    cgm_slice_shorten();
}

/* Until nobody waits: as long as there is a thread for each sweep it stays with one. */
static void *sweep_main(void *argument)
{
    struct cgm_sweep_crew *crew = argument;
    struct cgm_sweep *sweep;
    begin("cgm-sweep");
    pthread_mutex_lock(&crew->sweeps->lock);
    crew->n_coming--;
    while ((sweep = take(crew))) {
        have_slice(sweep);
        put_back(sweep);
    }
    pthread_mutex_unlock(&crew->sweeps->lock);
    return NULL;
}

static void *reserve_main(void *argument)
{
    struct cgm_sweep_crew *crew = argument;
    struct cgm_sweep *sweep;
    begin("cgm-sweep");
    pthread_mutex_lock(&crew->sweeps->lock);
    for (;;) {
        while (!(sweep = take_for_reserve(crew)))
            pthread_cond_wait(&crew->more, &crew->sweeps->lock);
        have_slice(sweep);
        put_back(sweep);
    }
    return NULL;
}

/* Under the lock. */
static void hand_out(struct cgm_sweep_crew *crew)
{
    pthread_t thread;
    for (; is_short(crew); crew->n_coming++)
        if (cgm_thread_start(PTHREAD_CREATE_DETACHED, sweep_main, crew, &thread) != 0) {
            crew->sweeps->lacks = true;
            pthread_cond_signal(&crew->sweeps->lack);
            pthread_cond_signal(&crew->more);
            return;
        }
}

static void tell(struct cgm_sweeps *sweeps)
{
    uint64_t now_ns = cgm_now_ns();
    if (sweeps->told_ns != 0 && now_ns - sweeps->told_ns < TOLD_NS)
        return;
    sweeps->told_ns = now_ns;
    cgm_executor_log(4, "no thread to free what users have given back; they wait for the few "
                        "threads that there are");
}

/* Calls nothing of theirs, and so waits for nobody. */
static void *keeper_main(void *argument)
{
    struct cgm_sweeps *sweeps = argument;
    begin("cgm-sweeps");
    pthread_mutex_lock(&sweeps->lock);
    for (;;) {
        while (!sweeps->lacks)
            pthread_cond_wait(&sweeps->lack, &sweeps->lock);
        sweeps->lacks = false;
        pthread_mutex_unlock(&sweeps->lock);
        tell(sweeps);
        usleep(AGAIN_US);
        pthread_mutex_lock(&sweeps->lock);
        hand_out(&sweeps->own);
        hand_out(&sweeps->lent);
    }
    return NULL;
}

/* ---- adding -----------------------------------------------------------------------------------
 */

/* Under the lock: of those for the two the one that has least to do, and how many there are. */
static struct cgm_sweep *find(const struct cgm_sweeps *sweeps, uint32_t uid, uint32_t guest,
                              unsigned *ret_count)
{
    struct cgm_sweep *found = NULL;
    *ret_count = 0;
    for (struct cgm_sweep *sweep = sweeps->first; sweep; sweep = sweep->next) {
        if (sweep->entry.uid != uid || sweep->guest != guest)
            continue;
        ++*ret_count;
        if (!found || sweep->turns < found->turns)
            found = sweep;
    }
    return found;
}

/* Under the lock. NULL without memory. */
static struct cgm_sweep *sweep_new(struct cgm_sweeps *sweeps, uint32_t uid, uint32_t guest)
{
    struct cgm_sweep *sweep = malloc(sizeof(*sweep));
    if (!sweep)
        return NULL;
    *sweep = (struct cgm_sweep){.entry.uid = uid,
                                .next = sweeps->first,
                                .crew = guest == CGM_NOBODY ? &sweeps->own : &sweeps->lent,
                                .guest = guest};
    sweeps->first = sweep;
    await_thread(sweep);
    return sweep;
}

/* Under the lock. False without memory. */
static bool place(struct cgm_sweeps *sweeps, uint32_t uid, uint32_t guest, struct cgm_turn *turn)
{
    unsigned count, most = guest == CGM_SEVERAL ? OF_SEVERAL_MAX : 1;
    struct cgm_sweep *sweep = find(sweeps, uid, guest, &count);
    struct cgm_sweep *another = count < most ? sweep_new(sweeps, uid, guest) : NULL;
    if (another)
        sweep = another;
    if (!sweep)
        return false;
    turn->entry.uid = uid;
    sweep->turns++;
    cgm_rota_add(&sweep->rota, &turn->entry);
    if (another)
        hand_out(another->crew);
    return true;
}

void cgm_sweeps_add(struct cgm_sweeps *sweeps, uint32_t uid, uint32_t guest, struct cgm_turn *turn)
{
    bool placed;
    do {
        pthread_mutex_lock(&sweeps->lock);
        placed = place(sweeps, uid, guest, turn);
        pthread_mutex_unlock(&sweeps->lock);
        if (!placed)
            usleep(NO_MEMORY_NAP_US);
    } while (!placed);
}

/* ---- at the start -----------------------------------------------------------------------------
 */

static void crew_init(struct cgm_sweep_crew *crew, struct cgm_sweeps *sweeps)
{
    crew->sweeps = sweeps;
    pthread_cond_init(&crew->more, NULL);
}

void cgm_sweeps_init(struct cgm_sweeps *sweeps)
{
    *sweeps = (struct cgm_sweeps){0};
    pthread_mutex_init(&sweeps->lock, NULL);
    pthread_cond_init(&sweeps->lack, NULL);
    crew_init(&sweeps->own, sweeps);
    crew_init(&sweeps->lent, sweeps);
}

int cgm_sweeps_start(struct cgm_sweeps *sweeps)
{
    pthread_t thread;
    int error = cgm_thread_start(PTHREAD_CREATE_DETACHED, keeper_main, sweeps, &thread);
    for (unsigned i = 0; i < CGM_SWEEPS_RESERVE && !error; i++) {
        error = cgm_thread_start(PTHREAD_CREATE_DETACHED, reserve_main, &sweeps->own, &thread);
        if (!error)
            error = cgm_thread_start(PTHREAD_CREATE_DETACHED, reserve_main, &sweeps->lent, &thread);
    }
    return error ? CGM_NO_MEMORY : CGM_OK;
}
