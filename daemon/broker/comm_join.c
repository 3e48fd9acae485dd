#include "daemon/broker/comm_join.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/broker/broker.h"
#include "daemon/broker/comm.h"
#include "daemon/broker/plan_make.h"
#include "daemon/broker/session.h"
#include "daemon/broker/user_log.h"
#include "proto/ranks.h"

#define NS_PER_MS 1000000ull
#define LOOK_MS 10u
#define LOOK_AGAIN_NS (1000 * NS_PER_MS)

void cgm_comm_end_joins(struct cgm_broker *broker, struct cgm_comm *comm, uint64_t session_or_0,
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

/* ---- which comm -------------------------------------------------------------------------------
 */

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
    *ret_comm = cgm_comm_find_by_name(request->broker, join->name);
    if (*ret_comm)
        return CGM_OK;
    if (join->create)
        return cgm_comm_new(request, join->name, join->size, join->mode, ret_comm);
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

/* ---- the executor is told ---------------------------------------------------------------------
 */

static void on_tell_answered(struct cgm_broker *broker, const struct cgm_call *call,
                             const struct cgm_result *result)
{
    cgm_comm_on_added(broker, call->object, result);
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
        cgm_estate_settle(broker, estate, CGM_MSG_COMM_REMOVE, &remove.base);
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

/* While it was being made the executor did not know it, and took no notice. */
static void tell_who_left(struct cgm_broker *broker, struct cgm_comm *comm)
{
    Cgm__CommRankLeft left = CGM__COMM_RANK_LEFT__INIT;
    left.comm = comm->id;
    for (uint32_t rank = 0; rank < comm->size; rank++) {
        left.session = comm->left[rank];
        comm->left[rank] = 0;
        if (left.session != 0)
            cgm_tell_executor(broker, CGM_MSG_COMM_RANK_LEFT, &left.base);
    }
}

static void refused(struct cgm_broker *broker, struct cgm_comm *comm,
                    const struct cgm_result *result)
{
    cgm_user_log(broker, comm->owner.uid, CGM_LOG_ERROR, "comm %ju: the executor refuses it: %s",
                 (uintmax_t)comm->id, result->detail);
    if (comm->joins) {
        cgm_comm_disband(broker, comm, result->status, result->detail);
    } else { /* it was made before, by another executor */
        cgm_comm_break(broker, comm);
        cgm_plan_unmake_all(broker, comm->id);
    }
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
        refused(broker, comm, result);
        return;
    }
    comm->state = CGM_COMM_READY;
    tell_who_left(broker, comm);
    while (comm->joins) {
        struct cgm_join *join = comm->joins;
        comm->joins = join->next;
        answer_join(broker, comm, join);
        free(join);
    }
}

/* ---- who does not -----------------------------------------------------------------------------
 */

/* A comm that this very request created, and that nobody got into, goes again. */
static void forget_unused(struct cgm_session *session, struct cgm_comm *comm)
{
    if (comm->creator != session->id && !cgm_comm_has_session(comm, session->id) &&
        cgm_registry_find(&session->comms, comm->id))
        cgm_comm_drop(session, comm);
}

static void answer_late(struct cgm_broker *broker, const struct cgm_comm *comm,
                        const struct cgm_join *join)
{
    char ranks[256], name[CGM_NAME_BYTES_MAX + 2];
    uintmax_t id = comm->id, timeout_ms = join->timeout_ns / NS_PER_MS;
    bool came = join->absent == 0;
    unsigned count =
        cgm_ranks_text(came ? cgm_comm_missing(comm) : join->absent, ranks, sizeof(ranks));
    snprintf(name, sizeof(name), "%s%s", comm->name[0] ? " " : "", comm->name);
    if (join->complete)
        cgm_answer_error(broker, join->session, join->serial, CGM_JOIN_TIMEOUT,
                         "all ranks of comm %ju%s have joined, but there is no executor; it did "
                         "not come within %ju ms",
                         id, name, timeout_ms);
    else
        cgm_answer_error(broker, join->session, join->serial, CGM_JOIN_TIMEOUT,
                         "rank%s %s of comm %ju%s did not %s within %ju ms", count == 1 ? "" : "s",
                         ranks, id, name, came ? "stay until all were there" : "join", timeout_ms);
}

/* The others wait on, each for its own time. */
static void expire_join(struct cgm_broker *broker, struct cgm_comm *comm, struct cgm_join *join)
{
    struct cgm_session *session = cgm_registry_find(&broker->sessions, join->session);
    answer_late(broker, comm, join);
    comm->state = CGM_COMM_FORMING;
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

static void on_timer(uv_timer_t *timer);

/* The executor is at it, and has executor_timeout for that. */
static void leave_to_executor(const struct cgm_comm *comm, uint64_t now_ns, uint64_t *next_ns)
{
    for (const struct cgm_join *join = comm->joins; join; join = join->next) {
        uint64_t look_ns = join->deadline_ns > now_ns ? join->deadline_ns : now_ns + LOOK_AGAIN_NS;
        *next_ns = look_ns < *next_ns ? look_ns : *next_ns;
    }
}

/* Every look is at all comms: not more often than that, however many deadlines there are. */
static void look_again_by(struct cgm_broker *broker, uint64_t deadline_ns, uint64_t now_ns)
{
    uint64_t wait_ms = deadline_ns > now_ns ? (deadline_ns - now_ns) / NS_PER_MS + 1 : 0;
    wait_ms = wait_ms < LOOK_MS ? LOOK_MS : wait_ms;
    if (!uv_is_active((const uv_handle_t *)&broker->join_timer) ||
        uv_timer_get_due_in(&broker->join_timer) > wait_ms)
        uv_timer_start(&broker->join_timer, on_timer, wait_ms, 0);
}

/* Answers the joins whose time is over and sets the timer for the next one. */
static void look_at_deadlines(struct cgm_broker *broker)
{
    uint64_t now_ns = cgm_lived_ns(broker), next_ns = UINT64_MAX, at = 0;
    struct cgm_comm *comm;
    while ((comm = cgm_registry_next(&broker->comms, &at))) {
        uint64_t id = comm->id;
        while (comm && !comm->told && expire_one(broker, comm, now_ns, &next_ns))
            comm = cgm_registry_find(&broker->comms, id);
        if (comm && comm->told)
            leave_to_executor(comm, now_ns, &next_ns);
    }
    if (next_ns != UINT64_MAX)
        look_again_by(broker, next_ns, now_ns);
}

static void on_timer(uv_timer_t *timer)
{
    look_at_deadlines(timer->data);
}

void cgm_comm_want_ranks(struct cgm_comm *comm)
{
    for (struct cgm_join *join = comm->joins; join; join = join->next)
        join->complete = false;
}

/* ---- who comes --------------------------------------------------------------------------------
 */

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
    int status = cgm_comm_check_lives(request, comm);
    if (status != CGM_OK)
        return status;
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
    if (!join || cgm_comm_hold(request->session, comm) != CGM_OK) {
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
        .absent = cgm_comm_missing(comm),
        .timeout_ns = timeout_ns,
        .deadline_ns = cgm_lived_ns(request->broker) + timeout_ns,
    };
    comm->joins = join;
    for (; join; join = join->next)
        join->absent &= ~ranks;
    for (size_t i = 0; i < message->n_ranks; i++) {
        uint32_t rank = message->ranks[i];
        int32_t device = message->n_devices ? message->devices[i] : -1;
        comm->sessions[rank] = request->session->id;
        comm->devices[rank] = device < 0 ? rank % n_devices : (uint32_t)device;
    }
    return CGM_OK;
}

int cgm_comm_on_join(struct cgm_request *request)
{
    const Cgm__CommJoin *join = (const Cgm__CommJoin *)request->message;
    struct cgm_comm *comm = request->object;
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
    look_again_by(request->broker, comm->joins->deadline_ns, cgm_lived_ns(request->broker));
    if (cgm_comm_missing(comm) == 0) {
        struct cgm_call call = {.done = on_tell_answered, .object = comm->id};
        struct cgm_result result = {.detail = "it cannot be told"};
        comm->state = CGM_COMM_ADDING;
        for (struct cgm_join *each = comm->joins; each; each = each->next)
            each->complete = true;
        result.status = cgm_comm_tell(request->broker, comm, &call);
        if (result.status != CGM_OK)
            cgm_comm_on_added(request->broker, comm->id, &result);
    }
    return CGM_OK;
}
