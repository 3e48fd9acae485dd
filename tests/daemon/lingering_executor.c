/* The CPU backend with one slow copy: the first one of all is made when the file named by
 * $COMMGEMM_TEST_GATE is there. */
#include <pthread.h>

#include "daemon/executor/cpu/cpu.h"
#include "daemon/executor/executor.h"
#include "proto/status.h"
#include "tests/daemon/held_executor.h"

static struct cgm_flag *may_copy;

static int open_backend(const struct cgm_backend_options *options, char *ret_detail,
                        size_t detail_bytes, struct cgm_backend **ret_backend)
{
    int status = cgm_backend_cpu.open(options, ret_detail, detail_bytes, ret_backend);
    return status == CGM_OK ? cgm_backend_cpu.flag_new(*ret_backend, 0, CGM_FLAG_DEVICE, &may_copy)
                            : status;
}

static void *let_go(void *unused)
{
    gate_await();
    cgm_cpu_flag_signal(may_copy, 1);
    return unused;
}

static int copy(struct cgm_queue *queue, const struct cgm_copy *what)
{
    static const struct cgm_label nobody;
    static _Atomic unsigned copies;
    pthread_t thread;
    if (atomic_fetch_add(&copies, 1) == 0) {
        if (pthread_create(&thread, NULL, let_go, NULL) != 0)
            return CGM_NO_MEMORY;
        pthread_detach(thread);
        cgm_backend_cpu.wait(queue, may_copy, 1, &nobody);
    }
    return cgm_backend_cpu.copy(queue, what);
}

int main(void)
{
    struct cgm_backend_ops ops = cgm_backend_cpu;
    ops.open = open_backend;
    ops.copy = copy;
    return cgm_executor_serve(&ops, 3);
}
