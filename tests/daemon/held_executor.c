/* The CPU backend whose mapper can be held: a queue on HELD_DEVICE is made when the file named by
 * $COMMGEMM_TEST_GATE is there. One on SLOW_DEVICE takes longer than is usual. */
#include "daemon/executor/executor.h"
#include "tests/daemon/held_executor.h"

static int queue_new(struct cgm_backend *backend, uint32_t device, int priority, uint32_t beside,
                     struct cgm_queue **ret_queue)
{
    if (device == HELD_DEVICE)
        gate_await();
    if (device == SLOW_DEVICE)
        usleep(300);
    return cgm_backend_cpu.queue_new(backend, device, priority, beside, ret_queue);
}

int main(void)
{
    struct cgm_backend_ops ops = cgm_backend_cpu;
    ops.queue_new = queue_new;
    return cgm_executor_serve(&ops, 3);
}
