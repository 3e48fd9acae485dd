#include "daemon/broker/left_behind.h"

#include <sys/wait.h>

#include "daemon/broker/log.h"

void cgm_left_behind_add(struct cgm_left_behind *left, pid_t pid)
{
    for (int i = 0; i < CGM_LEFT_BEHIND_MAX; i++)
        if (left->pids[i] == 0) {
            left->pids[i] = pid;
            return;
        }
}

void cgm_left_behind_reap(struct cgm_left_behind *left)
{
    for (int i = 0; i < CGM_LEFT_BEHIND_MAX; i++)
        if (left->pids[i] != 0 && waitpid(left->pids[i], NULL, WNOHANG) != 0) {
            cgm_log_info("executor: process %d, which was left behind, has ended",
                         (int)left->pids[i]);
            left->pids[i] = 0;
        }
}
