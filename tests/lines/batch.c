#include "tests/lines/batch.h"

#include <signal.h>

#include "tests/lines/stalls.h"
#include "tests/send_signal.h"

#define KILLED_ONE_IN 12u

struct batch {
    struct crew *crew;
    struct cgm_random *random;
    struct lines_job (*jobs)[LINES_WORLD];
    uint32_t next[LINES_WORLD]; /* step of each rank */
    uint64_t submissions;       /* of all ranks */
    uint64_t kill_at;           /* 0: the executor is not killed */
    struct batch_events *events;
    uint64_t cancel_at[LINES_STEPS]; /* 0: not */
    uint64_t release_at[LINES_WORLD][LINES_LANES];
};

static const struct step *step_at(const struct batch *batch, uint32_t index)
{
    return &batch->crew->script->step[index];
}

static uint32_t last_step(const struct batch *batch)
{
    uint32_t last = batch->next[0];
    for (uint32_t rank = 1; rank < batch->crew->script->world; rank++)
        last = batch->next[rank] < last ? batch->next[rank] : last;
    return last;
}

static bool is_renewed(const struct batch *batch, uint32_t index)
{
    return index < batch->crew->script->n_steps && step_at(batch, index)->kind == STEP_RENEW;
}

static bool all_have_come_to_renew(const struct batch *batch)
{
    uint32_t last = last_step(batch);
    for (uint32_t rank = 0; rank < batch->crew->script->world; rank++)
        if (batch->next[rank] != last)
            return false;
    return is_renewed(batch, last);
}

static bool renew(struct batch *batch)
{
    uint32_t plan = step_at(batch, last_step(batch))->plan;
    for (uint32_t rank = 0; rank < LINES_WORLD; rank++)
        batch->next[rank]++;
    return crew_renew(batch->crew, plan, batch->random);
}

static bool cancel_those_due(struct batch *batch, bool all)
{
    for (uint32_t i = 0; i < batch->crew->script->n_steps; i++) {
        uint32_t rank = step_at(batch, i)->offender;
        if (!batch->cancel_at[i] || (!all && batch->cancel_at[i] > batch->submissions))
            continue;
        batch->cancel_at[i] = 0;
        if (!crew_cancel(batch->crew, rank, &batch->jobs[i][rank]))
            return false;
    }
    return true;
}

static void release_those_due(struct batch *batch, bool all)
{
    for (uint32_t rank = 0; rank < batch->crew->script->world; rank++)
        for (uint32_t lane = 0; lane < LINES_LANES; lane++)
            if (all || batch->release_at[rank][lane] <= batch->submissions)
                crew_release(batch->crew, rank, lane);
}

static bool submit(struct batch *batch, uint32_t rank)
{
    uint32_t index = batch->next[rank]++;
    const struct step *step = step_at(batch, index);
    batch->submissions++;
    if (!step_has_rank(batch->crew->script, step, rank))
        return true;
    if (step->late == rank) {
        crew_hold(batch->crew, rank, step->lane[rank]);
        batch->release_at[rank][step->lane[rank]] = batch->submissions + step->late_for;
    }
    if (!crew_submit(batch->crew, rank, step, &batch->jobs[index][rank]))
        return false;
    if (step->fault == FAULT_CANCEL && step->offender == rank)
        batch->cancel_at[index] = batch->submissions + step->cancel_after;
    return true;
}

/* One that may go on; LINES_NOBODY: all have come to the end. */
static uint32_t some_rank(struct batch *batch)
{
    const struct script *script = batch->crew->script;
    uint32_t last = last_step(batch);
    for (;;) {
        uint32_t rank = (uint32_t)cgm_random_below(batch->random, script->world);
        if (last == script->n_steps)
            return LINES_NOBODY;
        if (batch->next[rank] < script->n_steps && batch->next[rank] <= last + script->skew &&
            !is_renewed(batch, batch->next[rank]))
            return rank;
    }
}

static bool kill_when_due(struct batch *batch)
{
    if (batch->kill_at == 0 || batch->submissions < batch->kill_at)
        return false;
    batch->events->kills_left--;
    batch->events->killed = send_signal(batch->events->executor, SIGKILL) == 0;
    return batch->events->killed;
}

static bool submit_all(struct batch *batch)
{
    while (!kill_when_due(batch)) {
        while (all_have_come_to_renew(batch))
            if (!renew(batch))
                return false;
        uint32_t rank = some_rank(batch);
        if (rank == LINES_NOBODY)
            return cancel_those_due(batch, true);
        if (!submit(batch, rank) || !cancel_those_due(batch, false))
            return false;
        release_those_due(batch, false);
    }
    return true;
}

/* What was not submitted any more counts as lost. */
static bool await_job(struct batch *batch, uint32_t index, uint32_t rank)
{
    struct lines_job *job = &batch->jobs[index][rank];
    if (index < batch->next[rank])
        return crew_await(batch->crew, rank, batch->crew->script->comm[step_at(batch, index)->plan],
                          job);
    *job = (struct lines_job){.status = COMMGEMM_EXECUTOR_LOST};
    return true;
}

static bool await_all(struct batch *batch)
{
    const struct script *script = batch->crew->script;
    for (uint32_t i = 0; i < script->n_steps; i++)
        for (uint32_t rank = 0; rank < script->world; rank++)
            if (step_at(batch, i)->kind != STEP_RENEW &&
                step_has_rank(script, step_at(batch, i), rank) && !await_job(batch, i, rank))
                return false;
    return crew_streams_are_done(batch->crew);
}

bool batch_run(struct crew *crew, struct cgm_random *random, struct batch_events *events,
               struct lines_job ret_jobs[LINES_STEPS][LINES_WORLD])
{
    struct batch batch = {.crew = crew, .random = random, .events = events, .jobs = ret_jobs};
    struct stalls stalls;
    stalls_begin(&stalls, events->executor, random);
    events->stalled = stalls.n > 0;
    events->killed = false;
    if (events->executor > 0 && events->kills_left > 0 &&
        cgm_random_below(random, KILLED_ONE_IN) == 0)
        batch.kill_at =
            1 + cgm_random_below(random, (uint64_t)crew->script->n_steps * crew->script->world);
    bool submitted = submit_all(&batch);
    stalls_end(&stalls);
    release_those_due(&batch, true);
    return submitted && await_all(&batch);
}
