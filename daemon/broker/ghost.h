/* Sessions that are not read, and whose processes have gone: a client's end of its socket may lie
 * in a packet behind those that were read, where it keeps the session without anybody. */
#ifndef CGM_GHOST_H
#define CGM_GHOST_H

struct cgm_broker;

/* A session is not read from now on: it is ended about a second after its process has. */
void cgm_ghost_watch(struct cgm_broker *broker);

#endif
