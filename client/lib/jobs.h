/* Every job of a session that was submitted and not reaped, and how threads wait for them.
 *
 * One lock guards it all; it is held for short stretches, never across a system call other than the
 * ones that wake somebody. Jobs in flight live in the newest lane only: when an executor is gone
 * its lane is buried, which ends all of them, and it is freed with its last unreaped job.
 *
 * How waiting works. A waiting thread spins (spin.h), then sleeps. At most one, the *sleeper*,
 * polls the notify socket; all others wait for `changed`.
 *  - A thread blocks on `changed` only while there is a sleeper, and the sleeper, when it stops
 *    being that for whatever reason, reaps and broadcasts. So as long as anybody is blocked, either
 *    a sleeper polls, or some waiter is awake and will look again before it blocks.
 *  - The sleeper polls only after cgm_lane_arm() found no record. So the next record sends a byte.
 *  - Whoever reaps a record that another thread waits for broadcasts, and writes `kick_fd` where
 *    that is the sleeper: commgemm_reap may have read the record's byte.
 *  - Burial, a new ring and the loss of the daemon broadcast and write `kick_fd`, which the sleeper
 *    polls too.
 * A detached job gives its slot back when it ends, unless a thread waits for its ticket; a failure
 * is kept. Threads that wait for few to be left hold none of them: whoever gives the one back that
 * makes them few broadcasts, and writes `kick_fd`. Where all that are left have ended, and other
 * threads are about to take them, nobody need be the sleeper: then whoever gives one back or
 * submits another broadcasts, too. Without a ring the watcher ends the jobs and broadcasts; there
 * is no sleeper.
 *
 * Once a poll fd was handed out, whoever reaps also re-arms, so that each later record sends a
 * byte; and `event_fd` is readable exactly while an ended job is there that no thread waits for, or
 * the daemon is gone. */
#ifndef CGM_CLIENT_JOBS_H
#define CGM_CLIENT_JOBS_H

#include <pthread.h>
#include <stdbool.h>

#include "client/include/commgemm.h"
#include "client/lib/lane.h"
#include "client/lib/plans.h"
#include "proto/spin.h"

struct cgm_jobs {
    pthread_mutex_t lock;
    pthread_cond_t changed; /* CLOCK_MONOTONIC */
    struct cgm_plans plans;
    uint64_t last_ticket;
    struct cgm_lane *lane;      /* the newest; NULL: there was none yet */
    struct cgm_lane *old;       /* buried ones with unreaped jobs */
    uint64_t highest_lost_life; /* executors up to this one are gone */
    uint64_t silent_life;       /* up to this one they take no requests any more */
    struct cgm_slot **buckets;  /* by ticket, masked */
    uint32_t bucket_mask;
    struct cgm_slot_list ended;
    uint32_t loose;                     /* slots in `ended` that no thread waits for */
    uint32_t n_detached;                /* whose places are not free again */
    uint32_t few_waiters;               /* threads that wait until few of them are left */
    uint32_t few_idle;                  /* those of them that have found none in flight */
    uint32_t few;                       /* how many may be, at most, for one of these threads */
    uint64_t n_failures;                /* of detached jobs, since the last look */
    struct commgemm_completion failure; /* the first of them */
    uint64_t failure_end;               /* its place among the ends */
    uint64_t last_end;                  /* counts the ends of all jobs */
    uint64_t spin_ns;
    struct cgm_spin spin;
    const struct cgm_slot *sleeper; /* what it waits for; NULL: there is none */
    bool lost;                      /* the daemon is gone */
    int kick_fd;
    int poll_fd, event_fd; /* -1 until asked for */
    bool event_is_set;
};

int cgm_jobs_init(struct cgm_jobs *jobs, uint32_t entries, uint64_t spin_ns);
/* No other thread may be inside any call. */
void cgm_jobs_fini(struct cgm_jobs *jobs);

void cgm_jobs_lock(struct cgm_jobs *jobs);
void cgm_jobs_unlock(struct cgm_jobs *jobs);

/* ---- under the lock: */

/* Makes this the newest lane and buries the one before. Takes the lane over. False: it came too
 * late, and is gone. */
bool cgm_jobs_install(struct cgm_jobs *jobs, struct cgm_lane *lane);

/* The executors up to `life` are gone, or with DAEMON_LOST the daemon is. */
void cgm_jobs_lose(struct cgm_jobs *jobs, uint64_t life, int status, const char *detail);

/* A job that had ended well before its executor was lost; without a ring nothing else says so. */
void cgm_jobs_end_well(struct cgm_jobs *jobs, uint64_t comm, uint64_t comm_number);

/* True when the session is over: nobody ends its jobs any more. */
bool cgm_jobs_are_lost(const struct cgm_jobs *jobs);

/* OK when a job can be submitted now; else DAEMON_LOST, EXECUTOR_LOST or NO_EXECUTOR, with detail.
 */
int cgm_jobs_ready(struct cgm_jobs *jobs);

/* Takes a slot for the next ticket and puts it into the index. RING_FULL. Never allocates. */
int cgm_jobs_take(struct cgm_jobs *jobs, struct cgm_plan *plan, struct cgm_slot **ret_slot);
/* Undoes the last take: nobody may have heard of its ticket, nor holds it. */
void cgm_jobs_untake(struct cgm_jobs *jobs, struct cgm_slot *slot);

struct cgm_slot *cgm_jobs_find(const struct cgm_jobs *jobs, uint64_t ticket);

/* While a slot is held (by a waiting thread), commgemm_reap leaves it alone. */
void cgm_jobs_hold(struct cgm_slot *slot);
void cgm_jobs_unhold(struct cgm_jobs *jobs, struct cgm_slot *slot);

/* Nobody takes this job's completion. From then on threads wait for it that do not know its ticket:
 * not before it is certain that it is not taken back. It may go at once, if it has ended. */
void cgm_jobs_detach(struct cgm_jobs *jobs, struct cgm_slot *slot);
/* Gives an ended detached slot back that no thread waits for any more. */
void cgm_jobs_settle(struct cgm_jobs *jobs, struct cgm_slot *slot);

/* The slot's cqe is filled: the job has ended. Wakes whoever waits for it. */
void cgm_jobs_end(struct cgm_jobs *jobs, struct cgm_slot *slot);

/* Ends the job of every record that is there; buries the lane when the ring is dead. */
void cgm_jobs_collect(struct cgm_jobs *jobs);

/* Reads the bytes of the lane's notify socket away. */
void cgm_jobs_drain_notify(struct cgm_jobs *jobs, struct cgm_lane *lane);

/* Frees a buried lane that nobody needs any more; the newest one stays until it is replaced. */
void cgm_jobs_put_lane(struct cgm_jobs *jobs, struct cgm_lane *lane);

/* Gives an ended slot back. Frees its lane with it if that was the last one of a buried lane. */
void cgm_jobs_release(struct cgm_jobs *jobs, struct cgm_slot *slot);

/* The next ended job that no thread waits for, or NULL. */
struct cgm_slot *cgm_jobs_next_loose(struct cgm_jobs *jobs);

/* Waits for the end of the ticket's job; drops the lock meanwhile. OK and the slot; TIMEOUT;
 * NOT_FOUND. */
int cgm_jobs_wait(struct cgm_jobs *jobs, uint64_t ticket, int timeout_ms,
                  struct cgm_slot **ret_slot);
/* Waits until no more than so many detached jobs are left; OK or TIMEOUT, without a detail. */
int cgm_jobs_wait_for_few(struct cgm_jobs *jobs, uint32_t max_left, int timeout_ms);

/* The same for who was given the ticket. NOT_FOUND also for one whose submission is under way: it
 * may be taken back, or waits for its streams. */
int cgm_jobs_wait_given(struct cgm_jobs *jobs, uint64_t ticket, int timeout_ms,
                        struct cgm_slot **ret_slot);

/* Waits for anything to change (a new lane, the loss of the daemon), until deadline_ns. */
void cgm_jobs_wait_change(struct cgm_jobs *jobs, uint64_t deadline_ns);

/* Not under the lock. What a request takes away, jobs that were submitted before may still name:
 * waits until the executor has read their entries, but not for ever. */
void cgm_jobs_await_taken(struct cgm_jobs *jobs);

/* Creates the poll fd on the first call. */
int cgm_jobs_poll_fd(struct cgm_jobs *jobs, int *ret_fd);

#endif
