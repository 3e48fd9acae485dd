/* Programs that keep one processor busy and jump to the next one together, so that threads stand
 * ready and do not run, wherever they are. */
#ifndef CHAOS_JUMPERS_H
#define CHAOS_JUMPERS_H

#include <stdint.h>
#include <sys/types.h>

#define CHAOS_JUMPERS 4u

struct chaos_jumpers {
    pid_t pid[CHAOS_JUMPERS];
    uint32_t n;
};

/* They end with this process, too. n: at most CHAOS_JUMPERS; where one cannot be started there are
 * fewer. */
void chaos_jumpers_start(struct chaos_jumpers *jumpers, uint32_t n, uint32_t period_us);
void chaos_jumpers_stop(struct chaos_jumpers *jumpers);

#endif
