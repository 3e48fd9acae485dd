/* Signals to the calling thread, again and again, which do nothing: a wait in the kernel that a
 * signal ends does not last then. The close of a TCP socket that lingers is one; whoever sends such
 * a socket says how long it would be. */
#ifndef CGM_NUDGE_H
#define CGM_NUDGE_H

#include <stdbool.h>
#include <time.h>

struct cgm_nudge {
    timer_t timer;
    bool runs;
};

/* Once, before the others. */
void cgm_nudge_init(void);

/* Where there is no timer left the thread goes without. */
void cgm_nudge_begin(struct cgm_nudge *nudge);
void cgm_nudge_end(struct cgm_nudge *nudge);

/* How many have come to this thread since it began last: ten a second. */
unsigned cgm_nudge_count(void);

#endif
