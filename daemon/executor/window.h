/* A comm's window of numbers: the gangs whose numbers are above `retired`. The poller's. */
#ifndef CGM_WINDOW_H
#define CGM_WINDOW_H

#include <stdint.h>

struct cgm_comm;
struct cgm_gang;

/* Where the gang of a number is that is above `retired` by less than CGM_COMM_WINDOW; NULL there:
 * nobody has come for it. */
struct cgm_gang **cgm_window_slot(struct cgm_comm *comm, uint64_t number);

/* Moves `launched` and `retired` over everything that is through. */
void cgm_window_advance(struct cgm_comm *comm);

/* Every rank has come for this number. Their numbers have no gaps, so what nobody has submitted
 * before it never comes: it must not be waited for. */
void cgm_window_skip(struct cgm_comm *comm, uint64_t number);

#endif
