/* Limits of the process that runs the test. */
#ifndef TEST_OWN_LIMIT_H
#define TEST_OWN_LIMIT_H

#include <sys/resource.h>
#include <unistd.h>

/* As far as the hard limit lets. Returns the limit that was there; RLIM_INFINITY: also on failure.
 */
static inline rlim_t own_limit_set(int which, rlim_t most)
{
    struct rlimit limit = {RLIM_INFINITY, RLIM_INFINITY};
    getrlimit(which, &limit);
    rlim_t before = limit.rlim_cur;
    limit.rlim_cur = most < limit.rlim_max ? most : limit.rlim_max;
    setrlimit(which, &limit);
    return before;
}

/* So that this many more fds may be open than are now, if none below the highest is free. */
static inline rlim_t own_limit_fds(rlim_t more)
{
    int next = dup(0);
    close(next);
    return own_limit_set(RLIMIT_NOFILE, (rlim_t)next + more);
}

#endif
