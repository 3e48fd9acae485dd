#include "tests/lines/judge.h"

#include <stdio.h>
#include <string.h>

#define TEXT_BYTES 1024

static uint32_t chunk_size(const struct user_model *user)
{
    return user->n_chunks ? user->size / user->n_chunks : 0;
}

static const struct operation *operation_of(const struct judge *judge, const struct step *step)
{
    return &operations[judge->script->operation[step->plan]];
}

static void complain(const struct judge *judge, uint32_t index, const char *what)
{
    char text[TEXT_BYTES];
    step_text(judge->script, index, text, sizeof(text));
    printf("lines: %s\n    %s\n", what, text);
}

static void forget_user(struct judge *judge, uint32_t plan)
{
    for (uint32_t rank = 0; rank < judge->script->world; rank++) {
        const struct lines_user_buffer *user = &judge->crew->user[plan][rank];
        struct user_model *model = &judge->user[plan][rank];
        *model = (struct user_model){.size = user->size, .n_chunks = user->n_chunks};
        for (uint32_t i = 0; i < user->n_chunks; i++)
            model->chunk[i].known = true; /* zeroes */
    }
}

void judge_begin(struct judge *judge, struct crew *crew)
{
    judge->crew = crew;
    judge->script = crew->script;
    for (uint32_t plan = 0; plan < crew->script->n_plans; plan++)
        forget_user(judge, plan);
}

static float small_integer(struct cgm_random *random)
{
    return (float)cgm_random_below(random, 2 * LINES_CONSTANT_MOST + 1) - LINES_CONSTANT_MOST;
}

void judge_fill_cells(struct judge *judge, struct cgm_random *random)
{
    for (uint32_t rank = 0; rank < judge->script->world; rank++)
        for (uint32_t i = 0; i < LINES_CELLS; i++) {
            struct cell_model *cell = &judge->cell[rank][i];
            cell->known = LINES_CELL;
            for (uint32_t x = 0; x < LINES_CELL; x++)
                cell->values[x] = small_integer(random);
            memcpy(crew_cell(judge->crew, rank, i), cell->values, sizeof(cell->values));
        }
}

static bool fill_user_buffer(struct judge *judge, uint32_t plan, uint32_t rank,
                             struct cgm_random *random)
{
    const struct lines_user_buffer *user = &judge->crew->user[plan][rank];
    struct user_model *model = &judge->user[plan][rank];
    for (uint32_t x = 0; x < user->size; x++)
        model->values[x] = small_integer(random);
    memcpy(user->values, model->values, user->size * sizeof(float));
    for (uint32_t i = 0; i < user->n_chunks; i++)
        model->chunk[i] = (struct chunk_model){.known = true};
    return crew_vouch(judge->crew, plan, rank);
}

bool judge_fill_user_buffers(struct judge *judge, struct cgm_random *random)
{
    for (uint32_t plan = 0; plan < judge->script->n_plans; plan++)
        for (uint32_t rank = 0; rank < judge->script->world; rank++)
            if (judge->user[plan][rank].n_chunks && cgm_random_below(random, 4) == 0 &&
                !fill_user_buffer(judge, plan, rank, random))
                return false;
    return true;
}

/* ---- what a step reads ----------------------------------------------------------------------- */

struct mask {
    uint32_t read, filled; /* chunks of the rank's own user buffer */
};

static uint32_t all_of(const struct user_model *user)
{
    return (1u << user->n_chunks) - 1;
}

static uint32_t chunks_at(const struct user_model *user, enum place_kind kind, uint32_t rank)
{
    return kind == CHUNK ? 1u << rank : kind == WHOLE ? all_of(user) : 0;
}

static struct mask mask_of(const struct judge *judge, const struct step *step, uint32_t rank)
{
    int op = operation_of(judge, step)->op;
    const struct place *place = step->place[rank];
    const struct user_model *user = &judge->user[step->plan][rank];
    struct mask mask = {
        chunks_at(user, place[LHS].kind, rank) | chunks_at(user, place[AUX_IN].kind, rank),
        chunks_at(user, place[OUT].kind, rank) | chunks_at(user, place[AUX_OUT].kind, rank)};
    bool gathers = op == COMMGEMM_OP_BULK_AG, scatters = op == COMMGEMM_OP_BULK_RS;
    if ((gathers || scatters) && place[AUX_IN].kind == ABSENT)
        mask.read |= gathers ? 1u << rank : all_of(user);
    if (gathers && place[AUX_OUT].kind == ABSENT)
        mask.filled |= place[AUX_IN].kind == ABSENT ? all_of(user) & ~(1u << rank) : all_of(user);
    if (scatters && place[AUX_OUT].kind == ABSENT)
        mask.filled |= 1u << rank;
    return mask;
}

/* The worst of all chunks that the ranks read of their user buffers; NULL: they read none. */
static const struct chunk_model *worst_read(const struct judge *judge, const struct step *step,
                                            uint32_t *ret_rank)
{
    static const enum soundness order[] = {[SOUND] = 0, [MAYBE] = 1, [TAINTED] = 2};
    const struct chunk_model *worst = NULL;
    for (uint32_t rank = 0; rank < judge->script->world; rank++) {
        if (!step_has_rank(judge->script, step, rank) || step->kind != STEP_RUN)
            continue;
        uint32_t read = mask_of(judge, step, rank).read;
        for (uint32_t i = 0; i < LINES_WORLD; i++) {
            const struct chunk_model *chunk = &judge->user[step->plan][rank].chunk[i];
            if (!(read >> i & 1) || (worst && order[chunk->soundness] <= order[worst->soundness]))
                continue;
            worst = chunk;
            *ret_rank = rank;
        }
    }
    return worst;
}

/* ---- statuses -------------------------------------------------------------------------------- */

static bool has_to_fail(enum step_fault fault)
{
    return fault == FAULT_OUTSIDE || fault == FAULT_STALE || fault == FAULT_ROWS ||
           fault == FAULT_HOLE;
}

/* An executor that stands still may not have read it when all ranks destroy its plan. */
static bool may_be_without_plan(const struct judge *judge, const struct step *step)
{
    const struct step *end = judge->script->step + judge->script->n_steps;
    for (const struct step *later = step + 1; judge->events.stalled && later < end; later++)
        if (later->kind == STEP_RENEW && later->plan == step->plan)
            return true;
    return false;
}

static bool status_is_allowed(const struct judge *judge, const struct step *step, int status)
{
    uint32_t rank;
    const struct chunk_model *chunk = worst_read(judge, step, &rank);
    enum soundness worst = chunk ? chunk->soundness : SOUND;
    if (status == COMMGEMM_OK)
        return worst != TAINTED && !has_to_fail(step->fault);
    if (status == COMMGEMM_TAINTED)
        return worst != SOUND;
    if (status == COMMGEMM_NOT_FOUND)
        return may_be_without_plan(judge, step);
    if (status == COMMGEMM_EXECUTOR_LOST)
        return judge->events.killed;
    return step->fault != FAULT_NONE;
}

static void show_worst(const struct judge *judge, const struct step *step)
{
    uint32_t rank;
    const struct chunk_model *chunk = worst_read(judge, step, &rank);
    if (chunk && chunk->soundness != SOUND)
        printf("    rank %u reads a chunk that %s spoilt %llu steps ago:\n    %s\n", rank,
               chunk->soundness == MAYBE ? "may have been" : "was",
               (unsigned long long)(judge->step - chunk->spoilt), chunk->by);
}

static bool judge_statuses(struct judge *judge, uint32_t index,
                           const struct lines_job jobs[LINES_WORLD], bool *ret_ok)
{
    const struct step *step = &judge->script->step[index];
    uint32_t n_ok = 0, n_failed = 0;
    for (uint32_t rank = 0; rank < judge->script->world; rank++) {
        if (!step_has_rank(judge->script, step, rank))
            continue;
        const struct lines_job *job = &jobs[rank];
        judge->statuses[-job->status & 63]++;
        *(job->status == COMMGEMM_OK ? &n_ok : &n_failed) += 1;
        if (status_is_allowed(judge, step, job->status))
            continue;
        printf("lines: rank %u ended with %s: %s\n", rank, commgemm_status_name(job->status),
               job->detail);
        complain(judge, index, "that is not what it should end with");
        show_worst(judge, step);
        return false;
    }
    *ret_ok = n_failed == 0;
    if (judge->events.killed)
        return true;
    if (n_ok && n_failed)
        complain(judge, index, "some ranks ended well, and some did not");
    return !n_ok || !n_failed;
}

/* ---- what a step leaves ---------------------------------------------------------------------- */

static void taint(struct judge *judge, const struct step *step, uint32_t rank, uint32_t mask,
                  enum soundness soundness)
{
    struct user_model *user = &judge->user[step->plan][rank];
    for (uint32_t i = 0; i < user->n_chunks; i++) {
        struct chunk_model *chunk = &user->chunk[i];
        if (!(mask >> i & 1) || (soundness == MAYBE && chunk->soundness == TAINTED))
            continue;
        *chunk = (struct chunk_model){.soundness = soundness, .spoilt = judge->step};
        step_text(judge->script, (uint32_t)(step - judge->script->step), chunk->by,
                  sizeof(chunk->by));
    }
}

static void leave_in_buffer(struct user_model *user, uint32_t mask, const float *values, bool known)
{
    uint32_t size = chunk_size(user);
    for (uint32_t i = 0; i < user->n_chunks; i++) {
        if (!(mask >> i & 1))
            continue;
        user->chunk[i] = (struct chunk_model){.known = known};
        memcpy(user->values + i * size, values + i * size, size * sizeof(float));
    }
}

static void judge_copy_in(struct judge *judge, const struct step *step, bool ok)
{
    struct user_model *user = &judge->user[step->plan][step->rank];
    const struct cell_model *cell = &judge->cell[step->rank][step->place[step->rank][LHS].cell];
    uint32_t size = chunk_size(user);
    uint32_t first = step->chunk == COMMGEMM_WHOLE_BUFFER ? 0 : step->chunk;
    uint32_t n = step->chunk == COMMGEMM_WHOLE_BUFFER ? user->n_chunks : 1;
    uint32_t mask = ((1u << n) - 1) << first;
    float values[LINES_CELL];
    if (!ok) {
        taint(judge, step, step->rank, mask, TAINTED);
        return;
    }
    memcpy(values + first * size, cell->values, n * size * sizeof(float));
    leave_in_buffer(user, mask, values, cell->known >= n * size);
}

static bool chunks_are_known(const struct user_model *user, uint32_t mask)
{
    for (uint32_t i = 0; i < user->n_chunks; i++)
        if (mask >> i & 1 && !user->chunk[i].known)
            return false;
    return true;
}

/* The values of an operand; *known becomes false where they are not known. */
static const float *values_at(const struct judge *judge, const struct step *step, uint32_t rank,
                              enum operand operand, bool *known)
{
    const struct place *place = &step->place[rank][operand];
    const struct user_model *user = &judge->user[step->plan][rank];
    if (place->kind == CELL) {
        const struct sizes sizes = step_sizes(judge->script, step);
        *known = *known && judge->cell[rank][place->cell].known >=
                               operand_size(operation_of(judge, step), &sizes, operand);
        return judge->cell[rank][place->cell].values;
    }
    *known = *known && chunks_are_known(user, mask_of(judge, step, rank).read);
    bool part = place->kind == CHUNK ||
                (operand == AUX_IN && operation_of(judge, step)->op == COMMGEMM_OP_BULK_AG);
    return user->values + (part ? chunk_size(user) * rank : 0);
}

/* Where it gathers what lies elsewhere, or, in place, what the others have. */
static void judge_gathered(struct judge *judge, const struct step *step, uint32_t rank, bool ok)
{
    struct user_model *user = &judge->user[step->plan][rank];
    const struct place *place = step->place[rank];
    if (operation_of(judge, step)->op != COMMGEMM_OP_AG_GEMM || place[AUX_OUT].kind != ABSENT)
        return;
    for (uint32_t i = 0; i < user->n_chunks; i++)
        if (i != rank)
            user->chunk[i].known = false;
    if (place[LHS].kind == CELL)
        taint(judge, step, rank, 1u << rank, ok ? TAINTED : MAYBE);
}

static void leave_results(struct judge *judge, const struct step *step, uint32_t rank,
                          const float *out, const float *aux, bool known)
{
    const struct place *place = step->place[rank];
    struct user_model *user = &judge->user[step->plan][rank];
    uint32_t filled = mask_of(judge, step, rank).filled, size = chunk_size(user);
    bool scatters = operation_of(judge, step)->op == COMMGEMM_OP_BULK_RS;
    const struct sizes sizes = step_sizes(judge->script, step);
    float values[LINES_CELL] = {0};
    for (enum operand i = OUT; i <= AUX_OUT; i++) {
        struct cell_model *cell = &judge->cell[rank][place[i].cell];
        const float *result = i == OUT ? out : aux;
        uint32_t n = operand_size(operation_of(judge, step), &sizes, i);
        if (place[i].kind == CELL) {
            cell->known = !known ? 0 : n > cell->known ? n : cell->known;
            memcpy(cell->values, result, n * sizeof(float));
        } else if (n && filled && (i == AUX_OUT || place[i].kind != ABSENT)) {
            uint32_t at = place[i].kind == CHUNK || scatters ? size * rank : 0;
            memcpy(values + at, result, n * sizeof(float));
            leave_in_buffer(user, filled, values, known);
        }
    }
}

static void judge_right_run(struct judge *judge, const struct step *step)
{
    static float out[LINES_WORLD][LINES_CELL], aux[LINES_WORLD][LINES_CELL];
    const struct sizes sizes = step_sizes(judge->script, step);
    const float *in[LINES_WORLD][OPERANDS] = {{0}};
    float *outs[LINES_WORLD], *auxes[LINES_WORLD];
    bool known = true;
    for (uint32_t rank = 0; rank < judge->script->world; rank++) {
        outs[rank] = out[rank];
        auxes[rank] = aux[rank];
        for (enum operand i = LHS; i <= AUX_IN; i++)
            if (step_has_rank(judge->script, step, rank) &&
                operation_of(judge, step)->operand[i].rows)
                in[rank][i] = values_at(judge, step, rank, i, &known);
    }
    operation_compute(operation_of(judge, step), &sizes, in, outs, auxes);
    judge->runs_right += known;
    for (uint32_t rank = 0; rank < judge->script->world; rank++)
        if (step_has_rank(judge->script, step, rank)) {
            leave_results(judge, step, rank, out[rank], aux[rank], known);
            judge_gathered(judge, step, rank, true);
        }
}

/* A job that was refused does not say where its results were to be. */
static void judge_failed_run(struct judge *judge, const struct step *step)
{
    bool refused = step->fault == FAULT_OUTSIDE || step->fault == FAULT_STALE;
    for (uint32_t rank = 0; rank < judge->script->world; rank++) {
        struct user_model *user = &judge->user[step->plan][rank];
        const struct place *place = step->place[rank];
        if (!step_has_rank(judge->script, step, rank))
            continue;
        for (enum operand i = OUT; i <= AUX_OUT; i++)
            if (place[i].kind == CELL)
                judge->cell[rank][place[i].cell].known = 0;
        uint32_t filled = mask_of(judge, step, rank).filled;
        bool other = step->fault == FAULT_ROWS && rank == step->offender; /* it may fill nothing */
        taint(judge, step, rank, filled, other ? MAYBE : TAINTED);
        if (filled && refused && rank == step->offender)
            taint(judge, step, rank, all_of(user), MAYBE);
        judge_gathered(judge, step, rank, false);
    }
}

/* ---- what is there --------------------------------------------------------------------------- */

static bool compare(struct judge *judge, const char *where, uint32_t rank, const float *has,
                    const float *wanted, uint32_t n)
{
    judge->compared += n;
    for (uint32_t i = 0; i < n; i++)
        if (has[i] != wanted[i]) {
            printf("lines: rank %u: %s has %g at %u, not %g\n", rank, where, (double)has[i], i,
                   (double)wanted[i]);
            return false;
        }
    return true;
}

/* The last one that left something there, for whoever looks into it. */
static void show_last(const struct judge *judge, uint32_t rank, uint32_t cell)
{
    for (uint32_t i = judge->script->n_steps; i-- > 0;) {
        const struct place *place = judge->script->step[i].place[rank];
        for (enum operand o = OUT; o <= AUX_OUT; o++)
            if (step_has_rank(judge->script, &judge->script->step[i], rank) &&
                place[o].kind == CELL && place[o].cell == cell) {
                complain(judge, i, "it was written last by");
                return;
            }
    }
}

static bool compare_cells(struct judge *judge)
{
    char where[32];
    for (uint32_t rank = 0; rank < judge->script->world; rank++)
        for (uint32_t i = 0; i < LINES_CELLS; i++) {
            const struct cell_model *cell = &judge->cell[rank][i];
            snprintf(where, sizeof(where), "cell %u", i);
            if (!compare(judge, where, rank, crew_cell(judge->crew, rank, i), cell->values,
                         cell->known)) {
                show_last(judge, rank, i);
                return false;
            }
        }
    return true;
}

static bool compare_user_buffers(struct judge *judge)
{
    char where[64];
    for (uint32_t plan = 0; plan < judge->script->n_plans; plan++)
        for (uint32_t rank = 0; rank < judge->script->world; rank++) {
            const struct user_model *user = &judge->user[plan][rank];
            uint32_t size = chunk_size(user);
            for (uint32_t i = 0; i < user->n_chunks; i++) {
                snprintf(where, sizeof(where), "chunk %u of plan %u's user buffer", i, plan);
                if (user->chunk[i].soundness == SOUND && user->chunk[i].known &&
                    !compare(judge, where, rank, judge->crew->user[plan][rank].values + i * size,
                             user->values + i * size, size))
                    return false;
            }
        }
    return true;
}

bool judge_batch(struct judge *judge, const struct lines_job jobs[LINES_STEPS][LINES_WORLD])
{
    for (uint32_t i = 0; i < judge->script->n_steps; i++) {
        const struct step *step = &judge->script->step[i];
        bool ok;
        judge->step++;
        if (step->kind == STEP_RENEW) {
            forget_user(judge, step->plan);
            continue;
        }
        if (!judge_statuses(judge, i, jobs[i], &ok))
            return false;
        if (step->kind == STEP_COPY_IN)
            judge_copy_in(judge, step, ok);
        else if (step->kind == STEP_RUN && ok)
            judge_right_run(judge, step);
        else if (step->kind == STEP_RUN)
            judge_failed_run(judge, step);
    }
    return compare_cells(judge) && (judge->events.killed || compare_user_buffers(judge));
}

void judge_lose(struct judge *judge)
{
    for (uint32_t plan = 0; plan < judge->script->n_plans; plan++)
        for (uint32_t rank = 0; rank < judge->script->world; rank++)
            for (uint32_t i = 0; i < judge->user[plan][rank].n_chunks; i++)
                judge->user[plan][rank].chunk[i] = (struct chunk_model){
                    .soundness = TAINTED, .spoilt = judge->step, .by = "an executor's end"};
}
