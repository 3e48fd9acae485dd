#include "daemon/executor/task.h"

#include <errno.h>
#include <semaphore.h>
#include <stddef.h>

#include "daemon/executor/executor.h"
#include "daemon/executor/slice.h"
#include "proto/status.h"

void cgm_task_list_init(struct cgm_task_list *list)
{
    pthread_mutex_init(&list->lock, NULL);
    list->first = NULL;
    list->end = &list->first;
    atomic_init(&list->filled, false);
}

void cgm_task_list_fini(struct cgm_task_list *list)
{
    pthread_mutex_destroy(&list->lock);
}

static void list_append(struct cgm_task_list *list, struct cgm_task *task)
{
    task->next = NULL;
    *list->end = task;
    list->end = &task->next;
    atomic_store_explicit(&list->filled, true, memory_order_release);
}

static void list_prepend(struct cgm_task_list *list, struct cgm_task *task)
{
    task->next = list->first;
    list->first = task;
    if (!task->next)
        list->end = &task->next;
    atomic_store_explicit(&list->filled, true, memory_order_release);
}

/* NULL: there is none. */
static struct cgm_task *list_take_first(struct cgm_task_list *list)
{
    struct cgm_task *first = list->first;
    if (!first)
        return NULL;
    list->first = first->next;
    if (!list->first) {
        list->end = &list->first;
        atomic_store_explicit(&list->filled, false, memory_order_relaxed);
    }
    return first;
}

void cgm_task_list_post(struct cgm_task_list *list, struct cgm_task *task)
{
    pthread_mutex_lock(&list->lock);
    list_append(list, task);
    pthread_mutex_unlock(&list->lock);
}

bool cgm_task_list_run(struct cgm_task_list *list)
{
    if (!atomic_load_explicit(&list->filled, memory_order_acquire))
        return false;
    pthread_mutex_lock(&list->lock);
    struct cgm_task *first = list_take_first(list);
    pthread_mutex_unlock(&list->lock);
    if (first)
        first->run(first);
    return first != NULL;
}

/* Polls for a while. */
static void await_spinning(struct cgm_worker *worker)
{
    uint64_t begin_ns = worker->spin_ns ? cgm_now_ns() : 0, now_ns = begin_ns;
    while (!atomic_load_explicit(&worker->list.filled, memory_order_acquire) &&
           now_ns - begin_ns < worker->spin_ns &&
           cgm_spin_goes_on(&worker->spin, now_ns - begin_ns, now_ns)) {
#if defined(__x86_64__) || defined(__i386__)
        __builtin_ia32_pause();
#endif
        cgm_spin_yield(&worker->spin, now_ns - begin_ns, now_ns);
        now_ns = cgm_now_ns();
    }
}

static void *worker_main(void *argument)
{
    struct cgm_worker *worker = argument;
    cgm_slice_shorten();
    pthread_mutex_lock(&worker->list.lock);
    for (;;) {
        /* One at a time: another may be posted before the rest. */
        struct cgm_task *first = list_take_first(&worker->list);
        if (!first && worker->stop)
            break;
        if (!first) {
            atomic_store_explicit(&worker->asleep, true, memory_order_relaxed);
            pthread_cond_wait(&worker->wake, &worker->list.lock);
            atomic_store_explicit(&worker->asleep, false, memory_order_relaxed);
            pthread_mutex_unlock(&worker->list.lock);
            await_spinning(worker);
            pthread_mutex_lock(&worker->list.lock);
            continue;
        }
        pthread_mutex_unlock(&worker->list.lock);
        first->run(first);
        await_spinning(worker);
        pthread_mutex_lock(&worker->list.lock);
    }
    pthread_mutex_unlock(&worker->list.lock);
    return NULL;
}

int cgm_worker_start(struct cgm_worker *worker, const char *name, uint64_t spin_ns)
{
    cgm_task_list_init(&worker->list);
    pthread_cond_init(&worker->wake, NULL);
    worker->stop = false;
    worker->spin_ns = spin_ns;
    worker->spin = (struct cgm_spin){0};
    atomic_init(&worker->asleep, false);
    if (pthread_create(&worker->thread, NULL, worker_main, worker) != 0)
        return CGM_NO_MEMORY;
    pthread_setname_np(worker->thread, name);
    return CGM_OK;
}

static void post(struct cgm_worker *worker, struct cgm_task *task,
                 void (*put)(struct cgm_task_list *list, struct cgm_task *task))
{
    pthread_mutex_lock(&worker->list.lock);
    put(&worker->list, task);
    pthread_cond_signal(&worker->wake);
    pthread_mutex_unlock(&worker->list.lock);
}

void cgm_worker_post(struct cgm_worker *worker, struct cgm_task *task)
{
    post(worker, task, list_append);
}

void cgm_worker_post_next(struct cgm_worker *worker, struct cgm_task *task)
{
    post(worker, task, list_prepend);
}

/* Unlocked, it may come too early or too late for a sleep that begins now: then the task wakes. */
void cgm_worker_alert(struct cgm_worker *worker)
{
    if (worker->spin_ns == 0 || !atomic_load_explicit(&worker->asleep, memory_order_relaxed))
        return;
    pthread_mutex_lock(&worker->list.lock);
    pthread_cond_signal(&worker->wake);
    pthread_mutex_unlock(&worker->list.lock);
}

struct flush {
    struct cgm_task task;
    sem_t through;
};

static void flush_run(struct cgm_task *task)
{
    sem_post(&((struct flush *)task)->through);
}

void cgm_worker_flush(struct cgm_worker *worker)
{
    struct flush flush = {.task = {.run = flush_run}};
    sem_init(&flush.through, 0, 0);
    cgm_worker_post(worker, &flush.task);
    while (sem_wait(&flush.through) < 0 && errno == EINTR)
        continue;
    sem_destroy(&flush.through);
}

void cgm_worker_stop(struct cgm_worker *worker)
{
    pthread_mutex_lock(&worker->list.lock);
    worker->stop = true;
    pthread_cond_signal(&worker->wake);
    pthread_mutex_unlock(&worker->list.lock);
    pthread_join(worker->thread, NULL);
    pthread_cond_destroy(&worker->wake);
    cgm_task_list_fini(&worker->list);
}
