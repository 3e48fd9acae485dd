/* A backend without devices: operations check that every view lies within memory that is there, and
 * do nothing. Signals happen at once, or when they are let go, so that an input can decide how long
 * a job runs and whether it fails. One thread. */
#ifndef CGM_TESTS_FUZZ_NULL_BACKEND_H
#define CGM_TESTS_FUZZ_NULL_BACKEND_H

#include <stdbool.h>

#include "daemon/executor/backend.h"

#define NULL_DEVICES 2u

struct null_backend {
    bool hold;       /* signals wait for null_backend_let_go */
    bool groups;     /* ranks on devices of their own get a group */
    int next_status; /* of the next operation; OK afterwards */
    int run_status;  /* what the next run that is set ends with */
    unsigned mems, queues, flags, group_count;
};

extern struct null_backend null_backend;
extern const struct cgm_backend_ops null_backend_ops;

void null_backend_let_go(void);

#endif
