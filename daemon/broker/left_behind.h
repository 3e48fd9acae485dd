/* Executors that were killed and could not end yet. Nobody waits for them any more, but for what
 * the system keeps of a process until somebody asks how it ended. */
#ifndef CGM_LEFT_BEHIND_H
#define CGM_LEFT_BEHIND_H

#include <sys/types.h>

#define CGM_LEFT_BEHIND_MAX 16

struct cgm_left_behind {
    pid_t pids[CGM_LEFT_BEHIND_MAX]; /* 0: none */
};

/* With too many there is a zombie until the daemon ends. */
void cgm_left_behind_add(struct cgm_left_behind *left, pid_t pid);
/* Now and then: those that have ended by now are no more. */
void cgm_left_behind_reap(struct cgm_left_behind *left);

#endif
