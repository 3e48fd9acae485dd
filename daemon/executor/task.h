/* Threads send each other tasks; whoever runs a task owns what it points to until it posts it on.
 */
#ifndef CGM_TASK_H
#define CGM_TASK_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "proto/spin.h"

/* Embedded in a larger object. run may post, reuse or free the task: it is not touched afterwards.
 */
struct cgm_task {
    struct cgm_task *next;
    void (*run)(struct cgm_task *task);
};

/* First in, first out; any thread posts, one takes. */
struct cgm_task_list {
    pthread_mutex_t lock;
    struct cgm_task *first, **end;
    _Atomic bool filled; /* a hint that needs no lock */
};

void cgm_task_list_init(struct cgm_task_list *list);
void cgm_task_list_fini(struct cgm_task_list *list);
void cgm_task_list_post(struct cgm_task_list *list, struct cgm_task *task);
/* Runs the first one; true when there was any. */
bool cgm_task_list_run(struct cgm_task_list *list);

/* A thread that runs tasks in the order of posting. */
struct cgm_worker {
    pthread_t thread;
    struct cgm_task_list list;
    pthread_cond_t wake; /* with list.lock */
    uint64_t spin_ns;    /* how long it polls for tasks before it sleeps */
    struct cgm_spin spin;
    _Atomic bool asleep;
    bool stop;
};

/* name: at most 15 bytes, for listings of threads. */
int cgm_worker_start(struct cgm_worker *worker, const char *name, uint64_t spin_ns);
void cgm_worker_post(struct cgm_worker *worker, struct cgm_task *task);
/* The same, to be run before everything else that was posted and has not begun. */
void cgm_worker_post_next(struct cgm_worker *worker, struct cgm_task *task);
/* Something will be posted soon: a worker that polls does so from now on. */
void cgm_worker_alert(struct cgm_worker *worker);
/* Waits until the worker is through with everything posted before; not from its own thread. */
void cgm_worker_flush(struct cgm_worker *worker);
void cgm_worker_stop(struct cgm_worker *worker); /* after everything posted has run */

#endif
