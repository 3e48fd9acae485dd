/* A limit of file sizes (RLIMIT_FSIZE), which memory's files have, too: what goes beyond it is an
 * error of the call between begin and end, and not the program's end. Of the calling thread. */
#ifndef CGM_FILE_LIMIT_H
#define CGM_FILE_LIMIT_H

#include <signal.h>
#include <stdbool.h>

struct cgm_file_limit {
    sigset_t before;
    bool was_pending;
};

void cgm_file_limit_begin(struct cgm_file_limit *limit);
/* failed: the call did, with errno, which stays. */
void cgm_file_limit_end(const struct cgm_file_limit *limit, bool failed);

#endif
