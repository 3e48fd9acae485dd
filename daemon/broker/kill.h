/* SessionKill: an operator ends a session. Under MPS the death of a process with a running kernel
 * takes everybody's work on that GPU along; so a client of MPS is terminated there first, which
 * spares the others. The process itself is left alone. */
#ifndef CGM_BROKER_KILL_H
#define CGM_BROKER_KILL_H

#include "daemon/broker/request.h"

int cgm_kill_find_session(struct cgm_request *request);
int cgm_kill_on_kill(struct cgm_request *request);

#endif
