/* The broker's requests: one table says which thread takes the first step of each. */
#ifndef CGM_CONTROL_H
#define CGM_CONTROL_H

#include "daemon/executor/executor.h"

/* Receives and dispatches until the broker hangs up. Runs on the control thread. */
void cgm_control_run(struct cgm_executor *executor);

#endif
