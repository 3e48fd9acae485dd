#include <stdlib.h>

#include "client/lib/client.h"

static int check_size(uint32_t size, uint32_t min)
{
    if (size >= min && size <= CGM_COMM_SIZE_MAX)
        return CGM_OK;
    return cgm_fail(CGM_INVALID_ARGUMENT, "size is %u; it must be %u to %u", size, min,
                    CGM_COMM_SIZE_MAX);
}

int commgemm_comm_create(commgemm_client *client, const char *name, uint32_t size, uint32_t mode,
                         uint64_t *ret_comm)
{
    struct cgm_reply reply;
    Cgm__CommCreate request = CGM__COMM_CREATE__INIT;
    int status = cgm_check_client(client);
    if (status == CGM_OK)
        status = cgm_check_pointer(ret_comm, "ret_comm");
    if (status == CGM_OK)
        status = cgm_check_name(name, "name", 0);
    if (status == CGM_OK)
        status = check_size(size, 1);
    if (status == CGM_OK)
        status = cgm_check_mode(mode);
    if (status != CGM_OK)
        return status;
    request.name = (char *)(uintptr_t)name;
    request.size = size;
    request.has_mode = mode != 0;
    request.mode = mode;
    status =
        cgm_client_call(client, CGM_MSG_COMM_CREATE, &request.base, CGM_MSG_COMM_REPLY, &reply);
    if (status != CGM_OK)
        return status;
    *ret_comm = ((const Cgm__CommReply *)reply.message)->id;
    cgm_reply_fini(&reply);
    return CGM_OK;
}

/* ---- join -------------------------------------------------------------------------------------
 */

static int check_ranks(const struct commgemm_join_options *options)
{
    uint64_t seen = 0;
    uint32_t limit = options->size ? options->size : CGM_COMM_SIZE_MAX;
    if (!options->ranks || options->n_ranks == 0 || options->n_ranks > limit)
        return cgm_fail(CGM_INVALID_ARGUMENT, "n_ranks is %u%s; it must be 1 to %u",
                        options->n_ranks, options->ranks ? "" : " and ranks is NULL", limit);
    for (uint32_t i = 0; i < options->n_ranks; i++) {
        uint32_t rank = options->ranks[i];
        if (rank >= limit)
            return cgm_fail(CGM_INVALID_ARGUMENT, "ranks[%u] is %u; it must be 0 to %u", i, rank,
                            limit - 1);
        if (seen >> rank & 1)
            return cgm_fail(CGM_INVALID_ARGUMENT, "ranks[%u] is %u, as one before it", i, rank);
        seen |= 1ull << rank;
    }
    return CGM_OK;
}

static int check_which(const struct commgemm_join_options *options)
{
    if (options->comm == 0 && !options->name)
        return cgm_fail(CGM_INVALID_ARGUMENT, "comm is 0 and name is NULL; one of them is needed");
    if (options->comm != 0 && options->create)
        return cgm_fail(CGM_INVALID_ARGUMENT,
                        "create is %d and comm is %llu; a comm is created by "
                        "name",
                        options->create, (unsigned long long)options->comm);
    if (options->timeout_ms < 0)
        return cgm_fail(CGM_INVALID_ARGUMENT,
                        "timeout_ms is %d; it must be 0 (the daemon's "
                        "join_timeout) or more",
                        options->timeout_ms);
    return cgm_check_name(options->comm ? NULL : options->name, "name", 0);
}

static int check_join(const struct commgemm_join_options *options)
{
    int status = check_which(options);
    if (status == CGM_OK)
        status = check_size(options->size, options->create ? 1 : 0);
    if (status == CGM_OK)
        status = cgm_check_mode(options->mode);
    return status == CGM_OK ? check_ranks(options) : status;
}

static void fill_join(Cgm__CommJoin *request, const struct commgemm_join_options *options)
{
    request->has_id = options->comm != 0;
    request->id = options->comm;
    request->name = options->comm ? NULL : (char *)(uintptr_t)options->name;
    request->n_ranks = options->n_ranks;
    request->ranks = (uint32_t *)(uintptr_t)options->ranks;
    request->n_devices = options->devices ? options->n_ranks : 0;
    request->devices = (int32_t *)(uintptr_t)options->devices;
    request->has_timeout_ms = options->timeout_ms > 0;
    request->timeout_ms = (uint32_t)options->timeout_ms;
    request->has_create = options->create != 0;
    request->create = options->create != 0;
    request->has_size = options->size != 0;
    request->size = options->size;
    request->has_mode = options->mode != 0;
    request->mode = options->mode;
}

struct joining {
    commgemm_client *client;
    struct cgm_comm *comm; /* to be; NULL: taken */
};

static void take_joined(void *argument, int type, struct cgm_reply *reply)
{
    struct joining *joining = argument;
    const Cgm__CommReply *comm = (const Cgm__CommReply *)reply->message;
    if (type != CGM_MSG_COMM_REPLY || !comm || reply->cut)
        return;
    cgm_jobs_lock(&joining->client->jobs);
    cgm_comms_add(&joining->client->jobs.plans, joining->comm, comm->id, comm->size);
    cgm_jobs_unlock(&joining->client->jobs);
    joining->comm = NULL;
}

static int ask_to_join(struct joining *joining, const struct commgemm_join_options *options,
                       uint64_t *ret_comm)
{
    struct cgm_reply reply;
    Cgm__CommJoin message = CGM__COMM_JOIN__INIT;
    const struct cgm_wire_request request = {.type = CGM_MSG_COMM_JOIN,
                                             .message = &message.base,
                                             .reply_type = CGM_MSG_COMM_REPLY,
                                             .take = take_joined,
                                             .argument = joining};
    fill_join(&message, options);
    int status = cgm_client_ask(joining->client, &request, &reply);
    if (status != CGM_OK)
        return status;
    *ret_comm = ((const Cgm__CommReply *)reply.message)->id;
    cgm_reply_fini(&reply);
    return CGM_OK;
}

static int join(commgemm_client *client, const struct commgemm_join_options *options,
                uint64_t *ret_comm)
{
    struct joining joining = {.client = client, .comm = cgm_comm_new()};
    if (!joining.comm)
        return cgm_fail_plain(CGM_NO_MEMORY);
    int status = ask_to_join(&joining, options, ret_comm);
    free(joining.comm);
    return status;
}

int commgemm_comm_join(commgemm_client *client, const struct commgemm_join_options *options,
                       uint64_t *ret_comm)
{
    struct commgemm_join_options defaults;
    const void *known = NULL;
    commgemm_join_options_init(&defaults);
    int status = cgm_check_client(client);
    if (status == CGM_OK)
        status = cgm_check_pointer(options, "options");
    if (status == CGM_OK)
        status = cgm_check_pointer(ret_comm, "ret_comm");
    if (status == CGM_OK)
        status = cgm_check_struct(options, sizeof(*options), "commgemm_join_options_init",
                                  &defaults, &known);
    if (status == CGM_OK)
        status = check_join(known);
    return status == CGM_OK ? join(client, known, ret_comm) : status;
}

int commgemm_comm_join_simple(commgemm_client *client, const char *name, uint32_t size,
                              uint32_t rank, uint64_t *ret_comm)
{
    struct commgemm_join_options options;
    commgemm_join_options_init(&options);
    options.name = name;
    options.size = size;
    options.create = 1;
    options.ranks = &rank;
    options.n_ranks = 1;
    return commgemm_comm_join(client, &options, ret_comm);
}

struct leaving {
    commgemm_client *client;
    uint64_t comm;
};

static void take_left(void *argument, int type, struct cgm_reply *reply)
{
    const struct leaving *leaving = argument;
    if (!cgm_reply_says_gone(type, reply))
        return;
    cgm_jobs_lock(&leaving->client->jobs);
    cgm_comms_remove(&leaving->client->jobs.plans, leaving->comm);
    cgm_jobs_unlock(&leaving->client->jobs);
}

int commgemm_comm_leave(commgemm_client *client, uint64_t comm)
{
    struct leaving leaving = {client, comm};
    Cgm__CommLeave request = CGM__COMM_LEAVE__INIT;
    int status = cgm_check_client(client);
    if (status != CGM_OK)
        return status;
    request.id = comm;
    return cgm_client_tell_in_order(client, CGM_MSG_COMM_LEAVE, &request.base, take_left, &leaving);
}
