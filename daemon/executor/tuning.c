#include "daemon/executor/tuning.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/executor/collectives.h"
#include "daemon/executor/contest.h"
#include "daemon/executor/endpoint.h"
#include "daemon/executor/executor.h"
#include "daemon/executor/field.h"
#include "daemon/executor/plan.h"
#include "daemon/executor/plan_make.h"
#include "daemon/executor/trial.h"
#include "proto/messages.h"
#include "proto/status.h"

typedef unsigned long long ull;

/* A plan's patience, in times of what one turn may last. */
#define TURNS_AWAITED 2u

enum state {
    WAITING,   /* for those before it */
    MAKING,    /* the mapper makes the trial */
    PREPARING, /* the candidates' products are chosen, in slices */
    FILLING,
    MEASURING,
    ENDING, /* the mapper frees the trial */
};

struct cgm_tuning {
    struct cgm_task task; /* first */
    struct cgm_quiet quiet;
    struct cgm_turn memory; /* MAKING and ENDING it */
    struct cgm_reclaim reclaim;
    struct cgm_tuning *next; /* in the poller's list; the first one is measured */
    struct cgm_request *request;
    void (*then)(struct cgm_request *request);
    struct cgm_plan *plan;
    struct cgm_trial *trial;
    enum state state;
    uint32_t uid; /* whose turn it takes */
    uint64_t asked_ns;
    uint64_t until_ns;      /* of all of it */
    uint64_t part_until_ns; /* of preparing, or of the first heat; before until_ns */
    uint32_t prepared;      /* entrants; those before it are, or cannot be */
    uint32_t recorded;      /* ranks of the one that is being recorded */
    bool records;           /* its products are chosen */
    bool flying, second;    /* second: heat */
    bool cut;               /* the launch under way was aborted, time is up */
    int status;
    char why[96]; /* nothing was measured; "": it was */
    const struct cgm_algorithm *algorithms[CGM_TUNED_MAX];
    struct cgm_field field; /* of them */
    struct cgm_contest contest;
    uint32_t n_first; /* entrants of the first heat */
};

/* ---- time -------------------------------------------------------------------------------------
 */

/* Until when a part may go on that is to leave something for the next one. */
static uint64_t share_of_rest(const struct cgm_tuning *tuning, uint64_t parts, uint64_t of)
{
    uint64_t now_ns = cgm_now_ns();
    return now_ns < tuning->until_ns ? now_ns + (tuning->until_ns - now_ns) / of * parts : now_ns;
}

static bool is_over(const struct cgm_tuning *tuning)
{
    return cgm_now_ns() >= tuning->until_ns;
}

static ull tune_ms(const struct cgm_tuning *tuning)
{
    return (ull)tuning->request->executor->limits.tune_ns / 1000000;
}

/* ---- what is said about it ------------------------------------------------------------------- */

static void use(struct cgm_plan *plan, const struct cgm_tuned *tuned)
{
    plan->tuned = *tuned;
    plan->algorithm = tuned->tried[0].candidate.algorithm;
    cgm_spec_take(&plan->spec, &tuned->tried[0].candidate);
    cgm_tuned_write(tuned, plan->reason, sizeof(plan->reason));
}

static void leave_estimated(struct cgm_plan *plan, const char *why)
{
    size_t used = strlen(plan->reason);
    snprintf(plan->reason + used, sizeof(plan->reason) - used, "; not measured: %s", why);
}

/* ---- the end --------------------------------------------------------------------------------- */

static void conclude(const struct cgm_tuning *tuning)
{
    struct cgm_tuned tuned;
    cgm_contest_result(&tuning->contest, &tuned);
    use(tuning->plan, &tuned);
}

/* On the poller: the tuning is the first of the list, or has never been. */
static void leave(struct cgm_tuning *tuning)
{
    struct cgm_request *request = tuning->request;
    struct cgm_tuning **link = &request->executor->poller.tunings;
    void (*then)(struct cgm_request * request) = tuning->then;
    while (*link != tuning)
        link = &(*link)->next;
    *link = tuning->next;
    if (tuning->why[0])
        leave_estimated(tuning->plan, tuning->why);
    else
        conclude(tuning);
    free(tuning);
    then(request);
}

static void freed(struct cgm_task *task)
{
    leave((struct cgm_tuning *)task);
}

/* ---- the trial's memory, on the mapper --------------------------------------------------------
 */

static struct cgm_tuning *of_turn(struct cgm_turn *turn)
{
    return (struct cgm_tuning *)(void *)((char *)turn - offsetof(struct cgm_tuning, memory));
}

static void memory_turn(struct cgm_tuning *tuning, bool (*slice)(struct cgm_turn *turn),
                        void (*done)(struct cgm_turn *turn))
{
    tuning->memory = (struct cgm_turn){.slice = slice, .done = done};
    cgm_turns_add(&tuning->request->executor->slices, tuning->uid, &tuning->memory);
}

static void to_poller(struct cgm_tuning *tuning, void (*run)(struct cgm_task *task))
{
    tuning->task.run = run;
    cgm_poller_post(&tuning->request->executor->poller, &tuning->task);
}

static bool drain_slice(struct cgm_turn *turn)
{
    return cgm_trial_drain(of_turn(turn)->trial);
}

static void drained(struct cgm_turn *turn);

static void reclaimed(struct cgm_reclaim *reclaim)
{
    struct cgm_tuning *tuning =
        (struct cgm_tuning *)(void *)((char *)reclaim - offsetof(struct cgm_tuning, reclaim));
    drained(&tuning->memory);
}

static void drained(struct cgm_turn *turn)
{
    struct cgm_tuning *tuning = of_turn(turn);
    struct cgm_mem *numbers = cgm_trial_numbers(tuning->trial);
    if (numbers) {
        tuning->reclaim = (struct cgm_reclaim){.mem = numbers, .done = reclaimed};
        cgm_reclaim(tuning->request->executor, &tuning->reclaim);
        return;
    }
    cgm_trial_free(tuning->trial);
    tuning->trial = NULL;
    to_poller(tuning, freed);
}

static void free_trial(struct cgm_task *task)
{
    memory_turn((struct cgm_tuning *)task, drain_slice, drained);
}

/* Nothing of it is under way. why: NULL: there are times enough. */
static void end(struct cgm_tuning *tuning, const char *why)
{
    if (why)
        snprintf(tuning->why, sizeof(tuning->why), "%s", why);
    if (!tuning->trial) {
        leave(tuning);
        return;
    }
    tuning->state = ENDING;
    tuning->task.run = free_trial;
    cgm_worker_post(&tuning->request->executor->mapper, &tuning->task);
}

/* Serial must have a time, where it is a candidate: auto is never slower. */
static void end_with_times(struct cgm_tuning *tuning)
{
    char why[96];
    snprintf(why, sizeof(why), "%s in %llu ms",
             tuning->contest.entrants[0].failed ? "a launch failed"
                                                : "too long a launch to compare any",
             tune_ms(tuning));
    end(tuning, cgm_contest_is_decided(&tuning->contest) ? NULL : why);
}

/* ---- preparing ------------------------------------------------------------------------------- */

static struct cgm_tuning *of_quiet(struct cgm_quiet *quiet)
{
    return (struct cgm_tuning *)(void *)((char *)quiet - offsetof(struct cgm_tuning, quiet));
}

static bool prepares_more(const struct cgm_tuning *tuning)
{
    return tuning->prepared < tuning->contest.n &&
           (tuning->records || cgm_now_ns() < tuning->part_until_ns);
}

/* What cannot be recorded is launched without. */
static void record_rank(struct cgm_tuning *tuning)
{
    if (cgm_trial_record(tuning->trial, tuning->prepared, tuning->recorded) &&
        ++tuning->recorded < tuning->plan->spec.world)
        return;
    tuning->records = false;
    tuning->prepared++;
}

static void choose_products(struct cgm_tuning *tuning)
{
    struct cgm_entrant *entrant = &tuning->contest.entrants[tuning->prepared];
    /* The comm's first plan makes its group, which takes seconds, and needs it anyway. */
    uint64_t begin_ns = cgm_now_ns();
    cgm_collectives_choose(tuning->trial->plan, tuning->request->executor);
    uint64_t group_ns = cgm_now_ns() - begin_ns;
    tuning->until_ns += group_ns;
    tuning->part_until_ns += group_ns;
    int status = cgm_plan_rehearse(tuning->trial->plan);
    if (status == CGM_OK) {
        tuning->records = true;
        tuning->recorded = 0;
    } else if (status != CGM_TIMEOUT) {
        entrant->failed = entrant->out = true;
        tuning->prepared++;
    }
}

/* Mapper, while launches are held: one slice of one candidate. */
static void prepare_run(struct cgm_quiet *quiet)
{
    struct cgm_tuning *tuning = of_quiet(quiet);
    cgm_trial_take(tuning->trial, &tuning->contest.entrants[tuning->prepared].candidate);
    if (tuning->records)
        record_rank(tuning);
    else
        choose_products(tuning);
    quiet->again = prepares_more(tuning);
}

/* Poller. There was no time for those that are not. */
static void prepare_done(struct cgm_quiet *quiet)
{
    struct cgm_tuning *tuning = of_quiet(quiet);
    struct cgm_contest *contest = &tuning->contest;
    for (uint32_t i = tuning->prepared; i < contest->n; i++)
        contest->entrants[i].out = true;
    if (tuning->second)
        cgm_contest_begin_second(contest, tuning->n_first);
    else if (contest->entrants[0].out || cgm_contest_left(contest) < 2) {
        end(tuning, "they could not be prepared in time");
        return;
    }
    tuning->state = tuning->second ? MEASURING : FILLING;
}

/* The entrants from `prepared` on, for the next heat. */
static void prepare(struct cgm_tuning *tuning)
{
    struct cgm_executor *executor = tuning->request->executor;
    tuning->part_until_ns = share_of_rest(tuning, 2, 3);
    tuning->state = PREPARING;
    tuning->quiet.run = prepare_run;
    tuning->quiet.done = prepare_done;
    if (executor->ops->prepare_gemm || executor->ops->group_new)
        cgm_quiet_post(&executor->poller, &tuning->quiet);
    else {
        tuning->prepared = tuning->contest.n;
        prepare_done(&tuning->quiet);
    }
}

/* ---- launches -------------------------------------------------------------------------------- */

static const char *reason_to_stop(const struct cgm_tuning *tuning)
{
    if (tuning->plan->comm->dead_status != CGM_OK)
        return "the comm lost a rank";
    return tuning->request->executor->poller.shutdown ? "the daemon ends" : NULL;
}

/* What was cut short says nothing: there is no time for another one either. */
static void note_launch(struct cgm_tuning *tuning, uint64_t now_ns)
{
    struct cgm_contest *contest = &tuning->contest;
    const struct cgm_run *run = &tuning->plan->flight->run;
    int status = atomic_load(&run->status);
    if (status == CGM_OK) {
        cgm_contest_note(contest, now_ns - run->begin_ns);
    } else if (!tuning->cut) {
        cgm_executor_log(4, "plan %llu: a trial of %s failed: %s", (ull)tuning->plan->id,
                         contest->entrants[contest->turn].candidate.algorithm->name,
                         cgm_status_text(status));
        cgm_contest_fail(contest);
    }
}

static void enter_variants(struct cgm_tuning *tuning, const struct cgm_algorithm *algorithm)
{
    cgm_variant variants[CGM_VARIANTS_MAX];
    uint32_t n =
        cgm_algorithm_variants(algorithm, &tuning->plan->spec, &tuning->field.means, variants);
    for (uint32_t i = 0; i < n; i++)
        cgm_contest_enter(&tuning->contest, &(struct cgm_candidate){algorithm, variants[i]});
}

/* The best one's variants, for which there may be no time any more: then that is said. False: there
 * is no second heat. */
static bool begin_second(struct cgm_tuning *tuning)
{
    const struct cgm_algorithm *leader = cgm_contest_leader(&tuning->contest);
    if (tuning->second || !leader || !cgm_contest_is_decided(&tuning->contest))
        return false;
    enter_variants(tuning, leader);
    if (tuning->contest.n == tuning->n_first || is_over(tuning))
        return false;
    tuning->second = true;
    prepare(tuning);
    return true;
}

/* Time is up, and a launch is long: what of it has not begun is left out. Where the devices'
 * library has a part in it, that is waited for. */
static void cut_short(struct cgm_tuning *tuning)
{
    struct cgm_run *run = &tuning->plan->flight->run;
    int running = CGM_OK;
    if (tuning->trial->plan->ranks[0].group ||
        !atomic_compare_exchange_strong(&run->status, &running, CGM_CANCELLED))
        return;
    tuning->cut = true;
}

static void watch(struct cgm_tuning *tuning, uint64_t now_ns)
{
    char why[96];
    struct cgm_flight *flight = tuning->plan->flight;
    cgm_flight_look(flight, now_ns);
    if (now_ns >= tuning->until_ns && !tuning->cut)
        cut_short(tuning);
    if (!cgm_flight_is_stuck(flight, now_ns))
        return;
    snprintf(why, sizeof(why), "a trial for plan %llu does not end after its abort",
             (ull)tuning->plan->id);
    cgm_executor_end(tuning->request->executor, CGM_TROUBLE_STUCK, why);
}

static void land(struct cgm_tuning *tuning, uint64_t now_ns)
{
    tuning->flying = false;
    if (tuning->state == MEASURING) {
        note_launch(tuning, now_ns);
        return;
    }
    tuning->state = MEASURING; /* what was filled */
    tuning->part_until_ns = share_of_rest(tuning, 1, 2);
    cgm_contest_begin(&tuning->contest);
}

/* Whether launches go on; else what comes now has begun. */
static bool goes_on(struct cgm_tuning *tuning, uint64_t now_ns)
{
    struct cgm_contest *contest = &tuning->contest;
    const char *stop = reason_to_stop(tuning);
    if (stop) {
        end(tuning, stop);
        return false;
    }
    if (tuning->state == FILLING && now_ns < tuning->until_ns)
        return true;
    if (contest->goes_on && now_ns >= tuning->part_until_ns && !tuning->second)
        cgm_contest_stop(contest);
    if (contest->goes_on && now_ns < tuning->until_ns)
        return true;
    if (!begin_second(tuning))
        end_with_times(tuning);
    return false;
}

static bool step_launches(struct cgm_tuning *tuning, uint64_t now_ns)
{
    struct cgm_contest *contest = &tuning->contest;
    bool landed = tuning->flying;
    if (landed && !cgm_flight_is_done(tuning->plan->flight)) {
        watch(tuning, now_ns);
        return false;
    }
    if (landed)
        land(tuning, now_ns);
    if (!goes_on(tuning, now_ns))
        return true;
    if (cgm_quiet_holds(&tuning->request->executor->poller))
        return landed;
    tuning->flying = true;
    if (tuning->state == FILLING)
        cgm_trial_fill(tuning->trial);
    else
        cgm_trial_launch(tuning->trial, &contest->entrants[contest->turn].candidate, contest->turn,
                         cgm_contest_left(contest));
    return true;
}

/* ---- making ---------------------------------------------------------------------------------- */

/* Poller. */
static void made(struct cgm_task *task)
{
    struct cgm_tuning *tuning = (struct cgm_tuning *)task;
    if (tuning->status == CGM_OK)
        prepare(tuning);
    else
        leave(tuning);
}

static bool fill_slice(struct cgm_turn *turn)
{
    bool more;
    struct cgm_tuning *tuning = of_turn(turn);
    tuning->status = cgm_plan_fill(tuning->trial->plan, &more);
    if (tuning->status == CGM_OK && is_over(tuning))
        tuning->status = CGM_TIMEOUT;
    return more && tuning->status == CGM_OK;
}

/* Also when it could not be made. */
static void filled(struct cgm_turn *turn)
{
    struct cgm_tuning *tuning = of_turn(turn);
    if (tuning->status == CGM_OK) {
        to_poller(tuning, made);
        return;
    }
    if (tuning->status == CGM_TIMEOUT)
        snprintf(tuning->why, sizeof(tuning->why), "its memory took all of %llu ms",
                 tune_ms(tuning));
    else
        snprintf(tuning->why, sizeof(tuning->why), "its memory cannot be made");
    memory_turn(tuning, drain_slice, drained);
}

static bool make_slice(struct cgm_turn *turn)
{
    bool more = false;
    struct cgm_tuning *tuning = of_turn(turn);
    tuning->status = is_over(tuning) ? CGM_TIMEOUT : cgm_trial_make(tuning->trial, &more);
    return more && tuning->status == CGM_OK;
}

static void made_to_fill(struct cgm_turn *turn)
{
    struct cgm_tuning *tuning = of_turn(turn);
    if (tuning->status == CGM_OK)
        memory_turn(tuning, fill_slice, filled);
    else
        filled(turn);
}

/* Mapper. */
static void make_trial(struct cgm_task *task)
{
    struct cgm_tuning *tuning = (struct cgm_tuning *)task;
    char why[sizeof(tuning->why)];
    tuning->status = cgm_trial_new(tuning->plan, &tuning->field, why, sizeof(why), &tuning->trial);
    if (tuning->status == CGM_OK) {
        memory_turn(tuning, make_slice, made_to_fill);
        return;
    }
    snprintf(tuning->why, sizeof(tuning->why), "%s", why);
    to_poller(tuning, made);
}

static void begin(struct cgm_tuning *tuning)
{
    struct cgm_executor *executor = tuning->request->executor;
    tuning->until_ns = cgm_now_ns() + executor->limits.tune_ns;
    tuning->state = MAKING;
    tuning->task.run = make_trial;
    cgm_worker_post(&executor->mapper, &tuning->task);
}

/* ---- the list -------------------------------------------------------------------------------- */

/* Those that have waited for their turn as long as two may last: the one that was under way, and a
 * user's who came first. One at a time: `leave` changes the list. */
static bool let_one_go(struct cgm_poller *poller, uint64_t now_ns)
{
    for (struct cgm_tuning *t = poller->tunings; t; t = t->next) {
        const char *why = t->state == WAITING ? reason_to_stop(t) : NULL;
        if (t->state == WAITING &&
            now_ns - t->asked_ns > TURNS_AWAITED * poller->executor->limits.tune_ns)
            why = "others were, for too long";
        if (why) {
            end(t, why);
            return true;
        }
    }
    return false;
}

/* To the front: the first one of another user than the last, who may have many more. */
static struct cgm_tuning *take_turns(struct cgm_poller *poller, struct cgm_tuning *first)
{
    struct cgm_tuning **link = &poller->tunings, *next = first;
    while (*link && (*link)->uid == poller->tuned_uid)
        link = &(*link)->next;
    if (*link && *link != first) {
        next = *link;
        *link = next->next;
        next->next = first;
        poller->tunings = next;
    }
    poller->tuned_uid = next->uid;
    return next;
}

bool cgm_tuning_step(struct cgm_poller *poller)
{
    uint64_t now_ns = cgm_now_ns();
    struct cgm_tuning *first = poller->tunings;
    if (let_one_go(poller, now_ns))
        return true;
    if (first && first->state == WAITING) {
        begin(take_turns(poller, first));
        return true;
    }
    return first && (first->state == FILLING || first->state == MEASURING) &&
           step_launches(first, now_ns);
}

bool cgm_tuning_runs(const struct cgm_poller *poller)
{
    return poller->tunings && poller->tunings->flying;
}

/* ---- asking -----------------------------------------------------------------------------------
 */

uint64_t cgm_tuning_bytes(const struct cgm_plan *plan, uint64_t *scratch_bytes)
{
    const struct cgm_algorithm *algorithms[CGM_TUNED_MAX];
    struct cgm_field field = cgm_field_of(plan, algorithms);
    if (field.n == 0 || plan->comm->poller->executor->limits.tune_ns == 0)
        return 0;
    *scratch_bytes = cgm_trial_scratch(plan, &field);
    return cgm_trial_bytes(plan, *scratch_bytes);
}

static uint32_t user_of(const struct cgm_comm *comm)
{
    const struct cgm_endpoint *endpoint = cgm_map_get(&comm->poller->endpoints, comm->sessions[0]);
    return endpoint ? endpoint->uid : UINT32_MAX;
}

/* Who beats serial has to beat the best of its variants. */
static void enter_first(struct cgm_tuning *tuning)
{
    for (uint32_t i = 0; i < tuning->field.n; i++) {
        const struct cgm_algorithm *algorithm = tuning->algorithms[i];
        cgm_contest_enter(&tuning->contest, &(struct cgm_candidate){algorithm, 0});
        if (algorithm->number == CGM_ALGO_NO_OVERLAP)
            enter_variants(tuning, algorithm);
    }
    tuning->n_first = tuning->contest.n;
}

static void ask(struct cgm_tuning *tuning)
{
    struct cgm_tuning **end_of_list = &tuning->request->executor->poller.tunings;
    tuning->plan = tuning->request->object;
    tuning->field = cgm_field_of(tuning->plan, tuning->algorithms);
    enter_first(tuning);
    tuning->uid = user_of(tuning->plan->comm);
    tuning->asked_ns = cgm_now_ns();
    while (*end_of_list)
        end_of_list = &(*end_of_list)->next;
    *end_of_list = tuning;
}

/* NULL: it may be. */
static const char *reason_not_to(const struct cgm_request *request)
{
    if (request->executor->limits.tune_ns == 0)
        return "tune_ms is 0";
    return ((const Cgm__PlanAdd *)request->message)->no_trial;
}

void cgm_tuning_begin(struct cgm_request *request, void (*then)(struct cgm_request *request))
{
    const Cgm__PlanAdd *m = (const Cgm__PlanAdd *)request->message;
    struct cgm_plan *plan = request->object;
    const struct cgm_algorithm *algorithms[CGM_TUNED_MAX];
    const struct cgm_field field = cgm_field_of(plan, algorithms);
    const char *why = reason_not_to(request);
    struct cgm_tuned known;
    struct cgm_tuning *tuning = NULL;
    bool is_known = field.n > 0 && cgm_field_recall(&field, &plan->spec, m, &known);
    if (field.n > 0 && m->n_tried > 0 && !is_known)
        cgm_executor_log(4, "plan %llu: what is remembered of its algorithms is of others",
                         (ull)plan->id);
    if (is_known)
        use(plan, &known);
    else if (field.n > 0 && why)
        leave_estimated(plan, why);
    else if (field.n > 0 && !(tuning = calloc(1, sizeof(*tuning))))
        leave_estimated(plan, "out of host memory");
    if (!tuning) {
        then(request);
        return;
    }
    tuning->request = request;
    tuning->then = then;
    ask(tuning);
}
