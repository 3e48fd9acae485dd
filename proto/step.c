#include "proto/step.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "proto/status.h"

struct cgm_step_page *cgm_step_page;

int cgm_step_open(const char *path)
{
    struct stat st;
    int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0)
        return CGM_IO;
    void *base = MAP_FAILED;
    if (fstat(fd, &st) == 0 && (size_t)st.st_size >= sizeof(*cgm_step_page))
        base = mmap(NULL, sizeof(*cgm_step_page), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (base == MAP_FAILED)
        return CGM_IO;
    cgm_step_page = base;
    return CGM_OK;
}

/* One passage stops, whichever thread it is. */
void cgm_step_stop(uint32_t step)
{
    struct cgm_step_page *page = cgm_step_page;
    uint32_t skip = atomic_load(&page->skip);
    while (skip > 0)
        if (atomic_compare_exchange_weak(&page->skip, &skip, skip - 1))
            return;
    if (!atomic_compare_exchange_strong(&page->armed, &step, 0))
        return;
    atomic_store(&page->pid, getpid());
    raise(SIGSTOP);
}
