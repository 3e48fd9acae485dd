#include "client/bench/worker.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/bench/status_row.h"
#include "kernels/openblas.h"
#include "proto/status.h"
#include "proto/types.h"

#define EXECUTOR_MS 20000

static void fail(const struct cgm_worker *worker, int status, const char *what, const char *why)
    __attribute__((noreturn));

/* `why` may be the library's last error, which does not always repeat the status. */
static void fail(const struct cgm_worker *worker, int status, const char *what, const char *why)
{
    cgm_seat_fail(worker->seat, status, "%s: %s%s%s", what, commgemm_strerror(status),
                  why[0] ? ": " : "", why);
}

/* ---- set-up ---- */

/* Why the daemon has no executor, as its status says it; "" when it has one or does not say. */
static void ask_why(commgemm_client *client, char *ret_why, size_t size)
{
    json_t *row = cgm_status_row(client);
    const char *why = json_string_value(json_object_get(row, "executor_missing"));
    snprintf(ret_why, size, "%s%s", why ? "; the daemon says: " : "", why ? why : "");
    json_decref(row);
}

static void wait_for_executor(struct cgm_worker *worker)
{
    char why[320], detail[512];
    int status = commgemm_wait_executor(worker->client, EXECUTOR_MS);
    if (!status)
        return;
    snprintf(detail, sizeof(detail), "%s", commgemm_last_error());
    ask_why(worker->client, why, sizeof(why));
    strncat(detail, why, sizeof(detail) - strlen(detail) - 1);
    fail(worker, status, "executor", detail);
}

/* Whether "gemm, ag_gemm" has the word. */
static bool lists(const char *words, const char *word)
{
    size_t length = strlen(word);
    for (const char *at = words; at; at = strchr(at, ' ') ? strchr(at, ' ') + 1 : NULL)
        if (!strncmp(at, word, length) && (at[length] == ',' || !at[length]))
            return true;
    return false;
}

/* A comparison has every algorithm that the daemon lists for the operation. */
static void want_algorithms(struct cgm_worker *worker)
{
    const struct cgm_bench *bench = worker->bench;
    const char *op = cgm_type_name(CGM_TABLE_OP, bench->options->op);
    char *text = NULL;
    int status = commgemm_query(worker->client, "algorithms", &text);
    if (status)
        fail(worker, status, "algorithms", commgemm_last_error());
    json_t *root = json_loads(text, 0, NULL), *row;
    free(text);
    size_t i;
    json_array_foreach(json_object_get(root, "algorithms"), i, row)
    {
        int number = (int)json_integer_value(json_object_get(row, "number"));
        const char *ops = json_string_value(json_object_get(row, "ops"));
        for (int v = CGM_VARIANT_ALGORITHM; ops && v < CGM_VARIANT_COUNT; v++)
            if (cgm_variant_algorithm((enum cgm_variant)v) == number && lists(ops, op))
                bench->results->wanted[v] = bench->cases[v].exists;
    }
    json_decref(root);
}

static void connect_to(struct cgm_worker *worker)
{
    const struct cgm_bench *bench = worker->bench;
    struct commgemm_connect_options options;
    struct commgemm_info info;
    commgemm_connect_options_init(&options);
    options.socket = bench->socket[0] ? bench->socket : NULL;
    options.name = "commgemm-bench";
    options.no_ring = bench->options->no_ring;
    int status = commgemm_connect(&options, &worker->client);
    if (status)
        fail(worker, status, "connect", commgemm_last_error());
    wait_for_executor(worker);
    status = commgemm_get_info(worker->client, &info);
    if (status)
        fail(worker, status, "executor", commgemm_last_error());
    if (worker->seat->worker == 0) {
        bench->results->devices = info.devices;
        snprintf(bench->results->backend, sizeof(bench->results->backend), "%s", info.backend);
        cgm_machine_gpus(worker->client, bench->results->gpus, sizeof(bench->results->gpus));
        if (bench->options->compare)
            want_algorithms(worker);
    }
    cgm_barrier_wait(&worker->seat->board->step);
}

static void take_ranks(struct cgm_worker *worker)
{
    uint32_t world = (uint32_t)worker->bench->options->world;
    worker->n_ranks = worker->seat->workers == 1 ? world : 1;
    worker->ranks = calloc(worker->n_ranks, sizeof(*worker->ranks));
    if (!worker->ranks)
        cgm_seat_fail(worker->seat, CGM_NO_MEMORY, "no memory for %u ranks", worker->n_ranks);
    for (uint32_t i = 0; i < worker->n_ranks; i++)
        worker->ranks[i].rank = worker->seat->worker + i;
}

static void join(struct cgm_worker *worker)
{
    struct commgemm_join_options options;
    uint32_t ranks[CGM_CREW_MAX];
    for (uint32_t i = 0; i < worker->n_ranks; i++)
        ranks[i] = worker->ranks[i].rank;
    commgemm_join_options_init(&options);
    options.name = worker->bench->comm;
    options.size = (uint32_t)worker->bench->options->world;
    options.create = 1;
    options.ranks = ranks;
    options.n_ranks = worker->n_ranks;
    int status = commgemm_comm_join(worker->client, &options, &worker->comm);
    if (status)
        fail(worker, status, "join", commgemm_last_error());
}

/* Of the algorithms of a comparison one may be left out, for a reason that lies in the plan. */
static bool note_refusal(struct cgm_worker *worker, enum cgm_variant variant, int status)
{
    struct cgm_refusal *refusal = &worker->bench->results->refusals[variant];
    uint32_t nobody = 0;
    bool of_plan = status == CGM_INVALID_ARGUMENT || status == CGM_NOT_SUPPORTED ||
                   status == CGM_NO_MEMORY || status == CGM_QUOTA;
    if (variant < CGM_VARIANT_ALGORITHM || !of_plan)
        return false;
    if (atomic_compare_exchange_strong(&refusal->teller, &nobody, worker->seat->worker + 1))
        snprintf(refusal->why, sizeof(refusal->why), "%s",
                 commgemm_last_error()[0] ? commgemm_last_error() : commgemm_strerror(status));
    return true;
}

/* What any rank's plan was refused for nobody runs. */
static void drop_refused(struct cgm_worker *worker)
{
    struct cgm_bench_results *results = worker->bench->results;
    cgm_barrier_wait(&worker->seat->board->step);
    for (int v = CGM_VARIANT_ALGORITHM; worker->seat->worker == 0 && v < CGM_VARIANT_COUNT; v++)
        if (atomic_load(&results->refusals[v].teller))
            results->wanted[v] = false;
    cgm_barrier_wait(&worker->seat->board->step);
}

static void create_plan(struct cgm_worker *worker, enum cgm_variant variant)
{
    const struct cgm_bench *bench = worker->bench;
    const struct cgm_case *c = &bench->cases[variant];
    struct commgemm_plan_options options;
    struct commgemm_plan plan;
    cgm_case_plan(bench->options, c, worker->comm, &options);
    int status = commgemm_plan_create(worker->client, &options, &plan);
    if (status && note_refusal(worker, variant, status))
        return;
    if (status)
        cgm_seat_fail(worker->seat, status, "plan of %s %s: %s", cgm_variant_name(variant),
                      cgm_type_name(CGM_TABLE_OP, c->sizes.op),
                      commgemm_last_error()[0] ? commgemm_last_error() : commgemm_strerror(status));
    if (!c->shaped)
        cgm_seat_fail(worker->seat, CGM_NOT_SUPPORTED, "--op %s: this program has no shapes for it",
                      cgm_type_name(CGM_TABLE_OP, c->sizes.op));
    worker->plans[variant] = plan.id;
    if (worker->seat->worker != 0)
        return;
    struct cgm_plan_answer *answer = &bench->results->plans[variant];
    answer->algorithm = plan.algorithm;
    snprintf(answer->reason, sizeof(answer->reason), "%s", plan.reason);
}

static void push(struct cgm_worker *worker, const struct cgm_tensor *tensor)
{
    int status = cgm_tensor_push(tensor);
    if (status)
        fail(worker, status, "writing an operand", commgemm_last_error());
}

static void pull(struct cgm_worker *worker, const struct cgm_tensor *tensor)
{
    int status = cgm_tensor_pull(tensor);
    if (status)
        fail(worker, status, "reading a result", commgemm_last_error());
}

static void create_tensors(struct cgm_worker *worker, struct cgm_worker_rank *rank,
                           enum cgm_variant variant)
{
    const struct cgm_bench *bench = worker->bench;
    int device = (int)(rank->rank % bench->results->devices);
    char detail[512];
    for (int i = 0; i < CGM_MATRIX_COUNT; i++) {
        const struct cgm_matrix *matrix = &bench->cases[variant].matrix[i];
        struct cgm_tensor *tensor = &rank->tensors[variant][i];
        if (!matrix->present)
            continue;
        int status =
            cgm_tensor_new(worker->client, bench->options->import, cgm_matrix_shard_bytes(matrix),
                           device, detail, sizeof(detail), tensor);
        if (status)
            fail(worker, status, cgm_matrix_text((enum cgm_matrix_name)i), detail);
        /* The job's inputs come with CGM_DO_LOAD; what it is compared with needs any numbers. */
        if (variant != CGM_VARIANT_JOB)
            cgm_tensor_fill(tensor, matrix->dtype, bench->options->seed + rank->rank * 16u + i);
        push(worker, tensor);
    }
}

static void set_up(struct cgm_worker *worker)
{
    const struct cgm_bench *bench = worker->bench;
    char why[256];
    if (bench->results->wanted[CGM_VARIANT_BLAS] &&
        cgm_openblas_load((unsigned)bench->options->blas_threads, why, sizeof(why)))
        cgm_seat_fail(worker->seat, CGM_NOT_SUPPORTED, "--op gemm: %s", why);
    connect_to(worker);
    take_ranks(worker);
    join(worker);
    for (int v = 0; v < CGM_VARIANT_COUNT; v++)
        if (bench->results->wanted[v] && v != CGM_VARIANT_BLAS)
            create_plan(worker, (enum cgm_variant)v);
    drop_refused(worker);
    for (uint32_t i = 0; i < worker->n_ranks; i++)
        for (int v = 0; v < CGM_VARIANT_COUNT; v++)
            if (bench->results->wanted[v] && !cgm_variant_shares((enum cgm_variant)v))
                create_tensors(worker, &worker->ranks[i], (enum cgm_variant)v);
}

/* ---- inputs and results ---- */

static void load(struct cgm_worker *worker)
{
    const struct cgm_bench *bench = worker->bench;
    for (uint32_t i = 0; i < worker->n_ranks; i++)
        for (int name = 0; name < CGM_MATRIX_COUNT; name++) {
            const struct cgm_tensor *tensor = &worker->ranks[i].tensors[CGM_VARIANT_JOB][name];
            if (!bench->whole[name])
                continue;
            cgm_matrix_take(&bench->cases[CGM_VARIANT_JOB].matrix[name], bench->whole[name],
                            worker->ranks[i].rank, tensor->address);
            push(worker, tensor);
        }
}

/* What the job must overwrite: NaN, or the numbers that it adds to. */
static void prepare_outputs(struct cgm_worker *worker, const struct cgm_worker_rank *rank)
{
    const struct cgm_bench *bench = worker->bench;
    const struct cgm_case *job = &bench->cases[CGM_VARIANT_JOB];
    for (int name = 0; name < CGM_MATRIX_COUNT; name++) {
        const struct cgm_tensor *tensor = &rank->tensors[CGM_VARIANT_JOB][name];
        if (!tensor->id || !cgm_matrix_is_output((enum cgm_matrix_name)name))
            continue;
        if (name == CGM_MATRIX_OUT && job->accumulate)
            cgm_matrix_take(&job->matrix[name], bench->whole[name], rank->rank, tensor->address);
        else
            cgm_tensor_poison(tensor, job->matrix[name].dtype);
        push(worker, tensor);
    }
}

static void publish_outputs(struct cgm_worker *worker, const struct cgm_worker_rank *rank)
{
    for (int name = 0; name < CGM_MATRIX_COUNT; name++) {
        const struct cgm_tensor *tensor = &rank->tensors[CGM_VARIANT_JOB][name];
        if (!tensor->id || !cgm_matrix_is_output((enum cgm_matrix_name)name))
            continue;
        pull(worker, tensor);
        memcpy(cgm_bench_shard(worker->bench, (enum cgm_matrix_name)name, rank->rank),
               tensor->address, tensor->bytes);
    }
}

static void run_checked(struct cgm_worker *worker, enum cgm_variant variant)
{
    for (uint32_t i = 0; i < worker->n_ranks; i++)
        prepare_outputs(worker, &worker->ranks[i]);
    cgm_barrier_wait(&worker->seat->board->step);
    cgm_worker_run(worker, variant, NULL, &worker->bench->results->last[worker->seat->worker]);
    for (uint32_t i = 0; i < worker->n_ranks; i++)
        publish_outputs(worker, &worker->ranks[i]);
}

static void trace(struct cgm_worker *worker)
{
    cgm_barrier_wait(&worker->seat->board->step);
    cgm_worker_run(worker, CGM_VARIANT_JOB, worker->bench->traces,
                   &worker->bench->results->last[worker->seat->worker]);
}

void cgm_worker_obey(void *state, struct cgm_seat *seat, uint32_t verb, uint32_t argument)
{
    struct cgm_worker *worker = state;
    worker->seat = seat;
    switch ((enum cgm_verb_number)verb) {
    case CGM_DO_SETUP:
        set_up(worker);
        break;
    case CGM_DO_LOAD:
        load(worker);
        break;
    case CGM_DO_RUN:
        run_checked(worker, (enum cgm_variant)argument);
        break;
    case CGM_DO_MEASURE:
        cgm_worker_measure(worker);
        break;
    case CGM_DO_TRACE:
        trace(worker);
        break;
    case CGM_DO_LEAVE:
        commgemm_disconnect(worker->client);
        break;
    }
}
