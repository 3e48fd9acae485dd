#include <string.h>

#include "client/lib/client.h"
#include "proto/types.h"

/* ---- checks: every field against its own limits; what fits together the daemon knows -----------
 */

static int check_number(enum cgm_type_table table, int number, int min, const char *field)
{
    char list[512];
    if (number == min || cgm_type_name(table, number))
        return CGM_OK;
    cgm_type_list(table, list, sizeof(list));
    return cgm_fail(CGM_INVALID_ARGUMENT, "%s is %d; it must be the number of one of %s", field,
                    number, list);
}

static int check_numbers(const struct commgemm_plan_options *options)
{
    const struct {
        enum cgm_type_table table;
        int number, unset; /* -1: there is a default */
        const char *field;
    } rows[] = {
        {CGM_TABLE_OP, options->op, 0, "op"},
        {CGM_TABLE_METHOD, options->method, 0, "method"},
        {CGM_TABLE_ALGO, options->algorithm, 0, "algorithm"},
        {CGM_TABLE_DTYPE, options->dtype, 0, "dtype"},
        {CGM_TABLE_DTYPE, options->out_dtype, -1, "out_dtype"},
        {CGM_TABLE_DTYPE, options->buffer_dtype, -1, "buffer_dtype"},
        {CGM_TABLE_COMM_TYPE, options->comm_type, -1, "comm_type"},
    };
    int status = CGM_OK;
    for (size_t i = 0; status == CGM_OK && i < sizeof(rows) / sizeof(rows[0]); i++)
        status = check_number(rows[i].table, rows[i].number, rows[i].unset, rows[i].field);
    return status;
}

static int check_flags(const struct commgemm_plan_options *options)
{
    const struct {
        int value, min; /* min -1: the default */
        const char *field;
    } rows[] = {
        {options->transa, 0, "transa"},
        {options->transb, 0, "transb"},
        {options->set_sm_margin, -1, "set_sm_margin"},
        {options->use_ce, -1, "use_ce"},
        {options->atomic_gemm, 0, "atomic_gemm"},
        {options->rs_overlap_first_gemm, 0, "rs_overlap_first_gemm"},
        {options->aggregate_ag, 0, "aggregate_ag"},
        {options->allow_tf32, 0, "allow_tf32"},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        if (rows[i].value < rows[i].min || rows[i].value > 1)
            return cgm_fail(CGM_INVALID_ARGUMENT, "%s is %d; it must be %s0 or 1", rows[i].field,
                            rows[i].value, rows[i].min < 0 ? "-1 (the default), " : "");
    return CGM_OK;
}

static int check_dimensions(const struct commgemm_plan_options *options)
{
    const struct {
        uint64_t value;
        const char *field;
    } rows[] = {
        {options->m, "m"},
        {options->n, "n"},
        {options->k, "k"},
        {options->buffer_shape[0], "buffer_shape[0]"},
        {options->buffer_shape[1], "buffer_shape[1]"},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        if (rows[i].value > CGM_DIM_MAX)
            return cgm_fail(CGM_INVALID_ARGUMENT, "%s is %llu; it must be at most %llu",
                            rows[i].field, (unsigned long long)rows[i].value, CGM_DIM_MAX);
    return CGM_OK;
}

static int check_counts(const struct commgemm_plan_options *options)
{
    uint32_t most = CGM_COMM_SIZE_MAX * CGM_COMM_SIZE_MAX;
    if (options->n_counts > most)
        return cgm_fail(CGM_INVALID_ARGUMENT, "n_counts is %u; it must be at most %u",
                        options->n_counts, most);
    if (options->n_counts > 0 && !options->counts)
        return cgm_fail(CGM_INVALID_ARGUMENT, "counts is NULL, and n_counts is %u",
                        options->n_counts);
    return CGM_OK;
}

static int check_options(const struct commgemm_plan_options *options)
{
    int status = check_numbers(options);
    if (status == CGM_OK)
        status = check_flags(options);
    if (status == CGM_OK)
        status = check_dimensions(options);
    if (status == CGM_OK)
        status = check_counts(options);
    return status == CGM_OK ? cgm_check_mode(options->mode) : status;
}

/* ---- the request ------------------------------------------------------------------------------
 */

/* What each operation communicates; those not listed: nothing that TransformerEngine has a type
 * for.
 */
static const unsigned char comm_type_of_op[] = {
    [COMMGEMM_OP_AG_GEMM] = COMMGEMM_COMM_AG,   [COMMGEMM_OP_BULK_AG] = COMMGEMM_COMM_AG,
    [COMMGEMM_OP_AG] = COMMGEMM_COMM_AG,        [COMMGEMM_OP_GEMM_RS] = COMMGEMM_COMM_RS,
    [COMMGEMM_OP_BULK_RS] = COMMGEMM_COMM_RS,   [COMMGEMM_OP_RS] = COMMGEMM_COMM_RS,
    [COMMGEMM_OP_COPY_IN] = COMMGEMM_COMM_NONE,
};

static uint32_t or_default(int number, int fallback)
{
    return (uint32_t)(number < 0 ? fallback : number);
}

static void fill_operation(Cgm__PlanCreate *request, const struct commgemm_plan_options *options)
{
    request->comm = options->comm;
    request->op = (uint32_t)options->op;
    request->method = (uint32_t)options->method;
    request->comm_type = or_default(options->comm_type, comm_type_of_op[options->op]);
    request->has_algorithm = 1;
    request->algorithm = (uint32_t)options->algorithm;
    request->m = options->m;
    request->n = options->n;
    request->k = options->k;
    request->dtype = (uint32_t)options->dtype;
    request->has_out_dtype = options->out_dtype >= 0;
    request->out_dtype = or_default(options->out_dtype, options->dtype);
    request->has_transa = request->has_transb = request->has_epilogue = 1;
    request->transa = options->transa;
    request->transb = options->transb;
    request->epilogue = options->epilogue;
    request->has_mode = options->mode != 0;
    request->mode = options->mode;
}

/* TransformerEngine's parameters. `shape` must live as long as the request. */
static void fill_overlap(Cgm__PlanCreate *request, const struct commgemm_plan_options *options,
                         uint64_t shape[2])
{
    shape[0] = options->buffer_shape[0];
    shape[1] = options->buffer_shape[1];
    request->n_buffer_shape = shape[0] || shape[1] ? 2 : 0;
    request->buffer_shape = shape;
    request->has_buffer_dtype = options->buffer_dtype >= 0;
    request->buffer_dtype = or_default(options->buffer_dtype, 0);
#define SET(field) (request->has_##field = options->field != 0, request->field = options->field)
    SET(tp_size);
    SET(num_splits);
    SET(num_max_streams);
    SET(comm_cga_size);
    SET(gemm_priority);
    SET(comm_priority);
    SET(num_comm_sm);
    SET(atomic_gemm);
    SET(rs_overlap_first_gemm);
    SET(aggregate_ag);
    SET(allow_tf32);
#undef SET
    request->has_set_sm_margin = options->set_sm_margin >= 0;
    request->set_sm_margin = options->set_sm_margin > 0;
    request->has_use_ce = options->use_ce >= 0;
    request->use_ce = options->use_ce > 0;
    request->n_counts = options->n_counts;
    request->counts = (uint32_t *)(uintptr_t)options->counts; /* packed, never written */
}

/* ---- calls ------------------------------------------------------------------------------------
 */

struct creating {
    commgemm_client *client;
    uint64_t comm;
    uint32_t op;
    int status; /* whether this side has it, too */
};

static void take_created(void *argument, int type, struct cgm_reply *reply)
{
    struct creating *creating = argument;
    Cgm__PlanReply *plan = (Cgm__PlanReply *)reply->message;
    if (type != CGM_MSG_PLAN_REPLY || !plan || reply->cut)
        return;
    if (!plan->has_op)
        plan->op = creating->op;
    cgm_jobs_lock(&creating->client->jobs);
    creating->status = cgm_plans_add(&creating->client->jobs.plans, creating->comm, plan);
    cgm_jobs_unlock(&creating->client->jobs);
}

static void store_plan(const Cgm__PlanReply *reply, uint64_t comm, struct commgemm_plan *ret_plan)
{
    *ret_plan = (struct commgemm_plan){
        .id = reply->id,
        .comm = comm,
        .op = (int)reply->op,
        .algorithm = (int)reply->algorithm,
        .workspace_bytes = reply->workspace_bytes,
    };
    strncpy(ret_plan->reason, reply->reason, sizeof(ret_plan->reason) - 1);
}

static int create(commgemm_client *client, const struct commgemm_plan_options *options,
                  struct commgemm_plan *ret_plan)
{
    uint64_t shape[2];
    struct cgm_reply reply;
    Cgm__PlanCreate message = CGM__PLAN_CREATE__INIT;
    fill_operation(&message, options);
    fill_overlap(&message, options, shape);
    struct creating creating = {.client = client, .comm = options->comm, .op = message.op};
    const struct cgm_wire_request request = {.type = CGM_MSG_PLAN_CREATE,
                                             .message = &message.base,
                                             .reply_type = CGM_MSG_PLAN_REPLY,
                                             .take = take_created,
                                             .argument = &creating};
    int status = cgm_client_ask(client, &request, &reply);
    if (status != CGM_OK)
        return status;
    if (creating.status == CGM_OK)
        store_plan((const Cgm__PlanReply *)reply.message, options->comm, ret_plan);
    cgm_reply_fini(&reply);
    return creating.status == CGM_OK ? CGM_OK : cgm_fail_plain(creating.status);
}

int commgemm_plan_create(commgemm_client *client, const struct commgemm_plan_options *options,
                         struct commgemm_plan *ret_plan)
{
    struct commgemm_plan_options defaults;
    const void *known = NULL;
    commgemm_plan_options_init(&defaults);
    int status = cgm_check_client(client);
    if (status == CGM_OK)
        status = cgm_check_pointer(options, "options");
    if (status == CGM_OK)
        status = cgm_check_pointer(ret_plan, "ret_plan");
    if (status == CGM_OK)
        status = cgm_check_struct(options, sizeof(*options), "commgemm_plan_options_init",
                                  &defaults, &known);
    if (status == CGM_OK)
        status = check_options(known);
    return status == CGM_OK ? create(client, known, ret_plan) : status;
}

struct ending {
    commgemm_client *client;
    uint64_t plan;
};

static void take_destroyed(void *argument, int type, struct cgm_reply *reply)
{
    const struct ending *ending = argument;
    if (!cgm_reply_says_gone(type, reply))
        return;
    cgm_jobs_lock(&ending->client->jobs);
    cgm_plans_remove(&ending->client->jobs.plans, ending->plan);
    cgm_jobs_unlock(&ending->client->jobs);
}

int commgemm_plan_destroy(commgemm_client *client, uint64_t plan)
{
    struct ending ending = {client, plan};
    Cgm__PlanDestroy request = CGM__PLAN_DESTROY__INIT;
    int status = cgm_check_client(client);
    if (status != CGM_OK)
        return status;
    request.id = plan;
    return cgm_client_tell_in_order(client, CGM_MSG_PLAN_DESTROY, &request.base, take_destroyed,
                                    &ending);
}

static void take_all_destroyed(void *argument, int type, struct cgm_reply *reply)
{
    commgemm_client *client = argument;
    (void)reply;
    if (type != CGM_MSG_PLAN_DESTROY_ALL_REPLY)
        return;
    cgm_jobs_lock(&client->jobs);
    cgm_plans_remove_all(&client->jobs.plans);
    cgm_jobs_unlock(&client->jobs);
}

int commgemm_plan_destroy_all(commgemm_client *client, uint32_t *ret_count)
{
    struct cgm_reply reply;
    Cgm__PlanDestroyAll message = CGM__PLAN_DESTROY_ALL__INIT;
    const struct cgm_wire_request request = {.type = CGM_MSG_PLAN_DESTROY_ALL,
                                             .message = &message.base,
                                             .reply_type = CGM_MSG_PLAN_DESTROY_ALL_REPLY,
                                             .take = take_all_destroyed,
                                             .argument = client};
    int status = cgm_check_client(client);
    if (status == CGM_OK)
        status = cgm_client_ask(client, &request, &reply);
    if (status != CGM_OK)
        return status;
    if (ret_count)
        *ret_count = ((const Cgm__PlanDestroyAllReply *)reply.message)->count;
    cgm_reply_fini(&reply);
    return CGM_OK;
}

int commgemm_plan_chunk(commgemm_client *client, uint64_t plan, uint32_t rank, uint32_t chunk,
                        struct commgemm_chunk *ret_chunk)
{
    struct cgm_reply reply;
    Cgm__PlanChunk request = CGM__PLAN_CHUNK__INIT;
    int status = cgm_check_client(client);
    if (status == CGM_OK)
        status = cgm_check_pointer(ret_chunk, "ret_chunk");
    if (status != CGM_OK)
        return status;
    request.plan = plan;
    request.rank = rank;
    request.chunk = chunk;
    status = cgm_client_call(client, CGM_MSG_PLAN_CHUNK, &request.base, CGM_MSG_PLAN_CHUNK_REPLY,
                             &reply);
    if (status != CGM_OK)
        return status;
    const Cgm__PlanChunkReply *where = (const Cgm__PlanChunkReply *)reply.message;
    *ret_chunk = (struct commgemm_chunk){
        .buffer = where->buffer,
        .generation = where->generation,
        .offset_bytes = where->offset_bytes,
        .rows = where->rows,
        .cols = where->cols,
        .dtype = (int)where->dtype,
    };
    cgm_reply_fini(&reply);
    return CGM_OK;
}
