/* The CPU backend on a machine whose devices 1 and 2 do not reach each other's memory. */
#include "daemon/executor/executor.h"

static bool reaches(const struct cgm_backend *backend, uint32_t device, uint32_t other)
{
    (void)backend;
    return device == other || (device != 1 && device != 2) || (other != 1 && other != 2);
}

int main(void)
{
    struct cgm_backend_ops ops = cgm_backend_cpu;
    ops.reaches = reaches;
    return cgm_executor_serve(&ops, 3);
}
