/* The poller: one thread that owns sessions, comms, plans, memory objects and jobs. It reads rings,
 * matches, launches and completes; everybody else sends it tasks. It polls for spin_ns (less
 * where others want its processor, spin.h), then sleeps in epoll until a client, a queue or the
 * broker wakes it. */
#ifndef CGM_POLLER_H
#define CGM_POLLER_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "daemon/executor/map.h"
#include "daemon/executor/noops.h"
#include "daemon/executor/rings.h"
#include "daemon/executor/spare.h"
#include "daemon/executor/task.h"
#include "daemon/executor/uses.h"
#include "proto/spin.h"

struct cgm_executor;
struct cgm_gang;
struct cgm_endpoint;
struct cgm_loss;
struct cgm_plan;
struct cgm_request;
struct cgm_quiet;
struct cgm_tuning;

/* Lists that only time or a stream's write moves on are looked through no more often than this for
 * each of their members: whatever one client leaves lying, the others keep most of the poller, and
 * it sleeps in between. */
#define CGM_LOOK_NS_PER_MEMBER 50u

/* Of jobs that fail, for each piece of a round; as in poison.h. */
#define CGM_POLLER_EFFORT 20480u

struct cgm_poller_counters {
    uint64_t sleeps, syscalls; /* made by the poller; none while it is awake */
    uint64_t allocations;      /* on the way of jobs; none in a steady state */
    uint64_t replays;          /* launches from recordings */
};

struct cgm_poller {
    struct cgm_executor *executor;
    pthread_t thread;
    int epoll_fd, wake_fd;
    struct cgm_spin spin;
    _Atomic bool asleep; /* whoever sends work and sees it true writes wake_fd */
    struct cgm_task_list inbox;
    struct cgm_map endpoints, comms, plans, memories;
    struct cgm_endpoint *first_endpoint, *last_endpoint; /* all of them, by their sessions */
    struct cgm_rings rings;
    uint32_t n_fresh; /* of them, that have not begun */
    uint64_t next_fresh_look_ns;
    struct cgm_map notices;  /* of users with rings: notices.h */
    uint64_t next_notice_ns; /* when a client that waits for its notice may have it; 0: none does */
    struct cgm_gang *gangs, *moving; /* waiting or running: gang_list.h */
    struct cgm_gang *last_moving;
    struct cgm_gang *moving_at; /* the next one of those in the look under way; NULL: none is */
    struct cgm_gang *looked_at; /* the next one of `gangs` in the look under way; NULL: none is */
    bool look_has_deadlines;    /* that one looks for them too */
    uint32_t look_seen;         /* so many so far */
    bool awaits_streams, look_found_streams; /* as the last look found it, and the one under way */
    struct cgm_noops_users noops;
    struct cgm_loss *losses;  /* what ends with sessions and comms: losses.h */
    struct cgm_comm *holding; /* those with flights that wait for room: runway.h */
    struct cgm_plan *warming; /* plans whose first run is under way */
    uint32_t n_warming;
    uint64_t next_warming_look_ns;
    struct cgm_tuning *tunings; /* plans whose algorithm is measured; the first one now */
    uint32_t tuned_uid;         /* whose that is, or was */
    struct cgm_tuning *overdue; /* those whose last launch has not ended in time */
    uint64_t next_overdue_look_ns;
    struct cgm_quiet *quiet_first; /* see quiet.h; the first one runs when quiet_runs */
    bool quiet_runs;
    bool aborting; /* the backend aborts waits, or is about to: launches are held for that, too */
    uint64_t quiet_begin_ns,
        quiet_rest_ns;          /* of the last one; until when launches go on; 0: none */
    _Atomic uint32_t enqueuing; /* parts of launches that device threads still have to enqueue, and
                                   what else of theirs quiet work waits for (warmth.h) */
    uint64_t next_deadline_look_ns, next_gangs_look_ns;
    uint64_t round_ns; /* when the last round began */
    uint64_t stood_ns; /* of all the time in which jobs waited or ran, the process was stopped or
                          got no processor for so long: no deadline runs then */
    struct cgm_task health; /* the mapper's while health_asked */
    uint64_t health_ns;     /* when it was asked last */
    _Atomic bool health_asked;
    uint64_t next_imports_look_ns;
    uint64_t next_recording_ns;                /* no plan makes one before (recordings.h) */
    struct cgm_map recorders;                  /* of users with recordings: recorder.h */
    uint64_t recorded;                         /* operations in all of them, at most */
    struct cgm_task *first_query, *last_query; /* requests that query.h has not answered yet */
    bool ends;                    /* nothing is taken or launched any more, but what runs goes on */
    struct cgm_request *shutdown; /* answered when nothing runs */
    struct cgm_spare job_memory, failed_memory; /* of jobs, and of those whose outputs become NaN */
    struct cgm_spare phase_memory;
    struct cgm_poller_counters counters;
    struct cgm_uses uses;
    uint64_t last_came;   /* counts the jobs of all sessions */
    uint64_t last_launch; /* ... and launches of all comms, also of what has no number */
    uint32_t effort;      /* of poison.c, in this piece of a round */
};

int cgm_poller_start(struct cgm_poller *poller, struct cgm_executor *executor);

/* Any thread. */
void cgm_poller_post(struct cgm_poller *poller, struct cgm_task *task);
void cgm_poller_wake(struct cgm_poller *poller);

/* On the poller's thread. */

/* Jobs that failed have taken as long as a piece of a round may: requests, a user's entries, gangs
 * that move, or all of them. What else there is of it waits for the next round. */
static inline bool cgm_poller_is_tired(const struct cgm_poller *poller)
{
    return poller->effort >= CGM_POLLER_EFFORT;
}

/* A clock without the time in which the process stood still. */
static inline uint64_t cgm_poller_time_ns(const struct cgm_poller *poller, uint64_t now_ns)
{
    return now_ns - poller->stood_ns;
}

int cgm_poller_add_ring(struct cgm_poller *poller, struct cgm_endpoint *endpoint);
void cgm_poller_remove_ring(struct cgm_poller *poller, struct cgm_endpoint *endpoint);

#endif
