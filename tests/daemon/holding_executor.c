/* The CPU backend, with what a driver may do where some memory is freed: it waits until every queue
 * is through, and lets nobody enqueue anything until then. Imports are such memory. Whoever has
 * enqueued a wait takes his time for the rest, so that launches are often half-way. */
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#include "daemon/executor/cpu/queue.h"
#include "daemon/executor/executor.h"
#include "proto/status.h"

#define QUEUES_MAX 64
#define IMPORTS_MAX 64

static pthread_mutex_t driver = PTHREAD_MUTEX_INITIALIZER;
static const struct cgm_queue *queues[QUEUES_MAX];
static const struct cgm_mem *imports[IMPORTS_MAX];

/* Of a table's NULLs and elements; there is room. */
static void replace(const void **table, const void *before, const void *after)
{
    pthread_mutex_lock(&driver);
    while (*table != before)
        table++;
    *table = after;
    pthread_mutex_unlock(&driver);
}

static bool is_import(const struct cgm_mem *mem)
{
    bool found = false;
    pthread_mutex_lock(&driver);
    for (int i = 0; i < IMPORTS_MAX; i++)
        found |= imports[i] == mem;
    pthread_mutex_unlock(&driver);
    return found;
}

static int queue_new(struct cgm_backend *backend, uint32_t device, int priority, uint32_t beside,
                     struct cgm_queue **ret_queue)
{
    int status = cgm_backend_cpu.queue_new(backend, device, priority, beside, ret_queue);
    if (status == CGM_OK)
        replace((const void **)queues, NULL, *ret_queue);
    return status;
}

static void queue_free(struct cgm_queue *queue)
{
    replace((const void **)queues, queue, NULL);
    cgm_backend_cpu.queue_free(queue);
}

static int mem_import(struct cgm_backend *backend, uint32_t device,
                      const struct cgm_memory_segment *segments, uint32_t n_segments,
                      bool read_only, char *ret_detail, size_t detail_bytes,
                      struct cgm_mem **ret_mem)
{
    int status = cgm_backend_cpu.mem_import(backend, device, segments, n_segments, read_only,
                                            ret_detail, detail_bytes, ret_mem);
    if (status == CGM_OK)
        replace((const void **)imports, NULL, *ret_mem);
    return status;
}

static void mem_free(struct cgm_mem *mem)
{
    if (is_import(mem)) {
        replace((const void **)imports, mem, NULL);
        pthread_mutex_lock(&driver);
        for (int i = 0; i < QUEUES_MAX; i++)
            while (queues[i] && atomic_load(&queues[i]->head) != atomic_load(&queues[i]->tail))
                usleep(100);
        pthread_mutex_unlock(&driver);
    }
    cgm_backend_cpu.mem_free(mem);
}

static int wait(struct cgm_queue *queue, struct cgm_flag *flag, uint64_t value,
                const struct cgm_label *label)
{
    pthread_mutex_lock(&driver);
    int status = cgm_backend_cpu.wait(queue, flag, value, label);
    pthread_mutex_unlock(&driver);
    usleep(500);
    return status;
}

static int wait_all(struct cgm_queue *queue, const struct cgm_wait *waits, uint32_t count)
{
    int status = CGM_OK;
    for (uint32_t i = 0; i < count && status == CGM_OK; i++)
        status = wait(queue, waits[i].until.flag, waits[i].until.value, &waits[i].label);
    return status;
}

static int copy(struct cgm_queue *queue, const struct cgm_copy *what)
{
    pthread_mutex_lock(&driver);
    int status = cgm_backend_cpu.copy(queue, what);
    pthread_mutex_unlock(&driver);
    return status;
}

static int signal(struct cgm_queue *queue, struct cgm_flag *flag, uint64_t value)
{
    pthread_mutex_lock(&driver);
    int status = cgm_backend_cpu.signal(queue, flag, value);
    pthread_mutex_unlock(&driver);
    return status;
}

int main(void)
{
    struct cgm_backend_ops ops = cgm_backend_cpu;
    ops.queue_new = queue_new;
    ops.queue_free = queue_free;
    ops.mem_import = mem_import;
    ops.mem_free = mem_free;
    ops.mem_freed_anywhere = false;
    ops.mem_holds_up = is_import;
    ops.wait = wait;
    ops.wait_all = wait_all;
    ops.copy = copy;
    ops.signal = signal;
    return cgm_executor_serve(&ops, 3);
}
