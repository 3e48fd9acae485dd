#include <stdio.h>
#include <string.h>

#include "tests/lines/lines.h"

static uint32_t below(struct cgm_random *random, uint32_t limit)
{
    return (uint32_t)cgm_random_below(random, limit);
}

static bool one_in(struct cgm_random *random, uint32_t n)
{
    return below(random, n) == 0;
}

static uint32_t between(struct cgm_random *random, uint32_t least, uint32_t most)
{
    return least + below(random, most - least + 1);
}

static void make_plan(struct script *script, uint32_t i, struct cgm_random *random)
{
    uint32_t w = script->world, most = w == 2 ? 2 : 1;
    script->comm[i] = below(random, script->n_comms);
    script->operation[i] = below(random, n_operations);
    script->sizes[i] = (struct sizes){
        .world = w,
        .m = w * between(random, 1, 3),
        .n = w * between(random, 1, most),
        .k = w * between(random, 1, most),
    };
    script->algorithm[i] = one_in(random, 2) ? 0 : (int)between(random, 1, 20);
}

/* Equal ones would be one plan. */
static bool is_there_already(const struct script *script, uint32_t i)
{
    for (uint32_t j = 0; j < i; j++)
        if (script->comm[j] == script->comm[i] && script->operation[j] == script->operation[i] &&
            memcmp(&script->sizes[j], &script->sizes[i], sizeof(script->sizes[i])) == 0)
            return true;
    return false;
}

void script_begin(struct script *script, struct cgm_random *random)
{
    uint32_t w = between(random, 2, LINES_WORLD);
    *script = (struct script){
        .world = w,
        .streams = one_in(random, 2),
        .users = one_in(random, 3),
        .skew = one_in(random, 3) ? 0 : between(random, 1, 16),
        .n_comms = between(random, 1, LINES_COMMS),
        .n_plans = between(random, 2, LINES_PLANS),
    };
    for (uint32_t i = 0; i < script->n_plans; i++)
        do
            make_plan(script, i, random);
        while (is_there_already(script, i));
}

/* ---- places ---------------------------------------------------------------------------------- */

/* Without streams, of a batch. What a copy_in reads is written by a job behind it in its line. */
struct stock {
    uint32_t fresh[LINES_WORLD];             /* the next one */
    uint32_t read[LINES_PLANS][LINES_WORLD]; /* by a copy_in, and nobody else; 0: none */
};

/* What a rank has to do with in one step: the cells that are taken, and those of the stock. */
struct hand {
    struct cgm_random *random;
    bool streams;
    bool constants; /* it reads nothing else */
    uint32_t lane;
    uint64_t taken; /* of the pool */
    uint32_t *fresh, *read;
};

static uint32_t pool_cell(struct hand *hand)
{
    uint32_t i;
    do
        i = below(hand->random, LINES_POOL);
    while (hand->taken >> i & 1);
    hand->taken |= 1ull << i;
    return LINES_CONSTANTS + hand->lane * LINES_POOL + i;
}

static uint32_t cell_to_read(struct hand *hand)
{
    if (!hand->streams || hand->constants || one_in(hand->random, 3))
        return below(hand->random, LINES_CONSTANTS);
    return pool_cell(hand);
}

static uint32_t fresh_cell(uint32_t *fresh)
{
    return LINES_CONSTANTS + LINES_LANES * LINES_POOL + (*fresh)++;
}

/* in_line: behind all copy_ins of the plan before it. */
static uint32_t cell_to_write(struct hand *hand, bool in_line)
{
    uint32_t cell = *hand->read;
    if (hand->streams)
        return pool_cell(hand);
    if (!in_line || cell == 0)
        return fresh_cell(hand->fresh);
    *hand->read = 0;
    return cell;
}

static enum place_kind some_place(struct cgm_random *random, unsigned places)
{
    enum place_kind kind;
    do
        kind = (enum place_kind)below(random, PLACES);
    while (!(places >> kind & 1));
    return kind;
}

static bool is_written(enum operand operand)
{
    return operand == OUT || operand == AUX_OUT;
}

static void choose_places(const struct operation *operation, struct hand *hand, bool written,
                          struct place *ret_place)
{
    bool unnamed = operation->operand[AUX_IN].rows && ret_place[AUX_IN].kind == ABSENT;
    bool in_buffer = ret_place[LHS].kind > CELL || ret_place[AUX_IN].kind > CELL ||
                     (written && unnamed); /* one of them at most */
    bool in_line = in_buffer;
    for (enum operand i = 0; i < OPERANDS; i++) {
        unsigned places = operation->operand[i].places;
        if (!operation->operand[i].rows || is_written(i) != written)
            continue;
        if (in_buffer)
            places &= 1u << CELL | 1u << ABSENT;
        if (hand->constants)
            places &= 1u << CELL;
        ret_place[i].kind = some_place(hand->random, places);
        in_buffer |= ret_place[i].kind > CELL;
        if (ret_place[i].kind == CELL)
            ret_place[i].cell = written ? cell_to_write(hand, in_line) : cell_to_read(hand);
    }
}

/* ---- bounds ---------------------------------------------------------------------------------- */

#define MOST (1 << 20)      /* in a cell; factors of a product are far below */
#define MOST_COPIED 64      /* into a user buffer */
#define MOST_KEPT (1 << 12) /* that a result leaves in a user buffer */

static float bound_of(const struct script *script, const struct step *step, uint32_t rank,
                      enum operand operand)
{
    const struct operation *operation = &operations[script->operation[step->plan]];
    const struct place *place = &step->place[rank][operand];
    if (!operation->operand[operand].rows)
        return 1;
    return place->kind == CELL ? script->cell_bound[rank][place->cell]
                               : script->buffer_bound[step->plan];
}

/* Of the results of a run: out, and what comes out of aux_in or the gathered lhs. */
static void bound_results(const struct script *script, const struct step *step, float *ret_out,
                          float *ret_aux)
{
    const struct sizes *sizes = &script->sizes[step->plan];
    float out = 0, aux = 0, lhs = 0;
    for (uint32_t r = 0; r < script->world; r++) {
        if (!step_has_rank(script, step, r))
            continue;
        float right = bound_of(script, step, r, RHS), in = bound_of(script, step, r, AUX_IN);
        lhs = bound_of(script, step, r, LHS) > lhs ? bound_of(script, step, r, LHS) : lhs;
        out = right > out ? right : out;
        aux = in > aux ? in : aux;
    }
    bool multiplies = operations[script->operation[step->plan]].operand[RHS].rows != 0;
    *ret_out = lhs * out * (float)sizes->world * (float)(multiplies ? sizes->k : 1);
    *ret_aux = lhs > aux * (float)sizes->world ? lhs : aux * (float)sizes->world;
}

static void raise(float *bound, float to)
{
    *bound = to > *bound ? to : *bound;
}

static void set_bounds(struct script *script, const struct step *step, float out, float aux)
{
    for (uint32_t r = 0; r < script->world; r++) {
        const struct place *place = step->place[r];
        if (!step_has_rank(script, step, r))
            continue;
        if (place[OUT].kind == CELL)
            script->cell_bound[r][place[OUT].cell] = out;
        else
            raise(&script->buffer_bound[step->plan], out);
        if (place[AUX_OUT].kind == CELL)
            script->cell_bound[r][place[AUX_OUT].cell] = aux;
        else if (operations[script->operation[step->plan]].operand[AUX_OUT].rows)
            raise(&script->buffer_bound[step->plan], aux);
    }
}

/* ---- steps ----------------------------------------------------------------------------------- */

static const enum step_fault copy_faults[] = {FAULT_CANCEL, FAULT_DEADLINE, FAULT_OUTSIDE,
                                              FAULT_STALE, FAULT_HOLE};

static void choose_fault(struct script *script, struct step *step, struct cgm_random *random)
{
    uint32_t n = sizeof(copy_faults) / sizeof(copy_faults[0]);
    if (!one_in(random, 6) || step->kind == STEP_RENEW)
        return;
    step->offender = step->rank == LINES_NOBODY ? below(random, script->world) : step->rank;
    if (step->kind == STEP_BARRIER) {
        step->fault = one_in(random, 2) ? FAULT_CANCEL : FAULT_DEADLINE;
    } else if (step->kind == STEP_RUN && step->rank == LINES_NOBODY && one_in(random, 6)) {
        step->fault = FAULT_ROWS;
    } else {
        step->fault = copy_faults[below(random, n)];
    }
    step->cancel_after = below(random, 8);
    step->deadline_ms = between(random, 1, 15);
    do
        step->bad = (enum operand)below(random, OPERANDS);
    while (step->kind == STEP_RUN && step->place[step->offender][step->bad].kind == ABSENT);
    if (step->kind == STEP_COPY_IN || step->fault == FAULT_HOLE)
        step->bad = LHS;
    if (step->fault == FAULT_HOLE && step->place[step->offender][LHS].kind != CELL)
        step->fault = FAULT_CANCEL;
}

static void make_copy_in(struct script *script, struct step *step, struct cgm_random *random,
                         struct stock *stock)
{
    int op = operations[script->operation[step->plan]].op;
    bool chunked = op != COMMGEMM_OP_AR && op != COMMGEMM_OP_GEMM;
    step->kind = STEP_COPY_IN;
    step->rank = below(random, script->world);
    step->chunk = COMMGEMM_WHOLE_BUFFER;
    if (chunked && !one_in(random, 3))
        step->chunk = one_in(random, 3) ? below(random, script->world) : step->rank;
    struct hand hand = {
        .random = random, .streams = script->streams, .lane = step->lane[step->rank]};
    struct place *place = &step->place[step->rank][LHS];
    *place = (struct place){CELL, cell_to_read(&hand)};
    if (script->cell_bound[step->rank][place->cell] > MOST_COPIED)
        place->cell = below(random, LINES_CONSTANTS);
    if (!script->streams && one_in(random, 2))
        place->cell = stock->read[step->plan][step->rank] = fresh_cell(&stock->fresh[step->rank]);
    raise(&script->buffer_bound[step->plan], script->cell_bound[step->rank][place->cell]);
}

/* Operands that are read, or those that are written. */
static void place_all(struct script *script, struct step *step, struct hand *hands, bool written)
{
    for (uint32_t r = 0; r < script->world; r++)
        if (step_has_rank(script, step, r))
            choose_places(&operations[script->operation[step->plan]], &hands[r], written,
                          step->place[r]);
}

struct sizes step_sizes(const struct script *script, const struct step *step)
{
    struct sizes sizes = script->sizes[step->plan];
    sizes.m = step->rows ? step->rows : sizes.m;
    return sizes;
}

/* Not where that would leave part of a chunk behind, or move a buffer of all rows. */
static uint32_t choose_rows(const struct script *script, const struct step *step,
                            struct cgm_random *random)
{
    const struct operation *operation = &operations[script->operation[step->plan]];
    const struct sizes *sizes = &script->sizes[step->plan];
    bool in_place = operation->op == COMMGEMM_OP_AG_GEMM;
    if (operation->operand[AUX_IN].rows || !one_in(random, 3))
        return 0;
    for (uint32_t r = 0; r < script->world; r++)
        if (step->place[r][OUT].kind > CELL || (step->place[r][LHS].kind > CELL && !in_place))
            return 0;
    return sizes->world * between(random, 1, sizes->m / sizes->world);
}

static void make_run(struct script *script, struct step *step, struct cgm_random *random,
                     struct stock *stock)
{
    struct hand hands[LINES_WORLD];
    float out, aux;
    step->kind = STEP_RUN;
    if (!operations[script->operation[step->plan]].collective)
        step->rank = below(random, script->world);
    for (uint32_t r = 0; r < script->world; r++)
        hands[r] = (struct hand){.random = random,
                                 .streams = script->streams,
                                 .lane = step->lane[r],
                                 .fresh = &stock->fresh[r],
                                 .read = &stock->read[step->plan][r]};
    place_all(script, step, hands, false);
    bound_results(script, step, &out, &aux);
    bool great = out > MOST || aux > MOST;
    for (uint32_t r = 0; r < script->world; r++)
        hands[r].constants = great;
    if (great) {
        place_all(script, step, hands, false);
        bound_results(script, step, &out, &aux);
    }
    for (uint32_t r = 0; r < script->world; r++)
        hands[r].constants = out > MOST_KEPT || aux > MOST_KEPT;
    place_all(script, step, hands, true);
    set_bounds(script, step, out, aux);
    step->rows = choose_rows(script, step, random);
}

/* What is done again and again may be recorded. */
static bool repeat_step(struct script *script, struct step *step, struct cgm_random *random)
{
    uint32_t n = (uint32_t)(step - script->step);
    if (!script->streams || n == 0 || !one_in(random, 3))
        return false;
    const struct step *earlier = &script->step[below(random, n)];
    if (earlier->kind != STEP_RUN || earlier->plan != step->plan || earlier->fault == FAULT_HOLE)
        return false;
    float out, aux;
    bound_results(script, earlier, &out, &aux);
    if (out > MOST_KEPT || aux > MOST_KEPT)
        return false;
    *step = *earlier;
    step->late = step->offender = LINES_NOBODY;
    step->fault = FAULT_NONE;
    set_bounds(script, step, out, aux);
    return true;
}

static void make_step(struct script *script, struct step *step, struct cgm_random *random,
                      struct stock *stock)
{
    *step = (struct step){.plan = below(random, script->n_plans),
                          .rank = LINES_NOBODY,
                          .chunk = COMMGEMM_WHOLE_BUFFER,
                          .offender = LINES_NOBODY,
                          .late = LINES_NOBODY};
    bool lines = operations[script->operation[step->plan]].lines;
    for (uint32_t r = 0; r < script->world; r++)
        step->lane[r] = below(random, LINES_LANES);
    if (one_in(random, 30)) {
        step->kind = STEP_RENEW;
        script->buffer_bound[step->plan] = 0;
        memset(stock->read[step->plan], 0, sizeof(stock->read[step->plan]));
    } else if (one_in(random, 20)) {
        step->kind = STEP_BARRIER;
    } else if (lines && one_in(random, 3)) {
        make_copy_in(script, step, random, stock);
    } else if (!repeat_step(script, step, random)) {
        make_run(script, step, random, stock);
    }
    choose_fault(script, step, random);
    if (script->streams && one_in(random, 6) && step->kind != STEP_RENEW) {
        step->late = step->rank == LINES_NOBODY ? below(random, script->world) : step->rank;
        step->late_for = between(random, 1, 40);
    }
}

void script_batch(struct script *script, struct cgm_random *random)
{
    struct stock stock = {{0}, {{0}}};
    for (uint32_t r = 0; r < LINES_WORLD; r++)
        for (uint32_t i = 0; i < LINES_CELLS; i++)
            script->cell_bound[r][i] = LINES_CONSTANT_MOST;
    script->n_steps = between(random, 4, LINES_STEPS);
    for (uint32_t i = 0; i < script->n_steps; i++)
        make_step(script, &script->step[i], random, &stock);
}

/* ---- as text --------------------------------------------------------------------------------- */

static const char *const kind_names[] = {"copy_in", "run", "barrier", "renew"};
static const char *const fault_names[FAULTS] = {
    "", ", cancelled", ", with a deadline", ", outside", ", stale", ", other rows", ", hole"};

static size_t places_text(const struct step *step, uint32_t rank, char *text, size_t size)
{
    static const char *const names[OPERANDS] = {"lhs", "rhs", "aux_in", "out", "aux_out"};
    size_t length = (size_t)snprintf(text, size, "; rank %u, lane %u:", rank, step->lane[rank]);
    for (enum operand i = 0; i < OPERANDS && length < size; i++) {
        const struct place *place = &step->place[rank][i];
        if (place->kind == CELL)
            length +=
                (size_t)snprintf(text + length, size - length, " %s c%u", names[i], place->cell);
        else if (place->kind != ABSENT)
            length += (size_t)snprintf(text + length, size - length, " %s %s", names[i],
                                       place->kind == CHUNK ? "chunk" : "buffer");
    }
    return length;
}

void step_text(const struct script *script, uint32_t index, char *ret_text, size_t size)
{
    const struct step *step = &script->step[index];
    size_t length = (size_t)snprintf(ret_text, size, "step %u: %s of plan %u (%s, comm %u)%s%s",
                                     index, kind_names[step->kind], step->plan,
                                     commgemm_op_name(operations[script->operation[step->plan]].op),
                                     script->comm[step->plan], fault_names[step->fault],
                                     step->late != LINES_NOBODY ? ", late" : "");
    if (step->kind == STEP_COPY_IN && length < size)
        length +=
            (size_t)snprintf(ret_text + length, size - length, ", chunk %d", (int)step->chunk);
    if (step->rows && length < size)
        length += (size_t)snprintf(ret_text + length, size - length, ", %u rows", step->rows);
    if (step->fault != FAULT_NONE && length < size)
        length +=
            (size_t)snprintf(ret_text + length, size - length, ", by rank %u", step->offender);
    for (uint32_t r = 0; r < script->world && length < size; r++)
        if (step_has_rank(script, step, r) && step->kind < STEP_BARRIER)
            length += places_text(step, r, ret_text + length, size - length);
}
