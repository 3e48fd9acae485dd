#include "daemon/broker/plan.h"

#include <stdlib.h>
#include <string.h>

#include "daemon/broker/broker.h"
#include "daemon/broker/buffer.h"
#include "daemon/broker/comm.h"
#include "daemon/broker/plan_hold.h"
#include "daemon/broker/plan_make.h"
#include "daemon/broker/plan_waiters.h"
#include "daemon/broker/session.h"
#include "daemon/broker/siphash.h"
#include "daemon/broker/tune.h"
#include "daemon/broker/user_log.h"
#include "proto/status.h"

#define FDS_PER_RANK 2u /* user buffer, and workspace of the executor */
/* What the executor is told must fit into a packet. */
#define BUFFER_SHAPE_MAX 8u /* dimensions */
#define COUNTS_MAX (CGM_COMM_SIZE_MAX * CGM_COMM_SIZE_MAX)

/* ---- objects ----------------------------------------------------------------------------------
 */

void cgm_plan_free(struct cgm_broker *broker, struct cgm_plan *plan)
{
    Cgm__PlanRemove remove = CGM__PLAN_REMOVE__INIT;
    cgm_user_log(broker, plan->owner.uid, CGM_LOG_INFO, "plan %016jx: freed", (uintmax_t)plan->id);
    cgm_registry_remove(&broker->plans, plan->id);
    remove.id = plan->id;
    cgm_estate_settle(broker, plan->estate, CGM_MSG_PLAN_REMOVE, &remove.base);
    for (uint32_t rank = 0; rank < plan->world; rank++)
        if (plan->buffers[rank])
            cgm_buffer_free_of_plan(broker, plan->buffers[rank]);
    cgm_plan_forget_waiters(broker, plan);
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
    plan->gemm_priority = create->gemm_priority;
    plan->comm_priority = create->comm_priority;
    status = make_buffers(broker, plan, comm);
    if (status != CGM_OK) {
        cgm_plan_free(broker, plan);
        return status;
    }
    plan->request = packed;
    plan->request_bytes = bytes;
    *ret_plan = plan;
    return CGM_OK;
}

void cgm_plan_free_all(struct cgm_broker *broker)
{
    uint64_t at = 0;
    struct cgm_plan *plan;
    while ((plan = cgm_registry_next(&broker->plans, &at)))
        cgm_plan_free(broker, plan);
}

/* ---- create -----------------------------------------------------------------------------------
 */

int cgm_plan_find_comm(struct cgm_request *request)
{
    uint64_t id = ((const Cgm__PlanCreate *)request->message)->comm;
    struct cgm_comm *comm = cgm_registry_find(&request->session->comms, id);
    if (!comm || !cgm_comm_has_session(comm, request->session->id))
        return cgm_refuse(request, CGM_NOT_FOUND, "session %ju holds no rank of a comm %ju",
                          (uintmax_t)request->session->id, (uintmax_t)id);
    int status = cgm_comm_check_lives(request, comm);
    if (status == CGM_OK && comm->state != CGM_COMM_READY)
        return cgm_refuse(request, CGM_INVALID_ARGUMENT, "comm %ju is not complete yet",
                          (uintmax_t)id);
    request->object = comm;
    return status;
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

static int join_existing(struct cgm_request *request, struct cgm_plan *plan, const uint8_t *packed,
                         size_t bytes)
{
    if (bytes != plan->request_bytes || memcmp(packed, plan->request, bytes) != 0)
        return cgm_refuse(request, CGM_EXISTS,
                          "plan %016jx has the same hash and another content; change any parameter",
                          (uintmax_t)plan->id);
    int status = CGM_OK;
    if (!plan->ready || plan->unmade)
        status = cgm_plan_wait(request, plan, true);
    if (status == CGM_OK && plan->unmade)
        status = cgm_plan_remake(request->broker, plan);
    if (status != CGM_OK || !plan->ready || plan->unmade)
        return status;
    status = cgm_plan_reference(request->session, plan, request->detail, sizeof(request->detail));
    if (status == CGM_OK)
        cgm_plan_send_reply(request->broker, plan, request->session->id, request->serial, true);
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
    status = cgm_plan_wait(request, plan, false);
    if (status == CGM_OK)
        status = cgm_plan_measure(request->broker, plan);
    if (status != CGM_OK)
        cgm_plan_free(request->broker, plan);
    return status;
}
