#include "daemon/broker/own_table.h"

#include <sched.h>
#include <unistd.h>

void cgm_own_table_clear(int fd)
{
    if (fd > 0)
        close_range(0, (unsigned)fd - 1, 0);
    close_range((unsigned)fd + 1, ~0u, 0);
}

bool cgm_own_table(int fd)
{
    if (unshare(CLONE_FILES) != 0)
        return false;
    cgm_own_table_clear(fd);
    return true;
}
