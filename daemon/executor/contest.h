/* Which of auto's candidates is launched next, and which one wins: numbers alone, no devices and no
 * clock.
 *
 * There are two heats. In the first one all algorithms, and the variants of serial, take turns,
 * launch by launch, so that whatever else goes on meets all of them. The second one is serial, the
 * best of those that overlap, and that one's variants. A heat has a dozen rounds, the first of
 * which warms up; whoever is hopelessly slow is left out of the later ones.
 *
 * Two candidates are compared by the rounds that both were launched in. Serial has to be beaten by
 * more than noise, and so has an algorithm by its own variant, and one with products of the
 * device's library by one with a flagged product: by a fiftieth, and in three of four rounds; after
 * a warm-up alone, by a fifth. */
#ifndef CGM_CONTEST_H
#define CGM_CONTEST_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/executor/tuned.h"

#define CGM_CONTEST_ROUNDS 12u /* of each heat */

struct cgm_entrant {
    struct cgm_candidate candidate;
    uint64_t samples_ns[2 * CGM_CONTEST_ROUNDS]; /* by round; 0: it was not launched in it */
    bool failed;
    bool out; /* has no more launches */
};

struct cgm_contest {
    struct cgm_entrant
        entrants[CGM_TUNED_MAX]; /* serial first, where it is one, as it is by default */
    uint32_t n;
    uint32_t round, end; /* of this heat */
    uint32_t turn;       /* who is next, where `goes_on` */
    bool goes_on;
};

/* Everything begins with zeros. What there is no room for is left out. */
void cgm_contest_enter(struct cgm_contest *contest, const struct cgm_candidate *candidate);

/* The first heat. */
void cgm_contest_begin(struct cgm_contest *contest);

/* How a launch ended of whoever's turn it was. Then it is the next one's, or the heat is over: not
 * goes_on. */
void cgm_contest_note(struct cgm_contest *contest, uint64_t ns);
void cgm_contest_fail(struct cgm_contest *contest);

/* The heat is over before its end, where everybody was launched more than once. False: not yet. */
bool cgm_contest_stop(struct cgm_contest *contest);

/* Whose variants make the second heat; NULL: nobody who overlaps has a time. */
const struct cgm_algorithm *cgm_contest_leader(const struct cgm_contest *contest);
/* The second heat, after the leader's variants have entered: those from `first` on. */
void cgm_contest_begin_second(struct cgm_contest *contest, uint32_t first);

/* How many may still be launched. */
uint32_t cgm_contest_left(const struct cgm_contest *contest);

/* The median, without warming up unless there is nothing else. 0: none. */
uint64_t cgm_entrant_ns(const struct cgm_entrant *entrant);

/* Whether the others have been compared with the first one: it has a time, and another one has, or
 * has failed. */
bool cgm_contest_is_decided(const struct cgm_contest *contest);
/* Of one that is. */
void cgm_contest_result(const struct cgm_contest *contest, struct cgm_tuned *ret_tuned);

#endif
