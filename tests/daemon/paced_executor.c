/* The CPU backend with products that take as long as a test wants: narrow ones none, those of up to
 * 16 columns 15 ms, wider ones and those with flags 150: far apart, as a busy machine adds some. Of
 * gemm_rs with 64 columns the strips of split_pipelined_rs win, and more of them than by default.
 */
#include <time.h>

#include "daemon/executor/executor.h"

static void take_ms(long ms)
{
    const struct timespec pause = {.tv_nsec = ms * 1000000};
    if (ms > 0)
        nanosleep(&pause, NULL);
}

static int multiply(struct cgm_queue *queue, const struct cgm_gemm *gemm)
{
    take_ms(gemm->out.cols > 16 ? 150 : gemm->out.cols > 8 ? 15 : 0);
    return cgm_backend_cpu.gemm(queue, gemm);
}

static int multiply_flagged(struct cgm_queue *queue, const struct cgm_flagged_gemm *flagged)
{
    take_ms(150);
    return cgm_backend_cpu.flagged_gemm(queue, flagged);
}

int main(void)
{
    struct cgm_backend_ops ops = cgm_backend_cpu;
    ops.gemm = multiply;
    ops.flagged_gemm = multiply_flagged;
    return cgm_executor_serve(&ops, 3);
}
