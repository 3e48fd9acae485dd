#include "daemon/executor/tuning.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/executor/endpoint.h"
#include "daemon/executor/executor.h"
#include "daemon/executor/measurement.h"
#include "daemon/executor/plan.h"
#include "daemon/executor/trial.h"
#include "proto/messages.h"
#include "proto/status.h"

typedef unsigned long long ull;

/* A plan's patience, in times of what one turn may last. */
#define TURNS_AWAITED 2u
#define OVERDUE_LOOK_NS 1000000u

struct cgm_tuning {
    struct cgm_measurement measurement; /* first */
    struct cgm_tuning *next;            /* in the poller's list; the first one is measured */
    struct cgm_request *request;
    void (*then)(struct cgm_request *request);
    uint64_t asked_ns;
};

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

static void conclude(const struct cgm_measurement *m)
{
    struct cgm_tuned tuned;
    cgm_contest_result(&m->contest, &tuned);
    use(m->plan, &tuned);
}

/* ---- the list -------------------------------------------------------------------------------- */

static void list_leave(struct cgm_tuning **link, const struct cgm_tuning *tuning)
{
    while (*link && *link != tuning)
        link = &(*link)->next;
    if (*link)
        *link = tuning->next;
}

static void leave(struct cgm_measurement *m)
{
    struct cgm_tuning *tuning = (struct cgm_tuning *)m;
    struct cgm_request *request = tuning->request;
    void (*then)(struct cgm_request * request) = tuning->then;
    list_leave(&request->executor->poller.tunings, tuning);
    list_leave(&request->executor->poller.overdue, tuning);
    if (m->why[0])
        leave_estimated(m->plan, m->why);
    else
        conclude(m);
    free(tuning);
    then(request);
}

static bool is_waiting(const struct cgm_tuning *tuning)
{
    return tuning->measurement.state == CGM_MEASUREMENT_WAITING;
}

/* NULL: it goes on waiting. */
static const char *reason_to_go(const struct cgm_tuning *tuning, uint64_t now_ns)
{
    uint64_t tune_ns = tuning->request->executor->limits.tune_ns;
    if (!is_waiting(tuning))
        return NULL;
    /* As long as two turns may last: of the one that was under way, and of a user's who came
     * first. */
    if (now_ns - tuning->asked_ns > TURNS_AWAITED * tune_ns)
        return "others were, for too long";
    return cgm_measurement_reason_to_stop(&tuning->measurement);
}

/* One at a time: `leave` changes the list. */
static bool let_one_go(struct cgm_poller *poller, uint64_t now_ns)
{
    for (struct cgm_tuning *t = poller->tunings; t; t = t->next) {
        const char *why = reason_to_go(t, now_ns);
        if (why) {
            snprintf(t->measurement.why, sizeof(t->measurement.why), "%s", why);
            leave(&t->measurement);
            return true;
        }
    }
    return false;
}

/* Behind all others: those of the user who had the last turn, who may have many. */
static void move_back(struct cgm_tuning **list, uint32_t uid)
{
    struct cgm_tuning *had = NULL, **had_end = &had, **link = list;
    while (*link) {
        struct cgm_tuning *tuning = *link;
        if (tuning->measurement.plan->uid != uid) {
            link = &tuning->next;
            continue;
        }
        *link = tuning->next;
        tuning->next = NULL;
        *had_end = tuning;
        had_end = &tuning->next;
    }
    *link = had;
}

/* Users one after the other. None is under way. */
static void begin_next(struct cgm_poller *poller)
{
    move_back(&poller->tunings, poller->tuned_uid);
    struct cgm_tuning *next = poller->tunings;
    if (!next)
        return;
    poller->tuned_uid = next->measurement.plan->uid;
    cgm_measurement_begin(&next->measurement);
}

/* Its comm may have given its queues work for hours, or its user the mapper, for which no other
 * plan is to wait. */
static void step_aside(struct cgm_poller *poller, struct cgm_tuning *first)
{
    poller->tunings = first->next;
    first->next = poller->overdue;
    poller->overdue = first;
}

static bool step_overdue(struct cgm_poller *poller, uint64_t now_ns)
{
    bool busy = false;
    struct cgm_tuning *next;
    if (!poller->overdue || now_ns < poller->next_overdue_look_ns)
        return false;
    poller->next_overdue_look_ns = now_ns + OVERDUE_LOOK_NS;
    for (struct cgm_tuning *t = poller->overdue; t; t = next) {
        next = t->next;
        busy |= cgm_measurement_step(&t->measurement, now_ns);
    }
    return busy;
}

bool cgm_tuning_step(struct cgm_poller *poller)
{
    uint64_t now_ns = cgm_now_ns();
    struct cgm_tuning *first = poller->tunings;
    bool busy = step_overdue(poller, now_ns);
    if (let_one_go(poller, now_ns))
        return true;
    if (!first)
        return busy;
    if (is_waiting(first))
        begin_next(poller);
    else if (cgm_measurement_is_overdue(&first->measurement, now_ns))
        step_aside(poller, first);
    else
        return cgm_measurement_step(&first->measurement, now_ns) || busy;
    return true;
}

bool cgm_tuning_runs(const struct cgm_poller *poller)
{
    for (const struct cgm_tuning *t = poller->overdue; t; t = t->next)
        if (t->measurement.flying)
            return true;
    return poller->tunings && poller->tunings->measurement.flying;
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

static void ask(struct cgm_tuning *tuning)
{
    struct cgm_plan *plan = tuning->request->object;
    struct cgm_tuning **end_of_list = &tuning->request->executor->poller.tunings;
    cgm_measurement_init(&tuning->measurement, plan, leave);
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
        cgm_executor_log(4, "plan %016llx: what is remembered of its algorithms is of others",
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
