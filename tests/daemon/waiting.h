/* Waits of tests: short naps until something is so, within a bound. */
#ifndef CGM_TEST_WAITING_H
#define CGM_TEST_WAITING_H

#include <stdbool.h>
#include <time.h>

#define WAIT_S 60 /* bound of every wait */

static inline void nap(void)
{
    struct timespec ms = {.tv_nsec = 5000000};
    nanosleep(&ms, NULL);
}

/* begin: of CLOCK_MONOTONIC. */
static inline bool is_over(const struct timespec *begin)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec - begin->tv_sec > WAIT_S;
}

#endif
