/* The ready and done words of a client's rings, as streams see them: each ring's pages are
 * registered with the driver once, for all contexts, when a stream is first used with it.
 *
 * A stream that waits on a done word reads it until it has moved on, and nobody says when that is.
 * So the pages stay registered, and their lane mapped, until the client disconnects; by then every
 * ring is dead, so that no wait holds, and the contexts that were used have run empty. */
#ifndef CGM_CLIENT_CUDA_TIMELINE_H
#define CGM_CLIENT_CUDA_TIMELINE_H

#include <pthread.h>
#include <stdint.h>

#include "client/lib/cuda_context.h"
#include "client/lib/jobs.h"

#define CGM_CUDA_CONTEXTS_MAX 64u

struct cgm_cuda_timeline {
    uint64_t ready, done; /* device addresses of the words of slot 0 */
    struct cgm_lane *lane;
    struct cgm_cuda_timeline *next;
};

struct cgm_cuda_timelines {
    pthread_mutex_t registering;           /* taken before the lock of the jobs, never after it */
    struct cgm_cuda_timeline *first;       /* under `registering` */
    void *contexts[CGM_CUDA_CONTEXTS_MAX]; /* that were used; under the jobs' lock */
    uint32_t n_contexts;
};

void cgm_cuda_timelines_init(struct cgm_cuda_timelines *timelines);

/* The streams of the jobs' newest lane can be used in this context. The jobs' lock is held, and is
 * dropped while the driver works: afterwards there may be another lane, so call it until the lane
 * has a timeline. */
int cgm_cuda_timelines_open(struct cgm_cuda_timelines *timelines, struct cgm_jobs *jobs,
                            const struct cgm_cuda_context *context);

/* Every ring is dead. Waits for what the contexts still have to do, then unregisters. */
void cgm_cuda_timelines_fini(struct cgm_cuda_timelines *timelines);

#endif
