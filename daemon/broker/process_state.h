/* What /proc says that another process does. */
#ifndef CGM_PROCESS_STATE_H
#define CGM_PROCESS_STATE_H

#include <stdbool.h>
#include <sys/types.h>

/* Whether a thread of it waits in the kernel for what no signal ends (state D): a lock of the
 * system, or a disk. One that is stopped, or that gets no processor, does not. */
bool cgm_process_is_held(pid_t pid);

#endif
