#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <stdio.h>
#include <sys/un.h>
#include <unistd.h>

#include "client/lib/buffers.h"
#include "client/lib/client.h"
#include "client/lib/fork.h"

int cgm_check_client(const commgemm_client *client)
{
    if (!client)
        return cgm_fail(CGM_INVALID_ARGUMENT, "client is NULL");
    if (atomic_load_explicit(&client->forked, memory_order_relaxed))
        return cgm_fail(CGM_INVALID_ARGUMENT,
                        "client was connected before fork(); this process must connect itself");
    return CGM_OK;
}

/* Whether jobs that were submitted before may name what this request lets go of. */
static bool lets_go(int type)
{
    switch (type) {
    case CGM_MSG_BUFFER_CLOSE:
    case CGM_MSG_IMPORT_RELEASE:
    case CGM_MSG_COMM_LEAVE:
    case CGM_MSG_PLAN_DESTROY:
    case CGM_MSG_PLAN_DESTROY_ALL:
        return true;
    default:
        return false;
    }
}

int cgm_client_ask(commgemm_client *client, const struct cgm_wire_request *request,
                   struct cgm_reply *ret_reply)
{
    if (lets_go(request->type))
        cgm_jobs_await_taken(&client->jobs);
    return cgm_wire_call(&client->wire, request, ret_reply);
}

int cgm_client_call(commgemm_client *client, int type, const ProtobufCMessage *message,
                    int reply_type, struct cgm_reply *ret_reply)
{
    const struct cgm_wire_request request = {
        .type = type, .message = message, .reply_type = reply_type};
    return cgm_client_ask(client, &request, ret_reply);
}

int cgm_client_tell(commgemm_client *client, int type, const ProtobufCMessage *message)
{
    return cgm_client_call(client, type, message, CGM_MSG_OK, NULL);
}

int cgm_client_tell_in_order(commgemm_client *client, int type, const ProtobufCMessage *message,
                             void (*take)(void *argument, int type, struct cgm_reply *reply),
                             void *argument)
{
    const struct cgm_wire_request request = {.type = type,
                                             .message = message,
                                             .reply_type = CGM_MSG_OK,
                                             .take = take,
                                             .argument = argument};
    return cgm_client_ask(client, &request, NULL);
}

/* ---- rings ------------------------------------------------------------------------------------
 */

/* Turns a Ring, reply or event, into a lane. One without fds only says that an executor is there.
 */
static int lane_from_ring(commgemm_client *client, struct cgm_reply *reply,
                          struct cgm_lane **ret_lane)
{
    const Cgm__Ring *ring = (const Cgm__Ring *)reply->message;
    if (ring->entries != client->ring_entries)
        return cgm_fail(CGM_BAD_MESSAGE, "the daemon's ring has %u entries; %u were asked for",
                        ring->entries, client->ring_entries);
    int status = cgm_lane_new(ring->entries, ring->executor_life, reply->fds, ret_lane);
    if (status == CGM_OK)
        for (unsigned i = 0; i < CGM_REPLY_FDS_MAX; i++)
            cgm_reply_take_fd(reply, i);
    return status;
}

/* Under the jobs' lock. */
static void store_executor(commgemm_client *client, uint64_t life, const char *backend,
                           uint32_t devices)
{
    struct commgemm_info *info = &client->info;
    atomic_store(&client->executor_life, life);
    info->devices = devices;
    snprintf(info->backend, sizeof(info->backend), "%s", backend ? backend : "");
}

/* Under the jobs' lock. An older daemon says in its HelloReply alone what its executor is. */
static void store_ring(commgemm_client *client, const Cgm__Ring *ring)
{
    if (ring->backend && ring->has_devices)
        store_executor(client, ring->executor_life, ring->backend, ring->devices);
    else
        atomic_store(&client->executor_life, ring->executor_life);
}

static void install(commgemm_client *client, struct cgm_lane *lane, const Cgm__Ring *ring)
{
    cgm_jobs_lock(&client->jobs);
    if (cgm_jobs_install(&client->jobs, lane))
        store_ring(client, ring);
    cgm_jobs_unlock(&client->jobs);
}

/* OK also when there is no executor now: then a Ring event comes with the next one. */
static int ring_set_up(commgemm_client *client)
{
    struct cgm_reply reply;
    struct cgm_lane *lane;
    Cgm__RingSetup request = CGM__RING_SETUP__INIT;
    request.entries = client->ring_entries;
    int status = cgm_client_call(client, CGM_MSG_RING_SETUP, &request.base, CGM_MSG_RING, &reply);
    if (status != CGM_OK)
        return status == CGM_NO_EXECUTOR || status == CGM_EXECUTOR_LOST ? CGM_OK : status;
    status = lane_from_ring(client, &reply, &lane);
    if (status == CGM_OK)
        install(client, lane, (const Cgm__Ring *)reply.message);
    cgm_reply_fini(&reply);
    return status;
}

/* ---- events -----------------------------------------------------------------------------------
 */

static int on_ring(commgemm_client *client, struct cgm_reply *event)
{
    const Cgm__Ring *ring = (const Cgm__Ring *)event->message;
    struct cgm_lane *lane;
    if (event->fds[0] < 0) {
        cgm_jobs_lock(&client->jobs);
        store_ring(client, ring);
        cgm_jobs_unlock(&client->jobs);
        return CGM_OK;
    }
    if (client->no_ring)
        return CGM_OK;
    int status = lane_from_ring(client, event, &lane);
    if (status == CGM_OK)
        install(client, lane, ring);
    return status;
}

static void on_executor_lost(commgemm_client *client, struct cgm_reply *event)
{
    const Cgm__ExecutorLost *lost = (const Cgm__ExecutorLost *)event->message;
    uint64_t life = lost->executor_life;
    cgm_jobs_lock(&client->jobs);
    atomic_compare_exchange_strong(&client->executor_life, &life, 0);
    if (client->no_ring && lost->has_ended_comm && lost->has_ended_number)
        cgm_jobs_end_well(&client->jobs, lost->ended_comm, lost->ended_number);
    cgm_jobs_lose(&client->jobs, lost->executor_life,
                  lost->status < 0 ? lost->status : CGM_EXECUTOR_LOST, lost->detail);
    cgm_jobs_unlock(&client->jobs);
}

static struct cgm_slot *find_in_flight(struct cgm_jobs *jobs, uint64_t entry_ticket)
{
    struct cgm_slot *slot = NULL;
    if (jobs->lane && entry_ticket > 0)
        slot = cgm_jobs_find(jobs, entry_ticket + jobs->lane->ticket_base);
    return slot && !cgm_slot_has_ended(slot) ? slot : NULL;
}

/* no_ring: what cq and phases would have said. */
static void on_completion(commgemm_client *client, struct cgm_reply *event)
{
    const Cgm__Completion *completion = (const Cgm__Completion *)event->message;
    struct cgm_cqe cqe;
    if (!client->no_ring || completion->cqe.len != sizeof(cqe))
        return;
    memcpy(&cqe, completion->cqe.data, sizeof(cqe));
    cgm_jobs_lock(&client->jobs);
    struct cgm_slot *slot = find_in_flight(&client->jobs, cqe.ticket);
    if (slot) {
        cgm_slot_store_cqe(slot, &cqe);
        cgm_slot_store_phases(slot, completion->phases.data,
                              completion->has_phases ? completion->phases.len : 0);
        cgm_jobs_end(&client->jobs, slot);
    }
    cgm_jobs_unlock(&client->jobs);
}

static int on_event(void *owner, int type, struct cgm_reply *event)
{
    switch (type) {
    case CGM_MSG_RING:
        return on_ring(owner, event);
    case CGM_MSG_EXECUTOR_LOST:
        on_executor_lost(owner, event);
        return CGM_OK;
    case CGM_MSG_COMPLETION:
        on_completion(owner, event);
        return CGM_OK;
    case CGM_MSG_IMPORT_IDLE:
        cgm_cuda_imports_on_idle(&((commgemm_client *)owner)->imports,
                                 ((const Cgm__ImportIdle *)event->message)->id);
        return CGM_OK;
    default: /* of a later release */
        return CGM_OK;
    }
}

static void on_lost(void *owner)
{
    commgemm_client *client = owner;
    atomic_store(&client->executor_life, 0);
    cgm_jobs_lock(&client->jobs);
    cgm_jobs_lose(&client->jobs, UINT64_MAX, CGM_DAEMON_LOST, NULL);
    cgm_jobs_unlock(&client->jobs);
}

/* An executor may be as good as gone for seconds before the daemon can say that it is. */
static void on_error(void *owner, int status)
{
    commgemm_client *client = owner;
    if (status != CGM_NO_EXECUTOR)
        return;
    cgm_jobs_lock(&client->jobs);
    uint64_t life = atomic_load(&client->executor_life);
    if (client->jobs.silent_life < life)
        client->jobs.silent_life = life;
    cgm_jobs_unlock(&client->jobs);
}

static const struct cgm_wire_handler handler = {
    .on_event = on_event, .on_error = on_error, .on_lost = on_lost};

/* ---- connect ----------------------------------------------------------------------------------
 */

static int check_options(const struct commgemm_connect_options *options)
{
    if (cgm_ring_bytes(options->ring_entries) == 0)
        return cgm_fail(CGM_INVALID_ARGUMENT,
                        "ring_entries is %u; it must be a power of two, %u "
                        "to %u",
                        options->ring_entries, CGM_RING_ENTRIES_MIN, CGM_RING_ENTRIES_MAX);
    if (options->no_ring != 0 && options->no_ring != 1)
        return cgm_fail(CGM_INVALID_ARGUMENT, "no_ring is %d; it must be 0 or 1", options->no_ring);
    if (options->no_ring && options->ring_entries > CGM_RING_ENTRIES_DEFAULT)
        return cgm_fail(CGM_INVALID_ARGUMENT,
                        "ring_entries is %u; with no_ring it must be at most %u",
                        options->ring_entries, CGM_RING_ENTRIES_DEFAULT);
    return cgm_check_name(options->name, "name", 0);
}

static int socket_open(commgemm_client *client, const char *given)
{
    char path[sizeof(((struct sockaddr_un *)0)->sun_path)];
    int status = cgm_socket_path(given, 0, path, sizeof(path));
    if (status != CGM_OK)
        return cgm_fail(status, "socket's path is longer than %zu bytes", sizeof(path) - 1);
    status = cgm_fork_add(client);
    if (status != CGM_OK)
        return cgm_fail(status, "no socket for %s: %s", path, strerror(errno));
    status = cgm_socket_join(client->socket, path);
    if (status == CGM_OK)
        return CGM_OK;
    int error = errno;
    cgm_fork_remove(client);
    errno = error;
    if (status == CGM_DAEMON_LOST || status == CGM_IO)
        status = CGM_NOT_RUNNING;
    return cgm_fail(status, "cannot connect to %s: %s", path, strerror(errno));
}

/* The program's own name with everything replaced that a name may not have. */
static void default_name(char *ret_name, size_t size)
{
    snprintf(ret_name, size, "%s", program_invocation_short_name);
    for (char *c = ret_name; *c; c++) {
        char one[2] = {*c, '\0'};
        if (!cgm_name_is_valid(one) && (c == ret_name || !strchr(".:-", *c)))
            *c = '_';
    }
    if (!ret_name[0])
        snprintf(ret_name, size, "unnamed");
}

static void store_info(commgemm_client *client, const Cgm__HelloReply *reply)
{
    struct commgemm_info *info = &client->info;
    cgm_jobs_lock(&client->jobs);
    client->features = reply->features;
    info->session = reply->session;
    info->protocol = reply->version;
    snprintf(info->release, sizeof(info->release), "%s", reply->release ? reply->release : "");
    /* An event may have come after the reply, and been seen before it. */
    if (atomic_load(&client->executor_life) == 0)
        store_executor(client, reply->executor_life, reply->backend, reply->devices);
    cgm_jobs_unlock(&client->jobs);
}

static int check_version(uint32_t version)
{
    if (version >= CGM_PROTOCOL_MIN && version <= CGM_PROTOCOL_MAX)
        return CGM_OK;
    return cgm_fail(CGM_VERSION, "the daemon chose protocol %u; library %s speaks %u to %u",
                    version, commgemm_version(), CGM_PROTOCOL_MIN, CGM_PROTOCOL_MAX);
}

/* A daemon that lets nobody else in says why and hangs up, perhaps before our Hello. */
static int refusal(commgemm_client *client)
{
    char why[256];
    int status = cgm_wire_farewell(&client->wire, why, sizeof(why));
    return status == CGM_OK ? CGM_DAEMON_LOST : cgm_fail(status, "%s", why);
}

static int say_hello(commgemm_client *client, const char *name)
{
    struct cgm_reply reply;
    char own_name[CGM_NAME_BYTES_MAX + 1];
    Cgm__Hello hello = CGM__HELLO__INIT;
    default_name(own_name, sizeof(own_name));
    hello.min_version = CGM_PROTOCOL_MIN;
    hello.max_version = CGM_PROTOCOL_MAX;
    hello.name = (char *)(uintptr_t)(name ? name : own_name);
    int status = cgm_client_call(client, CGM_MSG_HELLO, &hello.base, CGM_MSG_HELLO_REPLY, &reply);
    if (status == CGM_DAEMON_LOST)
        status = refusal(client);
    if (status != CGM_OK)
        return status;
    status = check_version(((Cgm__HelloReply *)reply.message)->version);
    store_info(client, (Cgm__HelloReply *)reply.message);
    cgm_reply_fini(&reply);
    return status;
}

/* Where jobs are kept when they travel through the socket. */
static int lane_set_up(commgemm_client *client)
{
    struct cgm_lane *lane;
    if (!client->no_ring)
        return ring_set_up(client);
    int status = cgm_lane_new(client->ring_entries, 0, NULL, &lane);
    if (status != CGM_OK)
        return status;
    cgm_jobs_lock(&client->jobs);
    cgm_jobs_install(&client->jobs, lane);
    cgm_jobs_unlock(&client->jobs);
    return CGM_OK;
}

static int client_new(const struct commgemm_connect_options *options, commgemm_client **ret_client)
{
    commgemm_client *client = calloc(1, sizeof(*client));
    if (!client)
        return cgm_fail_plain(CGM_NO_MEMORY);
    client->no_ring = options->no_ring;
    client->ring_entries = options->ring_entries;
    int status = cgm_jobs_init(&client->jobs, options->ring_entries, options->spin_ns);
    if (status != CGM_OK) {
        free(client);
        return status;
    }
    pthread_mutex_init(&client->submit_lock, NULL);
    cgm_buffers_init(client);
    cgm_cuda_timelines_init(&client->timelines);
    cgm_cuda_imports_init(&client->imports);
    pthread_mutex_init(&client->staging_lock, NULL);
    *ret_client = client;
    return CGM_OK;
}

static void client_free(commgemm_client *client)
{
    cgm_buffers_fini(client);
    cgm_cuda_imports_fini(&client->imports);
    cgm_cuda_timelines_fini(&client->timelines);
    cgm_jobs_fini(&client->jobs);
    pthread_mutex_destroy(&client->staging_lock);
    cgm_staging_free(client->staging);
    pthread_mutex_destroy(&client->submit_lock);
    free(client);
}

static int client_start(commgemm_client *client, const struct commgemm_connect_options *options)
{
    int status = socket_open(client, options->socket);
    if (status != CGM_OK) {
        client_free(client);
        return status;
    }
    status = cgm_wire_open(&client->wire, client->socket, &handler, client);
    if (status != CGM_OK) {
        cgm_fork_remove(client);
        client_free(client);
        return status;
    }
    status = say_hello(client, options->name);
    if (status == CGM_OK)
        status = lane_set_up(client);
    if (status != CGM_OK)
        commgemm_disconnect(client);
    return status;
}

int commgemm_connect(const struct commgemm_connect_options *options, commgemm_client **ret_client)
{
    struct commgemm_connect_options defaults;
    const void *known = &defaults;
    commgemm_client *client = NULL;
    struct cgm_kept_error kept;
    cgm_error_keep(&kept);
    commgemm_connect_options_init(&defaults);
    int status = cgm_check_pointer(ret_client, "ret_client");
    if (status == CGM_OK && options)
        status = cgm_check_struct(options, sizeof(*options), "commgemm_connect_options_init",
                                  &defaults, &known);
    if (status == CGM_OK)
        status = check_options(known);
    if (status == CGM_OK)
        status = client_new(known, &client);
    if (status == CGM_OK)
        status = client_start(client, known);
    if (status != CGM_OK)
        return status;
    cgm_error_restore(&kept); /* there may be no executor yet, which is none */
    *ret_client = client;
    return CGM_OK;
}

void commgemm_disconnect(commgemm_client *client)
{
    if (!client || atomic_load(&client->forked))
        return;
    cgm_wire_close(&client->wire);
    cgm_fork_remove(client);
    client_free(client);
}

int commgemm_get_info(commgemm_client *client, struct commgemm_info *ret_info)
{
    int status = cgm_check_client(client);
    if (status == CGM_OK)
        status = cgm_check_pointer(ret_info, "ret_info");
    if (status != CGM_OK)
        return status;
    cgm_jobs_lock(&client->jobs);
    *ret_info = client->info;
    ret_info->executor_life = cgm_client_serving_life(client);
    cgm_jobs_unlock(&client->jobs);
    return CGM_OK;
}
