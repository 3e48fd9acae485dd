/* A job: one accepted ring entry, until its completion is written. Owned by the poller. */
#ifndef CGM_JOB_H
#define CGM_JOB_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/executor/backend.h"
#include "daemon/executor/contents.h"
#include "daemon/executor/memory.h"
#include "daemon/executor/uses.h"
#include "proto/ring.h"

struct cgm_endpoint;
struct cgm_plan;

struct cgm_job {
    /* In the endpoint's free list, in the poller's list of noops, or in a line of contents.h. */
    struct cgm_job *next;
    struct cgm_job *previous; /* in the latter two */
    struct cgm_endpoint *endpoint;
    struct cgm_plan *plan; /* referenced; NULL for a noop */
    struct cgm_gang *gang; /* NULL: none yet, or a noop */
    uint64_t ticket, comm_number, rows, submit_ns, accept_ns, deadline_ms;
    uint64_t clock_ns; /* of a noop: accept_ns by cgm_poller_time_ns */
    uint64_t came;     /* counts the poller's jobs */
    uint64_t behind;   /* numbers of its comm that are below this one are before it */
    uint32_t slot, opcode, rank, flags, chunk;
    uint32_t named;           /* bits of the operands that the entry has */
    uint32_t in_user_buffers; /* of those, the ones that lie there */
    bool results_in_own;      /* it names its own rank's user buffer for a result */
    bool refused;             /* its entry was: contents.h has had its end already */
    bool in_line;             /* of its own rank's user buffer */
    bool writes;              /* the journal has it among the writers of its results */
    struct cgm_void *voids;   /* before it there, when it is not the first */
    struct cgm_memory *memory[CGM_OPERAND_COUNT]; /* referenced; NULL: absent */
    uint32_t reading, writing; /* bits of the operands that are among the uses of their objects */
    struct cgm_view view[CGM_OPERAND_COUNT];
    struct cgm_use uses[CGM_OPERAND_COUNT];
};

/* What it does: its plan's operation where it runs that. */
const char *cgm_job_name(const struct cgm_job *job);

/* Around what writes its results; to end what has ended already is nothing. Their end is noted when
 * something says that the job's has come: who is told that it was lost must not find them written
 * and untainted. */
void cgm_job_begin_writes(struct cgm_job *job);
void cgm_job_end_writes(struct cgm_job *job);

/* Its outputs hold what nobody may take for results. */
void cgm_job_taint(struct cgm_job *job);

#endif
