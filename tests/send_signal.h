/* kill() for tests: of one process. 0 and -1, which stand for a process that is not there, would be
 * many, with those that started the test among them. */
#ifndef CGM_TEST_SEND_SIGNAL_H
#define CGM_TEST_SEND_SIGNAL_H

#include <errno.h>
#include <signal.h>
#include <sys/types.h>

static inline int send_signal(pid_t pid, int number)
{
    if (pid > 0)
        return kill(pid, number);
    errno = ESRCH;
    return -1;
}

#endif
