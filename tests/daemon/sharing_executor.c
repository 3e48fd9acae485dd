/* The CPU backend with as few threads as a GPU has streams: queues share them, and one that waits
 * holds up whatever else is on its thread. Only the first queue of a set has its own, as those for
 * copies look the same, which another thread fills. */
#include <unistd.h>

#include "daemon/executor/cpu/queue.h"
#include "daemon/executor/executor.h"
#include "proto/status.h"

#define STREAMS 28u
#define LOOK_US 100

static struct stream {
    struct cgm_queue *queue;
    uint64_t taken;
} streams[CGM_CPU_DEVICES_MAX][STREAMS];
static uint64_t taken[CGM_CPU_DEVICES_MAX];

static int open_all(const struct cgm_backend_options *options, char *ret_detail,
                    size_t detail_bytes, struct cgm_backend **ret_backend)
{
    int status = cgm_backend_cpu.open(options, ret_detail, detail_bytes, ret_backend);
    for (uint32_t i = 0; status == CGM_OK && i < (*ret_backend)->devices * STREAMS; i++)
        status = cgm_backend_cpu.queue_new(*ret_backend, i / STREAMS, 0, 0,
                                           &streams[i / STREAMS][i % STREAMS].queue);
    return status;
}

/* The one that was taken longest ago, whatever is on it. */
static int take(struct cgm_backend *backend, uint32_t device, int priority, uint32_t beside,
                struct cgm_queue **ret_queue)
{
    struct stream *found = streams[device];
    taken[device]++;
    if (beside == 0)
        return cgm_backend_cpu.queue_new(backend, device, priority, beside, ret_queue);
    for (struct stream *stream = found; stream < streams[device] + STREAMS; stream++)
        if (stream->taken < found->taken)
            found = stream;
    if (found->taken + beside >= taken[device])
        return CGM_NOT_SUPPORTED;
    found->taken = taken[device];
    *ret_queue = found->queue;
    return CGM_OK;
}

static bool is_shared(const struct cgm_queue *queue)
{
    for (uint32_t i = 0; i < STREAMS; i++)
        if (streams[queue->device][i].queue == queue)
            return true;
    return false;
}

static void give(struct cgm_queue *queue)
{
    uint32_t tail = atomic_load(&queue->tail);
    if (!is_shared(queue)) {
        cgm_backend_cpu.queue_free(queue);
        return;
    }
    while ((int32_t)(atomic_load(&queue->head) - tail) < 0)
        usleep(LOOK_US);
}

int main(void)
{
    struct cgm_backend_ops ops = cgm_backend_cpu;
    ops.open = open_all;
    ops.queue_new = take;
    ops.queue_free = give;
    ops.queues_max = STREAMS;
    ops.launches_in_any_order = false;
    return cgm_executor_serve(&ops, 3);
}
