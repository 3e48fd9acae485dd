/* What users give back, each user's in the order of its coming: nobody's waits for another's,
 * however long that takes. One thread is there from the start, and takes up the lane of whoever
 * comes while it has nothing to do; who comes meanwhile gets one of his own, for as long as
 * anything is left in his lane. Where the system has none for him, the first one serves all who
 * wait, in turns. */
#ifndef CGM_LANES_H
#define CGM_LANES_H

#include <pthread.h>
#include <stdbool.h>
#include <sys/types.h>

struct cgm_lane;

struct cgm_lane_item {
    uid_t uid;
    struct cgm_lane_item *behind;
};

struct cgm_lanes {
    /* Set before the start. part: one of an item's, which may take long; false: that was the last
     * one, and the item goes to done, which is short. On any of the threads. */
    bool (*part)(struct cgm_lane_item *item);
    void (*done)(struct cgm_lane_item *item);
    pthread_mutex_t lock;
    pthread_cond_t more;    /* with the lock */
    struct cgm_lane *first; /* under the lock: of each user who has something; by turns */
    struct cgm_lane *taken; /* under the lock: by the first thread */
    bool over;              /* under the lock */
    pthread_t thread;
};

/* NO_MEMORY: there is no thread. */
int cgm_lanes_start(struct cgm_lanes *lanes);

/* Its uid is set. False without memory: it is as it was. */
bool cgm_lanes_add(struct cgm_lanes *lanes, struct cgm_lane_item *item);

/* The first thread ends its part. What no other thread has begun goes to done as it is; each of
 * those does so with the rest of its lane, perhaps later. */
void cgm_lanes_stop(struct cgm_lanes *lanes);

#endif
