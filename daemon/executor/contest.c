#include "daemon/executor/contest.h"

#include <stdlib.h>
#include <string.h>

#define ROUNDS CGM_CONTEST_ROUNDS
#define ROUNDS_OF_BOTH (2 * CGM_CONTEST_ROUNDS)

/* Who takes so many times the shortest time is out: after the warm-up, and later. */
#define HOPELESS_WARMING 8u
#define HOPELESS 2u

/* In percent of the time that is to be beaten; less than that is lost in noise. */
#define MARGIN 2u
#define MARGIN_WARMING 20u

/* ---- times ------------------------------------------------------------------------------------
 */

static int compare_ns(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static uint64_t median(uint64_t *ns, uint32_t n)
{
    if (n == 0)
        return 0;
    qsort(ns, n, sizeof(ns[0]), compare_ns);
    return ns[n / 2];
}

static bool warms_up(uint32_t round)
{
    return round % ROUNDS == 0;
}

/* The rounds, of those that warm up or of the others, in which both were launched. */
static uint32_t common_rounds(const struct cgm_entrant *a, const struct cgm_entrant *b,
                              bool warming, uint32_t ret_rounds[ROUNDS_OF_BOTH])
{
    uint32_t n = 0;
    for (uint32_t round = 0; round < ROUNDS_OF_BOTH; round++)
        if (warms_up(round) == warming && a->samples_ns[round] && b->samples_ns[round])
            ret_rounds[n++] = round;
    return n;
}

static uint64_t median_of(const struct cgm_entrant *entrant, const uint32_t *rounds, uint32_t n)
{
    uint64_t ns[ROUNDS_OF_BOTH];
    for (uint32_t i = 0; i < n; i++)
        ns[i] = entrant->samples_ns[rounds[i]];
    return median(ns, n);
}

uint64_t cgm_entrant_ns(const struct cgm_entrant *entrant)
{
    uint32_t rounds[ROUNDS_OF_BOTH], n = common_rounds(entrant, entrant, false, rounds);
    if (entrant->failed)
        return 0;
    if (n == 0)
        n = common_rounds(entrant, entrant, true, rounds);
    return median_of(entrant, rounds, n);
}

/* Whether it is faster by more than noise. */
static bool beats(const struct cgm_entrant *one, const struct cgm_entrant *other)
{
    uint32_t rounds[ROUNDS_OF_BOTH], margin = MARGIN, faster = 0;
    uint32_t n = common_rounds(one, other, false, rounds);
    if (n == 0) {
        n = common_rounds(one, other, true, rounds);
        margin = MARGIN_WARMING;
    }
    for (uint32_t i = 0; i < n; i++)
        faster += one->samples_ns[rounds[i]] < other->samples_ns[rounds[i]];
    uint64_t limit_ns = median_of(other, rounds, n);
    limit_ns -= limit_ns / 100 * margin;
    return n > 0 && faster * 4 >= n * 3 && median_of(one, rounds, n) < limit_ns;
}

/* ---- turns ------------------------------------------------------------------------------------
 */

void cgm_contest_enter(struct cgm_contest *contest, const struct cgm_candidate *candidate)
{
    if (contest->n < CGM_TUNED_MAX)
        contest->entrants[contest->n++] = (struct cgm_entrant){.candidate = *candidate};
}

uint32_t cgm_contest_left(const struct cgm_contest *contest)
{
    uint32_t left = 0;
    for (uint32_t i = 0; i < contest->n; i++)
        left += !contest->entrants[i].out;
    return left;
}

static void drop_hopeless(struct cgm_contest *contest)
{
    uint64_t best_ns = UINT64_MAX;
    uint64_t factor = warms_up(contest->round) ? HOPELESS_WARMING : HOPELESS;
    for (uint32_t i = 0; i < contest->n; i++) {
        uint64_t ns = cgm_entrant_ns(&contest->entrants[i]);
        best_ns = ns && ns < best_ns ? ns : best_ns;
    }
    for (uint32_t i = 0; i < contest->n; i++)
        if (cgm_entrant_ns(&contest->entrants[i]) / factor > best_ns)
            contest->entrants[i].out = true;
}

/* One alone is launched once more after a warm-up, and no more. */
static void end_round(struct cgm_contest *contest)
{
    bool warmed_up = warms_up(contest->round);
    drop_hopeless(contest);
    contest->turn = 0;
    contest->round++;
    contest->goes_on =
        contest->round < contest->end && cgm_contest_left(contest) >= (warmed_up ? 1u : 2u);
}

/* To the first who is not out, from `turn` on. */
static void find_turn(struct cgm_contest *contest)
{
    while (contest->goes_on && contest->entrants[contest->turn].out)
        if (++contest->turn == contest->n)
            end_round(contest);
}

static void next_turn(struct cgm_contest *contest)
{
    if (++contest->turn == contest->n)
        end_round(contest);
    find_turn(contest);
}

static void begin_heat(struct cgm_contest *contest, uint32_t round)
{
    contest->round = round;
    contest->end = round + ROUNDS;
    contest->turn = 0;
    contest->goes_on = cgm_contest_left(contest) >= 2;
    find_turn(contest);
}

void cgm_contest_begin(struct cgm_contest *contest)
{
    begin_heat(contest, 0);
}

void cgm_contest_note(struct cgm_contest *contest, uint64_t ns)
{
    contest->entrants[contest->turn].samples_ns[contest->round] = ns ? ns : 1;
    next_turn(contest);
}

void cgm_contest_fail(struct cgm_contest *contest)
{
    contest->entrants[contest->turn].failed = contest->entrants[contest->turn].out = true;
    next_turn(contest);
}

bool cgm_contest_stop(struct cgm_contest *contest)
{
    if (contest->end - contest->round <= ROUNDS - 2)
        contest->goes_on = false;
    return !contest->goes_on;
}

/* ---- who wins ---------------------------------------------------------------------------------
 */

static bool is_serial(const struct cgm_entrant *entrant)
{
    return entrant->candidate.algorithm->number == CGM_ALGO_NO_OVERLAP;
}

/* What a choice is made among: candidates that overlap, with or without variants, that beat the one
 * to beat, if there is one. */
struct choice {
    bool variants, plain; /* plain: without flagged products */
    const struct cgm_entrant *to_beat;
};

static const struct cgm_entrant *fastest_of(const struct cgm_contest *contest,
                                            const struct choice *among)
{
    const struct cgm_entrant *best = NULL;
    for (uint32_t i = 0; i < contest->n; i++) {
        const struct cgm_entrant *e = &contest->entrants[i];
        uint64_t ns = cgm_entrant_ns(e);
        if (ns == 0 || is_serial(e) || (e->candidate.variant != 0) != among->variants ||
            (among->plain && e->candidate.algorithm->flagged) ||
            (among->to_beat && !beats(e, among->to_beat)))
            continue;
        if (!best || ns < cgm_entrant_ns(best))
            best = e;
    }
    return best;
}

/* A contest keeps devices at their limit of power, where products are equally fast that are not on
 * a cooler device: there the library's are ahead by up to 9 %. So they win unless they are beaten
 * by more than noise. */
static const struct cgm_entrant *fastest(const struct cgm_contest *contest, bool variants,
                                         const struct cgm_entrant *to_beat)
{
    const struct cgm_entrant *best =
        fastest_of(contest, &(struct choice){variants, false, to_beat});
    if (!best || !best->candidate.algorithm->flagged)
        return best;
    const struct cgm_entrant *plain =
        fastest_of(contest, &(struct choice){variants, true, to_beat});
    return plain && !beats(best, plain) ? plain : best;
}

/* The best serial one; of the first one's variants one that beats it. */
static const struct cgm_entrant *serial_of(const struct cgm_contest *contest)
{
    const struct cgm_entrant *first = &contest->entrants[0], *best = first;
    if (contest->n == 0 || !is_serial(first) || cgm_entrant_ns(first) == 0)
        return NULL;
    for (uint32_t i = 1; i < contest->n; i++)
        if (is_serial(&contest->entrants[i]) && beats(&contest->entrants[i], first) &&
            (best == first || cgm_entrant_ns(&contest->entrants[i]) < cgm_entrant_ns(best)))
            best = &contest->entrants[i];
    return best;
}

static const struct cgm_entrant *leader_of(const struct cgm_contest *contest)
{
    const struct cgm_entrant *serial = serial_of(contest);
    const struct cgm_entrant *leader = serial ? fastest(contest, false, serial) : NULL;
    return leader ? leader : fastest(contest, false, NULL);
}

const struct cgm_algorithm *cgm_contest_leader(const struct cgm_contest *contest)
{
    const struct cgm_entrant *leader = leader_of(contest);
    return leader ? leader->candidate.algorithm : NULL;
}

void cgm_contest_begin_second(struct cgm_contest *contest, uint32_t first)
{
    const struct cgm_entrant *leader = leader_of(contest), *serial = serial_of(contest);
    for (uint32_t i = 0; i < first; i++) {
        struct cgm_entrant *e = &contest->entrants[i];
        if (!e->out && e != serial && e != leader)
            e->out = true;
    }
    begin_heat(contest, ROUNDS);
}

static const struct cgm_entrant *winner_of(const struct cgm_contest *contest)
{
    const struct cgm_entrant *winner = serial_of(contest);
    const struct cgm_entrant *better = fastest(contest, false, winner);
    if (better)
        winner = better;
    better = fastest(contest, true, winner);
    return better ? better : winner;
}

bool cgm_contest_is_decided(const struct cgm_contest *contest)
{
    uint32_t known = 0;
    for (uint32_t i = 0; i < contest->n; i++)
        known += contest->entrants[i].failed || cgm_entrant_ns(&contest->entrants[i]);
    return known > 1 && cgm_entrant_ns(&contest->entrants[0]);
}

void cgm_contest_result(const struct cgm_contest *contest, struct cgm_tuned *ret_tuned)
{
    const struct cgm_entrant *winner = winner_of(contest);
    uint32_t n = 1;
    *ret_tuned = (struct cgm_tuned){.n = contest->n};
    for (uint32_t i = 0; i < contest->n; i++) {
        const struct cgm_entrant *e = &contest->entrants[i];
        uint32_t at = e == winner ? 0 : n++;
        ret_tuned->tried[at] = (struct cgm_tried){e->candidate, cgm_entrant_ns(e)};
        ret_tuned->n_late += !e->failed && cgm_entrant_ns(e) == 0;
    }
    cgm_tuned_sort(ret_tuned);
}
