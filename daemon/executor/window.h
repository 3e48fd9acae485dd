/* A comm's window of numbers: the gangs whose numbers are above `retired`. The poller's. What has
 * ended of it stands in the journal, where the next executor finds it: a number that failed fails
 * for a rank that comes for it after this one's death, and one that did not end is done again. */
#ifndef CGM_WINDOW_H
#define CGM_WINDOW_H

#include <stdbool.h>
#include <stdint.h>

struct cgm_comm;
struct cgm_gang;

/* What is left of a gang that ended before every rank had come for it, where there are many, or of
 * one that ended with an executor before this one. */
struct cgm_tomb {
    uint8_t error; /* minus the status */
    bool is_there;
};

/* Goes on where the journal says that the comm has come to. NO_MEMORY. */
int cgm_window_begin(struct cgm_comm *comm);

/* Where the gang of a number is that is above `retired` by less than CGM_COMM_WINDOW; NULL there:
 * nobody has come for it. */
struct cgm_gang **cgm_window_slot(struct cgm_comm *comm, uint64_t number);

/* Whether nothing but its status is left of a number that has ended: of those up to `retired`, too,
 * for a rank that had come, and was not told before its executor ended. */
bool cgm_window_status(struct cgm_comm *comm, uint64_t number, int *ret_status);

/* The number ends, or has ended, with this status: before anybody is told of a failure, and after
 * all were told of a success, which they are when this process ends in between (cgm_gang_end). */
void cgm_window_note_end(struct cgm_comm *comm, uint64_t number, int status);

/* Whether it has, or fails. */
bool cgm_window_has_ended(struct cgm_comm *comm, uint64_t number);

/* The number has ended with this status, and there is no gang of it. NO_MEMORY: nobody will find
 * that here. */
int cgm_window_bury(struct cgm_comm *comm, uint64_t number, int status);

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
