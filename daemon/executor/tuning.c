#include "daemon/executor/tuning.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "daemon/executor/collectives.h"
#include "daemon/executor/endpoint.h"
#include "daemon/executor/executor.h"
#include "daemon/executor/plan.h"
#include "daemon/executor/plan_make.h"
#include "daemon/executor/trial.h"
#include "proto/messages.h"
#include "proto/status.h"

typedef unsigned long long ull;

/* Launches of each candidate, the first of which warms up. */
#define ROUNDS 12u
/* Who takes so many times the shortest time is out: after the warm-up, and later. */
#define HOPELESS_WARMING 8u
#define HOPELESS 2u
/* In percent of serial's time; less than that is lost in noise. */
#define MARGIN 2u

struct candidate {
    const struct cgm_algorithm *algorithm;
    uint64_t samples_ns[ROUNDS];
    uint32_t n_samples;
    bool failed;
    bool out; /* has no more launches */
};

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
    struct cgm_turn memory;  /* MAKING and ENDING it */
    struct cgm_tuning *next; /* in the poller's list; the first one is measured */
    struct cgm_request *request;
    void (*then)(struct cgm_request *request);
    struct cgm_plan *plan;
    struct cgm_trial *trial;
    enum state state;
    uint32_t uid; /* whose turn it takes */
    uint64_t asked_ns, until_ns;
    uint32_t n_candidates, round, turn; /* turn: whose launch, or preparation, it is */
    bool flying, cut;                   /* cut: the launch under way was aborted, time is up */
    int status;
    char why[96]; /* nothing was measured; "": it was */
    struct candidate candidates[CGM_TUNING_MAX];
};

/* ---- times ----------------------------------------------------------------------------------- */

static int compare_ns(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* Without the warm-up, unless there is nothing else. 0: nothing. */
static uint64_t median_ns(const struct candidate *c)
{
    uint64_t sorted[ROUNDS];
    uint32_t first = c->n_samples > 1 ? 1 : 0, n = c->n_samples - first;
    if (c->failed || c->n_samples == 0)
        return 0;
    memcpy(sorted, c->samples_ns + first, n * sizeof(sorted[0]));
    qsort(sorted, n, sizeof(sorted[0]), compare_ns);
    return sorted[n / 2];
}

static bool is_serial(const struct cgm_tried *tried)
{
    return tried->algorithm->number == CGM_ALGO_NO_OVERLAP;
}

static bool comes_before(const struct cgm_tried *a, const struct cgm_tried *b)
{
    if (is_serial(a) || is_serial(b))
        return is_serial(a);
    return a->ns && (!b->ns || a->ns < b->ns);
}

static void insert(struct cgm_tuned *tuned, uint32_t from, uint32_t to)
{
    struct cgm_tried moved = tuned->tried[from];
    memmove(&tuned->tried[to + 1], &tuned->tried[to], (from - to) * sizeof(moved));
    tuned->tried[to] = moved;
}

void cgm_tuned_sort(struct cgm_tuned *tuned)
{
    for (uint32_t i = 1; i < tuned->n; i++) {
        uint32_t to = i;
        while (to > 0 && comes_before(&tuned->tried[i], &tuned->tried[to - 1]))
            to--;
        insert(tuned, i, to);
    }
    const struct cgm_tried *first = &tuned->tried[0], *second = &tuned->tried[1];
    if (tuned->n > 1 && is_serial(first) && second->ns &&
        (!first->ns || second->ns < first->ns - first->ns / 100 * MARGIN))
        insert(tuned, 1, 0);
}

static void drop_hopeless(struct cgm_tuning *tuning)
{
    uint64_t best_ns = UINT64_MAX, factor = tuning->round <= 1 ? HOPELESS_WARMING : HOPELESS;
    for (uint32_t i = 0; i < tuning->n_candidates; i++) {
        uint64_t ns = median_ns(&tuning->candidates[i]);
        best_ns = ns && ns < best_ns ? ns : best_ns;
    }
    for (uint32_t i = 0; i < tuning->n_candidates; i++)
        if (median_ns(&tuning->candidates[i]) / factor > best_ns)
            tuning->candidates[i].out = true;
}

/* ---- what is said about it ------------------------------------------------------------------- */

static void append(char *text, size_t size, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static void append(char *text, size_t size, const char *format, ...)
{
    size_t used = strlen(text);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text + used, size - used, format, arguments);
    va_end(arguments);
}

static ull microseconds(uint64_t ns)
{
    return (ns + 500) / 1000;
}

/* Room for what is put behind the times. */
#define ROOM_BEHIND (sizeof("; kept since 2026-11-20") + sizeof("; products in TF32"))
#define ROOM_MORE sizeof(" and 15 more")

static void write_others(const struct cgm_tuned *tuned, char *text, size_t size)
{
    for (uint32_t i = 1; i < tuned->n; i++) {
        char other[64];
        const struct cgm_tried *tried = &tuned->tried[i];
        if (tried->ns)
            snprintf(other, sizeof(other), "%s %llu", tried->algorithm->name,
                     microseconds(tried->ns));
        else
            snprintf(other, sizeof(other), "%s -", tried->algorithm->name);
        if (strlen(text) + strlen(other) + ROOM_MORE + ROOM_BEHIND > size) {
            append(text, size, " and %u more", tuned->n - i);
            return;
        }
        append(text, size, "%s %s", i == 1 ? ";" : ",", other);
    }
}

void cgm_tuned_write(const struct cgm_tuned *tuned, char *ret_text, size_t size)
{
    char date[32];
    time_t at = (time_t)tuned->at_s;
    struct tm broken;
    ret_text[0] = '\0';
    append(ret_text, size, "auto: %s measured %llu us", tuned->tried[0].algorithm->name,
           microseconds(tuned->tried[0].ns));
    write_others(tuned, ret_text, size);
    if (at && gmtime_r(&at, &broken) && strftime(date, sizeof(date), "%Y-%m-%d", &broken))
        append(ret_text, size, "; kept since %s", date);
}

static void use(struct cgm_plan *plan, const struct cgm_tuned *tuned)
{
    plan->tuned = *tuned;
    plan->algorithm = tuned->tried[0].algorithm;
    cgm_tuned_write(tuned, plan->reason, sizeof(plan->reason));
}

static void leave_estimated(struct cgm_plan *plan, const char *why)
{
    append(plan->reason, sizeof(plan->reason), "; not measured: %s", why);
}

/* ---- the end --------------------------------------------------------------------------------- */

static void conclude(const struct cgm_tuning *tuning)
{
    struct cgm_tuned tuned = {.n = tuning->n_candidates};
    for (uint32_t i = 0; i < tuned.n; i++)
        tuned.tried[i] =
            (struct cgm_tried){tuning->candidates[i].algorithm, median_ns(&tuning->candidates[i])};
    cgm_tuned_sort(&tuned);
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
    tuning->memory = (struct cgm_turn){.uid = tuning->uid, .slice = slice, .done = done};
    cgm_turns_add(&tuning->request->executor->turns, &tuning->memory);
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

static void drained(struct cgm_turn *turn)
{
    struct cgm_tuning *tuning = of_turn(turn);
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

/* Serial must be among those that have a time, where it is a candidate: auto is never slower. */
static void end_with_times(struct cgm_tuning *tuning)
{
    uint32_t measured = 0;
    char why[96];
    for (uint32_t i = 0; i < tuning->n_candidates; i++)
        measured += median_ns(&tuning->candidates[i]) != 0;
    bool enough = measured > 1 && median_ns(&tuning->candidates[0]) != 0;
    snprintf(why, sizeof(why), "%s in %llu ms",
             tuning->candidates[0].failed ? "a launch failed" : "too long a launch to compare any",
             (ull)tuning->request->executor->limits.tune_ns / 1000000);
    end(tuning, enough ? NULL : why);
}

/* ---- launches -------------------------------------------------------------------------------- */

static const char *reason_to_stop(const struct cgm_tuning *tuning)
{
    if (tuning->plan->comm->dead_status != CGM_OK)
        return "the comm lost a rank";
    return tuning->request->executor->poller.shutdown ? "the daemon ends" : NULL;
}

static void note_sample(struct cgm_tuning *tuning, uint64_t now_ns)
{
    struct candidate *c = &tuning->candidates[tuning->turn];
    const struct cgm_run *run = &tuning->plan->flight->run;
    int status = atomic_load(&run->status);
    if (status == CGM_OK) {
        c->samples_ns[c->n_samples++] = now_ns - run->begin_ns;
        return;
    }
    c->out = true;
    c->failed = !tuning->cut;
    if (c->failed)
        cgm_executor_log(4, "plan %llu: a trial of %s failed: %s", (ull)tuning->plan->id,
                         c->algorithm->name, cgm_status_text(status));
}

static uint32_t count_left(const struct cgm_tuning *tuning)
{
    uint32_t left = 0;
    for (uint32_t i = 0; i < tuning->n_candidates; i++)
        left += !tuning->candidates[i].out;
    return left;
}

/* The next candidate that goes on; false when the last round is over. */
static bool take_turn(struct cgm_tuning *tuning)
{
    do {
        if (++tuning->turn < tuning->n_candidates)
            continue;
        tuning->turn = 0;
        tuning->round++;
        drop_hopeless(tuning);
        if (tuning->round == ROUNDS || count_left(tuning) < (tuning->round > 1 ? 2 : 1))
            return false;
    } while (tuning->candidates[tuning->turn].out);
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

static bool step_launches(struct cgm_tuning *tuning, uint64_t now_ns)
{
    struct cgm_poller *poller = &tuning->request->executor->poller;
    if (tuning->flying && !cgm_flight_is_done(tuning->plan->flight)) {
        watch(tuning, now_ns);
        return false;
    }
    if (tuning->flying && tuning->state == MEASURING)
        note_sample(tuning, now_ns);
    bool landed = tuning->flying, goes_on = true;
    tuning->flying = false;
    const char *stop = reason_to_stop(tuning);
    if (stop) {
        end(tuning, stop);
        return true;
    }
    if (landed && tuning->state == MEASURING)
        goes_on = take_turn(tuning);
    if (landed)
        tuning->state = MEASURING;
    if (!goes_on || now_ns >= tuning->until_ns) {
        end_with_times(tuning);
        return true;
    }
    if (cgm_quiet_holds(poller))
        return landed;
    tuning->flying = true;
    if (tuning->state == FILLING)
        cgm_trial_fill(tuning->trial);
    else
        cgm_trial_launch(tuning->trial, tuning->candidates[tuning->turn].algorithm);
    return true;
}

/* ---- preparing ------------------------------------------------------------------------------- */

static struct cgm_tuning *of_quiet(struct cgm_quiet *quiet)
{
    return (struct cgm_tuning *)(void *)((char *)quiet - offsetof(struct cgm_tuning, quiet));
}

/* Mapper, while launches are held: one slice of one candidate. */
static void prepare_run(struct cgm_quiet *quiet)
{
    struct cgm_tuning *tuning = of_quiet(quiet);
    struct cgm_plan *trial = tuning->trial->plan;
    struct candidate *c = &tuning->candidates[tuning->turn];
    uint64_t begin_ns = cgm_now_ns();
    trial->algorithm = c->algorithm;
    /* The comm's first plan makes its group, which takes seconds, and needs it anyway. */
    cgm_collectives_choose(trial, tuning->request->executor);
    tuning->until_ns += cgm_now_ns() - begin_ns;
    int status = cgm_plan_rehearse(trial);
    if (status != CGM_TIMEOUT) {
        c->failed = c->out = status != CGM_OK;
        tuning->turn++;
    }
    quiet->again = tuning->turn < tuning->n_candidates && cgm_now_ns() < tuning->until_ns;
}

/* Poller. There was no time for those from turn on. */
static void prepare_done(struct cgm_quiet *quiet)
{
    struct cgm_tuning *tuning = of_quiet(quiet);
    for (uint32_t i = tuning->turn; i < tuning->n_candidates; i++)
        tuning->candidates[i].out = true;
    tuning->turn = 0;
    tuning->state = FILLING;
    tuning->until_ns = cgm_now_ns() + tuning->request->executor->limits.tune_ns;
    if (tuning->candidates[0].out || count_left(tuning) < 2)
        end(tuning, "they could not be prepared in time");
}

/* ---- making ---------------------------------------------------------------------------------- */

/* Poller. */
static void made(struct cgm_task *task)
{
    struct cgm_tuning *tuning = (struct cgm_tuning *)task;
    struct cgm_executor *executor = tuning->request->executor;
    tuning->until_ns = cgm_now_ns() + executor->limits.tune_ns;
    if (tuning->status != CGM_OK) {
        leave(tuning);
    } else if (executor->ops->prepare_gemm || executor->ops->group_new) {
        tuning->state = PREPARING;
        tuning->quiet.run = prepare_run;
        tuning->quiet.done = prepare_done;
        cgm_quiet_post(&executor->poller, &tuning->quiet);
    } else {
        tuning->state = FILLING;
    }
}

static bool fill_slice(struct cgm_turn *turn)
{
    bool more;
    struct cgm_tuning *tuning = of_turn(turn);
    tuning->status = cgm_plan_fill(tuning->trial->plan, &more);
    return more;
}

static void filled(struct cgm_turn *turn)
{
    struct cgm_tuning *tuning = of_turn(turn);
    if (tuning->status == CGM_OK) {
        to_poller(tuning, made);
        return;
    }
    snprintf(tuning->why, sizeof(tuning->why), "its memory cannot be made");
    memory_turn(tuning, drain_slice, drained);
}

/* Mapper. */
static void make_trial(struct cgm_task *task)
{
    struct cgm_tuning *tuning = (struct cgm_tuning *)task;
    const struct cgm_algorithm *algorithms[CGM_TUNING_MAX];
    char why[sizeof(tuning->why)];
    for (uint32_t i = 0; i < tuning->n_candidates; i++)
        algorithms[i] = tuning->candidates[i].algorithm;
    tuning->status = cgm_trial_new(tuning->plan, algorithms, tuning->n_candidates, why, sizeof(why),
                                   &tuning->trial);
    if (tuning->status == CGM_OK) {
        memory_turn(tuning, fill_slice, filled);
        return;
    }
    snprintf(tuning->why, sizeof(tuning->why), "%s", why);
    to_poller(tuning, made);
}

static void begin(struct cgm_tuning *tuning)
{
    struct cgm_executor *executor = tuning->request->executor;
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

/* ---- what is known --------------------------------------------------------------------------- */

static const struct cgm_algorithm *find_candidate(const struct cgm_algorithm *const *candidates,
                                                  uint32_t n, uint32_t number)
{
    for (uint32_t i = 0; i < n; i++)
        if ((uint32_t)candidates[i]->number == number)
            return candidates[i];
    return NULL;
}

/* The message's times are taken when every one is a candidate's. */
static bool read_known(const Cgm__PlanAdd *m, const struct cgm_algorithm *const *candidates,
                       uint32_t n, struct cgm_tuned *ret_tuned)
{
    struct cgm_tuned tuned = {.n = (uint32_t)m->n_tried, .at_s = m->tried_at};
    if (m->n_tried == 0 || m->n_tried > CGM_TUNING_MAX || m->n_tried_ns != m->n_tried ||
        m->tried_ns[0] == 0)
        return false;
    for (uint32_t i = 0; i < tuned.n; i++) {
        tuned.tried[i].algorithm = find_candidate(candidates, n, m->tried[i]);
        tuned.tried[i].ns = m->tried_ns[i];
        if (!tuned.tried[i].algorithm)
            return false;
        for (uint32_t j = 0; j < i; j++)
            if (m->tried[j] == m->tried[i])
                return false;
    }
    *ret_tuned = tuned;
    return true;
}

uint64_t cgm_tuning_bytes(const struct cgm_plan *plan, uint64_t *scratch_bytes)
{
    const struct cgm_algorithm *candidates[CGM_TUNING_MAX];
    uint32_t n = cgm_algorithm_candidates(&plan->spec, CGM_TUNING_MAX, candidates);
    if (n == 0 || plan->comm->poller->executor->limits.tune_ns == 0)
        return 0;
    *scratch_bytes = cgm_trial_scratch(plan, candidates, n);
    return cgm_trial_bytes(plan, *scratch_bytes);
}

static uint32_t user_of(const struct cgm_comm *comm)
{
    const struct cgm_endpoint *endpoint = cgm_map_get(&comm->poller->endpoints, comm->sessions[0]);
    return endpoint ? endpoint->uid : UINT32_MAX;
}

static void ask(struct cgm_tuning *tuning, const struct cgm_algorithm *const *candidates)
{
    struct cgm_tuning **end_of_list = &tuning->request->executor->poller.tunings;
    for (uint32_t i = 0; i < tuning->n_candidates; i++)
        tuning->candidates[i].algorithm = candidates[i];
    tuning->plan = tuning->request->object;
    tuning->uid = user_of(tuning->plan->comm);
    tuning->asked_ns = cgm_now_ns();
    while (*end_of_list)
        end_of_list = &(*end_of_list)->next;
    *end_of_list = tuning;
}

void cgm_tuning_begin(struct cgm_request *request, void (*then)(struct cgm_request *request))
{
    const Cgm__PlanAdd *m = (const Cgm__PlanAdd *)request->message;
    struct cgm_plan *plan = request->object;
    const struct cgm_algorithm *candidates[CGM_TUNING_MAX];
    struct cgm_tuned known;
    struct cgm_tuning *tuning = NULL;
    uint32_t n = cgm_algorithm_candidates(&plan->spec, CGM_TUNING_MAX, candidates);
    bool is_known = n > 0 && read_known(m, candidates, n, &known);
    if (n > 0 && m->n_tried > 0 && !is_known)
        cgm_executor_log(4, "plan %llu: what is remembered of its algorithms is of others",
                         (ull)plan->id);
    if (is_known)
        use(plan, &known);
    else if (n > 0 && request->executor->limits.tune_ns == 0)
        leave_estimated(plan, "tune_ms is 0");
    else if (n > 0 && m->no_trial)
        leave_estimated(plan, m->no_trial);
    else if (n > 0 && !(tuning = calloc(1, sizeof(*tuning))))
        leave_estimated(plan, "out of host memory");
    if (!tuning) {
        then(request);
        return;
    }
    tuning->request = request;
    tuning->then = then;
    tuning->n_candidates = n;
    ask(tuning, candidates);
}
