/* Every operation with every method, type and parameter: it is accepted, and the parameter has an
 * effect on what is enqueued, or it is refused with words that name it and say what works. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "daemon/executor/algorithm.h"
#include "proto/status.h"

#define WORLD_MAX 4u
#define FLAGS_MAX 1024u
#define SIDE 2048u

/* ---- a backend that writes down what it is asked for ------------------------------------------
 */

static uint64_t trace; /* a sum over all of it */

static void note(uint64_t value)
{
    trace = (trace ^ value) * 0x100000001b3ull;
}

static void note_view(const struct cgm_view *view)
{
    note((uintptr_t)view->mem);
    note(view->offset_bytes);
    note(view->rows);
    note(view->cols);
}

static int note_copy(struct cgm_queue *queue, const struct cgm_copy *copy)
{
    note((uintptr_t)queue);
    note_view(&copy->dst);
    note_view(&copy->src);
    note(copy->sms);
    return CGM_OK;
}

static int note_gemm(struct cgm_queue *queue, const struct cgm_gemm *gemm)
{
    note((uintptr_t)queue);
    note_view(&gemm->out);
    note(gemm->spared_sms);
    return CGM_OK;
}

static int note_flagged(struct cgm_queue *queue, const struct cgm_flagged_gemm *flagged)
{
    note((uintptr_t)queue);
    note(flagged->gemm.spared_sms);
    for (uint32_t i = 0; i < flagged->n_parts; i++) {
        note_view(&flagged->parts[i].out);
        note((uintptr_t)flagged->parts[i].await.flag);
        note((uintptr_t)flagged->parts[i].publish.flag);
    }
    return CGM_OK;
}

static int note_reduce(struct cgm_queue *queue, const struct cgm_reduce *reduce)
{
    note((uintptr_t)queue);
    note_view(&reduce->dst);
    return CGM_OK;
}

static int note_signal(struct cgm_queue *queue, struct cgm_flag *flag, uint64_t value)
{
    note((uintptr_t)queue);
    note((uintptr_t)flag);
    note(value);
    return CGM_OK;
}

static int note_signals(struct cgm_queue *queue, const struct cgm_flag_value *signals,
                        uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        note_signal(queue, signals[i].flag, signals[i].value);
    return CGM_OK;
}

static int note_wait(struct cgm_queue *queue, struct cgm_flag *flag, uint64_t value,
                     const struct cgm_label *label)
{
    (void)label;
    return note_signal(queue, flag, ~value);
}

static int note_waits(struct cgm_queue *queue, const struct cgm_wait *waits, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        note_wait(queue, waits[i].until.flag, waits[i].until.value, NULL);
    return CGM_OK;
}

static const struct cgm_backend_ops notes = {
    .copy = note_copy,
    .gemm = note_gemm,
    .flagged_gemm = note_flagged,
    .reduce = note_reduce,
    .signal = note_signal,
    .signal_all = note_signals,
    .wait = note_wait,
    .wait_all = note_waits,
};

/* Objects that are names alone: nobody looks into them. */
static char things[WORLD_MAX][FLAGS_MAX + CGM_OPERAND_COUNT + 8];

static void rank_init(struct cgm_plan_rank *r, uint32_t rank, struct cgm_flag **flags)
{
    char *next = things[rank];
    *r = (struct cgm_plan_rank){.device = rank, .flags = flags};
    r->compute = (struct cgm_queue *)(void *)next++;
    r->comm = (struct cgm_queue *)(void *)next++;
    r->user = (struct cgm_mem *)(void *)next++;
    r->scratch = (struct cgm_mem *)(void *)next++;
    for (uint32_t i = 0; i < FLAGS_MAX; i++)
        flags[i] = (struct cgm_flag *)(void *)next++;
}

static void operands_init(const struct cgm_spec *spec, uint32_t rank, struct cgm_view *ret_views)
{
    struct cgm_shape shape;
    for (int i = 0; i < CGM_OPERAND_COUNT; i++) {
        char *thing = &things[rank][FLAGS_MAX + 8 + (uint32_t)i];
        ret_views[i] = (struct cgm_view){0};
        if (cgm_operation_operand(spec, rank, spec->m, i, &shape) == CGM_REQUIRED)
            ret_views[i] = cgm_view_of((struct cgm_mem *)(void *)thing, 0, shape.rows, shape.cols,
                                       shape.dtype);
    }
}

/* What a launch of all ranks enqueues, in a number. */
static uint64_t trace_of(const struct cgm_spec *spec, const struct cgm_algorithm *algorithm)
{
    static struct cgm_flag *flags[WORLD_MAX][FLAGS_MAX];
    struct cgm_plan_rank ranks[WORLD_MAX];
    struct cgm_view views[WORLD_MAX][CGM_OPERAND_COUNT];
    struct cgm_launch launch = {
        .ops = &notes,
        .spec = spec,
        .ranks = ranks,
        .epoch = 1,
        .rows = spec->m,
        .operands = (const struct cgm_view(*)[CGM_OPERAND_COUNT])views,
    };
    assert_true(!algorithm->flags || algorithm->flags(spec) <= FLAGS_MAX);
    for (uint32_t rank = 0; rank < spec->world; rank++) {
        rank_init(&ranks[rank], rank, flags[rank]);
        operands_init(spec, rank, views[rank]);
    }
    trace = 0xcbf29ce484222325ull;
    for (uint32_t rank = 0; rank < spec->world; rank++)
        assert_int_equal(cgm_launch_enqueue(algorithm, &launch, rank), CGM_OK);
    return trace;
}

/* ---- plans -------------------------------------------------------------------------------------
 */

struct outcome {
    int status;
    const struct cgm_algorithm *algorithm;
    uint64_t trace;
    char text[400];
};

static struct cgm_spec spec; /* of the plan that was made last */

static struct outcome plan(const Cgm__PlanCreate *request, uint32_t world)
{
    struct outcome outcome = {.status = CGM_OK};
    outcome.status =
        cgm_spec_init(request, world, false, outcome.text, sizeof(outcome.text), &spec);
    if (outcome.status == CGM_OK)
        outcome.status =
            cgm_algorithm_choose(&spec, outcome.text, sizeof(outcome.text), &outcome.algorithm);
    if (outcome.status == CGM_OK)
        outcome.trace = trace_of(&spec, outcome.algorithm);
    return outcome;
}

static int comm_type_of(int op)
{
    if (op == CGM_OP_AG_GEMM || op == CGM_OP_AG || op == CGM_OP_BULK_AG)
        return CGM_COMM_TYPE_AG;
    if (op == CGM_OP_GEMM_RS || op == CGM_OP_RS || op == CGM_OP_BULK_RS)
        return CGM_COMM_TYPE_RS;
    return CGM_COMM_TYPE_NONE;
}

static void request_init(Cgm__PlanCreate *request, int op, uint32_t world)
{
    static uint64_t moved[2] = {SIDE, SIDE};
    static uint32_t counts[WORLD_MAX * WORLD_MAX];
    cgm__plan_create__init(request);
    request->op = (uint32_t)op;
    request->comm_type = (uint32_t)comm_type_of(op);
    request->m = request->n = request->k = SIDE;
    request->dtype = CGM_DTYPE_BF16;
    request->n_buffer_shape = op == CGM_OP_BULK_AG || op == CGM_OP_BULK_RS ? 2 : 0;
    request->buffer_shape = moved;
    request->n_counts = op == CGM_OP_A2AV ? world * world : 0;
    request->counts = counts;
    for (uint32_t i = 0; i < world * world; i++)
        counts[i] = SIDE / (world * world);
}

/* ---- parameters --------------------------------------------------------------------------------
 */

struct value {
    enum cgm_parameter parameter;
    uint32_t value;
    bool with_sms; /* copies by SMs beside it */
};

static const struct value values[] = {
    {.parameter = CGM_PARAMETER_NUM_SPLITS, .value = 5},
    {.parameter = CGM_PARAMETER_NUM_SPLITS, .value = 3},
    {.parameter = CGM_PARAMETER_NUM_SPLITS, .value = 16},
    {.parameter = CGM_PARAMETER_NUM_SPLITS, .value = 64},
    {.parameter = CGM_PARAMETER_NUM_MAX_STREAMS, .value = 2},
    {.parameter = CGM_PARAMETER_COMM_CGA_SIZE, .value = 4},
    {.parameter = CGM_PARAMETER_NUM_COMM_SM, .value = 7},
    {.parameter = CGM_PARAMETER_NUM_COMM_SM, .value = 7, .with_sms = true},
    {.parameter = CGM_PARAMETER_GEMM_PRIORITY, .value = 1},
    {.parameter = CGM_PARAMETER_COMM_PRIORITY, .value = 1},
    {.parameter = CGM_PARAMETER_SET_SM_MARGIN, .value = 0},
    {.parameter = CGM_PARAMETER_SET_SM_MARGIN, .value = 1},
    {.parameter = CGM_PARAMETER_USE_CE, .value = 0},
    {.parameter = CGM_PARAMETER_USE_CE, .value = 1},
    {.parameter = CGM_PARAMETER_RS_OVERLAP_FIRST_GEMM, .value = 1},
    {.parameter = CGM_PARAMETER_AGGREGATE_AG, .value = 1},
};
#define VALUE_COUNT (sizeof(values) / sizeof(values[0]))

static void give(Cgm__PlanCreate *request, const struct value *v)
{
#define SET(SYMBOL, field)                                                                         \
    if (v->parameter == CGM_PARAMETER_##SYMBOL) {                                                  \
        request->has_##field = 1;                                                                  \
        request->field = (__typeof__(request->field))v->value;                                     \
    }
    SET(NUM_SPLITS, num_splits)
    SET(NUM_MAX_STREAMS, num_max_streams)
    SET(COMM_CGA_SIZE, comm_cga_size)
    SET(NUM_COMM_SM, num_comm_sm)
    SET(GEMM_PRIORITY, gemm_priority)
    SET(COMM_PRIORITY, comm_priority)
    SET(SET_SM_MARGIN, set_sm_margin)
    SET(USE_CE, use_ce)
    SET(RS_OVERLAP_FIRST_GEMM, rs_overlap_first_gemm)
    SET(AGGREGATE_AG, aggregate_ag)
#undef SET
}

/* Of the spec that was made last. */
static bool is_default(const struct value *v)
{
    return !(spec.asked >> v->parameter & 1);
}

/* A queue of another urgency is another queue, which is the backend's to make. */
static bool acts_on_queues(const struct value *v)
{
    return v->parameter == CGM_PARAMETER_GEMM_PRIORITY ||
           v->parameter == CGM_PARAMETER_COMM_PRIORITY;
}

/* Tiles go where they belong as they are stored: no engine copies anything, as use_ce 0 wants it.
 */
static bool is_so_anyway(const struct value *v, const struct cgm_algorithm *algorithm)
{
    return v->parameter == CGM_PARAMETER_USE_CE && v->value == 0 && algorithm->stores;
}

static bool says_what_works(const char *text)
{
    static const char *const ways[] = {
        "use ",    "leave ",      "goes with", "go with", "may be ", "can be done", "limits are",
        " takes ", "name one of", "needs ",    " sums ",  "give ",   "it must be"};
    for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]); i++)
        if (strstr(text, ways[i]))
            return true;
    return false;
}

static unsigned accepted, refused, wrong;

static void look_at_refusal(const struct outcome *outcome, const char *subject)
{
    if ((outcome->status != CGM_NOT_SUPPORTED && outcome->status != CGM_INVALID_ARGUMENT) ||
        !strstr(outcome->text, subject) || !says_what_works(outcome->text)) {
        wrong++;
        print_message("status %d, of %s: \"%s\"\n", outcome->status, subject, outcome->text);
    }
}

static void try_value(const Cgm__PlanCreate *base, uint32_t world, const struct value *v)
{
    Cgm__PlanCreate request = *base;
    if (v->with_sms)
        request.has_use_ce = 1;
    struct outcome without = plan(&request, world);
    give(&request, v);
    struct outcome with = plan(&request, world);
    if (without.status != CGM_OK)
        return; /* copies by SMs are refused, and that is tried alone */
    if (with.status != CGM_OK) {
        refused++;
        look_at_refusal(&with, cgm_parameter_name((int)v->parameter));
        return;
    }
    accepted++;
    if (!is_default(v) && !acts_on_queues(v) && !is_so_anyway(v, with.algorithm) &&
        with.algorithm == without.algorithm && with.trace == without.trace) {
        wrong++;
        print_message("op %s, method %s%s, algorithm %s, %u ranks: %s=%u has no effect\n",
                      cgm_type_name(CGM_TABLE_OP, (int)base->op),
                      cgm_type_name(CGM_TABLE_METHOD, (int)base->method),
                      base->atomic_gemm ? " and atomic_gemm" : "", with.algorithm->name, world,
                      cgm_parameter_name((int)v->parameter), v->value);
    }
}

static void try_values(const Cgm__PlanCreate *base, uint32_t world)
{
    for (size_t i = 0; i < VALUE_COUNT; i++)
        try_value(base, world, &values[i]);
}

static void try_method(const Cgm__PlanCreate *base, uint32_t world)
{
    Cgm__PlanCreate request = *base;
    const char *method = cgm_type_name(CGM_TABLE_METHOD, (int)request.method);
    for (int dtype = 0; cgm_type_name(CGM_TABLE_DTYPE, dtype); dtype++) {
        request.dtype = (uint32_t)dtype;
        struct outcome outcome = plan(&request, world);
        if (outcome.status == CGM_OK) {
            try_values(&request, world);
            continue;
        }
        refused++;
        bool by_type = strstr(outcome.text, "dtype is ") != NULL;
        look_at_refusal(&outcome, by_type               ? cgm_type_name(CGM_TABLE_DTYPE, dtype)
                                  : request.atomic_gemm ? "atomic_gemm"
                                                        : method);
    }
}

static void test_methods(void **state)
{
    (void)state;
    Cgm__PlanCreate request;
    wrong = 0;
    for (uint32_t world = 2; world <= WORLD_MAX; world += 2)
        for (int op = 0; cgm_type_name(CGM_TABLE_OP, op); op++)
            for (int method = 0; cgm_type_name(CGM_TABLE_METHOD, method); method++)
                for (int atomic = 0; atomic < 2; atomic++) {
                    if (op == CGM_OP_NOOP || op == CGM_OP_COPY_IN)
                        continue;
                    request_init(&request, op, world);
                    request.method = (uint32_t)method;
                    request.has_atomic_gemm = request.atomic_gemm = atomic;
                    try_method(&request, world);
                }
    print_message("%u accepted, %u refused\n", accepted, refused);
    assert_int_equal(wrong, 0);
    assert_true(accepted > 500 && refused > 500);
}

/* Every algorithm by name with every operation. */
static void test_algorithms(void **state)
{
    (void)state;
    Cgm__PlanCreate request;
    wrong = 0;
    for (size_t i = 0; i < cgm_algorithm_count; i++)
        for (int op = 0; cgm_type_name(CGM_TABLE_OP, op); op++) {
            if (op == CGM_OP_NOOP || op == CGM_OP_COPY_IN)
                continue;
            request_init(&request, op, WORLD_MAX);
            request.method = CGM_METHOD_AUTO;
            request.has_algorithm = 1;
            request.algorithm = (uint32_t)cgm_algorithms[i]->number;
            struct outcome outcome = plan(&request, WORLD_MAX);
            if ((outcome.status == CGM_OK) != (cgm_algorithms[i]->ops >> op & 1))
                fail_msg("%s, %s: \"%s\"", cgm_algorithms[i]->name, cgm_type_name(CGM_TABLE_OP, op),
                         outcome.text);
            if (outcome.status == CGM_OK)
                try_values(&request, WORLD_MAX);
            else
                look_at_refusal(&outcome, cgm_algorithms[i]->name);
        }
    assert_int_equal(wrong, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_methods),
        cmocka_unit_test(test_algorithms),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
