#include "daemon/executor/measurement.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "daemon/executor/collectives.h"
#include "daemon/executor/executor.h"
#include "daemon/executor/plan.h"
#include "daemon/executor/plan_make.h"
#include "daemon/executor/trial.h"
#include "proto/status.h"

typedef unsigned long long ull;

/* A launch that is cut short ends within this part of tune_ns, unless others are before it. */
#define CUT_PART 4u

/* ---- time -------------------------------------------------------------------------------------
 */

/* Until when a part may go on that is to leave something for the next one. */
static uint64_t share_of_rest(const struct cgm_measurement *m, uint64_t parts, uint64_t of)
{
    uint64_t now_ns = cgm_now_ns();
    return now_ns < m->until_ns ? now_ns + (m->until_ns - now_ns) / of * parts : now_ns;
}

static bool is_over(const struct cgm_measurement *m)
{
    return cgm_now_ns() >= m->until_ns;
}

static ull tune_ms(const struct cgm_measurement *m)
{
    return (ull)m->executor->limits.tune_ns / 1000000;
}

/* ---- the trial's memory, on the mapper --------------------------------------------------------
 */

static struct cgm_measurement *of_turn(struct cgm_turn *turn)
{
    return (struct cgm_measurement *)(void *)((char *)turn -
                                              offsetof(struct cgm_measurement, memory));
}

static void memory_turn(struct cgm_measurement *m, bool (*slice)(struct cgm_turn *turn),
                        void (*done)(struct cgm_turn *turn))
{
    m->memory = (struct cgm_turn){.slice = slice, .done = done};
    cgm_turns_add(&m->executor->slices, m->plan->uid, &m->memory);
}

static void to_poller(struct cgm_measurement *m, void (*run)(struct cgm_task *task))
{
    m->task.run = run;
    cgm_poller_post(&m->executor->poller, &m->task);
}

static void through(struct cgm_task *task)
{
    struct cgm_measurement *m = (struct cgm_measurement *)task;
    m->done(m);
}

static bool drain_slice(struct cgm_turn *turn)
{
    return cgm_trial_drain(of_turn(turn)->trial);
}

static void drained(struct cgm_turn *turn);

static void reclaimed(struct cgm_reclaim *reclaim)
{
    struct cgm_measurement *m =
        (struct cgm_measurement *)(void *)((char *)reclaim -
                                           offsetof(struct cgm_measurement, reclaim));
    drained(&m->memory);
}

static void drained(struct cgm_turn *turn)
{
    struct cgm_measurement *m = of_turn(turn);
    struct cgm_mem *numbers = cgm_trial_numbers(m->trial);
    if (numbers) {
        m->reclaim = (struct cgm_reclaim){.mem = numbers, .done = reclaimed};
        cgm_reclaim(m->executor, &m->reclaim);
        return;
    }
    cgm_trial_free(m->trial);
    m->trial = NULL;
    to_poller(m, through);
}

static void free_trial(struct cgm_task *task)
{
    memory_turn((struct cgm_measurement *)task, drain_slice, drained);
}

/* Nothing of it is under way. why: NULL: there are times enough. */
static void end(struct cgm_measurement *m, const char *why)
{
    if (why)
        snprintf(m->why, sizeof(m->why), "%s", why);
    if (!m->trial) {
        m->done(m);
        return;
    }
    m->state = CGM_MEASUREMENT_ENDING;
    m->task.run = free_trial;
    cgm_worker_post(&m->executor->mapper, &m->task);
}

/* Serial must have a time, where it is a candidate: auto is never slower. */
static void end_with_times(struct cgm_measurement *m)
{
    char why[96];
    snprintf(why, sizeof(why), "%s in %llu ms",
             m->contest.entrants[0].failed ? "a launch failed" : "too long a launch to compare any",
             tune_ms(m));
    end(m, cgm_contest_is_decided(&m->contest) ? NULL : why);
}

/* ---- preparing ------------------------------------------------------------------------------- */

static struct cgm_measurement *of_quiet(struct cgm_quiet *quiet)
{
    return (struct cgm_measurement *)(void *)((char *)quiet -
                                              offsetof(struct cgm_measurement, quiet));
}

static bool prepares_more(const struct cgm_measurement *m)
{
    return m->prepared < m->contest.n && (m->records || cgm_now_ns() < m->part_until_ns);
}

/* What cannot be recorded is launched without. */
static void record_rank(struct cgm_measurement *m)
{
    if (cgm_trial_record(m->trial, m->prepared, m->recorded) && ++m->recorded < m->plan->spec.world)
        return;
    m->records = false;
    m->prepared++;
}

static void choose_products(struct cgm_measurement *m)
{
    struct cgm_entrant *entrant = &m->contest.entrants[m->prepared];
    /* The comm's first plan makes its group, which takes seconds, and needs it anyway. */
    uint64_t begin_ns = cgm_now_ns();
    cgm_collectives_choose(m->trial->plan, m->executor);
    uint64_t group_ns = cgm_now_ns() - begin_ns;
    m->until_ns += group_ns;
    m->part_until_ns += group_ns;
    int status = cgm_plan_rehearse(m->trial->plan);
    if (status == CGM_OK) {
        m->records = true;
        m->recorded = 0;
    } else if (status != CGM_TIMEOUT) {
        entrant->failed = entrant->out = true;
        m->prepared++;
    }
}

/* Mapper, while launches are held: one slice of one candidate. */
static void prepare_run(struct cgm_quiet *quiet)
{
    struct cgm_measurement *m = of_quiet(quiet);
    cgm_trial_take(m->trial, &m->contest.entrants[m->prepared].candidate);
    if (m->records)
        record_rank(m);
    else
        choose_products(m);
    quiet->again = prepares_more(m);
}

/* Poller. There was no time for those that are not. */
static void prepare_done(struct cgm_quiet *quiet)
{
    struct cgm_measurement *m = of_quiet(quiet);
    struct cgm_contest *contest = &m->contest;
    for (uint32_t i = m->prepared; i < contest->n; i++)
        contest->entrants[i].out = true;
    if (m->second)
        cgm_contest_begin_second(contest, m->n_first);
    else if (contest->entrants[0].out || cgm_contest_left(contest) < 2) {
        end(m, "they could not be prepared in time");
        return;
    }
    m->state = m->second ? CGM_MEASUREMENT_MEASURING : CGM_MEASUREMENT_FILLING;
}

/* The entrants from `prepared` on, for the next heat. */
static void prepare(struct cgm_measurement *m)
{
    struct cgm_executor *executor = m->executor;
    m->part_until_ns = share_of_rest(m, 2, 3);
    m->state = CGM_MEASUREMENT_PREPARING;
    m->quiet.run = prepare_run;
    m->quiet.done = prepare_done;
    if (executor->ops->prepare_gemm || executor->ops->group_new)
        cgm_quiet_post(&executor->poller, &m->quiet);
    else {
        m->prepared = m->contest.n;
        prepare_done(&m->quiet);
    }
}

/* ---- launches -------------------------------------------------------------------------------- */

const char *cgm_measurement_reason_to_stop(const struct cgm_measurement *m)
{
    if (m->plan->comm->dead_status != CGM_OK)
        return "the comm lost a rank";
    return m->executor->poller.ends ? "the daemon ends" : NULL;
}

/* What was cut short says nothing: there is no time for another one either. */
static void note_launch(struct cgm_measurement *m, uint64_t now_ns)
{
    struct cgm_contest *contest = &m->contest;
    const struct cgm_run *run = &m->plan->flight->run;
    int status = atomic_load(&run->status);
    if (status == CGM_OK) {
        cgm_contest_note(contest, now_ns - run->begin_ns);
    } else if (!m->cut) {
        cgm_executor_log(4, "plan %016llx: a trial of %s failed: %s", (ull)m->plan->id,
                         contest->entrants[contest->turn].candidate.algorithm->name,
                         cgm_status_text(status));
        cgm_contest_fail(contest);
    }
}

static void enter_variants(struct cgm_measurement *m, const struct cgm_algorithm *algorithm)
{
    cgm_variant variants[CGM_VARIANTS_MAX];
    uint32_t n = cgm_algorithm_variants(algorithm, &m->plan->spec, &m->field.means, variants);
    for (uint32_t i = 0; i < n; i++)
        cgm_contest_enter(&m->contest, &(struct cgm_candidate){algorithm, variants[i]});
}

/* The best one's variants, for which there may be no time any more: then that is said. False: there
 * is no second heat. */
static bool begin_second(struct cgm_measurement *m)
{
    const struct cgm_algorithm *leader = cgm_contest_leader(&m->contest);
    if (m->second || !leader || !cgm_contest_is_decided(&m->contest))
        return false;
    enter_variants(m, leader);
    if (m->contest.n == m->n_first || is_over(m))
        return false;
    m->second = true;
    prepare(m);
    return true;
}

/* Time is up, and a launch is long: what of it has not begun is left out. Where the devices'
 * library has a part in it, that is waited for. */
static void cut_short(struct cgm_measurement *m)
{
    struct cgm_run *run = &m->plan->flight->run;
    int running = CGM_OK;
    if (m->trial->plan->ranks[0].group ||
        !atomic_compare_exchange_strong(&run->status, &running, CGM_CANCELLED))
        return;
    m->cut = true;
}

static void watch(struct cgm_measurement *m, uint64_t now_ns)
{
    char why[96];
    struct cgm_flight *flight = m->plan->flight;
    cgm_flight_look(flight, now_ns);
    if (now_ns >= m->until_ns && !m->cut)
        cut_short(m);
    if (!cgm_flight_is_stuck(flight, now_ns))
        return;
    snprintf(why, sizeof(why), "a trial for plan %016llx does not end after its abort",
             (ull)m->plan->id);
    cgm_executor_end(m->executor, CGM_TROUBLE_STUCK, why);
}

static void land(struct cgm_measurement *m, uint64_t now_ns)
{
    m->flying = false;
    if (m->state == CGM_MEASUREMENT_MEASURING) {
        note_launch(m, now_ns);
        return;
    }
    m->state = CGM_MEASUREMENT_MEASURING; /* what was filled */
    m->part_until_ns = share_of_rest(m, 1, 2);
    cgm_contest_begin(&m->contest);
}

/* Whether launches go on; else what comes now has begun. */
static bool goes_on(struct cgm_measurement *m, uint64_t now_ns)
{
    struct cgm_contest *contest = &m->contest;
    const char *stop = cgm_measurement_reason_to_stop(m);
    if (stop) {
        end(m, stop);
        return false;
    }
    if (m->state == CGM_MEASUREMENT_FILLING && now_ns < m->until_ns)
        return true;
    if (contest->goes_on && now_ns >= m->part_until_ns && !m->second)
        cgm_contest_stop(contest);
    if (contest->goes_on && now_ns < m->until_ns)
        return true;
    if (!begin_second(m))
        end_with_times(m);
    return false;
}

bool cgm_measurement_step(struct cgm_measurement *m, uint64_t now_ns)
{
    struct cgm_contest *contest = &m->contest;
    bool landed = m->flying;
    if (m->state != CGM_MEASUREMENT_FILLING && m->state != CGM_MEASUREMENT_MEASURING)
        return false;
    if (landed && !cgm_flight_is_done(m->plan->flight)) {
        watch(m, now_ns);
        return false;
    }
    if (landed)
        land(m, now_ns);
    if (!goes_on(m, now_ns))
        return true;
    if (cgm_quiet_holds(&m->executor->poller))
        return landed;
    m->flying = true;
    if (m->state == CGM_MEASUREMENT_FILLING)
        cgm_trial_fill(m->trial);
    else
        cgm_trial_launch(m->trial, &contest->entrants[contest->turn].candidate, contest->turn,
                         cgm_contest_left(contest));
    return true;
}

bool cgm_measurement_is_overdue(const struct cgm_measurement *m, uint64_t now_ns)
{
    bool lasts =
        m->flying || m->state == CGM_MEASUREMENT_MAKING || m->state == CGM_MEASUREMENT_ENDING;
    return lasts && now_ns >= m->until_ns + m->executor->limits.tune_ns / CUT_PART;
}

/* ---- making ---------------------------------------------------------------------------------- */

/* Poller. */
static void made(struct cgm_task *task)
{
    struct cgm_measurement *m = (struct cgm_measurement *)task;
    if (m->status == CGM_OK)
        prepare(m);
    else
        m->done(m);
}

static bool fill_slice(struct cgm_turn *turn)
{
    bool more;
    struct cgm_measurement *m = of_turn(turn);
    m->status = cgm_plan_fill(m->trial->plan, &more);
    if (m->status == CGM_OK && is_over(m))
        m->status = CGM_TIMEOUT;
    return more && m->status == CGM_OK;
}

/* Also when it could not be made. */
static void filled(struct cgm_turn *turn)
{
    struct cgm_measurement *m = of_turn(turn);
    if (m->status == CGM_OK) {
        to_poller(m, made);
        return;
    }
    if (m->status == CGM_TIMEOUT)
        snprintf(m->why, sizeof(m->why), "its memory took all of %llu ms", tune_ms(m));
    else
        snprintf(m->why, sizeof(m->why), "its memory cannot be made");
    memory_turn(m, drain_slice, drained);
}

static bool make_slice(struct cgm_turn *turn)
{
    bool more = false;
    struct cgm_measurement *m = of_turn(turn);
    m->status = is_over(m) ? CGM_TIMEOUT : cgm_trial_make(m->trial, &more);
    return more && m->status == CGM_OK;
}

static void made_to_fill(struct cgm_turn *turn)
{
    struct cgm_measurement *m = of_turn(turn);
    if (m->status == CGM_OK)
        memory_turn(m, fill_slice, filled);
    else
        filled(turn);
}

/* Mapper. */
static void make_trial(struct cgm_task *task)
{
    struct cgm_measurement *m = (struct cgm_measurement *)task;
    char why[sizeof(m->why)];
    m->status = cgm_trial_new(m->plan, &m->field, why, sizeof(why), &m->trial);
    if (m->status == CGM_OK) {
        memory_turn(m, make_slice, made_to_fill);
        return;
    }
    snprintf(m->why, sizeof(m->why), "%s", why);
    to_poller(m, made);
}

/* Who beats serial has to beat the best of its variants. */
static void enter_first(struct cgm_measurement *m)
{
    for (uint32_t i = 0; i < m->field.n; i++) {
        const struct cgm_algorithm *algorithm = m->algorithms[i];
        cgm_contest_enter(&m->contest, &(struct cgm_candidate){algorithm, 0});
        if (algorithm->number == CGM_ALGO_NO_OVERLAP)
            enter_variants(m, algorithm);
    }
    m->n_first = m->contest.n;
}

void cgm_measurement_init(struct cgm_measurement *m, struct cgm_plan *plan,
                          void (*done)(struct cgm_measurement *m))
{
    memset(m, 0, sizeof(*m));
    m->executor = plan->comm->poller->executor;
    m->plan = plan;
    m->done = done;
    m->field = cgm_field_of(plan, m->algorithms);
    enter_first(m);
}

void cgm_measurement_begin(struct cgm_measurement *m)
{
    m->until_ns = cgm_now_ns() + m->executor->limits.tune_ns;
    m->state = CGM_MEASUREMENT_MAKING;
    m->task.run = make_trial;
    cgm_worker_post(&m->executor->mapper, &m->task);
}
