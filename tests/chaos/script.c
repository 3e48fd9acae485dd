/* A round's script from a seed. */
#include <stdio.h>
#include <string.h>

#include "client/bench/cases.h"
#include "daemon/executor/algorithm.h"
#include "daemon/executor/operation_table.h"
#include "kernels/random.h"
#include "proto/types.h"
#include "tests/chaos/chaos.h"

#define PRIORITIES 6     /* from 0 down */
#define LATE_US 1200000u /* than ready_timeout where it is 1 s */

static uint64_t below(struct cgm_random *random, uint64_t limit)
{
    return cgm_random_below(random, limit);
}

static bool one_in(struct cgm_random *random, uint64_t n)
{
    return cgm_random_below(random, n) == 0;
}

/* ---- plans ------------------------------------------------------------------------------------
 */

/* An operation that plans can have, and an algorithm for it: each algorithm of the table is as
 * likely as the other. */
static void pick_algorithm(struct cgm_random *random, struct cgm_bench_options *plan)
{
    const struct cgm_algorithm *algorithm = cgm_algorithms[below(random, cgm_algorithm_count)];
    do
        plan->op = (int)below(random, CGM_OP_COPY_IN + 1);
    while (!(algorithm->ops >> plan->op & 1) || !cgm_operation_row(plan->op));
    plan->method = CGM_METHOD_AUTO;
    plan->algorithm = (int)algorithm->number;
    plan->atomic = algorithm->atomic;
    if (one_in(random, 16)) { /* a method instead; refused where there is no such pair */
        plan->algorithm = CGM_ALGO_AUTO;
        plan->method = (int)below(random, CGM_METHOD_AUTO + 1);
        plan->atomic = one_in(random, 4);
    }
}

static uint64_t pick_size(struct cgm_random *random, uint32_t world)
{
    if (one_in(random, 40)) /* perhaps not divided by the world: then refused */
        return 1 + below(random, 40);
    return world * (1 + below(random, world > 4 ? 4 : 8)) * (one_in(random, 8) ? 2 : 1);
}

static void pick_types(struct cgm_random *random, struct cgm_bench_options *plan)
{
    static const int types[] = {CGM_DTYPE_FP32, CGM_DTYPE_FP16, CGM_DTYPE_BF16, CGM_DTYPE_INT8};
    plan->dtype = types[below(random, one_in(random, 4) ? 4 : 3)];
    const struct cgm_operation_row *row = cgm_operation_row(plan->op);
    bool integer = plan->dtype == CGM_DTYPE_INT8;
    plan->out_dtype = row->product && !integer && one_in(random, 4) ? CGM_DTYPE_FP32 : -1;
    plan->buffer_dtype = row->partials && !integer && one_in(random, 4) ? CGM_DTYPE_FP32 : -1;
    plan->comm_type = -1;
}

static void make_plan(struct cgm_random *random, uint32_t world, struct chaos_comm *comm,
                      uint32_t at)
{
    struct cgm_bench_options *plan = &comm->plan[at];
    memset(plan, 0, sizeof(*plan));
    plan->world = world;
    plan->threads = 1;
    pick_algorithm(random, plan);
    pick_types(random, plan);
    plan->m = pick_size(random, world);
    plan->n = pick_size(random, world);
    plan->k = pick_size(random, world);
    const struct cgm_operation_row *row = cgm_operation_row(plan->op);
    plan->transa = row->product && one_in(random, 3);
    plan->transb = row->product && one_in(random, 3);
    plan->bias = (row->epilogues & CGM_EPILOGUE_BIAS) && one_in(random, 3);
    plan->accumulate = (row->epilogues & CGM_EPILOGUE_ACCUMULATE) && one_in(random, 6);
    bool integer = plan->dtype == CGM_DTYPE_INT8;
    plan->gelu = !integer && (row->epilogues & CGM_EPILOGUE_GELU) && one_in(random, 4);
    plan->grad = !integer && (row->epilogues & CGM_EPILOGUE_GRAD) &&
                 one_in(random, plan->gelu || plan->bias ? 3 : 40); /* else refused */
    plan->aux = plan->op == CGM_OP_AG_GEMM && one_in(random, 3);
    plan->aggregate_ag = plan->op == CGM_OP_AG_GEMM && one_in(random, 4);
    plan->num_splits = one_in(random, 4) ? 1 + below(random, 4) : 0;
    plan->num_max_streams = one_in(random, 4) ? 1 + below(random, 3) : 0;
    plan->use_ce = one_in(random, 2);
    plan->rs_overlap_first_gemm = one_in(random, 6);
    if (one_in(random, 3)) { /* queues that stay until the comm ends */
        plan->gemm_priority = -(int64_t)below(random, PRIORITIES);
        plan->comm_priority = -(int64_t)below(random, PRIORITIES);
    }
    comm->collective[at] = cgm_op_is_collective(plan->op);
    struct cgm_case cases[CGM_VARIANT_COUNT];
    cgm_cases_derive(plan, cases);
    comm->shaped[at] = cases[CGM_VARIANT_JOB].shaped;
}

/* ---- comms and clients ------------------------------------------------------------------------
 */

static uint32_t pick_clients(struct cgm_random *random, uint32_t max)
{
    uint32_t most = one_in(random, 4) ? max : 6;
    return 1 + (uint32_t)below(random, most < max ? most : max);
}

static void make_comm(struct cgm_random *random, struct chaos_script *script,
                      struct chaos_comm *comm)
{
    static const uint32_t worlds[] = {1, 2, 2, 2, 3, 4, 4, 8};
    comm->world = worlds[below(random, 8)];
    for (uint32_t rank = 0; rank < comm->world; rank++)
        comm->client[rank] = (uint32_t)below(random, script->n_clients);
    comm->n_plans = 1 + (uint32_t)below(random, CHAOS_PLANS);
    comm->join_ms = 60000;
    for (uint32_t i = 0; i < comm->n_plans; i++)
        make_plan(random, comm->world, comm, i);
}

static void make_client(struct cgm_random *random, const struct chaos_script *script,
                        uint32_t number, struct chaos_client_script *client)
{
    static const uint64_t spins[] = {0, 0, 1000, 20000};
    uint32_t ranks = 1;
    for (uint32_t i = 0; i < script->n_comms; i++) {
        uint32_t here = 0;
        for (uint32_t rank = 0; rank < script->comm[i].world; rank++)
            here += script->comm[i].client[rank] == number;
        ranks = here > ranks ? here : ranks;
    }
    /* A job of all its ranks fits into the ring: with less it would wait for itself. One more for
     * what it does beside. */
    do
        client->ring_entries = 2u << below(random, 8);
    while (client->ring_entries < ranks + 1);
    client->no_ring = one_in(random, 6);
    client->streams = !client->no_ring && one_in(random, 5);
    client->spin_ns = spins[below(random, 4)];
    client->n_arenas = 1 + (uint32_t)below(random, CHAOS_ARENAS);
    for (uint32_t i = 0; i < client->n_arenas; i++)
        client->arena[i] = (enum chaos_arena_kind)below(random, CHAOS_ARENA_KINDS);
}

/* ---- jobs -------------------------------------------------------------------------------------
 */

static uint64_t pick_rows(struct cgm_random *random, const struct cgm_bench_options *plan)
{
    uint64_t step = cgm_operation_shards_rows(plan->op) ? plan->world : 1;
    return plan->m % step || plan->op == CGM_OP_A2AV || one_in(random, 2)
               ? plan->m
               : step * (1 + below(random, plan->m / step));
}

static void spoil_job(struct cgm_random *random, const struct chaos_comm *comm,
                      struct chaos_job *job)
{
    const struct cgm_bench_options *plan = &comm->plan[job->plan];
    uint32_t rank = (uint32_t)below(random, comm->world);
    if (one_in(random, 10))
        job->canceller = rank;
    else if (one_in(random, 16) && job->collective && plan->op != CGM_OP_A2AV && comm->world > 1 &&
             job->rows > plan->world)
        job->mismatcher = rank; /* it says fewer rows */
    else if (one_in(random, 16))
        job->offender = rank;
    if (one_in(random, 8)) {
        job->late_rank = (uint32_t)below(random, comm->world);
        job->late_us = (uint32_t)below(random, 8000);
    }
    if (one_in(random, 10))
        job->deadline_ms = 1 + (uint32_t)below(random, 8);
}

static void make_job(struct cgm_random *random, const struct chaos_script *script, uint32_t at,
                     bool calm, struct chaos_job *job)
{
    memset(job, 0, sizeof(*job));
    job->comm = (uint32_t)below(random, script->n_comms);
    const struct chaos_comm *comm = &script->comm[job->comm];
    job->plan = (uint32_t)below(random, comm->n_plans);
    const struct cgm_bench_options *plan = &comm->plan[job->plan];
    job->collective = comm->collective[job->plan];
    job->rows = pick_rows(random, plan);
    job->in_place = at == 0 && plan->op == CGM_OP_AG_GEMM && !plan->transa && one_in(random, 3);
    job->accumulate = plan->accumulate;
    job->phases = one_in(random, 5);
    job->wide = one_in(random, 2);
    job->seed = cgm_random_next(random);
    job->canceller = job->mismatcher = job->offender = job->late_rank = CHAOS_NOBODY;
    if (!calm)
        spoil_job(random, comm, job);
}

/* Bytes that the job's operands may take in an arena of one rank. */
static uint64_t job_bytes(const struct chaos_comm *comm, const struct chaos_job *job)
{
    struct cgm_case cases[CGM_VARIANT_COUNT];
    uint64_t bytes = 0;
    cgm_cases_derive(&comm->plan[job->plan], cases);
    for (int i = 0; i < CGM_MATRIX_COUNT; i++) {
        const struct cgm_matrix *matrix = &cases[CGM_VARIANT_JOB].matrix[i];
        bytes += matrix->present ? matrix->shard_rows * (matrix->shard_cols + 4) * 4 + 256 : 0;
    }
    return bytes;
}

static bool batch_fits(const struct chaos_script *script, uint32_t batch)
{
    uint64_t bytes[CHAOS_CLIENTS] = {0};
    for (uint32_t i = 0; i < script->n_jobs[batch]; i++) {
        const struct chaos_job *job = &script->job[batch][i];
        const struct chaos_comm *comm = &script->comm[job->comm];
        for (uint32_t rank = 0; rank < comm->world; rank++)
            bytes[comm->client[rank]] += job_bytes(comm, job);
    }
    for (uint32_t i = 0; i < CHAOS_CLIENTS; i++)
        if (bytes[i] > CHAOS_ARENA_BYTES - 65536)
            return false;
    return true;
}

static void make_batch(struct cgm_random *random, struct chaos_script *script, uint32_t batch)
{
    bool calm = batch + 1 == script->n_batches;
    uint32_t wanted = 1 + (uint32_t)below(random, CHAOS_JOBS);
    while (script->n_jobs[batch] < wanted) {
        uint32_t at = script->n_jobs[batch]++;
        make_job(random, script, at, calm, &script->job[batch][at]);
        if (!batch_fits(script, batch)) {
            script->n_jobs[batch]--;
            return;
        }
    }
}

/* ---- faults -----------------------------------------------------------------------------------
 */

static const struct {
    enum chaos_fault_kind kind;
    uint32_t weight, longest_us;
} fault_weights[] = {
    {CHAOS_KILL_CLIENT, 8, 0},     {CHAOS_STOP_CLIENT, 6, 20000},   {CHAOS_KICK_CLIENT, 3, 0},
    {CHAOS_KILL_EXECUTOR, 3, 0},   {CHAOS_STOP_EXECUTOR, 4, 20000}, {CHAOS_KILL_DAEMON, 1, 0},
    {CHAOS_STOP_DAEMON, 4, 20000}, {CHAOS_DRAIN, 3, 20000},
};
#define WEIGHTS (sizeof(fault_weights) / sizeof(fault_weights[0]))

static void make_fault(struct cgm_random *random, const struct chaos_script *script,
                       struct chaos_fault *fault)
{
    uint64_t sum = 0, at = 0;
    for (size_t i = 0; i < WEIGHTS; i++)
        sum += fault_weights[i].weight;
    uint64_t pick = below(random, sum);
    while (pick >= fault_weights[at].weight)
        pick -= fault_weights[at++].weight;
    fault->kind = fault_weights[at].kind;
    /* Not in the last batch, which is calm. */
    fault->stage = (uint32_t)below(random, CHAOS_BATCH + script->n_batches - 1);
    if (one_in(random, 2))
        fault->stage = chaos_stage(CHAOS_BATCH, (uint32_t)below(random, script->n_batches - 1));
    fault->delay_us = (uint32_t)below(random, one_in(random, 2) ? 400 : 6000);
    fault->lasts_us = 500 + (uint32_t)below(random, fault_weights[at].longest_us + 1);
    fault->client = (uint32_t)below(random, script->n_clients);
}

/* Where a client may be missing when the others join, they do not wait for long. */
static void shorten_joins(struct cgm_random *random, struct chaos_script *script)
{
    bool early = false;
    for (uint32_t i = 0; i < script->n_clients; i++)
        early = early || script->client[i].die_at;
    for (uint32_t i = 0; i < script->n_faults; i++)
        early = early || (script->fault[i].kind <= CHAOS_KICK_CLIENT &&
                          script->fault[i].stage <= CHAOS_JOIN);
    for (uint32_t i = 0; early && i < script->n_comms; i++)
        script->comm[i].join_ms = 100 + (uint32_t)below(random, 200);
}

static void make_faults(struct cgm_random *random, struct chaos_script *script)
{
    if (one_in(random, 4))
        return; /* a round in which nothing happens to anybody */
    script->n_faults = 1 + (uint32_t)below(random, 3);
    for (uint32_t i = 0; i < script->n_faults; i++)
        make_fault(random, script, &script->fault[i]);
    if (one_in(random, 5))
        script->client[below(random, script->n_clients)].die_at = 1 + (uint32_t)below(random, 30);
    if (one_in(random, 12) && script->n_batches > 2)
        script->client[script->comm[0].client[0]].leave_at = 1;
    shorten_joins(random, script);
}

/* One stream of the round comes later than ready_timeout allows. */
static void delay_streams(struct cgm_random *random, struct chaos_script *script)
{
    uint32_t batch = (uint32_t)below(random, script->n_batches - 1);
    for (uint32_t i = 0; i < script->n_jobs[batch]; i++) {
        struct chaos_job *job = &script->job[batch][i];
        uint32_t rank = (uint32_t)below(random, script->comm[job->comm].world);
        if (!script->client[script->comm[job->comm].client[rank]].streams)
            continue;
        job->late_rank = rank;
        job->late_us = LATE_US;
        return;
    }
}

void chaos_script_make(uint64_t seed, uint64_t round, uint32_t max_clients, bool hang,
                       bool impatient, struct chaos_script *ret_script)
{
    struct chaos_script *script = ret_script;
    struct cgm_random random;
    cgm_random_init(&random, seed ^ (round + 1) * 0x9e3779b97f4a7c15u);
    memset(script, 0, sizeof(*script));
    script->seed = seed;
    script->round = round;
    script->n_clients = hang ? 1 + (uint32_t)below(&random, 2) : pick_clients(&random, max_clients);
    script->n_comms = hang ? 1 : 1 + (uint32_t)below(&random, CHAOS_COMMS);
    script->n_batches = 2 + (hang ? 0 : (uint32_t)below(&random, CHAOS_BATCHES - 1));
    for (uint32_t i = 0; i < script->n_comms; i++)
        make_comm(&random, script, &script->comm[i]);
    for (uint32_t i = 0; i < script->n_clients; i++)
        make_client(&random, script, i, &script->client[i]);
    for (uint32_t i = 0; i < script->n_batches; i++)
        make_batch(&random, script, i);
    if (!hang)
        make_faults(&random, script);
    if (impatient)
        delay_streams(&random, script);
}

void chaos_job_text(const struct chaos_script *script, const struct chaos_job *job, char *ret_text,
                    size_t size)
{
    const struct cgm_bench_options *plan = &script->comm[job->comm].plan[job->plan];
    snprintf(
        ret_text, size,
        "%s%s, %s %s, m %llu n %llu k %llu, world %llu, %s->%d buffer %d, %c%c%s%s%s%s%s%s%s, rows "
        "%llu, deadline %u ms, canceller %d, mismatcher %d, offender %d",
        cgm_type_name(CGM_TABLE_ALGO, plan->algorithm), plan->atomic ? " atomic" : "",
        cgm_type_name(CGM_TABLE_OP, plan->op), cgm_type_name(CGM_TABLE_METHOD, plan->method),
        (unsigned long long)plan->m, (unsigned long long)plan->n, (unsigned long long)plan->k,
        (unsigned long long)plan->world, cgm_type_name(CGM_TABLE_DTYPE, plan->dtype),
        plan->out_dtype, plan->buffer_dtype, plan->transa ? 'T' : 'N', plan->transb ? 'T' : 'N',
        plan->bias ? " bias" : "", plan->gelu ? " gelu" : "", plan->grad ? " grad" : "",
        plan->accumulate ? " accumulate" : "", plan->aux ? " aux" : "",
        plan->aggregate_ag ? " aggregate" : "", job->in_place ? " in place" : "",
        (unsigned long long)job->rows, job->deadline_ms, (int)job->canceller, (int)job->mismatcher,
        (int)job->offender);
}
