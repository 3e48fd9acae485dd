#include "daemon/broker/lanes.h"

#include <stdlib.h>

#include "proto/status.h"
#include "proto/thread.h"

struct cgm_lane {
    struct cgm_lanes *lanes;
    struct cgm_lane *next;
    uid_t uid;
    bool served; /* a thread is at it, or on its way */
    struct cgm_lane_item *first, *last;
};

/* All that follows is under the lock. */

static struct cgm_lane *find(const struct cgm_lanes *lanes, uid_t uid)
{
    struct cgm_lane *lane = lanes->first;
    while (lane && lane->uid != uid)
        lane = lane->next;
    return lane;
}

static void leave_list(const struct cgm_lane *lane)
{
    struct cgm_lane **at = &lane->lanes->first;
    while (*at != lane)
        at = &(*at)->next;
    *at = lane->next;
}

static void append(struct cgm_lane *lane)
{
    struct cgm_lane **at = &lane->lanes->first;
    while (*at)
        at = &(*at)->next;
    lane->next = NULL;
    *at = lane;
}

static void remove_first(struct cgm_lane *lane)
{
    struct cgm_lane_item *item = lane->first;
    lane->first = item->behind;
    lane->lanes->done(item);
}

/* Leaves the lock meanwhile. */
static void have_turn(struct cgm_lane *lane)
{
    struct cgm_lanes *lanes = lane->lanes;
    pthread_mutex_unlock(&lanes->lock);
    bool more = lanes->part(lane->first);
    pthread_mutex_lock(&lanes->lock);
    if (!more)
        remove_first(lane);
}

/* Behind all others, if anything is left. */
static void put_back(struct cgm_lane *lane)
{
    while (lane->lanes->over && lane->first)
        remove_first(lane);
    leave_list(lane);
    lane->served = false;
    if (lane->first)
        append(lane);
    else
        free(lane);
}

static struct cgm_lane *next_waiting(const struct cgm_lanes *lanes)
{
    struct cgm_lane *lane = lanes->first;
    while (lane && lane->served)
        lane = lane->next;
    return lane;
}

static void take(struct cgm_lanes *lanes, struct cgm_lane *lane)
{
    lanes->taken = lane;
    if (lane)
        lane->served = true;
}

/* ---- threads, which take the lock ------------------------------------------------------------ */

static void *lane_main(void *argument)
{
    struct cgm_lane *lane = argument;
    pthread_mutex_t *lock = &lane->lanes->lock;
    pthread_setname_np(pthread_self(), "cgm-closing");
    pthread_mutex_lock(lock);
    while (lane->first && !lane->lanes->over)
        have_turn(lane);
    put_back(lane);
    pthread_mutex_unlock(lock);
    return NULL;
}

static void have_turns(struct cgm_lanes *lanes)
{
    while (lanes->taken && !lanes->over) {
        have_turn(lanes->taken);
        put_back(lanes->taken);
        take(lanes, next_waiting(lanes));
    }
}

static void *first_main(void *argument)
{
    struct cgm_lanes *lanes = argument;
    pthread_setname_np(pthread_self(), "cgm-closer");
    pthread_mutex_lock(&lanes->lock);
    while (!lanes->over) {
        have_turns(lanes);
        if (!lanes->over)
            pthread_cond_wait(&lanes->more, &lanes->lock);
    }
    if (lanes->taken)
        put_back(lanes->taken);
    take(lanes, NULL);
    pthread_mutex_unlock(&lanes->lock);
    return NULL;
}

/* ---- adding: under the lock ------------------------------------------------------------------ */

static void call_thread(struct cgm_lane *lane)
{
    struct cgm_lanes *lanes = lane->lanes;
    pthread_t thread;
    if (!lanes->taken) {
        take(lanes, lane);
        pthread_cond_signal(&lanes->more);
        return;
    }
    lane->served = cgm_thread_start(PTHREAD_CREATE_DETACHED, lane_main, lane, &thread) == 0;
}

/* NULL without memory. */
static struct cgm_lane *lane_of(struct cgm_lanes *lanes, uid_t uid)
{
    struct cgm_lane *lane = find(lanes, uid);
    if (lane || !(lane = malloc(sizeof(*lane))))
        return lane;
    *lane = (struct cgm_lane){.lanes = lanes, .uid = uid};
    append(lane);
    return lane;
}

static bool add(struct cgm_lanes *lanes, struct cgm_lane_item *item)
{
    struct cgm_lane *lane = lane_of(lanes, item->uid);
    if (!lane)
        return false;
    item->behind = NULL;
    if (lane->first)
        lane->last->behind = item;
    else
        lane->first = item;
    lane->last = item;
    if (!lane->served)
        call_thread(lane);
    return true;
}

/* ---- for the owner --------------------------------------------------------------------------- */

bool cgm_lanes_add(struct cgm_lanes *lanes, struct cgm_lane_item *item)
{
    pthread_mutex_lock(&lanes->lock);
    bool added = add(lanes, item);
    pthread_mutex_unlock(&lanes->lock);
    return added;
}

int cgm_lanes_start(struct cgm_lanes *lanes)
{
    pthread_mutex_init(&lanes->lock, NULL);
    pthread_cond_init(&lanes->more, NULL);
    int error = cgm_thread_start(PTHREAD_CREATE_JOINABLE, first_main, lanes, &lanes->thread);
    return error ? CGM_NO_MEMORY : CGM_OK;
}

void cgm_lanes_stop(struct cgm_lanes *lanes)
{
    struct cgm_lane *lane, *next;
    pthread_mutex_lock(&lanes->lock);
    lanes->over = true;
    pthread_cond_signal(&lanes->more);
    pthread_mutex_unlock(&lanes->lock);
    pthread_join(lanes->thread, NULL);
    pthread_mutex_lock(&lanes->lock);
    for (lane = lanes->first; lane; lane = next) {
        next = lane->next;
        if (!lane->served)
            put_back(lane);
    }
    pthread_mutex_unlock(&lanes->lock);
}
