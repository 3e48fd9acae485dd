/* Whether a process may watch memory for holes (daemon/executor/host/holes.h). */
#ifndef TEST_USERFAULTFD_H
#define TEST_USERFAULTFD_H

#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <stdbool.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef UFFD_USER_MODE_ONLY /* Linux 5.11 */
#define UFFD_USER_MODE_ONLY 1
#endif

/* Containers may not let anybody. Then pages are made, and jobs go on. */
static inline bool userfaultfd_is_to_be_had(void)
{
    int fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | UFFD_USER_MODE_ONLY);
    if (fd < 0)
        print_message("userfaultfd is not to be had here\n");
    else
        close(fd);
    return fd >= 0;
}

#endif
