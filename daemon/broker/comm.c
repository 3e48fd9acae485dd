#include "daemon/broker/comm.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/broker/broker.h"
#include "daemon/broker/plan.h"
#include "daemon/broker/session.h"
#include "daemon/broker/user_log.h"

#define NS_PER_MS 1000000ull
#define NS_PER_S 1000000000ull

unsigned cgm_comm_missing(const struct cgm_comm *comm, char *ret_text, size_t size)
{
    unsigned missing = 0;
    size_t used = 0;
    ret_text[0] = '\0';
    for (uint32_t rank = 0; rank < comm->size; rank++) {
        if (comm->sessions[rank] != 0)
            continue;
        if (used < size)
            used +=
                (size_t)snprintf(ret_text + used, size - used, "%s%u", missing ? ", " : "", rank);
        missing++;
    }
    return missing;
}

bool cgm_comm_has_session(const struct cgm_comm *comm, uint64_t session)
{
    for (uint32_t rank = 0; rank < comm->size; rank++)
        if (comm->sessions[rank] == session)
            return true;
    return false;
}

struct cgm_session *cgm_comm_next(const struct cgm_broker *broker, const struct cgm_comm *comm,
                                  uint32_t *rank)
{
    struct cgm_session *session = NULL;
    while (!session && *rank < comm->size)
        session = cgm_registry_find(&broker->sessions, comm->sessions[(*rank)++]);
    return session;
}

/* A broken comm's name is free again. */
static struct cgm_comm *find_by_name(struct cgm_broker *broker, const char *name)
{
    uint64_t at = 0;
    struct cgm_comm *comm;
    while ((comm = cgm_registry_next(&broker->comms, &at)))
        if (comm->name[0] && !comm->broken && strcmp(comm->name, name) == 0)
            return comm;
    return NULL;
}

static int check_new(struct cgm_request *request, const char *name, uint32_t size)
{
    if (name && !cgm_name_is_valid(name))
        return cgm_refuse(request, CGM_INVALID_ARGUMENT,
                          "name of the comm must be 1 to %u characters of [A-Za-z0-9._:-], the "
                          "first none of . - :",
                          CGM_NAME_BYTES_MAX);
    if (name && find_by_name(request->broker, name))
        return cgm_refuse(request, CGM_EXISTS, "there is a comm named %s already", name);
    if (size < 1 || size > CGM_COMM_SIZE_MAX)
        return cgm_refuse(request, CGM_INVALID_ARGUMENT, "size is %u; it must be from 1 to %u",
                          size, CGM_COMM_SIZE_MAX);
    return CGM_OK;
}

/* The session holds the comm from now on. */
static int hold(struct cgm_session *session, struct cgm_comm *comm)
{
    int status = cgm_registry_add(&session->comms, comm->id, comm);
    if (status == CGM_EXISTS)
        return CGM_OK;
    if (status == CGM_OK)
        comm->holders++;
    return status;
}

/* In the owner's quota and in the journal. */
static int take_place(struct cgm_request *request, struct cgm_comm *comm, uint32_t size)
{
    struct cgm_broker *broker = request->broker;
    const struct cgm_charge charge = {{[CGM_QUOTA_COMMS] = 1, [CGM_QUOTA_RANKS] = size}};
    int status = cgm_estate_new(broker, comm->owner.uid, &charge, &broker->comm_indices, 1,
                                request->detail, sizeof(request->detail), &comm->estate);
    if (status != CGM_OK)
        return status;
    if (cgm_indices_take(&broker->comm_indices, &comm->index) == CGM_OK) {
        cgm_estate_add_index(comm->estate, comm->index);
        return CGM_OK;
    }
    cgm_estate_free(broker, comm->estate);
    return cgm_refuse(request, CGM_QUOTA, "there are %u comms, the most that is possible",
                      broker->comm_indices.used);
}

static int comm_new(struct cgm_request *request, const char *name, uint32_t size, uint32_t mode,
                    struct cgm_comm **ret_comm)
{
    struct cgm_broker *broker = request->broker;
    int status = check_new(request, name, size);
    if (status != CGM_OK)
        return status;
    struct cgm_comm *comm = calloc(1, sizeof(*comm));
    if (!comm)
        return CGM_NO_MEMORY;
    status = cgm_owner_init(&comm->owner, request->session, mode, request->detail,
                            sizeof(request->detail));
    if (status == CGM_OK)
        status = take_place(request, comm, size);
    if (status != CGM_OK) {
        free(comm);
        return status;
    }
    comm->id = ++broker->last_comm;
    comm->size = size;
    comm->lost_rank = -1;
    comm->join_timeout_ns = broker->config.join_timeout * NS_PER_S;
    snprintf(comm->name, sizeof(comm->name), "%s", name ? name : "");
    status = cgm_registry_add(&broker->comms, comm->id, comm);
    if (status == CGM_OK && (status = hold(request->session, comm)) != CGM_OK)
        cgm_registry_remove(&broker->comms, comm->id);
    if (status != CGM_OK) {
        cgm_estate_free(broker, comm->estate);
        free(comm);
        return status;
    }
    cgm_user_log(broker, comm->owner.uid, CGM_LOG_INFO,
                 "comm %ju: %s of size %u, created by session %ju", (uintmax_t)comm->id,
                 comm->name[0] ? comm->name : "unnamed", size, (uintmax_t)request->session->id);
    *ret_comm = comm;
    return CGM_OK;
}

/* Frees or settles what it leaves. One that the executor is making cannot be removed yet: whoever
 * gets the answer to CommAdd finds the estate and settles it. One that it refused it never had. */
static void settle(struct cgm_broker *broker, struct cgm_comm *comm)
{
    Cgm__CommRemove remove = CGM__COMM_REMOVE__INIT;
    remove.comm = comm->id;
    remove.status = CGM_PEER_LOST;
    remove.detail = (char *)(uintptr_t) "every session of the comm has ended";
    if (comm->told && cgm_registry_add(&broker->orphan_comms, comm->id, comm->estate) == CGM_OK)
        cgm_estate_end(broker, comm->estate);
    else if (comm->state != CGM_COMM_READY && !comm->told)
        cgm_estate_free(broker, comm->estate);
    else
        cgm_estate_settle(broker, comm->estate, CGM_MSG_COMM_REMOVE, &remove.base, NULL);
}

static void comm_free(struct cgm_broker *broker, struct cgm_comm *comm)
{
    cgm_user_log(broker, comm->owner.uid, CGM_LOG_INFO, "comm %ju: gone with its last session",
                 (uintmax_t)comm->id);
    cgm_registry_remove(&broker->comms, comm->id);
    settle(broker, comm);
    while (comm->joins) {
        struct cgm_join *join = comm->joins;
        comm->joins = join->next;
        free(join);
    }
    free(comm);
}

/* Removes the joins that `which` picks and answers each. */
static void end_joins(struct cgm_broker *broker, struct cgm_comm *comm, uint64_t session_or_0,
                      int status, const char *detail)
{
    for (struct cgm_join **at = &comm->joins; *at;) {
        struct cgm_join *join = *at;
        if (session_or_0 && join->session != session_or_0) {
            at = &join->next;
            continue;
        }
        *at = join->next;
        cgm_answer_error(broker, join->session, join->serial, status, "%s", detail);
        free(join);
    }
}

/* Gives up the session's ranks. In a complete comm they are lost for good. */
static void drop_ranks(struct cgm_broker *broker, struct cgm_comm *comm, uint64_t session)
{
    char detail[160];
    int lost = -1;
    for (uint32_t rank = 0; rank < comm->size; rank++) {
        if (comm->sessions[rank] != session)
            continue;
        comm->sessions[rank] = 0;
        lost = (int)rank;
    }
    if (lost < 0 || comm->state == CGM_COMM_FORMING)
        return;
    if (comm->lost_rank < 0)
        comm->lost_rank = lost;
    comm->broken = true;
    cgm_user_log(broker, comm->owner.uid, CGM_LOG_INFO, "comm %ju: lost rank %d with session %ju",
                 (uintmax_t)comm->id, lost, (uintmax_t)session);
    snprintf(detail, sizeof(detail), "rank %d of comm %ju left before the join was complete", lost,
             (uintmax_t)comm->id);
    end_joins(broker, comm, 0, CGM_PEER_LOST, detail);
}

/* May free the comm. */
static void let_go(struct cgm_session *session, struct cgm_comm *comm)
{
    struct cgm_broker *broker = session->broker;
    cgm_registry_remove(&session->comms, comm->id);
    if (comm->creator == session->id)
        comm->creator = 0;
    drop_ranks(broker, comm, session->id);
    end_joins(broker, comm, session->id, CGM_CANCELLED, "the session has left the comm");
    if (--comm->holders == 0)
        comm_free(broker, comm);
}

static void leave(struct cgm_session *session, struct cgm_comm *comm)
{
    Cgm__CommRankLeft left = CGM__COMM_RANK_LEFT__INIT;
    left.comm = comm->id;
    left.session = session->id;
    if (comm->state != CGM_COMM_FORMING && cgm_comm_has_session(comm, session->id))
        cgm_tell_executor(session->broker, CGM_MSG_COMM_RANK_LEFT, &left.base);
    cgm_plan_drop_all(session, comm->id);
    let_go(session, comm);
}

/* Some session that is in it: of who pays, if he has one, else of anybody. */
static struct cgm_session *find_payer(const struct cgm_broker *broker, const struct cgm_comm *comm)
{
    struct cgm_session *payer = cgm_registry_find(&broker->sessions, comm->creator), *session;
    for (uint32_t rank = 0; (session = cgm_comm_next(broker, comm, &rank));)
        if (!payer || session->uid == comm->estate->uid)
            payer = session;
    return payer;
}

/* Somebody has left it. */
static void settle_cost(struct cgm_broker *broker, uint64_t id)
{
    char unused[384];
    struct cgm_comm *comm;
    struct cgm_session *payer;
    while ((comm = cgm_registry_find(&broker->comms, id)) && (payer = find_payer(broker, comm)) &&
           cgm_estate_pass(broker, comm->estate, payer->uid, unused, sizeof(unused)) != CGM_OK) {
        cgm_user_log(broker, payer->uid, CGM_LOG_WARNING,
                     "comm %ju: session %ju has to leave it: its owner has left, and uid %u has no "
                     "room for it in its quotas",
                     (uintmax_t)id, (uintmax_t)payer->id, (unsigned)payer->uid);
        end_joins(broker, comm, payer->id, CGM_QUOTA,
                  "the comm's owner has left it, and the quotas have no room for it");
        leave(payer, comm);
    }
}

static void drop_holder(struct cgm_session *session, struct cgm_comm *comm)
{
    uint64_t id = comm->id;
    let_go(session, comm);
    settle_cost(session->broker, id);
}

void cgm_comm_drop_all(struct cgm_session *session)
{
    uint64_t at = 0;
    struct cgm_comm *comm;
    while ((comm = cgm_registry_next(&session->comms, &at)))
        drop_holder(session, comm);
}

int cgm_comm_on_create(struct cgm_request *request)
{
    const Cgm__CommCreate *create = (const Cgm__CommCreate *)request->message;
    Cgm__CommReply reply = CGM__COMM_REPLY__INIT;
    struct cgm_comm *comm;
    int status = comm_new(request, create->name, create->size, create->mode, &comm);
    if (status != CGM_OK)
        return status;
    comm->creator = request->session->id;
    if (create->join_timeout_ms)
        comm->join_timeout_ns = create->join_timeout_ms * NS_PER_MS;
    reply.id = comm->id;
    reply.size = comm->size;
    cgm_reply(request, CGM_MSG_COMM_REPLY, &reply.base);
    return CGM_OK;
}

static int find_by_id_or_name(struct cgm_request *request, const Cgm__CommJoin *join,
                              struct cgm_comm **ret_comm)
{
    if (join->has_id && join->id != 0) {
        *ret_comm = cgm_registry_find(&request->broker->comms, join->id);
        return *ret_comm ? CGM_OK
                         : cgm_refuse(request, CGM_NOT_FOUND, "there is no comm %ju",
                                      (uintmax_t)join->id);
    }
    if (!join->name || !join->name[0])
        return cgm_refuse(request, CGM_INVALID_ARGUMENT, "CommJoin needs an id or a name");
    *ret_comm = find_by_name(request->broker, join->name);
    if (*ret_comm)
        return CGM_OK;
    if (join->create)
        return comm_new(request, join->name, join->size, join->mode, ret_comm);
    return cgm_refuse(request, CGM_NOT_FOUND, "there is no comm named %s",
                      cgm_name_is_valid(join->name) ? join->name : "so");
}

int cgm_comm_find_to_join(struct cgm_request *request)
{
    const Cgm__CommJoin *join = (const Cgm__CommJoin *)request->message;
    struct cgm_comm *comm;
    int status = find_by_id_or_name(request, join, &comm);
    if (status != CGM_OK)
        return status;
    if (!cgm_owner_lets(&comm->owner, request->session, CGM_MAY_WRITE))
        return cgm_refuse(request, CGM_PERMISSION,
                          "comm %ju belongs to uid %u with mode 0%o; uid %u may not join",
                          (uintmax_t)comm->id, (unsigned)comm->owner.uid, comm->owner.mode,
                          (unsigned)request->session->uid);
    if (join->create && !cgm_owner_is_trusted(&comm->owner, request->session, join->mode))
        return cgm_refuse(
            request, CGM_PERMISSION,
            "comm %ju belongs to uid %u; to join it, do not ask to create it, or give "
            "a mode that lets others in",
            (uintmax_t)comm->id, (unsigned)comm->owner.uid);
    request->object = comm;
    return CGM_OK;
}

int cgm_comm_find_held(struct cgm_request *request)
{
    uint64_t id = ((const Cgm__CommLeave *)request->message)->id;
    request->object = cgm_registry_find(&request->session->comms, id);
    return request->object ? CGM_OK
                           : cgm_refuse(request, CGM_NOT_FOUND, "session %ju is not in a comm %ju",
                                        (uintmax_t)request->session->id, (uintmax_t)id);
}

int cgm_comm_on_leave(struct cgm_request *request)
{
    struct cgm_comm *comm = request->object;
    uint64_t id = comm->id;
    leave(request->session, comm);
    settle_cost(request->broker, id);
    cgm_reply_ok(request);
    return CGM_OK;
}

static int check_rank(struct cgm_request *request, const struct cgm_comm *comm, uint32_t rank,
                      uint64_t ranks_before)
{
    if (rank >= comm->size)
        return cgm_refuse(request, CGM_INVALID_ARGUMENT, "rank is %u; it must be from 0 to %u",
                          rank, comm->size - 1);
    if (ranks_before & 1ull << rank)
        return cgm_refuse(request, CGM_INVALID_ARGUMENT, "rank %u is named twice", rank);
    if (comm->sessions[rank] != 0)
        return cgm_refuse(request, CGM_EXISTS, "rank %u of comm %ju is held by session %ju", rank,
                          (uintmax_t)comm->id, (uintmax_t)comm->sessions[rank]);
    return CGM_OK;
}

static int check_device(struct cgm_request *request, int32_t device)
{
    uint32_t n_devices = request->broker->executor.n_devices;
    if (device < -1 || device >= (int32_t)n_devices)
        return cgm_refuse(request, CGM_INVALID_ARGUMENT,
                          "device is %d; it must be from 0 to %u, or -1 for rank mod %u", device,
                          n_devices - 1, n_devices);
    return CGM_OK;
}

static int check_join(struct cgm_request *request, const struct cgm_comm *comm,
                      const Cgm__CommJoin *join, uint64_t *ret_ranks)
{
    uint64_t ranks = 0;
    int status = CGM_OK;
    if (comm->lost_rank >= 0)
        return cgm_refuse(request, CGM_PEER_LOST, "comm %ju has lost its rank %d; create a new one",
                          (uintmax_t)comm->id, comm->lost_rank);
    if (comm->broken)
        return cgm_refuse(request, CGM_NOT_SUPPORTED, "comm %ju was refused by the executor",
                          (uintmax_t)comm->id);
    if (join->has_size && join->size != 0 && join->size != comm->size)
        return cgm_refuse(request, CGM_INVALID_ARGUMENT, "size is %u; comm %ju has size %u",
                          join->size, (uintmax_t)comm->id, comm->size);
    if (join->n_ranks == 0)
        return cgm_refuse(request, CGM_INVALID_ARGUMENT, "ranks is empty");
    if (join->n_devices != 0 && join->n_devices != join->n_ranks)
        return cgm_refuse(request, CGM_INVALID_ARGUMENT, "there are %zu devices for %zu ranks",
                          join->n_devices, join->n_ranks);
    for (size_t i = 0; i < join->n_ranks && status == CGM_OK; i++) {
        status = check_rank(request, comm, join->ranks[i], ranks);
        if (status == CGM_OK && join->n_devices)
            status = check_device(request, join->devices[i]);
        if (status == CGM_OK)
            ranks |= 1ull << join->ranks[i];
    }
    *ret_ranks = ranks;
    return status;
}

/* The ranks are taken at once; the answer waits for the others. */
static int take_ranks(struct cgm_request *request, struct cgm_comm *comm,
                      const Cgm__CommJoin *message, uint64_t ranks)
{
    uint32_t n_devices = request->broker->executor.n_devices;
    struct cgm_join *join = malloc(sizeof(*join));
    if (!join || hold(request->session, comm) != CGM_OK) {
        free(join);
        return CGM_NO_MEMORY;
    }
    uint64_t timeout_ns = message->has_timeout_ms && message->timeout_ms
                              ? message->timeout_ms * NS_PER_MS
                              : comm->join_timeout_ns;
    *join = (struct cgm_join){
        .next = comm->joins,
        .session = request->session->id,
        .serial = request->serial,
        .ranks = ranks,
        .timeout_ns = timeout_ns,
        .deadline_ns = cgm_lived_ns(request->broker) + timeout_ns,
    };
    comm->joins = join;
    for (size_t i = 0; i < message->n_ranks; i++) {
        uint32_t rank = message->ranks[i];
        int32_t device = message->n_devices ? message->devices[i] : -1;
        comm->sessions[rank] = request->session->id;
        comm->devices[rank] = device < 0 ? rank % n_devices : (uint32_t)device;
    }
    return CGM_OK;
}

static void on_tell_answered(struct cgm_broker *broker, const struct cgm_call *call,
                             const struct cgm_result *result)
{
    cgm_comm_on_added(broker, call->object, result);
}

/* A comm that this very request created, and that nobody got into, goes again. */
static void forget_unused(struct cgm_session *session, struct cgm_comm *comm)
{
    if (comm->creator != session->id && !cgm_comm_has_session(comm, session->id) &&
        cgm_registry_find(&session->comms, comm->id))
        drop_holder(session, comm);
}

int cgm_comm_on_join(struct cgm_request *request)
{
    const Cgm__CommJoin *join = (const Cgm__CommJoin *)request->message;
    struct cgm_comm *comm = request->object;
    char missing[256];
    uint64_t ranks = 0;
    int status = check_join(request, comm, join, &ranks);
    if (status == CGM_OK && request->session->uid == comm->owner.uid) /* perhaps he comes back */
        status = cgm_estate_pass(request->broker, comm->estate, comm->owner.uid, request->detail,
                                 sizeof(request->detail));
    if (status == CGM_OK)
        status = take_ranks(request, comm, join, ranks);
    if (status != CGM_OK) {
        forget_unused(request->session, comm);
        return status;
    }
    if (cgm_comm_missing(comm, missing, sizeof(missing)) == 0) {
        struct cgm_call call = {.done = on_tell_answered, .object = comm->id};
        struct cgm_result result = {.detail = "it cannot be told"};
        comm->state = CGM_COMM_ADDING;
        result.status = cgm_comm_tell(request->broker, comm, &call);
        if (result.status != CGM_OK)
            cgm_comm_on_added(request->broker, comm->id, &result);
        return CGM_OK;
    }
    cgm_comm_look_at_deadlines(request->broker);
    return CGM_OK;
}

int cgm_comm_tell(struct cgm_broker *broker, struct cgm_comm *comm, const struct cgm_call *call)
{
    Cgm__CommAdd add = CGM__COMM_ADD__INIT;
    add.comm = comm->id;
    add.has_uid = 1;
    add.uid = comm->owner.uid;
    add.journal = comm->index;
    add.n_sessions = add.n_devices = comm->size;
    add.sessions = comm->sessions;
    add.devices = comm->devices;
    add.join_timeout_ns = comm->join_timeout_ns;
    add.has_burnt = add.has_burnt_status = comm->burnt != 0;
    add.burnt = comm->burnt;
    add.burnt_status = CGM_EXECUTOR_LOST;
    int status = cgm_call_executor(broker, CGM_MSG_COMM_ADD, &add.base, NULL, 0, call);
    comm->told = status == CGM_OK;
    return status;
}

/* The comm went while it was being made, or taken over by a new executor. */
static void remove_orphan(struct cgm_broker *broker, uint64_t id, const struct cgm_result *result)
{
    Cgm__CommRemove remove = CGM__COMM_REMOVE__INIT;
    struct cgm_estate *estate = cgm_registry_remove(&broker->orphan_comms, id);
    remove.comm = id;
    remove.status = CGM_PEER_LOST;
    if (result->status != CGM_OK)
        cgm_estate_free(broker, estate);
    else if (estate)
        cgm_estate_settle(broker, estate, CGM_MSG_COMM_REMOVE, &remove.base, NULL);
    else
        cgm_tell_executor(broker, CGM_MSG_COMM_REMOVE, &remove.base);
}

static void answer_join(struct cgm_broker *broker, const struct cgm_comm *comm,
                        const struct cgm_join *join)
{
    Cgm__CommReply reply = CGM__COMM_REPLY__INIT;
    uint32_t devices[CGM_COMM_SIZE_MAX];
    memcpy(devices, comm->devices, sizeof(devices));
    reply.id = comm->id;
    reply.size = comm->size;
    reply.n_devices = comm->size;
    reply.devices = devices;
    cgm_answer(broker, join->session, join->serial, CGM_MSG_COMM_REPLY, &reply.base, NULL, 0);
}

void cgm_comm_on_added(struct cgm_broker *broker, uint64_t id, const struct cgm_result *result)
{
    struct cgm_comm *comm = cgm_registry_find(&broker->comms, id);
    if (!comm)
        remove_orphan(broker, id, result);
    else
        comm->told = false;
    if (!comm || result->status == CGM_EXECUTOR_LOST)
        return; /* the next executor gets it */
    if (result->status != CGM_OK) {
        cgm_user_log(broker, comm->owner.uid, CGM_LOG_ERROR,
                     "comm %ju: the executor refuses it: %s", (uintmax_t)id, result->detail);
        comm->broken = true;
        end_joins(broker, comm, 0, result->status, result->detail);
        return;
    }
    comm->state = CGM_COMM_READY;
    while (comm->joins) {
        struct cgm_join *join = comm->joins;
        comm->joins = join->next;
        answer_join(broker, comm, join);
        free(join);
    }
}

static void expire_join(struct cgm_broker *broker, struct cgm_comm *comm, struct cgm_join *join)
{
    char missing[256];
    struct cgm_session *session = cgm_registry_find(&broker->sessions, join->session);
    unsigned count = cgm_comm_missing(comm, missing, sizeof(missing));
    cgm_answer_error(broker, join->session, join->serial, CGM_JOIN_TIMEOUT,
                     "rank%s %s of comm %ju%s%s did not join within %ju ms", count == 1 ? "" : "s",
                     missing, (uintmax_t)comm->id, comm->name[0] ? " " : "", comm->name,
                     (uintmax_t)(join->timeout_ns / NS_PER_MS));
    for (uint32_t rank = 0; rank < comm->size; rank++)
        if (join->ranks & 1ull << rank)
            comm->sessions[rank] = 0;
    free(join);
    forget_unused(session, comm);
}

/* Expires at most one join; true when there may be more. */
static bool expire_one(struct cgm_broker *broker, struct cgm_comm *comm, uint64_t now_ns,
                       uint64_t *next_ns)
{
    for (struct cgm_join **at = &comm->joins; *at; at = &(*at)->next) {
        struct cgm_join *join = *at;
        if (join->deadline_ns <= now_ns) {
            *at = join->next;
            expire_join(broker, comm, join);
            return true;
        }
        if (join->deadline_ns < *next_ns)
            *next_ns = join->deadline_ns;
    }
    return false;
}

static void on_timer(uv_timer_t *timer)
{
    cgm_comm_look_at_deadlines(timer->data);
}

void cgm_comm_look_at_deadlines(struct cgm_broker *broker)
{
    uint64_t now_ns = cgm_lived_ns(broker), next_ns = UINT64_MAX, at = 0;
    struct cgm_comm *comm;
    while ((comm = cgm_registry_next(&broker->comms, &at))) {
        uint64_t id = comm->id;
        while (comm && comm->state == CGM_COMM_FORMING &&
               expire_one(broker, comm, now_ns, &next_ns))
            comm = cgm_registry_find(&broker->comms, id);
    }
    if (next_ns == UINT64_MAX)
        uv_timer_stop(&broker->join_timer);
    else
        uv_timer_start(&broker->join_timer, on_timer, (next_ns - now_ns) / NS_PER_MS + 1, 0);
}

void cgm_comm_free_all(struct cgm_broker *broker)
{
    uint64_t at = 0;
    struct cgm_comm *comm;
    while ((comm = cgm_registry_next(&broker->comms, &at)))
        comm_free(broker, comm);
}
