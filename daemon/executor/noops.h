/* Noops that have been accepted and whose stream has not come. There may be many of them: they are
 * looked through piece by piece, user by user. Owned by the poller. */
#ifndef CGM_NOOPS_H
#define CGM_NOOPS_H

#include <stdbool.h>
#include <stdint.h>

struct cgm_job;

/* A user's. */
struct cgm_noops {
    struct cgm_noops *next;
    uint32_t uid;
    uint32_t n_sessions;       /* with the last one this goes */
    struct cgm_job *first;     /* by next and previous */
    struct cgm_job *looked_at; /* the next one of the look under way; NULL: none is */
    uint32_t seen;             /* in that look */
    uint64_t next_look_ns;
};

struct cgm_noops_users {
    struct cgm_noops *first;
    struct cgm_noops *turn; /* whose the next piece is; NULL: the first one's */
    uint32_t n_noops;       /* of all */
    uint32_t n_looks;       /* users whose look is under way */
};

/* For a session of the user's; NULL: out of memory. */
struct cgm_noops *cgm_noops_join(struct cgm_noops_users *users, uint32_t uid);
/* The session has none any more. NULL is allowed. */
void cgm_noops_part(struct cgm_noops_users *users, struct cgm_noops *noops);

/* Among those of its session's user. */
void cgm_noops_enter(struct cgm_noops_users *users, struct cgm_job *job);
void cgm_noops_leave(struct cgm_noops_users *users, struct cgm_job *job);

/* A piece of a look of the user's whose turn it is, of those for whom it is time for one; completes
 * noops whose stream has come, or has not come in time: READY_TIMEOUT. True when one was. */
bool cgm_noops_step(struct cgm_noops_users *users, uint64_t now_ns);

#endif
