#include "client/bench/cases.h"

#include <string.h>

#include "proto/types.h"

enum moved { MOVES_OUT, MOVES_LHS, MOVES_BUFFER };

/* How the ranks share an operation's GEMM, and which collective it overlaps with. */
struct parts {
    int op;
    bool n_divided, k_divided; /* of one rank's GEMM */
    int collective;
    enum moved moved; /* M x N, M x K or the other buffer */
};

static const struct parts parts_of_ops[] = {
    {CGM_OP_AG_GEMM, true, false, CGM_OP_AG, MOVES_LHS},
    {CGM_OP_GEMM_RS, false, true, CGM_OP_RS, MOVES_OUT},
    {CGM_OP_GEMM_AR, false, true, CGM_OP_AR, MOVES_OUT},
    {CGM_OP_GEMM_AS, true, false, CGM_OP_AG, MOVES_OUT},
    {CGM_OP_BULK_AG, false, false, CGM_OP_AG, MOVES_BUFFER},
    {CGM_OP_BULK_RS, false, false, CGM_OP_RS, MOVES_BUFFER},
};

static const struct parts *parts_of(int op)
{
    for (size_t i = 0; i < sizeof(parts_of_ops) / sizeof(parts_of_ops[0]); i++)
        if (parts_of_ops[i].op == op)
            return &parts_of_ops[i];
    return NULL;
}

const char *cgm_variant_name(enum cgm_variant variant)
{
    static const char *const names[CGM_VARIANT_ALGORITHM] = {"job", "no_overlap", "gemm alone",
                                                             "collective alone", "OpenBLAS alone"};
    return variant < CGM_VARIANT_ALGORITHM
               ? names[variant]
               : cgm_type_name(CGM_TABLE_ALGO, cgm_variant_algorithm(variant));
}

int cgm_variant_algorithm(enum cgm_variant variant)
{
#define X(number, SYMBOL, spelling) (number),
    static const int numbers[] = {CGM_ALGORITHMS(X)};
#undef X
    return numbers[variant - CGM_VARIANT_ALGORITHM];
}

bool cgm_variant_shares(enum cgm_variant variant)
{
    return variant == CGM_VARIANT_SERIAL || variant == CGM_VARIANT_BLAS ||
           variant >= CGM_VARIANT_ALGORITHM;
}

/* What bulk_ag and bulk_rs move where the options do not say: as much as lhs, or as out. */
static void size_buffer(const struct cgm_bench_options *o, struct cgm_sizes *sizes)
{
    sizes->buffer_rows = o->buffer_shape[0] ? o->buffer_shape[0] : o->m;
    sizes->buffer_cols = o->op == CGM_OP_BULK_AG ? o->k : o->n;
    if (o->buffer_shape[1])
        sizes->buffer_cols = o->buffer_shape[1];
    sizes->buffer_dtype = o->buffer_dtype < 0 ? o->dtype : o->buffer_dtype;
}

static int out_dtype_of(const struct cgm_bench_options *o)
{
    bool product =
        o->op != CGM_OP_AG && o->op != CGM_OP_RS && o->op != CGM_OP_AR && o->op != CGM_OP_A2AV;
    if (o->out_dtype >= 0)
        return o->out_dtype;
    return product && o->dtype == CGM_DTYPE_INT8 ? CGM_DTYPE_INT32 : o->dtype;
}

static struct cgm_case job_case(const struct cgm_bench_options *o)
{
    struct cgm_case c = {
        .exists = true,
        .sizes = {.op = o->op,
                  .m = o->rows ? o->rows : o->m,
                  .n = o->n,
                  .k = o->k,
                  .world = (uint32_t)o->world,
                  .dtype = o->dtype,
                  .out_dtype = out_dtype_of(o),
                  .transa = o->transa,
                  .transb = o->transb,
                  .bias = o->bias,
                  .aux = o->aux,
                  .gelu = o->gelu,
                  .grad = o->grad},
        .capacity = o->m,
        .method = o->method,
        .algorithm = o->algorithm,
        .knobs = true,
        .accumulate = o->accumulate,
    };
    size_buffer(o, &c.sizes);
    if (o->op == CGM_OP_A2AV)
        cgm_shards_count(&c.sizes, c.counts);
    return c;
}

static struct cgm_case plain(struct cgm_case c)
{
    c.method = CGM_METHOD_AUTO;
    c.algorithm = CGM_ALGO_AUTO;
    c.knobs = false;
    return c;
}

static struct cgm_case serial_case(const struct cgm_case *job)
{
    struct cgm_case c = plain(*job);
    c.algorithm = CGM_ALGO_NO_OVERLAP;
    return c;
}

static struct cgm_case gemm_case(const struct cgm_case *job, const struct parts *parts)
{
    struct cgm_case c = plain(*job);
    c.sizes.op = CGM_OP_GEMM;
    c.sizes.aux = false;
    if (parts->n_divided)
        c.sizes.n /= c.sizes.world;
    if (parts->k_divided)
        c.sizes.k /= c.sizes.world;
    return c;
}

static struct cgm_case comm_case(const struct cgm_case *job, const struct parts *parts)
{
    struct cgm_case c = plain(*job);
    c.sizes.op = parts->collective;
    c.sizes.n = parts->moved == MOVES_LHS ? job->sizes.k : job->sizes.n;
    c.sizes.dtype = parts->moved == MOVES_LHS ? job->sizes.dtype : job->sizes.out_dtype;
    if (parts->op == CGM_OP_GEMM_AS) { /* columns are divided, not rows: as many bytes, as rows */
        c.sizes.m = c.capacity = job->sizes.n;
        c.sizes.n = job->sizes.m;
    }
    if (parts->moved == MOVES_BUFFER) {
        c.sizes.m = c.capacity = job->sizes.buffer_rows;
        c.sizes.n = job->sizes.buffer_cols;
        c.sizes.dtype = job->sizes.buffer_dtype;
    }
    c.sizes.out_dtype = c.sizes.dtype;
    c.sizes.transa = c.sizes.transb = c.sizes.bias = c.sizes.aux = c.accumulate = false;
    c.sizes.gelu = c.sizes.grad = false;
    return c;
}

/* no_overlap is there already, and auto is no algorithm. */
static void add_algorithms(const struct cgm_case *job, struct cgm_case *cases)
{
    for (int v = CGM_VARIANT_ALGORITHM; v < CGM_VARIANT_COUNT; v++) {
        int algorithm = cgm_variant_algorithm((enum cgm_variant)v);
        if (algorithm == CGM_ALGO_NO_OVERLAP || algorithm == CGM_ALGO_AUTO)
            continue;
        cases[v] = *job;
        cases[v].method = CGM_METHOD_AUTO;
        cases[v].algorithm = algorithm;
    }
}

/* a2av: what a rank sends to others. */
static uint64_t exchanged_rows(const struct cgm_case *c)
{
    uint64_t most = 0;
    uint32_t w = c->sizes.world;
    for (uint32_t from = 0; from < w; from++) {
        uint64_t rows = 0;
        for (uint32_t to = 0; to < w; to++)
            rows += to == from ? 0 : c->counts[from * w + to];
        if (rows > most)
            most = rows;
    }
    return most;
}

uint64_t cgm_case_sent_bytes(const struct cgm_case *c)
{
    const struct cgm_sizes *s = &c->sizes;
    const struct parts *parts = parts_of(s->op);
    enum moved moved = parts ? parts->moved : MOVES_OUT;
    int collective = parts ? parts->collective : s->op;
    if (s->op == CGM_OP_A2AV)
        return exchanged_rows(c) * s->n * cgm_dtype_bytes(s->dtype);
    if (!cgm_op_is_collective(collective))
        return 0;
    uint64_t elements = moved == MOVES_LHS      ? s->m * s->k
                        : moved == MOVES_BUFFER ? s->buffer_rows * s->buffer_cols
                                                : s->m * s->n;
    int dtype = moved == MOVES_LHS      ? s->dtype
                : moved == MOVES_BUFFER ? s->buffer_dtype
                                        : s->out_dtype;
    uint64_t times = collective == CGM_OP_AR ? 2 : 1;
    return times * elements / s->world * (s->world - 1) * cgm_dtype_bytes(dtype);
}

static bool runs_blas(const struct cgm_case *job)
{
    return job->sizes.op == CGM_OP_GEMM && job->sizes.dtype == CGM_DTYPE_FP32 &&
           job->sizes.out_dtype == CGM_DTYPE_FP32;
}

void cgm_cases_derive(const struct cgm_bench_options *options,
                      struct cgm_case ret_cases[CGM_VARIANT_COUNT])
{
    struct cgm_case *cases = ret_cases;
    memset(cases, 0, CGM_VARIANT_COUNT * sizeof(*cases));
    cases[CGM_VARIANT_JOB] = job_case(options);
    const struct cgm_case *job = &cases[CGM_VARIANT_JOB];
    const struct parts *parts = parts_of(options->op);
    if (cgm_op_is_collective(options->op))
        cases[CGM_VARIANT_SERIAL] = serial_case(job);
    if (parts) {
        cases[CGM_VARIANT_GEMM] = gemm_case(job, parts);
        cases[CGM_VARIANT_COMM] = comm_case(job, parts);
    }
    if (runs_blas(job))
        cases[CGM_VARIANT_BLAS] = *job;
    if (options->compare)
        add_algorithms(job, cases);
    for (int v = 0; v < CGM_VARIANT_COUNT; v++)
        if (cases[v].exists)
            cases[v].shaped = cgm_shards_describe(&cases[v].sizes, cases[v].matrix);
}

static void set_knobs(const struct cgm_bench_options *o, struct commgemm_plan_options *plan)
{
    plan->comm_type = o->comm_type;
    if (o->buffer_shape[0]) {
        plan->buffer_shape[0] = o->buffer_shape[0];
        plan->buffer_shape[1] = o->buffer_shape[1];
    }
    plan->buffer_dtype = o->buffer_dtype;
    plan->tp_size = (uint32_t)o->tp_size;
    plan->num_splits = (uint32_t)o->num_splits;
    plan->num_max_streams = (uint32_t)o->num_max_streams;
    plan->comm_cga_size = (uint32_t)o->comm_cga_size;
    plan->gemm_priority = (int)o->gemm_priority;
    plan->comm_priority = (int)o->comm_priority;
    plan->num_comm_sm = (uint32_t)o->num_comm_sm;
    plan->set_sm_margin = o->set_sm_margin ? 1 : -1;
    plan->use_ce = o->use_ce ? 1 : o->no_ce ? 0 : -1;
    plan->atomic_gemm = o->atomic;
    plan->rs_overlap_first_gemm = o->rs_overlap_first_gemm;
    plan->aggregate_ag = o->aggregate_ag;
    plan->mode = o->mode;
}

void cgm_case_plan(const struct cgm_bench_options *options, const struct cgm_case *c, uint64_t comm,
                   struct commgemm_plan_options *ret_plan)
{
    commgemm_plan_options_init(ret_plan);
    ret_plan->comm = comm;
    ret_plan->op = c->sizes.op;
    ret_plan->method = c->method;
    ret_plan->algorithm = c->algorithm;
    ret_plan->m = c->capacity;
    ret_plan->n = c->sizes.n;
    ret_plan->k = c->sizes.k;
    ret_plan->dtype = c->sizes.dtype;
    ret_plan->out_dtype = c->sizes.out_dtype;
    ret_plan->transa = c->sizes.transa;
    ret_plan->transb = c->sizes.transb;
    ret_plan->epilogue = (c->sizes.bias ? COMMGEMM_EPILOGUE_BIAS : 0u) |
                         (c->sizes.gelu ? COMMGEMM_EPILOGUE_GELU : 0u) |
                         (c->sizes.grad ? COMMGEMM_EPILOGUE_GRAD : 0u) |
                         (c->accumulate ? COMMGEMM_EPILOGUE_ACCUMULATE : 0u);
    ret_plan->allow_tf32 = options->tf32 && c->matrix[CGM_MATRIX_RHS].present;
    if (c->matrix[CGM_MATRIX_AUX_IN].present) {
        ret_plan->buffer_shape[0] = c->sizes.buffer_rows;
        ret_plan->buffer_shape[1] = c->sizes.buffer_cols;
        ret_plan->buffer_dtype = c->sizes.buffer_dtype;
    }
    if (c->sizes.op == CGM_OP_A2AV) {
        ret_plan->counts = c->counts;
        ret_plan->n_counts = c->sizes.world * c->sizes.world;
    }
    if (c->knobs)
        set_knobs(options, ret_plan);
}
