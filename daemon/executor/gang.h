/* Matching: a gang is one number of one comm, the jobs that the ranks submitted under it, from the
 * first submission to the last completion. Owned by the poller.
 *
 * COLLECTING -> COLLECTED -> RUNNING -> ENDED
 *      \___________\___________\-> FAILING -> ENDED
 *
 * Gangs of one comm are launched in the order of their numbers. A failed number is burnt: its gang
 * stays in the window until every rank has come for its status. */
#ifndef CGM_GANG_H
#define CGM_GANG_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/executor/comm.h"
#include "daemon/executor/flight.h"
#include "daemon/executor/gang_list.h"
#include "daemon/executor/job.h"

enum cgm_gang_state {
    CGM_GANG_COLLECTING, /* ranks are missing */
    CGM_GANG_COLLECTED,  /* streams are missing, or an earlier number is not launched yet */
    CGM_GANG_RUNNING,
    CGM_GANG_FAILING, /* outputs are being poisoned */
    CGM_GANG_ENDED,
};

struct cgm_gang {
    struct cgm_gang_link links[CGM_GANG_LISTS];
    struct cgm_gang *next_free;
    bool moving;   /* is in that list */
    bool is_burnt; /* it counts in its comm's n_burnt */
    struct cgm_comm *comm;
    struct cgm_plan *plan; /* of the first job; referenced until the end. NULL: none has come */
    uint64_t number;       /* 0: a local operation of one rank, in no window */
    enum cgm_gang_state state;
    uint32_t opcode, n_expected, n_came;
    uint64_t rows;
    uint64_t collected_ns;
    uint64_t launch_ns; /* when it came to the devices, not held any more; 0: it has not */
    uint64_t stood_ns;  /* the poller's, when the first job came */
    /* The end that comes first of those that jobs asked for; limit_ms 0: none did. */
    struct {
        uint64_t from_ns, limit_ms;
    } deadline;
    uint64_t default_ns; /* when the first job came that asked for none; 0: all did */
    uint64_t launch;     /* counts the poller's launches; 0: it was not launched */
    struct cgm_flight *flight;
    int status;
    char detail[CGM_CQE_DETAIL];
    struct cgm_job *jobs[]; /* by rank; NULL: has not come, or has completed */
};

/* It has ended, and is in no list or window. */
void cgm_gang_give(struct cgm_gang *gang);

/* Takes over a checked collective job: starts or joins the gang of its number, or fails it. */
void cgm_gang_submit(struct cgm_job *job);

/* Takes over a checked job that needs no other rank, or fails it. */
void cgm_gang_submit_local(struct cgm_job *job);

/* Whether a rank may submit this number now: the one behind its last one, but for what has ended in
 * between. OK, or INVALID_ARGUMENT with the number expected. */
int cgm_gang_check_number(struct cgm_comm *comm, uint32_t rank, uint64_t number, char *ret_detail,
                          size_t detail_bytes);

/* The entry of this rank and number was refused: the number fails on all ranks. What it has failed
 * with before, or its comm, replaces status and detail. */
void cgm_gang_refuse(struct cgm_comm *comm, uint32_t rank, uint64_t number, int *status,
                     char *detail, size_t bytes);

/* Fails a job that is in no gang, and makes its results NaN. May free its comm. */
void cgm_gang_fail_alone(struct cgm_job *job, int status, const char *detail);

/* Fails a gang that is not launched, or whose launch is held (runway.h); no effect on others. */
void cgm_gang_fail(struct cgm_gang *gang, int status, const char *detail);

/* Fails some of what a comm will not launch any more: every number, once a rank is lost, and what
 * lost ranks submitted alone. True: there may be more. */
bool cgm_gang_fail_lost(struct cgm_comm *comm);

/* Cancels the job on all ranks, unless it is on its way. */
void cgm_gang_cancel(const struct cgm_job *job, const char *detail);

/* One step of a gang that waits or runs: launch, deadline, end. The gang may be gone afterwards. */
bool cgm_gang_step(struct cgm_gang *gang, uint64_t now_ns, bool look_at_deadlines);

/* The first that came and has not ended; there is one. Of a local operation the only one. */
uint32_t cgm_gang_first_rank(const struct cgm_gang *gang);

/* True when nothing is awaited any more but that the poller launches it. */
bool cgm_gang_may_launch(const struct cgm_gang *gang);

/* True when nothing but a stream's write can move the gang on: nobody will wake the poller. */
bool cgm_gang_awaits_stream(const struct cgm_gang *gang);

const char *cgm_gang_state_name(enum cgm_gang_state state);

void cgm_gang_free_all(struct cgm_comm *comm);

#endif
