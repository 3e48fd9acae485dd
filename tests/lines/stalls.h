/* The executor stands still now and then while a batch runs, for less than the daemon bears. */
#ifndef LINES_STALLS_H
#define LINES_STALLS_H

#include <pthread.h>
#include <sys/types.h>

#include "tests/lines/lines.h"

#define STALLS_MAX 4u

struct stalls {
    pid_t executor;
    uint32_t n;
    uint32_t after_us[STALLS_MAX], for_us[STALLS_MAX];
    pthread_t thread;
};

/* 0: none this time, or it could not begin. */
void stalls_begin(struct stalls *stalls, pid_t executor, struct cgm_random *random);
/* The executor goes on when it returns. */
void stalls_end(struct stalls *stalls);

#endif
