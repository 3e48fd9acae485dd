#include "client/lib/file_limit.h"

#include <errno.h>
#include <time.h>

static sigset_t the_signal(void)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGXFSZ);
    return set;
}

void cgm_file_limit_begin(struct cgm_file_limit *limit)
{
    sigset_t set = the_signal(), pending;
    sigpending(&pending);
    limit->was_pending = sigismember(&pending, SIGXFSZ) == 1;
    pthread_sigmask(SIG_BLOCK, &set, &limit->before);
}

void cgm_file_limit_end(const struct cgm_file_limit *limit, bool failed)
{
    static const struct timespec none;
    sigset_t set = the_signal();
    int error = errno;
    if (failed && error == EFBIG && !limit->was_pending)
        sigtimedwait(&set, NULL, &none);
    pthread_sigmask(SIG_SETMASK, &limit->before, NULL);
    errno = error;
}
