#include "client/lib/cuda_timeline.h"

#include <stdlib.h>

#include "client/lib/error.h"

/* cuda.h: CU_MEMHOSTREGISTER_PORTABLE, _DEVICEMAP;
 * CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS
 */
enum { PORTABLE = 1, DEVICEMAP = 2, CAN_USE_64_BIT_STREAM_MEM_OPS = 122 };

void cgm_cuda_timelines_init(struct cgm_cuda_timelines *timelines)
{
    pthread_mutex_init(&timelines->registering, NULL);
}

/* ready and done lie behind each other, on pages of their own, before phase. */
static void *words_of(const struct cgm_ring *ring, size_t *ret_bytes)
{
    *ret_bytes = (size_t)((char *)ring->phase - (char *)ring->ready);
    return (void *)(uintptr_t)ring->ready;
}

static int check_device(const struct cgm_cuda_driver *driver)
{
    int device, able = 0;
    int result = driver->context_device(&device);
    if (result == CGM_CUDA_SUCCESS)
        result = driver->device_attribute(&able, CAN_USE_64_BIT_STREAM_MEM_OPS, device);
    if (result != CGM_CUDA_SUCCESS)
        return cgm_fail(cgm_cuda_status(result), "cuDeviceGetAttribute: %s",
                        cgm_cuda_error_name(driver, result));
    if (!able)
        return cgm_fail(CGM_NOT_SUPPORTED,
                        "device %d cannot wait for 64-bit words in its streams; use "
                        "commgemm_submit after a synchronization of the stream",
                        device);
    return CGM_OK;
}

static int words_register(const struct cgm_cuda_driver *driver, const struct cgm_ring *ring,
                          struct cgm_cuda_timeline *timeline)
{
    size_t bytes;
    void *words = words_of(ring, &bytes);
    int result = driver->host_register(words, bytes, PORTABLE | DEVICEMAP);
    if (result != CGM_CUDA_SUCCESS)
        return cgm_fail(cgm_cuda_status(result),
                        "the ring's %zu bytes could not be registered: cuMemHostRegister: %s; see "
                        "the limit on locked memory (ulimit -l)",
                        bytes, cgm_cuda_error_name(driver, result));
    result = driver->host_address(&timeline->ready, words, 0);
    timeline->done = timeline->ready + (uint64_t)((char *)ring->done - (char *)ring->ready);
    if (result == CGM_CUDA_SUCCESS)
        return CGM_OK;
    driver->host_unregister(words);
    return cgm_fail(cgm_cuda_status(result), "cuMemHostGetDevicePointer: %s",
                    cgm_cuda_error_name(driver, result));
}

/* Under `registering`; the lane stays while this runs. */
static int find_or_register(struct cgm_cuda_timelines *timelines,
                            const struct cgm_cuda_driver *driver, struct cgm_lane *lane,
                            struct cgm_cuda_timeline **ret_timeline)
{
    struct cgm_cuda_timeline *timeline = timelines->first;
    while (timeline && timeline->lane != lane)
        timeline = timeline->next;
    if (!timeline) {
        timeline = calloc(1, sizeof(*timeline));
        int status = timeline ? words_register(driver, &lane->ring, timeline)
                              : cgm_fail_plain(CGM_NO_MEMORY);
        if (status != CGM_OK) {
            free(timeline);
            return status;
        }
        timeline->lane = lane;
        timeline->next = timelines->first;
        timelines->first = timeline;
    }
    *ret_timeline = timeline;
    return CGM_OK;
}

static int lane_open(struct cgm_cuda_timelines *timelines, struct cgm_jobs *jobs,
                     const struct cgm_cuda_driver *driver)
{
    struct cgm_lane *lane = jobs->lane;
    struct cgm_cuda_timeline *timeline = NULL;
    lane->waiters++;
    cgm_jobs_unlock(jobs);
    pthread_mutex_lock(&timelines->registering);
    int status = find_or_register(timelines, driver, lane, &timeline);
    pthread_mutex_unlock(&timelines->registering);
    cgm_jobs_lock(jobs);
    if (status == CGM_OK && !lane->timeline) {
        lane->timeline = timeline; /* with the count of waiters that keeps the lane */
        return CGM_OK;
    }
    lane->waiters--;
    cgm_jobs_put_lane(jobs, lane);
    return status;
}

/* The first time that a stream of it comes. */
static int note_context(struct cgm_cuda_timelines *timelines,
                        const struct cgm_cuda_context *context)
{
    for (uint32_t i = 0; i < timelines->n_contexts; i++)
        if (timelines->contexts[i] == context->context)
            return CGM_OK;
    if (timelines->n_contexts == CGM_CUDA_CONTEXTS_MAX)
        return cgm_fail(CGM_NOT_SUPPORTED,
                        "the client's streams were of %u contexts; it takes no "
                        "more",
                        CGM_CUDA_CONTEXTS_MAX);
    int status = check_device(context->driver);
    if (status == CGM_OK)
        timelines->contexts[timelines->n_contexts++] = context->context;
    return status;
}

int cgm_cuda_timelines_open(struct cgm_cuda_timelines *timelines, struct cgm_jobs *jobs,
                            const struct cgm_cuda_context *context)
{
    int status = note_context(timelines, context);
    while (status == CGM_OK) {
        status = cgm_jobs_ready(jobs);
        if (status != CGM_OK || jobs->lane->timeline)
            return status;
        status = lane_open(timelines, jobs, context->driver);
    }
    return status;
}

/* A context that is gone has nothing left to do, and no failure of this is anybody's. */
static void synchronize(void *context)
{
    struct cgm_cuda_context entered;
    if (cgm_cuda_context_enter(context, &entered) != CGM_OK)
        return;
    entered.driver->context_sync();
    cgm_cuda_context_leave(&entered);
}

void cgm_cuda_timelines_fini(struct cgm_cuda_timelines *timelines)
{
    const struct cgm_cuda_driver *driver;
    struct cgm_kept_error kept;
    cgm_error_keep(&kept);
    for (uint32_t i = 0; i < timelines->n_contexts && timelines->first; i++)
        synchronize(timelines->contexts[i]);
    cgm_error_restore(&kept);
    for (struct cgm_cuda_timeline *next, *t = timelines->first; t; t = next) {
        size_t bytes;
        next = t->next;
        if (cgm_cuda_load(&driver) == CGM_OK)
            driver->host_unregister(words_of(&t->lane->ring, &bytes));
        free(t);
    }
    pthread_mutex_destroy(&timelines->registering);
}
