/* Imports that no job has named for a while are closed, and those with holes. */
#ifndef CGM_IDLE_IMPORTS_H
#define CGM_IDLE_IMPORTS_H

#include <stdint.h>

struct cgm_executor;
struct cgm_memory;
struct cgm_poller;

/* Closes the imports that no job has named for import_idle_ns. The object stays, with the next
 * generation, so that whoever names it still is told that it is stale. On the poller. */
void cgm_imports_close_idle(struct cgm_poller *poller, uint64_t now_ns);

/* Drops a reference to any memory. An import with holes (backend.h) is closed with the last one:
 * what has been put in their place is of no use. On the poller. */
void cgm_memory_leave(struct cgm_executor *executor, struct cgm_memory *memory);

#endif
