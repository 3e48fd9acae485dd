/* One trial: a configuration of an operation, a plan for it of random sizes, and launches with
 * random numbers for operands at random places of the arenas. */
#ifndef TRIAL_H
#define TRIAL_H

#include "tests/algo/matrix.h"
#include "tests/seed.h"

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
    uint32_t num_splits;                    /* 0: default; no more than there are rows or columns */
    bool first_gemm;                        /* rs_overlap_first_gemm */
    uint64_t moved[2];                      /* the other buffer of bulk_ag and bulk_rs */
    uint32_t counts[RIG_RANKS * RIG_RANKS]; /* a2av */
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
    {CGM_OP_GEMM_AS, WHOLE, BY_COLS, BY_COLS, WHOLE, false},
    {CGM_OP_BULK_AG, OWN, OWN, OWN, OWN, false},
    {CGM_OP_BULK_RS, OWN, OWN, OWN, OWN, false},
    {CGM_OP_AG, BY_ROWS, NOTHING, NOTHING, WHOLE, false},
    {CGM_OP_RS, OWN, NOTHING, NOTHING, BY_ROWS, false},
    {CGM_OP_AR, OWN, NOTHING, NOTHING, WHOLE, false},
    {CGM_OP_A2AV, BY_COUNTS, NOTHING, NOTHING, BY_COUNTS, false},
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
    {CGM_DTYPE_INT8, CGM_DTYPE_INT32, -1},
    {CGM_DTYPE_INT8, CGM_DTYPE_INT8, -1},
    {CGM_DTYPE_INT32, CGM_DTYPE_INT32, -1},
};
#define TYPES_SAME 3u  /* out_dtype is dtype */
#define TYPES_PLAIN 5u /* buffer_dtype is the default */
#define TYPES_ALL 7u   /* but for integers */
#define TYPES (sizeof(types) / sizeof(types[0]))

/* Of TransformerEngine's tests and Iris's default; those that are too large for a CPU at a
 * sixteenth or less of each side. */
static const uint64_t shapes[][3] = {
    {256, 128, 64}, {64, 128, 256},  {64, 256, 256},
    {128, 384, 96}, {128, 96, 384},  /* M 2048, hidden 1536, ffn 6144 */
    {32, 256, 128}, {152, 128, 258}, /* 4x8192x4096 -> 8192; 4864 x 4096 x 8256 */
};
#define SHAPES_ONE_IN 60
#define SHAPES (sizeof(shapes) / sizeof(shapes[0]))

static const uint32_t worlds[] = {1, 2, 3, 4, 8};
#define WORLDS (sizeof(worlds) / sizeof(worlds[0]))

/* One launch's data. Arenas: [rank], as they are before and after a run. */
struct job {
    uint64_t rows;
    struct matrix lhs, rhs, bias, out, gelu_input, moved;
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
    test_seed(&rng);
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

static inline void *must_alloc(size_t bytes)
{
    void *memory = malloc(bytes + 1);
    assert_non_null(memory);
    return memory;
}

/* ---- one trial's plan -------------------------------------------------------------------------
 */

static inline void describe(const struct config *c, const struct cgm_spec *spec)
{
    print_error("%s%s%s splits %u %s %s->%s buffer %d %c%c%s%s%s%s%s%s%s world %u, m %llu n %llu k "
                "%llu: ",
                c->algorithm->name, c->aggregate ? "+aggregate" : "", c->first_gemm ? "+first" : "",
                spec->num_splits, cgm_type_name(CGM_TABLE_OP, c->op),
                cgm_type_name(CGM_TABLE_DTYPE, c->dtype),
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

static inline bool is_bulk(int op)
{
    return op == CGM_OP_BULK_AG || op == CGM_OP_BULK_RS;
}

/* What else a plan of the configuration's operation and algorithm may ask for. */
static inline void pick_rest(struct config *c)
{
    static const uint32_t splits[] = {0, 0, 1, 2, 3, 5, 8};
    uint32_t parameters = c->algorithm->parameters;
    c->num_splits = parameters >> CGM_PARAMETER_NUM_SPLITS & 1 ? splits[pick(7)] : 0;
    c->first_gemm = parameters >> CGM_PARAMETER_RS_OVERLAP_FIRST_GEMM & 1 && pick(2);
    if (is_bulk(c->op)) {
        c->moved[0] = pick_dim(true, c->world, pick(24) == 0);
        c->moved[1] = pick_dim(false, c->world, pick(24) == 0);
        c->buffer_dtype = (int)pick(3);
    }
    memset(c->counts, 0, sizeof c->counts);
    for (uint64_t i = pick(4) == 0 ? 1 : pick(200) + 1; c->op == CGM_OP_A2AV && i > 0; i--)
        c->counts[pick(c->world * c->world)]++;
}

static inline uint64_t count_rows(const struct config *c)
{
    uint64_t rows = 0;
    for (uint32_t i = 0; i < c->world * c->world; i++)
        rows += c->counts[i];
    return rows;
}

static inline uint32_t comm_type_of(int op)
{
    if (op == CGM_OP_AG || op == CGM_OP_AG_GEMM || op == CGM_OP_BULK_AG)
        return CGM_COMM_TYPE_AG;
    return op == CGM_OP_RS || op == CGM_OP_GEMM_RS || op == CGM_OP_BULK_RS ? CGM_COMM_TYPE_RS
                                                                           : CGM_COMM_TYPE_NONE;
}

static inline void set_knobs(const struct config *c, int algorithm, Cgm__PlanCreate *request)
{
    uint64_t most = request->m < request->n ? request->m : request->n;
    uint64_t bands = CGM_GEMM_PARTS_MAX / c->world;
    if (algorithm >= CGM_ALGO_FUSED_AG && algorithm <= CGM_ALGO_FUSED_AS) {
        bands = request->m / c->world < bands ? request->m / c->world : bands;
        most = bands > 0 ? bands : 1;
    }
    if (algorithm != CGM_ALGO_NO_OVERLAP) {
        request->aggregate_ag = c->aggregate;
        request->rs_overlap_first_gemm = c->first_gemm;
        request->num_splits = c->num_splits < most ? c->num_splits : (uint32_t)most;
    }
    /* Without it a library does what no_overlap moves, where there is one. */
    request->has_use_ce =
        cgm_op_is_collective(c->op) && (algorithm != CGM_ALGO_NO_OVERLAP || pick(2));
    request->use_ce =
        pick(2) == 0 || algorithm == CGM_ALGO_ATOMIC_GEMM_AG_P2P || algorithm == CGM_ALGO_FUSED_AG;
    if (request->has_use_ce && !request->use_ce && !cgm_algorithm_find(algorithm)->stores)
        request->num_comm_sm = (uint32_t)pick(20);
}

static inline void set_spec(const struct config *c, int algorithm, const uint64_t *sizes,
                            struct cgm_spec *ret_spec)
{
    Cgm__PlanCreate request = CGM__PLAN_CREATE__INIT;
    char detail[CGM_CQE_DETAIL] = "";
    request.op = (uint32_t)c->op;
    request.method = CGM_METHOD_AUTO;
    request.comm_type = comm_type_of(c->op);
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
    uint64_t moved[2] = {c->moved[0], c->moved[1]};
    uint32_t counts[RIG_RANKS * RIG_RANKS];
    memcpy(counts, c->counts, sizeof counts);
    request.n_buffer_shape = is_bulk(c->op) ? 2 : 0;
    request.buffer_shape = moved;
    request.n_counts = c->op == CGM_OP_A2AV ? c->world * c->world : 0;
    request.counts = counts;
    set_knobs(c, algorithm, &request);
    if (cgm_spec_init(&request, c->world, true, detail, sizeof detail, ret_spec) != CGM_OK)
        fail_msg("%s", detail);
}

static inline void trial_plan(struct trial *trial)
{
    const struct config *c = trial->config;
    trial->layout = layout_of(c->op);
    enum sharing lhs = layouts[trial->layout].lhs, rhs = layouts[trial->layout].rhs;
    bool large = pick(24) == 0;
    const bool sharded[3] = {cgm_operation_shards_rows(c->op), rhs == BY_COLS, lhs == BY_COLS};
    const uint64_t *shape = pick(SHAPES_ONE_IN) ? NULL : shapes[pick(SHAPES)];
    uint64_t sizes[3];
    for (int i = 0; i < 3; i++) {
        uint64_t unit = sharded[i] ? c->world : 1;
        sizes[i] =
            shape ? (shape[i] + unit - 1) / unit * unit : pick_dim(sharded[i], c->world, large);
    }
    if (c->op == CGM_OP_A2AV)
        sizes[0] = count_rows(c);
    set_spec(c, (int)c->algorithm->number, sizes, &trial->spec);
    set_spec(c, CGM_ALGO_NO_OVERLAP, sizes, &trial->serial);
    const struct cgm_algorithm *chosen;
    char reason[160];
    if (cgm_algorithm_choose(&trial->spec, reason, sizeof reason, &chosen) != CGM_OK)
        fail_msg("%s", reason);
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

/* Of a matrix that belongs to a rank's operand. */
static inline struct part part_of(const struct trial *trial, const struct matrix *matrix,
                                  int operand, uint32_t rank)
{
    const struct cgm_spec *spec = &trial->spec;
    struct part part = matrix_part(matrix, spec->world, rank);
    if (matrix->sharing != BY_COUNTS)
        return part;
    bool sends = operand == CGM_OPERAND_LHS;
    part.rows = 0;
    for (uint32_t r = 0; r <= rank; r++) {
        part.row += part.rows;
        part.rows = sends ? cgm_operation_sent_before(spec, r, spec->world)
                          : cgm_operation_received_before(spec, r, spec->world);
    }
    part.values += part.row * part.stride;
    return part;
}

static inline struct cgm_view view_in_chunk(const struct trial *trial, uint64_t rows, uint32_t rank,
                                            uint32_t chunk)
{
    struct cgm_shape shape;
    uint64_t offset, stride;
    assert_true(cgm_operation_chunk(&trial->spec, rows, chunk, &offset, &stride, &shape));
    return (struct cgm_view){
        trial->rig->user[rank].mem, offset, shape.rows, shape.cols, stride, shape.dtype};
}

static inline void place_operand(struct trial *trial, uint32_t index, uint32_t rank, int operand)
{
    struct job *job = &trial->jobs[index];
    struct cgm_shape shape;
    bool lhs_in_place = trial->config->in_place && !is_bulk(trial->spec.op);
    const struct {
        int operand;
        const struct matrix *matrix;
        bool transposed, filled;
    } sources[] = {
        {CGM_OPERAND_LHS, &job->lhs, trial->config->transa, !lhs_in_place},
        {CGM_OPERAND_AUX_IN, &job->moved, false, true},
        {CGM_OPERAND_RHS, &job->rhs, trial->config->transb, true},
        {CGM_OPERAND_BIAS, &job->bias, false, true},
        {CGM_OPERAND_GELU_INPUT, &job->gelu_input, false, true},
        {CGM_OPERAND_OUT, &job->out, false, trial->config->accumulate},
    };
    enum cgm_presence presence =
        cgm_operation_operand(&trial->spec, rank, job->rows, operand, &shape);
    bool left_out = operand == CGM_OPERAND_AUX_IN ? trial->config->in_place : !trial->config->aux;
    if (presence == CGM_ABSENT || (presence == CGM_OPTIONAL && left_out))
        return;
    struct cgm_view *view = &trial->launches[index].operands[rank][operand];
    *view = operand == CGM_OPERAND_LHS && lhs_in_place
                ? view_in_chunk(trial, job->rows, rank, rank)
                : place(&trial->rig->operands[index][rank], &shape, trial->config->dense);
    for (size_t i = 0; i < sizeof(sources) / sizeof(sources[0]); i++) {
        if (sources[i].operand != operand || !sources[i].filled)
            continue;
        struct part part = part_of(trial, sources[i].matrix, operand, rank);
        part_store(&part, sources[i].transposed, view, trial->rig->operands[index][rank].base);
    }
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

static inline enum sharing moved_sharing(int op)
{
    return op == CGM_OP_BULK_AG ? BY_ROWS : op == CGM_OP_BULK_RS ? OWN : NOTHING;
}

static inline void job_init(struct trial *trial, uint32_t index)
{
    struct job *job = &trial->jobs[index];
    const struct cgm_spec *spec = &trial->spec;
    uint32_t w = spec->world;
    bool bent = trial->config->gelu || trial->config->grad; /* an infinity would give NaNs */
    enum cgm_fill fill = bent || pick(2) ? CGM_FILL_NORMAL : CGM_FILL_WIDE;
    uint64_t step = cgm_operation_rows_step(spec);
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
    job->moved = matrix_new(moved_sharing(spec->op), w, spec->buffer_shape[0],
                            spec->buffer_shape[1], spec->buffer_dtype, &rng, fill);
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
    matrix_free(&job->moved);
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
    const struct job *job = &trial->jobs[0];
    bool bulk = is_bulk(trial->spec.op);
    struct cgm_view view = trial->launches[0].operands[rank][CGM_OPERAND_LHS];
    struct part part = matrix_part(bulk ? &job->moved : &job->lhs, trial->spec.world, rank);
    struct arena *user = &trial->rig->user[rank];
    if (bulk)
        view =
            view_in_chunk(trial, job->rows, rank, part.rows < job->moved.rows ? rank : UINT32_MAX);
    host_view_pull(&user->view, 0, user->used);
    part_store(&part, !bulk && trial->spec.transa, &view, user->base);
    host_view_push(&user->view, 0, user->used);
}

static inline void explain_trial(const void *context)
{
    const struct trial *trial = context;
    describe(trial->config, &trial->spec);
}

/* Runs all launches on fresh copies of their operands; the arenas afterwards are in job->again. */
static inline void trial_run(struct trial *trial, const struct cgm_spec *spec,
                             const struct cgm_algorithm *algorithm)
{
    struct rig *rig = trial->rig;
    rig_set_plan(rig, spec, algorithm,
                 trial->config->by_library && (algorithm->group_ops & 1u << spec->op));
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
    rig->explain = explain_trial;
    rig->explain_context = trial;
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
