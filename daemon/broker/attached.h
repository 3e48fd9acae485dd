/* After a fault under MPS no process can use the GPU until every one that was using it has ended:
 * who they are, and the start of the next executor when they are gone. */
#ifndef CGM_ATTACHED_H
#define CGM_ATTACHED_H

struct cgm_broker;

/* The executor lost its GPU under MPS and is down: starts the next one as soon as MPS has no client
 * left; until then log, status and doctor name them. */
void cgm_attached_look(struct cgm_broker *broker);

#endif
