/* Noops that have been accepted and whose stream has not come. There may be many of them, all
 * one client's: they are looked through piece by piece. Owned by the poller. */
#ifndef CGM_NOOPS_H
#define CGM_NOOPS_H

#include <stdbool.h>
#include <stdint.h>

struct cgm_job;

struct cgm_noops {
    struct cgm_job *first;     /* by next and previous */
    struct cgm_job *looked_at; /* the next one of the look under way; NULL: none is */
    uint32_t seen;             /* in that look */
    uint64_t next_look_ns;
};

void cgm_noops_enter(struct cgm_noops *noops, struct cgm_job *job);
void cgm_noops_leave(struct cgm_noops *noops, struct cgm_job *job);

/* A piece of a look, if it is time for one; completes those whose stream has come, or has not come
 * in time: READY_TIMEOUT. True when one was. */
bool cgm_noops_step(struct cgm_noops *noops, uint64_t now_ns);

#endif
