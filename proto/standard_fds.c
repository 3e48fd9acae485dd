#include "proto/standard_fds.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

void cgm_standard_fds_open(void)
{
    static const int modes[] = {
        [STDIN_FILENO] = O_RDONLY, [STDOUT_FILENO] = O_RDONLY, [STDERR_FILENO] = O_RDWR};
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
        if (fcntl(fd, F_GETFD) < 0)
            open("/dev/null", modes[fd]); /* which takes the lowest number, this one */
}

bool cgm_standard_output_ends_well(const char *program)
{
    errno = EIO; /* unless the last write says more: an earlier one may have failed */
    if (fflush(stdout) == 0 && !ferror(stdout))
        return true;
    fprintf(stderr, "%s: standard output: cannot write: %s\n", program, strerror(errno));
    return false;
}
