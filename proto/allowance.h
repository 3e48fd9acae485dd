/* A share of a processor. Who has taken more than that rests until it is made up for; a little is
 * saved up by who takes nothing. Times are nanoseconds of one clock; all zero is a whole one. */
#ifndef CGM_ALLOWANCE_H
#define CGM_ALLOWANCE_H

#include <stdbool.h>
#include <stdint.h>

/* What may be saved up, and what may be owed, in the time in which the share makes up for it. */
#define CGM_ALLOWANCE_SAVED_NS 100000000u
#define CGM_ALLOWANCE_OWED_NS 1000000000u
#define CGM_ALLOWANCE_OWED_ALL_NS 10000000000u /* of what cannot be done in pieces */

struct cgm_allowance {
    uint64_t whole_ns; /* when everything that was taken will be made up for */
};

/* ns of a processor were taken, of which percent are its share (1 to 100). */
void cgm_allowance_take(struct cgm_allowance *allowance, uint64_t ns, uint64_t percent,
                        uint64_t now_ns);

/* The same, and more of it is owed. */
void cgm_allowance_take_all(struct cgm_allowance *allowance, uint64_t ns, uint64_t percent,
                            uint64_t now_ns);

/* How long nothing more must be taken; 0: not at all. */
uint64_t cgm_allowance_rest_ns(const struct cgm_allowance *allowance, uint64_t now_ns);

bool cgm_allowance_is_whole(const struct cgm_allowance *allowance, uint64_t now_ns);

#endif
