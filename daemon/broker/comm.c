#include "daemon/broker/comm.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/broker/broker.h"
#include "daemon/broker/comm_join.h"
#include "daemon/broker/plan_hold.h"
#include "daemon/broker/session.h"
#include "daemon/broker/user_log.h"
#include "proto/ranks.h"

#define NS_PER_MS 1000000ull
#define NS_PER_S 1000000000ull
/* From 0 down: what devices have. Where one has fewer some pairs count that are the same there. */
#define PRIORITIES 6

uint64_t cgm_comm_missing(const struct cgm_comm *comm)
{
    uint64_t missing = 0;
    for (uint32_t rank = 0; rank < comm->size; rank++)
        if (comm->sessions[rank] == 0)
            missing |= 1ull << rank;
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

struct cgm_comm *cgm_comm_find_by_name(struct cgm_broker *broker, const char *name)
{
    const char *found = cgm_names_find(&broker->comm_names, name);
    return found ? (struct cgm_comm *)(found - offsetof(struct cgm_comm, name)) : NULL;
}

void cgm_comm_break(struct cgm_broker *broker, struct cgm_comm *comm)
{
    comm->broken = true;
    cgm_names_remove(&broker->comm_names, comm->name);
}

int cgm_comm_check_lives(struct cgm_request *request, const struct cgm_comm *comm)
{
    if (comm->lost_rank >= 0)
        return cgm_refuse(request, CGM_PEER_LOST, "comm %ju has lost its rank %d; create a new one",
                          (uintmax_t)comm->id, comm->lost_rank);
    if (comm->broken)
        return cgm_refuse(request, CGM_PEER_LOST, "comm %ju was given up: %s; create a new one",
                          (uintmax_t)comm->id,
                          comm->state == CGM_COMM_READY ? "the executor did not take it over"
                                                        : "no executor made it");
    return CGM_OK;
}

static int check_new(struct cgm_request *request, const char *name, uint32_t size)
{
    if (name && !cgm_name_is_valid(name))
        return cgm_refuse(request, CGM_INVALID_ARGUMENT,
                          "name of the comm must be 1 to %u characters of [A-Za-z0-9._:-], the "
                          "first none of . - :",
                          CGM_NAME_BYTES_MAX);
    if (name && cgm_comm_find_by_name(request->broker, name))
        return cgm_refuse(request, CGM_EXISTS, "there is a comm named %s already", name);
    if (size < 1 || size > CGM_COMM_SIZE_MAX)
        return cgm_refuse(request, CGM_INVALID_ARGUMENT, "size is %u; it must be from 1 to %u",
                          size, CGM_COMM_SIZE_MAX);
    return CGM_OK;
}

/* The session holds the comm from now on. */
int cgm_comm_hold(struct cgm_session *session, struct cgm_comm *comm)
{
    int status = cgm_registry_add(&session->comms, comm->id, comm);
    if (status == CGM_EXISTS)
        return CGM_OK;
    if (status == CGM_OK)
        comm->holders++;
    return status;
}

static void delist(struct cgm_broker *broker, struct cgm_comm *comm)
{
    cgm_names_remove(&broker->comm_names, comm->name);
    cgm_registry_remove(&broker->comms, comm->id);
}

/* Where it is found by its id, and by its name if it has one; the session holds it. */
static int list(struct cgm_session *session, struct cgm_comm *comm)
{
    struct cgm_broker *broker = session->broker;
    int status = cgm_registry_add(&broker->comms, comm->id, comm);
    if (status == CGM_OK && comm->name[0])
        status = cgm_names_add(&broker->comm_names, comm->name);
    if (status == CGM_OK)
        status = cgm_comm_hold(session, comm);
    if (status != CGM_OK)
        delist(broker, comm);
    return status;
}

/* Another comm had its place in the journal: what that one had come to is not this one's. */
static void forget_numbers(struct cgm_journal *journal, uint32_t index)
{
    bool was_used = atomic_load(&journal->comm_high[index]) != 0;
    atomic_store(&journal->comm_high[index], 0);
    atomic_store(&journal->comm_retired[index], 0);
    if (was_used) /* else it has no pages, and would get some */
        memset((void *)journal->comm_ended[index], 0, sizeof(journal->comm_ended[index]));
}

void cgm_comm_note_ended(struct cgm_broker *broker, uint64_t id, uint64_t number)
{
    const struct cgm_comm *comm = cgm_registry_find(&broker->comms, id);
    struct cgm_journal *journal = broker->executor.journal;
    if (comm)
        atomic_store(&journal->comm_ended[comm->index][number % CGM_COMM_WINDOW],
                     cgm_journal_end(number, CGM_OK));
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
        forget_numbers(broker->executor.journal, comm->index);
        return CGM_OK;
    }
    cgm_estate_free(broker, comm->estate);
    return cgm_refuse(request, CGM_QUOTA, "there are %u comms, the most that is possible",
                      broker->comm_indices.used);
}

/* As the executor takes the nearest that there is. */
static int urgency(int priority)
{
    int nearest = priority < 0 ? priority : 0, last = 1 - PRIORITIES;
    return -(nearest > last ? nearest : last);
}

/* When all that a comm may have are paid for a further one is free: the executor refuses it, or has
 * fewer than those, as it came after another one and not every plan is left. */
int cgm_comm_charge_pair(struct cgm_broker *broker, struct cgm_comm *comm, int gemm_priority,
                         int comm_priority, char *ret_detail, size_t size)
{
    uint64_t pair = 1ull << (urgency(gemm_priority) * PRIORITIES + urgency(comm_priority));
    char why[256] = "";
    if ((comm->pairs & pair) || __builtin_popcountll(comm->pairs) == CGM_QUEUE_SETS_MAX)
        return CGM_OK;
    int status = cgm_quota_add(broker, comm->estate->uid, &comm->estate->charge, CGM_QUOTA_RANKS,
                               comm->size, why, sizeof(why));
    if (status != CGM_OK)
        return cgm_detail(ret_detail, size, status, "queues of other priorities: %s", why);
    comm->pairs |= pair;
    return CGM_OK;
}

int cgm_comm_new(struct cgm_request *request, const char *name, uint32_t size, uint32_t mode,
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
    comm->pairs = 1; /* both 0 */
    comm->lost_rank = -1;
    comm->join_timeout_ns = broker->config.join_timeout * NS_PER_S;
    snprintf(comm->name, sizeof(comm->name), "%s", name ? name : "");
    status = list(request->session, comm);
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
        cgm_estate_settle(broker, comm->estate, CGM_MSG_COMM_REMOVE, &remove.base);
}

static void comm_free(struct cgm_broker *broker, struct cgm_comm *comm)
{
    cgm_user_log(broker, comm->owner.uid, CGM_LOG_INFO, "comm %ju: gone with its last session",
                 (uintmax_t)comm->id);
    delist(broker, comm);
    settle(broker, comm);
    while (comm->joins) {
        struct cgm_join *join = comm->joins;
        comm->joins = join->next;
        free(join);
    }
    free(comm);
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
        comm->left[rank] = comm->told ? session : 0;
        lost = (int)rank;
    }
    if (lost < 0 || comm->state == CGM_COMM_FORMING)
        return;
    if (comm->lost_rank < 0)
        comm->lost_rank = lost;
    cgm_comm_break(broker, comm);
    cgm_user_log(broker, comm->owner.uid, CGM_LOG_INFO, "comm %ju: lost rank %d with session %ju",
                 (uintmax_t)comm->id, lost, (uintmax_t)session);
    snprintf(detail, sizeof(detail), "rank %d of comm %ju left before the join was complete", lost,
             (uintmax_t)comm->id);
    if (comm->joins)
        cgm_comm_disband(broker, comm, CGM_PEER_LOST, detail);
}

/* May free the comm. */
static void let_go(struct cgm_session *session, struct cgm_comm *comm)
{
    struct cgm_broker *broker = session->broker;
    cgm_registry_remove(&session->comms, comm->id);
    if (comm->creator == session->id)
        comm->creator = 0;
    drop_ranks(broker, comm, session->id);
    cgm_comm_end_joins(broker, comm, session->id, CGM_CANCELLED, "the session has left the comm");
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

static void turn_out(struct cgm_session *session, struct cgm_comm *comm, const char *why)
{
    char detail[448];
    cgm_user_log(session->broker, session->uid, CGM_LOG_WARNING,
                 "comm %ju: session %ju has to leave it: its owner has left, and uid %u has no "
                 "room for it in its quotas: %s",
                 (uintmax_t)comm->id, (uintmax_t)session->id, (unsigned)session->uid, why);
    snprintf(detail, sizeof(detail), "the comm's owner has left it: %s", why);
    cgm_comm_end_joins(session->broker, comm, session->id, CGM_QUOTA, detail);
    leave(session, comm);
}

/* Somebody has left it. */
static void settle_cost(struct cgm_broker *broker, uint64_t id)
{
    struct cgm_comm *comm;
    struct cgm_session *payer;
    while ((comm = cgm_registry_find(&broker->comms, id)) && (payer = find_payer(broker, comm))) {
        char why[384] = "";
        if (cgm_estate_pass(broker, comm->estate, payer->uid, why, sizeof(why)) == CGM_OK)
            return;
        turn_out(payer, comm, why);
    }
}

void cgm_comm_disband(struct cgm_broker *broker, struct cgm_comm *comm, int status,
                      const char *detail)
{
    struct cgm_session *session;
    uint64_t id = comm->id;
    cgm_comm_break(broker, comm);
    comm->state = CGM_COMM_FORMING; /* nobody loses a rank of what never was */
    cgm_comm_end_joins(broker, comm, 0, status, detail);
    for (uint32_t rank = 0; comm && (session = cgm_comm_next(broker, comm, &rank));) {
        if (session->id != comm->creator)
            let_go(session, comm);
        comm = cgm_registry_find(&broker->comms, id);
    }
    if (comm)
        memset(comm->sessions, 0, sizeof(comm->sessions));
    settle_cost(broker, id);
}

void cgm_comm_drop(struct cgm_session *session, struct cgm_comm *comm)
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
        cgm_comm_drop(session, comm);
}

int cgm_comm_on_create(struct cgm_request *request)
{
    const Cgm__CommCreate *create = (const Cgm__CommCreate *)request->message;
    Cgm__CommReply reply = CGM__COMM_REPLY__INIT;
    struct cgm_comm *comm;
    int status = cgm_comm_new(request, create->name, create->size, create->mode, &comm);
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

void cgm_comm_free_all(struct cgm_broker *broker)
{
    uint64_t at = 0;
    struct cgm_comm *comm;
    while ((comm = cgm_registry_next(&broker->comms, &at)))
        comm_free(broker, comm);
}
