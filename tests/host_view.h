/* Memory of a device as a test sees it: the memory itself where the host can map it, else a copy
 * that is pulled before it is read and pushed after it was written. */
#ifndef HOST_VIEW_H
#define HOST_VIEW_H

#include <stddef.h>
#include <sys/mman.h>

#ifndef CGM_TEST_BACKEND
#define CGM_TEST_BACKEND cgm_backend_cpu
#define CGM_TEST_EXECUTOR "commgemm-executor-cpu"
#define CGM_TEST_MAPPED 1
#endif

struct host_view {
    unsigned char *base;
    size_t bytes;
    void *device;        /* where the copy is of; unused for a mapping */
    size_t device_bytes; /* as rounded up */
};

#ifdef CGM_TEST_MAPPED

/* An exported fd, which stays the caller's. Not 0: it cannot be mapped. */
static inline int host_view_open(struct host_view *view, int fd, size_t bytes)
{
    view->bytes = bytes;
    view->base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    return view->base == MAP_FAILED;
}

static inline void host_view_close(struct host_view *view)
{
    munmap(view->base, view->bytes);
}

static inline void host_view_pull(struct host_view *view, size_t offset, size_t bytes)
{
    (void)view;
    (void)offset;
    (void)bytes;
}

static inline void host_view_push(struct host_view *view, size_t offset, size_t bytes)
{
    (void)view;
    (void)offset;
    (void)bytes;
}

#else

int host_view_open(struct host_view *view, int fd, size_t bytes);
void host_view_close(struct host_view *view);
void host_view_pull(struct host_view *view, size_t offset, size_t bytes);
void host_view_push(struct host_view *view, size_t offset, size_t bytes);

#endif

#endif
