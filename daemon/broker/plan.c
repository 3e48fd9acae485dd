#include "daemon/broker/plan.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "daemon/broker/broker.h"
#include "daemon/broker/buffer.h"
#include "daemon/broker/comm.h"
#include "daemon/broker/log.h"
#include "daemon/broker/session.h"
#include "daemon/broker/siphash.h"
#include "daemon/broker/tune.h"
#include "daemon/broker/user_log.h"
#include "proto/status.h"
#include "proto/types.h"

#define REFERENCES_MAX (1u << 20) /* of one session to one plan */
#define FDS_PER_RANK 2u           /* user buffer, and workspace of the executor */
/* What the executor is told must fit into a packet. */
#define BUFFER_SHAPE_MAX 8u /* dimensions */
#define COUNTS_MAX (CGM_COMM_SIZE_MAX * CGM_COMM_SIZE_MAX)

/* ---- objects ----------------------------------------------------------------------------------
 */

static void free_waiters(struct cgm_broker *broker, struct cgm_plan *plan)
{
    while (plan->waiters) {
        struct cgm_plan_waiter *waiter = plan->waiters;
        plan->waiters = waiter->next;
        cgm_session_count_call(broker, waiter->session, -1);
        free(waiter);
    }
}

static void plan_free(struct cgm_broker *broker, struct cgm_plan *plan)
{
    Cgm__PlanRemove remove = CGM__PLAN_REMOVE__INIT;
    cgm_user_log(broker, plan->owner.uid, CGM_LOG_INFO, "plan %016jx: freed", (uintmax_t)plan->id);
    cgm_registry_remove(&broker->plans, plan->id);
    remove.id = plan->id;
    cgm_estate_settle(broker, plan->estate, CGM_MSG_PLAN_REMOVE, &remove.base, NULL);
    for (uint32_t rank = 0; rank < plan->world; rank++)
        if (plan->buffers[rank])
            cgm_buffer_free_of_plan(broker, plan->buffers[rank]);
    free_waiters(broker, plan);
    free(plan->request);
    free(plan);
}

static int make_buffers(struct cgm_broker *broker, struct cgm_plan *plan,
                        const struct cgm_comm *comm)
{
    int status = CGM_OK;
    for (uint32_t rank = 0; rank < plan->world && status == CGM_OK; rank++) {
        status = cgm_buffer_new_for_plan(broker, &plan->owner, plan->id, comm->devices[rank],
                                         &plan->buffers[rank]);
        if (status == CGM_OK)
            cgm_estate_add_index(plan->estate, plan->buffers[rank]->index);
    }
    return status;
}

/* Takes over the packed request on success. */
static int plan_new(struct cgm_request *request, uint64_t id, uint8_t *packed, size_t bytes,
                    struct cgm_plan **ret_plan)
{
    const Cgm__PlanCreate *create = (const Cgm__PlanCreate *)request->message;
    const struct cgm_comm *comm = request->object;
    struct cgm_broker *broker = request->broker;
    struct cgm_owner owner;
    struct cgm_estate *estate = NULL;
    const struct cgm_charge charge = {{
        [CGM_QUOTA_PLANS] = 1,
        [CGM_QUOTA_FDS] = FDS_PER_RANK * comm->size,
    }};
    int status = cgm_owner_init(&owner, request->session, create->mode, request->detail,
                                sizeof(request->detail));
    if (status == CGM_OK)
        status = cgm_estate_new(broker, owner.uid, &charge, &broker->buffer_indices, comm->size,
                                request->detail, sizeof(request->detail), &estate);
    if (status != CGM_OK)
        return status;
    struct cgm_plan *plan = calloc(1, sizeof(*plan));
    if (!plan || cgm_registry_add(&broker->plans, id, plan) != CGM_OK) {
        cgm_estate_free(broker, estate);
        free(plan);
        return CGM_NO_MEMORY;
    }
    plan->id = id;
    plan->estate = estate;
    plan->comm = comm->id;
    plan->owner = owner;
    plan->world = comm->size;
    status = make_buffers(broker, plan, comm);
    if (status != CGM_OK) {
        plan_free(broker, plan);
        return status;
    }
    plan->request = packed;
    plan->request_bytes = bytes;
    *ret_plan = plan;
    return CGM_OK;
}

/* ---- references -------------------------------------------------------------------------------
 */

static int reference(struct cgm_session *session, struct cgm_plan *plan)
{
    char unused[384];
    struct cgm_plan_hold *hold = cgm_registry_find(&session->plans, plan->id);
    /* Who comes back to what is his has it at his own cost again. */
    if (session->uid == plan->owner.uid) {
        int status =
            cgm_estate_pass(session->broker, plan->estate, session->uid, unused, sizeof(unused));
        if (status != CGM_OK)
            return status;
    }
    if (!hold) {
        hold = calloc(1, sizeof(*hold));
        if (!hold || cgm_registry_add(&session->plans, plan->id, hold) != CGM_OK) {
            free(hold);
            return CGM_NO_MEMORY;
        }
        hold->plan = plan;
    }
    if (hold->references == REFERENCES_MAX)
        return CGM_QUOTA;
    hold->references++;
    plan->references++;
    return CGM_OK;
}

static void let_go(struct cgm_session *session, struct cgm_plan_hold *hold)
{
    struct cgm_plan *plan = hold->plan;
    for (uint32_t rank = 0; rank < plan->world; rank++)
        cgm_buffer_drop_of_plan(session, plan->buffers[rank]);
    cgm_registry_remove(&session->plans, plan->id);
    plan->references -= hold->references;
    free(hold);
}

/* Some session that has it: of who pays, if he has one, else of anybody. */
static struct cgm_session *find_payer(const struct cgm_broker *broker, const struct cgm_plan *plan)
{
    const struct cgm_comm *comm = cgm_registry_find(&broker->comms, plan->comm);
    struct cgm_session *payer = NULL, *session;
    for (uint32_t rank = 0; comm && (session = cgm_comm_next(broker, comm, &rank));)
        if (cgm_registry_find(&session->plans, plan->id) &&
            (!payer || session->uid == plan->estate->uid))
            payer = session;
    return payer;
}

/* Its owner pays while he has it, then another while that one has; who has no room for it in his
 * quotas loses it. */
static void settle_cost(struct cgm_broker *broker, struct cgm_plan *plan)
{
    char unused[384];
    struct cgm_session *payer;
    while ((payer = find_payer(broker, plan)) &&
           cgm_estate_pass(broker, plan->estate, payer->uid, unused, sizeof(unused)) != CGM_OK) {
        cgm_user_log(broker, payer->uid, CGM_LOG_WARNING,
                     "plan %016jx: session %ju loses it: who paid for it has let go of it, and uid "
                     "%u has no room for it in its quotas",
                     (uintmax_t)plan->id, (uintmax_t)payer->id, (unsigned)payer->uid);
        let_go(payer, cgm_registry_find(&payer->plans, plan->id));
    }
}

static void free_unused(struct cgm_broker *broker, struct cgm_plan *plan)
{
    if (plan->waiters)
        return;
    settle_cost(broker, plan);
    if (plan->references == 0)
        plan_free(broker, plan);
}

/* May free the plan. */
static void drop_references(struct cgm_session *session, struct cgm_plan_hold *hold, uint32_t count)
{
    struct cgm_plan *plan = hold->plan;
    if (hold->references == count) {
        let_go(session, hold);
        free_unused(session->broker, plan);
        return;
    }
    hold->references -= count;
    plan->references -= count;
}

uint32_t cgm_plan_drop_all(struct cgm_session *session, uint64_t comm_or_0)
{
    uint64_t at = 0;
    uint32_t count = 0;
    struct cgm_plan_hold *hold;
    while ((hold = cgm_registry_next(&session->plans, &at))) {
        if (comm_or_0 && hold->plan->comm != comm_or_0)
            continue;
        count += hold->references;
        drop_references(session, hold, hold->references);
    }
    return count;
}

/* ---- making -----------------------------------------------------------------------------------
 */

int cgm_plan_find_comm(struct cgm_request *request)
{
    uint64_t id = ((const Cgm__PlanCreate *)request->message)->comm;
    struct cgm_comm *comm = cgm_registry_find(&request->session->comms, id);
    if (!comm || !cgm_comm_has_session(comm, request->session->id))
        return cgm_refuse(request, CGM_NOT_FOUND, "session %ju holds no rank of a comm %ju",
                          (uintmax_t)request->session->id, (uintmax_t)id);
    if (comm->lost_rank >= 0)
        return cgm_refuse(request, CGM_PEER_LOST, "comm %ju has lost its rank %d", (uintmax_t)id,
                          comm->lost_rank);
    if (comm->state != CGM_COMM_READY)
        return cgm_refuse(request, CGM_INVALID_ARGUMENT, "comm %ju is not complete yet",
                          (uintmax_t)id);
    request->object = comm;
    return CGM_OK;
}

static int pack_request(const Cgm__PlanCreate *create, uint8_t **ret_bytes, size_t *ret_size)
{
    Cgm__PlanCreate known = *create; /* without fields of later releases */
    known.base.n_unknown_fields = 0;
    *ret_size = protobuf_c_message_get_packed_size(&known.base);
    *ret_bytes = malloc(*ret_size + 1);
    if (!*ret_bytes)
        return CGM_NO_MEMORY;
    protobuf_c_message_pack(&known.base, *ret_bytes);
    return CGM_OK;
}

/* Of the packed request, which has the comm in it. */
static uint64_t id_of(const struct cgm_broker *broker, const uint8_t *packed, size_t bytes)
{
    uint64_t id = cgm_siphash(broker->plan_key, packed, bytes);
    return id ? id : 1;
}

static void send_reply(struct cgm_broker *broker, const struct cgm_plan *plan, uint64_t session,
                       uint32_t serial, bool existed)
{
    Cgm__PlanReply reply = CGM__PLAN_REPLY__INIT;
    Cgm__PlanCreate *create = cgm__plan_create__unpack(NULL, plan->request_bytes, plan->request);
    reply.id = plan->id;
    reply.algorithm = plan->algorithm;
    reply.reason = (char *)(uintptr_t)plan->reason;
    reply.has_comm = reply.has_workspace_bytes = reply.has_existed = 1;
    reply.comm = plan->comm;
    reply.has_op = create != NULL;
    reply.op = create ? create->op : 0;
    reply.workspace_bytes = plan->workspace_bytes;
    reply.existed = existed;
    cgm_answer(broker, session, serial, CGM_MSG_PLAN_REPLY, &reply.base, NULL, 0);
    if (create)
        cgm__plan_create__free_unpacked(create, NULL);
}

static int wait_for(struct cgm_request *request, struct cgm_plan *plan, bool existed)
{
    struct cgm_plan_waiter *waiter = malloc(sizeof(*waiter));
    if (!waiter)
        return CGM_NO_MEMORY;
    *waiter = (struct cgm_plan_waiter){plan->waiters, request->session->id, request->serial,
                                       existed, CGM_OK};
    plan->waiters = waiter;
    cgm_session_count_call(request->broker, request->session->id, 1);
    return CGM_OK;
}

/* Its owner has it in the quota already; now it is known how much it is. */
static int charge_bytes(struct cgm_broker *broker, struct cgm_plan *plan, uint64_t bytes,
                        char *ret_detail, size_t size)
{
    struct cgm_charge *charge = &plan->estate->charge;
    uint64_t charged = charge->amount[CGM_QUOTA_BYTES];
    if (bytes > charged)
        return cgm_quota_add(broker, plan->estate->uid, charge, CGM_QUOTA_BYTES, bytes - charged,
                             ret_detail, size);
    struct cgm_charge less = {{[CGM_QUOTA_BYTES] = charged - bytes}};
    charge->amount[CGM_QUOTA_BYTES] = bytes;
    cgm_quota_give(broker, plan->estate->uid, &less);
    return CGM_OK;
}

static void store_times(struct cgm_broker *broker, struct cgm_plan *plan,
                        const Cgm__PlanAdded *added)
{
    size_t n = added->n_tried;
    if (n == 0 || n > CGM_TIMES_MAX || n != added->n_tried_ns || n != added->n_tried_variant)
        return;
    memcpy(plan->times.algorithm, added->tried, n * sizeof(added->tried[0]));
    memcpy(plan->times.variant, added->tried_variant, n * sizeof(added->tried_variant[0]));
    memcpy(plan->times.ns, added->tried_ns, n * sizeof(added->tried_ns[0]));
    plan->times.n = (uint32_t)n;
    plan->times.at_s = (uint64_t)time(NULL);
    cgm_tune_remember(broker, plan);
}

static int store_answer(struct cgm_broker *broker, struct cgm_plan *plan,
                        const struct cgm_result *result, char *ret_detail, size_t size)
{
    const Cgm__PlanAdded *added = (const Cgm__PlanAdded *)result->message;
    uint64_t bytes = added->workspace_bytes * plan->world;
    for (unsigned i = 0; i < result->packet->n_fds; i++)
        if (!cgm_quota_spares_fd(result->packet->fds[i], ret_detail, size))
            return CGM_NO_MEMORY;
    int status = charge_bytes(broker, plan, bytes, ret_detail, size);
    if (status != CGM_OK)
        return status;
    plan->algorithm = added->algorithm;
    plan->user_rows = added->user_rows;
    plan->user_cols = added->user_cols;
    plan->user_dtype = added->user_dtype;
    plan->chunks = added->chunks;
    plan->workspace_bytes = added->workspace_bytes;
    snprintf(plan->reason, sizeof(plan->reason), "%s", added->reason);
    store_times(broker, plan, added);
    for (uint32_t rank = 0; rank < plan->world; rank++) {
        struct cgm_buffer *buffer = plan->buffers[rank];
        cgm_buffer_set_fd(broker, buffer, cgm_packet_take_fd(result->packet, rank));
        buffer->bytes = added->user_bytes;
        buffer->generation = (uint32_t)broker->executor.life; /* the executor counts it so too */
        buffer->tainted = false;
        buffer->ready = true;
    }
    return CGM_OK;
}

/* Gives every waiting session that is still in the comm its reference. */
static int reference_waiter(struct cgm_broker *broker, struct cgm_plan *plan, uint64_t id)
{
    const struct cgm_comm *comm = cgm_registry_find(&broker->comms, plan->comm);
    struct cgm_session *session = cgm_registry_find(&broker->sessions, id);
    if (!comm || !session || !cgm_comm_has_session(comm, id))
        return CGM_NOT_FOUND;
    return reference(session, plan);
}

/* Who has it at nobody's cost but his own, and has no room for it, has lost it already. */
static int check_waiter(const struct cgm_broker *broker, const struct cgm_plan *plan, uint64_t id)
{
    const struct cgm_session *session = cgm_registry_find(&broker->sessions, id);
    return session && cgm_registry_find(&session->plans, plan->id) ? CGM_OK : CGM_QUOTA;
}

static const char *why_without(int status)
{
    return status == CGM_NOT_FOUND ? "the session has left the comm" : cgm_status_text(status);
}

static void answer_waiters(struct cgm_broker *broker, struct cgm_plan *plan, int status,
                           const char *detail)
{
    for (struct cgm_plan_waiter *w = plan->waiters; w; w = w->next)
        w->status = status == CGM_OK ? reference_waiter(broker, plan, w->session) : status;
    settle_cost(broker, plan);
    for (const struct cgm_plan_waiter *w = plan->waiters; w; w = w->next) {
        int result = w->status == CGM_OK ? check_waiter(broker, plan, w->session) : w->status;
        if (result == CGM_OK)
            send_reply(broker, plan, w->session, w->serial, w->existed);
        else
            cgm_answer_error(broker, w->session, w->serial, result, "%s",
                             status == CGM_OK ? why_without(result) : detail);
    }
    free_waiters(broker, plan);
}

/* It is there, or it is not: whoever waited is told. */
static void settle(struct cgm_broker *broker, struct cgm_plan *plan, int status, const char *detail)
{
    plan->ready = status == CGM_OK;
    answer_waiters(broker, plan, status, detail);
    free_unused(broker, plan);
}

static void on_made(struct cgm_broker *broker, const struct cgm_call *call,
                    const struct cgm_result *result)
{
    char detail[384];
    struct cgm_plan *plan = cgm_registry_find(&broker->plans, call->object);
    int status = result->status;
    snprintf(detail, sizeof(detail), "%s", result->detail);
    if (status == CGM_OK)
        status = store_answer(broker, plan, result, detail, sizeof(detail));
    if (status == CGM_OK)
        cgm_user_log(broker, plan->owner.uid, CGM_LOG_INFO, "plan %016jx: %s on comm %ju",
                     (uintmax_t)plan->id, cgm_type_name(CGM_TABLE_ALGO, (int)plan->algorithm),
                     (uintmax_t)plan->comm);
    settle(broker, plan, status, detail);
}

/* What a trial takes is in the quota until the plan is made; without room the plan goes without. */
static void charge_trial(struct cgm_broker *broker, struct cgm_plan *plan,
                         const Cgm__PlanMeasured *measured)
{
    char unused[384];
    uint64_t bytes;
    if (plan->times.n > 0 || !measured->has_trial_bytes)
        return;
    if (__builtin_add_overflow(measured->bytes, measured->trial_bytes, &bytes) ||
        charge_bytes(broker, plan, bytes, unused, sizeof(unused)) != CGM_OK)
        plan->no_trial = "there is no room for it in quota_bytes";
}

/* Plans that are being made at the same time are all in the quota before any has its memory. */
static void on_measured(struct cgm_broker *broker, const struct cgm_call *call,
                        const struct cgm_result *result)
{
    char detail[384];
    struct cgm_plan *plan = cgm_registry_find(&broker->plans, call->object);
    const struct cgm_call next = {.done = on_made, .object = plan->id};
    int status = result->status;
    snprintf(detail, sizeof(detail), "%s", result->detail);
    if (status == CGM_OK)
        status = charge_bytes(broker, plan, ((const Cgm__PlanMeasured *)result->message)->bytes,
                              detail, sizeof(detail));
    if (status == CGM_OK) {
        charge_trial(broker, plan, (const Cgm__PlanMeasured *)result->message);
        status = cgm_plan_tell(broker, plan, &next);
        snprintf(detail, sizeof(detail), "%s", cgm_status_text(status));
    }
    if (status != CGM_OK)
        settle(broker, plan, status, detail);
}

static int measure(struct cgm_broker *broker, const struct cgm_plan *plan)
{
    Cgm__PlanMeasure message = CGM__PLAN_MEASURE__INIT;
    const struct cgm_call call = {.done = on_measured, .object = plan->id};
    message.request.data = plan->request;
    message.request.len = plan->request_bytes;
    return cgm_call_executor(broker, CGM_MSG_PLAN_MEASURE, &message.base, NULL, 0, &call);
}

int cgm_plan_tell(struct cgm_broker *broker, const struct cgm_plan *plan,
                  const struct cgm_call *call)
{
    Cgm__PlanAdd add = CGM__PLAN_ADD__INIT;
    uint64_t ids[CGM_COMM_SIZE_MAX];
    uint32_t journals[CGM_COMM_SIZE_MAX];
    for (uint32_t rank = 0; rank < plan->world; rank++) {
        ids[rank] = plan->buffers[rank]->id;
        journals[rank] = plan->buffers[rank]->index;
    }
    add.id = plan->id;
    add.request.data = plan->request;
    add.request.len = plan->request_bytes;
    add.n_buffer_ids = add.n_journals = plan->world;
    add.buffer_ids = ids;
    add.journals = journals;
    /* A plan that was made keeps its algorithm whatever is remembered of others meanwhile. */
    add.n_tried = add.n_tried_ns = add.n_tried_variant = plan->times.n;
    add.tried = (uint32_t *)(uintptr_t)plan->times.algorithm;
    add.tried_variant = (uint32_t *)(uintptr_t)plan->times.variant;
    add.tried_ns = (uint64_t *)(uintptr_t)plan->times.ns;
    add.has_tried_at = 1;
    add.tried_at = plan->times.at_s;
    add.no_trial = (char *)(uintptr_t)(plan->ready ? "an executor before this did not, either"
                                                   : plan->no_trial);
    add.has_uid = 1;
    add.uid = plan->owner.uid;
    add.has_lost = 1;
    add.lost = plan->ready; /* made before, by an executor that has ended */
    return cgm_call_executor(broker, CGM_MSG_PLAN_ADD, &add.base, NULL, 0, call);
}

/* ---- made anew --------------------------------------------------------------------------------
 */

/* The memory of its buffers was that of an executor that is gone: whoever wrote there would not be
 * read. Whoever creates it again has this one asked once more, and the next one is asked anyway. */
static void unmake(struct cgm_broker *broker, struct cgm_plan *plan)
{
    Cgm__PlanRemove remove = CGM__PLAN_REMOVE__INIT;
    remove.id = plan->id;
    cgm_tell_executor(broker, CGM_MSG_PLAN_REMOVE, &remove.base);
    for (uint32_t rank = 0; rank < plan->world; rank++) {
        cgm_buffer_set_fd(broker, plan->buffers[rank], -1);
        plan->buffers[rank]->ready = false;
    }
}

static int readd(struct cgm_broker *broker, struct cgm_plan *plan, const struct cgm_result *result,
                 char *ret_detail, size_t size)
{
    int status = result->status;
    snprintf(ret_detail, size, "%s", result->detail);
    if (status == CGM_OK)
        status = store_answer(broker, plan, result, ret_detail, size);
    plan->unmade = status != CGM_OK;
    if (plan->unmade)
        unmake(broker, plan);
    return status;
}

void cgm_plan_on_readded(struct cgm_broker *broker, uint64_t id, uint64_t first_buffer,
                         const struct cgm_result *result)
{
    char detail[256];
    struct cgm_plan *plan = cgm_registry_find(&broker->plans, id);
    Cgm__PlanRemove remove = CGM__PLAN_REMOVE__INIT;
    int status = result->status;
    remove.id = id;
    if (plan && plan->buffers[0]->id != first_buffer) /* it was freed, and made by who wanted it */
        return;
    if (!plan && status == CGM_OK) /* freed meanwhile, before it was there */
        cgm_tell_executor(broker, CGM_MSG_PLAN_REMOVE, &remove.base);
    if (!plan || status == CGM_EXECUTOR_LOST)
        return;
    if (readd(broker, plan, result, detail, sizeof(detail)) != CGM_OK)
        cgm_log_error("plan %016jx: the new executor does not make it: %s", (uintmax_t)id, detail);
}

static void on_remade(struct cgm_broker *broker, const struct cgm_call *call,
                      const struct cgm_result *result)
{
    char detail[384];
    struct cgm_plan *plan =
        cgm_registry_find(&broker->plans, call->object); /* its waiters keep it */
    int status = readd(broker, plan, result, detail, sizeof(detail));
    plan->remaking = false;
    answer_waiters(broker, plan, status, detail);
    free_unused(broker, plan);
}

/* Of one who waits already. */
static int remake(struct cgm_broker *broker, struct cgm_plan *plan)
{
    const struct cgm_call call = {.done = on_remade, .object = plan->id};
    int status = plan->remaking ? CGM_OK : cgm_plan_tell(broker, plan, &call);
    plan->remaking = status == CGM_OK;
    if (status != CGM_OK)
        free_waiters(broker, plan);
    return status;
}

/* ---- create -----------------------------------------------------------------------------------
 */

static int join_existing(struct cgm_request *request, struct cgm_plan *plan, const uint8_t *packed,
                         size_t bytes)
{
    if (bytes != plan->request_bytes || memcmp(packed, plan->request, bytes) != 0)
        return cgm_refuse(request, CGM_EXISTS,
                          "plan %016jx has the same hash and another content; change any parameter",
                          (uintmax_t)plan->id);
    int status = CGM_OK;
    if (!plan->ready || plan->unmade)
        status = wait_for(request, plan, true);
    if (status == CGM_OK && plan->unmade)
        status = remake(request->broker, plan);
    if (status != CGM_OK || !plan->ready || plan->unmade)
        return status;
    status = reference(request->session, plan);
    if (status == CGM_OK)
        send_reply(request->broker, plan, request->session->id, request->serial, true);
    return status;
}

int cgm_plan_on_create(struct cgm_request *request)
{
    struct cgm_plan *plan;
    uint8_t *packed;
    size_t bytes;
    const Cgm__PlanCreate *create = (const Cgm__PlanCreate *)request->message;
    if (create->n_buffer_shape > BUFFER_SHAPE_MAX)
        return cgm_refuse(request, CGM_INVALID_ARGUMENT,
                          "buffer_shape has %zu dimensions; it must have at most %u",
                          create->n_buffer_shape, BUFFER_SHAPE_MAX);
    if (create->n_counts > COUNTS_MAX)
        return cgm_refuse(request, CGM_INVALID_ARGUMENT,
                          "there are %zu counts; there must be at most %u", create->n_counts,
                          COUNTS_MAX);
    int status = pack_request(create, &packed, &bytes);
    if (status != CGM_OK)
        return status;
    uint64_t id = id_of(request->broker, packed, bytes);
    plan = cgm_registry_find(&request->broker->plans, id);
    if (plan) {
        status = join_existing(request, plan, packed, bytes);
        free(packed);
        return status;
    }
    status = plan_new(request, id, packed, bytes, &plan);
    if (status != CGM_OK) {
        free(packed);
        return status;
    }
    cgm_tune_recall(request->broker, plan);
    status = wait_for(request, plan, false);
    if (status == CGM_OK)
        status = measure(request->broker, plan);
    if (status != CGM_OK)
        plan_free(request->broker, plan);
    return status;
}

/* ---- the other messages -----------------------------------------------------------------------
 */

int cgm_plan_find_held(struct cgm_request *request)
{
    uint64_t id = request->type == CGM_MSG_PLAN_CHUNK
                      ? ((const Cgm__PlanChunk *)request->message)->plan
                      : ((const Cgm__PlanDestroy *)request->message)->id;
    request->object = cgm_registry_find(&request->session->plans, id);
    return request->object ? CGM_OK
                           : cgm_refuse(request, CGM_NOT_FOUND, "session %ju has no plan %016jx",
                                        (uintmax_t)request->session->id, (uintmax_t)id);
}

int cgm_plan_on_destroy(struct cgm_request *request)
{
    drop_references(request->session, request->object, 1);
    cgm_reply_ok(request);
    return CGM_OK;
}

int cgm_plan_on_destroy_all(struct cgm_request *request)
{
    Cgm__PlanDestroyAllReply reply = CGM__PLAN_DESTROY_ALL_REPLY__INIT;
    reply.count = cgm_plan_drop_all(request->session, 0);
    cgm_reply(request, CGM_MSG_PLAN_DESTROY_ALL_REPLY, &reply.base);
    return CGM_OK;
}

void cgm_plan_free_all(struct cgm_broker *broker)
{
    uint64_t at = 0;
    struct cgm_plan *plan;
    while ((plan = cgm_registry_next(&broker->plans, &at)))
        plan_free(broker, plan);
}
