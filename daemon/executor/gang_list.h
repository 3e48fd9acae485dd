/* Where gangs lie until they have ended: all of them in a list of the poller and in one of their
 * comm; and those that need nobody's word any more, launched or about to be, in one that the poller
 * looks through all the time, unless their launch is held (runway.h) or waits for contents
 * (contents.h). All may be long, and are looked through piece by piece.
 * On the poller. */
#ifndef CGM_GANG_LIST_H
#define CGM_GANG_LIST_H

#include <stdbool.h>

struct cgm_gang;

enum cgm_gang_list {
    CGM_GANGS_ALL,     /* from poller->gangs */
    CGM_GANGS_OF_COMM, /* from comm->gangs */
    CGM_GANGS_MOVING,  /* from poller->moving */
    CGM_GANG_LISTS,
};

struct cgm_gang_link {
    struct cgm_gang *previous, *next;
};

/* At the front of the first two. */
void cgm_gang_list_enter(struct cgm_gang *gang);
/* Out of all. */
void cgm_gang_list_leave(struct cgm_gang *gang);
/* At the end of the third, or out of it; nothing where it is so already. Local jobs that came
 * together are launched in this order, which is that of their submission. */
void cgm_gang_list_move(struct cgm_gang *gang, bool moving);

#endif
