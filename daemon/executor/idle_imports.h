/* Imports that no job has named for a while are closed. */
#ifndef CGM_IDLE_IMPORTS_H
#define CGM_IDLE_IMPORTS_H

#include <stdint.h>

struct cgm_poller;

/* Closes the imports that no job has named for import_idle_ns. The object stays, with the next
 * generation, so that whoever names it still is told that it is stale. On the poller. */
void cgm_imports_close_idle(struct cgm_poller *poller, uint64_t now_ns);

#endif
