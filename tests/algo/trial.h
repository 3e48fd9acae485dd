/* One trial: a configuration of an operation, a plan for it of random sizes, and launches with
 * random numbers for operands at random places of the arenas. */
#ifndef TRIAL_H
#define TRIAL_H

#include "tests/algo/matrix.h"

struct config {
    const struct cgm_algorithm *algorithm;
    int op;
    bool aggregate;
    int dtype, out_dtype, buffer_dtype;                               /* buffer_dtype -1: default */
    bool transa, transb, bias, accumulate, gelu, grad, aux, in_place; /* aux: optional outputs */
    bool by_plan;    /* the plan says accumulate, not the launch */
    bool full_rows;  /* every launch has the plan's m */
    bool by_library; /* collectives by the device's library, where there is one */
    bool dense;      /* the rows of every operand lie next to each other */
    uint32_t world;
};

/* Who has what of the whole matrices: lhs, rhs, bias, out. */
static const struct {
    int op;
    enum sharing lhs, rhs, bias, out;
    bool partials;
} layouts[] = {
    {CGM_OP_GEMM, OWN, OWN, OWN, OWN, false},
    {CGM_OP_AG_GEMM, BY_ROWS, BY_COLS, BY_COLS, BY_COLS, false},
    {CGM_OP_GEMM_RS, BY_COLS, BY_ROWS, WHOLE, BY_ROWS, true},
    {CGM_OP_GEMM_AR, BY_COLS, BY_ROWS, WHOLE, WHOLE, true},
    {CGM_OP_AG, BY_ROWS, NOTHING, NOTHING, WHOLE, false},
    {CGM_OP_RS, OWN, NOTHING, NOTHING, BY_ROWS, false},
    {CGM_OP_AR, OWN, NOTHING, NOTHING, WHOLE, false},
};
#define LAYOUTS (sizeof(layouts) / sizeof(layouts[0]))

static const struct {
    int dtype, out_dtype, buffer_dtype;
} types[] = {
    {CGM_DTYPE_FP32, CGM_DTYPE_FP32, -1},
    {CGM_DTYPE_FP16, CGM_DTYPE_FP16, -1},
    {CGM_DTYPE_BF16, CGM_DTYPE_BF16, -1},
    {CGM_DTYPE_FP16, CGM_DTYPE_FP32, -1},
    {CGM_DTYPE_BF16, CGM_DTYPE_FP32, -1},
    {CGM_DTYPE_FP16, CGM_DTYPE_FP16, CGM_DTYPE_FP32},
    {CGM_DTYPE_BF16, CGM_DTYPE_BF16, CGM_DTYPE_FP32},
};
#define TYPES_SAME 3u  /* out_dtype is dtype */
#define TYPES_PLAIN 5u /* buffer_dtype is the default */
#define TYPES_ALL 7u

static const uint32_t worlds[] = {1, 2, 3, 4, 8};
#define WORLDS (sizeof(worlds) / sizeof(worlds[0]))

/* One launch's data. Arenas: [rank], as they are before and after a run. */
struct job {
    uint64_t rows;
    struct matrix lhs, rhs, bias, out, gelu_input;
    size_t used[RIG_RANKS];
    unsigned char *before[RIG_RANKS], *after[RIG_RANKS], *again[RIG_RANKS];
};

struct trial {
    const struct config *config;
    struct rig *rig;
    struct cgm_spec spec, serial;
    size_t layout;
    uint32_t count;
    struct job jobs[RIG_LAUNCHES];
    struct rig_launch launches[RIG_LAUNCHES];
};

static struct cgm_random rng;

static inline void seed_trials(void)
{
    const char *text = getenv("CGM_TEST_SEED");
    uint64_t seed = text ? strtoull(text, NULL, 0) : cgm_random_seed();
    printf("CGM_TEST_SEED=0x%llx\n", (unsigned long long)seed);
    cgm_random_init(&rng, seed);
}

static inline uint64_t pick(uint64_t count)
{
    return cgm_random_below(&rng, count);
}

static inline size_t layout_of(int op)
{
    for (size_t i = 0; i < LAYOUTS; i++)
        if (layouts[i].op == op)
            return i;
    fail_msg("operation %s is not in this test", cgm_type_name(CGM_TABLE_OP, op));
    return 0;
}

static inline bool is_product(const struct trial *trial)
{
    return layouts[trial->layout].rhs != NOTHING;
}

/* ---- one trial's plan -------------------------------------------------------------------------
 */

static inline void describe(const struct config *c, const struct cgm_spec *spec)
{
    print_error("%s%s %s %s->%s buffer %d %c%c%s%s%s%s%s%s%s world %u, m %llu n %llu k %llu: ",
                c->algorithm->name, c->aggregate ? "+aggregate" : "",
                cgm_type_name(CGM_TABLE_OP, c->op), cgm_type_name(CGM_TABLE_DTYPE, c->dtype),
                cgm_type_name(CGM_TABLE_DTYPE, c->out_dtype), c->buffer_dtype,
                c->transa ? 'T' : 'N', c->transb ? 'T' : 'N', c->bias ? " bias" : "",
                c->gelu ? " gelu" : "", c->grad ? " grad" : "", c->accumulate ? " accumulate" : "",
                c->aux ? " aux" : "", c->in_place ? " in place" : "",
                c->by_library ? " by library" : "", c->world, (unsigned long long)spec->m,
                (unsigned long long)spec->n, (unsigned long long)spec->k);
}

static inline uint64_t pick_dim(bool sharded, uint32_t world, bool large)
{
    static const uint64_t small[] = {1, 1, 2, 3, 5, 7, 16, 17};
    uint64_t dim = large ? 20 + pick(60) : small[pick(8)];
    return sharded ? dim * world : dim;
}

static inline void set_spec(const struct config *c, int algorithm, const uint64_t *sizes,
                            struct cgm_spec *ret_spec)
{
    Cgm__PlanCreate request = CGM__PLAN_CREATE__INIT;
    char detail[CGM_CQE_DETAIL] = "";
    request.op = (uint32_t)c->op;
    request.method = CGM_METHOD_AUTO;
    request.comm_type = c->op == CGM_OP_AG || c->op == CGM_OP_AG_GEMM   ? CGM_COMM_TYPE_AG
                        : c->op == CGM_OP_RS || c->op == CGM_OP_GEMM_RS ? CGM_COMM_TYPE_RS
                                                                        : CGM_COMM_TYPE_NONE;
    request.algorithm = (uint32_t)algorithm;
    request.m = sizes[0];
    request.n = sizes[1];
    request.k = sizes[2];
    request.dtype = (uint32_t)c->dtype;
    request.has_out_dtype = 1;
    request.out_dtype = (uint32_t)c->out_dtype;
    request.has_buffer_dtype = c->buffer_dtype >= 0;
    request.buffer_dtype = c->buffer_dtype >= 0 ? (uint32_t)c->buffer_dtype : 0;
    request.transa = c->transa;
    request.transb = c->transb;
    request.epilogue = (c->bias ? CGM_EPILOGUE_BIAS : 0) | (c->gelu ? CGM_EPILOGUE_GELU : 0) |
                       (c->grad ? CGM_EPILOGUE_GRAD : 0) |
                       (c->accumulate && c->by_plan ? CGM_EPILOGUE_ACCUMULATE : 0);
    request.num_splits = (uint32_t)pick(8);
    request.aggregate_ag = c->aggregate && algorithm != CGM_ALGO_NO_OVERLAP;
    request.has_use_ce = 1;
    request.use_ce = pick(2) == 0 || algorithm == CGM_ALGO_ATOMIC_GEMM_AG_P2P;
    request.num_comm_sm = (uint32_t)pick(20);
    if (cgm_spec_init(&request, c->world, true, detail, sizeof detail, ret_spec) != CGM_OK)
        fail_msg("%s", detail);
}

static inline void trial_plan(struct trial *trial)
{
    const struct config *c = trial->config;
    trial->layout = layout_of(c->op);
    enum sharing lhs = layouts[trial->layout].lhs, rhs = layouts[trial->layout].rhs;
    bool large = pick(24) == 0;
    uint64_t sizes[3] = {
        pick_dim(cgm_operation_shards_rows(c->op), c->world, large),
        pick_dim(rhs == BY_COLS, c->world, large),
        pick_dim(lhs == BY_COLS, c->world, large),
    };
    set_spec(c, (int)c->algorithm->number, sizes, &trial->spec);
    set_spec(c, CGM_ALGO_NO_OVERLAP, sizes, &trial->serial);
    const struct cgm_algorithm *chosen;
    char reason[160];
    assert_int_equal(cgm_algorithm_choose(&trial->spec, reason, sizeof reason, &chosen), CGM_OK);
    assert_ptr_equal(chosen, c->algorithm);
}

/* ---- operands ---------------------------------------------------------------------------------
 */

/* A view of an operand's shape somewhere in the arena, with gaps before it and between its rows. */
static inline struct cgm_view place(struct arena *arena, const struct cgm_shape *shape, bool dense)
{
    size_t bytes = cgm_dtype_bytes(shape->dtype);
    uint64_t stride = shape->cols + (dense ? 0 : pick(4));
    size_t begin = (arena->used + bytes - 1) / bytes * bytes + pick(3) * bytes;
    arena->used = begin + ((shape->rows - 1) * stride + shape->cols) * bytes;
    assert_true(arena->used + GUARD_BYTES <= ARENA_BYTES);
    return (struct cgm_view){arena->mem, begin, shape->rows, shape->cols, stride, shape->dtype};
}

static inline struct cgm_view view_in_chunk(const struct trial *trial, uint64_t rows, uint32_t rank)
{
    struct cgm_shape shape;
    uint64_t offset, stride;
    assert_true(cgm_operation_chunk(&trial->spec, rows, rank, &offset, &stride, &shape));
    return (struct cgm_view){
        trial->rig->user[rank].mem, offset, shape.rows, shape.cols, stride, shape.dtype};
}

static inline void place_operand(struct trial *trial, uint32_t index, uint32_t rank, int operand)
{
    struct job *job = &trial->jobs[index];
    struct cgm_shape shape;
    const struct {
        int operand;
        const struct matrix *matrix;
        bool transposed, filled;
    } sources[] = {
        {CGM_OPERAND_LHS, &job->lhs, trial->config->transa, !trial->config->in_place},
        {CGM_OPERAND_RHS, &job->rhs, trial->config->transb, true},
        {CGM_OPERAND_BIAS, &job->bias, false, true},
        {CGM_OPERAND_GELU_INPUT, &job->gelu_input, false, true},
        {CGM_OPERAND_OUT, &job->out, false, trial->config->accumulate},
    };
    enum cgm_presence presence = cgm_operation_operand(&trial->spec, job->rows, operand, &shape);
    if (presence == CGM_ABSENT || (presence == CGM_OPTIONAL && !trial->config->aux))
        return;
    struct cgm_view *view = &trial->launches[index].operands[rank][operand];
    *view = operand == CGM_OPERAND_LHS && trial->config->in_place
                ? view_in_chunk(trial, job->rows, rank)
                : place(&trial->rig->operands[index][rank], &shape, trial->config->dense);
    for (size_t i = 0; i < sizeof(sources) / sizeof(sources[0]); i++) {
        if (sources[i].operand != operand || !sources[i].filled)
            continue;
        struct part part = matrix_part(sources[i].matrix, trial->spec.world, rank);
        part_store(&part, sources[i].transposed, view, trial->rig->operands[index][rank].base);
    }
}

static inline void *must_alloc(size_t bytes)
{
    void *memory = malloc(bytes);
    assert_non_null(memory);
    return memory;
}

static inline void job_init_rank(struct trial *trial, uint32_t index, uint32_t rank)
{
    struct job *job = &trial->jobs[index];
    struct arena *arena = &trial->rig->operands[index][rank];
    arena->used = 0;
    memset(trial->launches[index].operands[rank], 0, sizeof trial->launches[index].operands[rank]);
    for (int operand = 0; operand < CGM_OPERAND_COUNT; operand++)
        place_operand(trial, index, rank, operand);
    size_t bytes = arena->used + GUARD_BYTES;
    job->used[rank] = arena->used;
    job->before[rank] = must_alloc(bytes);
    job->after[rank] = must_alloc(bytes);
    job->again[rank] = must_alloc(bytes);
    memcpy(job->before[rank], arena->base, bytes);
    arena_poison(arena);
}

static inline void job_init(struct trial *trial, uint32_t index)
{
    struct job *job = &trial->jobs[index];
    const struct cgm_spec *spec = &trial->spec;
    uint32_t w = spec->world;
    bool bent = trial->config->gelu || trial->config->grad; /* an infinity would give NaNs */
    enum cgm_fill fill = bent || pick(2) ? CGM_FILL_NORMAL : CGM_FILL_WIDE;
    uint64_t step = cgm_operation_shards_rows(spec->op) ? w : 1;
    bool full = trial->config->full_rows || (index == 0 && pick(2));
    job->rows = full ? spec->m : step * (1 + pick(spec->m / step));
    uint64_t lhs_cols = is_product(trial) ? spec->k : spec->n;
    job->lhs =
        matrix_new(layouts[trial->layout].lhs, w, job->rows, lhs_cols, spec->dtype, &rng, fill);
    job->rhs = matrix_new(layouts[trial->layout].rhs, w, spec->k, spec->n, spec->dtype, &rng, fill);
    job->bias = matrix_new(layouts[trial->layout].bias, w, 1, spec->n, spec->out_dtype, &rng, fill);
    job->out =
        matrix_new(layouts[trial->layout].out, w, job->rows, spec->n, spec->out_dtype, &rng, fill);
    job->gelu_input =
        matrix_new(layouts[trial->layout].out, w, job->rows, spec->n, spec->out_dtype, &rng, fill);
    trial->launches[index].arenas = trial->rig->operands[index];
    trial->launches[index].launch.rows = job->rows;
    trial->launches[index].launch.accumulate = trial->config->accumulate && !trial->config->by_plan;
    for (uint32_t rank = 0; rank < w; rank++)
        job_init_rank(trial, index, rank);
}

static inline void job_fini(struct job *job, uint32_t world)
{
    matrix_free(&job->lhs);
    matrix_free(&job->rhs);
    matrix_free(&job->bias);
    matrix_free(&job->out);
    matrix_free(&job->gelu_input);
    for (uint32_t rank = 0; rank < world; rank++) {
        free(job->before[rank]);
        free(job->after[rank]);
        free(job->again[rank]);
    }
}

/* ---- running ----------------------------------------------------------------------------------
 */

static inline void store_in_place(const struct trial *trial, uint32_t rank)
{
    const struct cgm_view *view = &trial->launches[0].operands[rank][CGM_OPERAND_LHS];
    struct part part = matrix_part(&trial->jobs[0].lhs, trial->spec.world, rank);
    struct arena *user = &trial->rig->user[rank];
    host_view_pull(&user->view, 0, user->used);
    part_store(&part, trial->spec.transa, view, user->base);
    host_view_push(&user->view, 0, user->used);
}

/* Runs all launches on fresh copies of their operands; the arenas afterwards are in job->again. */
static inline void trial_run(struct trial *trial, const struct cgm_spec *spec,
                             const struct cgm_algorithm *algorithm)
{
    struct rig *rig = trial->rig;
    rig_set_plan(rig, spec, algorithm, trial->config->by_library && algorithm->uses_group);
    for (uint32_t rank = 0; rank < spec->world; rank++) {
        for (uint32_t i = 0; i < trial->count; i++) {
            struct job *job = &trial->jobs[i];
            rig->operands[i][rank].used = job->used[rank];
            memcpy(rig->operands[i][rank].base, job->before[rank], job->used[rank]);
            host_view_push(&rig->operands[i][rank].view, 0, job->used[rank]);
            trial->launches[i].after[rank] = job->again[rank];
        }
        if (trial->config->in_place)
            store_in_place(trial, rank);
    }
    int status = rig_run(rig, spec, algorithm, trial->launches, trial->count);
    bool intact = true;
    for (uint32_t rank = 0; rank < spec->world; rank++) {
        intact =
            intact && guard_is_intact(&rig->user[rank]) && guard_is_intact(&rig->scratch[rank]);
        for (uint32_t i = 0; i < trial->count; i++)
            intact = intact && guard_is_intact(&rig->operands[i][rank]);
    }
    if (status != CGM_OK || !intact) {
        describe(trial->config, spec);
        fail_msg("status %d, guards %s", status, intact ? "intact" : "overwritten");
    }
}

#endif
