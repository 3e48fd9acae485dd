/* Memory is given back. With some memory the backend waits until all that was launched is through,
 * and keeps everything else from being launched until then; half of a launch would be waiting for
 * its other half. Such memory goes while launches are held (quiet.h), as much of it at once as
 * there is: it is waited for only once. */
#ifndef CGM_RECLAIM_H
#define CGM_RECLAIM_H

#include <stdbool.h>

#include "daemon/executor/quiet.h"
#include "daemon/executor/task.h"

struct cgm_executor;
struct cgm_mem;

/* Embedded in what has the memory, until done. */
struct cgm_reclaim {
    struct cgm_reclaim *next;
    struct cgm_mem *mem;                       /* NULL: nothing is to be given back */
    void (*done)(struct cgm_reclaim *reclaim); /* on the caller's thread; may free it */
};

/* The mapper's. */
struct cgm_reclaims {
    struct cgm_task task; /* first */
    struct cgm_quiet quiet;
    struct cgm_executor *executor;
    struct cgm_reclaim *first, **end;
    bool posted; /* to the poller, and not run to the end yet */
};

void cgm_reclaims_init(struct cgm_reclaims *reclaims, struct cgm_executor *executor);

/* mem and done are set; nothing may use the memory any more. Where freeing it holds nothing up, it
 * goes at once, on any thread that may free it; else later, and this is the mapper. */
void cgm_reclaim(struct cgm_executor *executor, struct cgm_reclaim *reclaim);

#endif
