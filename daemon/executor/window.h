/* A comm's window of numbers: the gangs whose numbers are above `retired`. The poller's. */
#ifndef CGM_WINDOW_H
#define CGM_WINDOW_H

#include <stdbool.h>
#include <stdint.h>

struct cgm_comm;
struct cgm_gang;

/* What is left of a gang that ended before every rank had come for it, where there are many. */
struct cgm_tomb {
    int8_t status;
    uint8_t n_came; /* 0: there is none */
};

/* Where the gang of a number is that is above `retired` by less than CGM_COMM_WINDOW; NULL there:
 * nobody has come for it. */
struct cgm_gang **cgm_window_slot(struct cgm_comm *comm, uint64_t number);

/* NULL: there is none at this number. */
struct cgm_tomb *cgm_window_tomb(struct cgm_comm *comm, uint64_t number);

/* The gang has ended, and some rank has not come for its number. It may be freed. */
void cgm_window_keep_burnt(struct cgm_gang *gang);

/* Whether a number leaves the window, as some rank is that far behind. */
bool cgm_window_is_left_by(const struct cgm_comm *comm, uint64_t number);

/* Moves `launched` and `retired` over everything that is through. */
void cgm_window_advance(struct cgm_comm *comm);

/* Every rank has come for this number. Their numbers have no gaps, so what nobody has submitted
 * before it never comes: it must not be waited for. */
void cgm_window_skip(struct cgm_comm *comm, uint64_t number);

#endif
