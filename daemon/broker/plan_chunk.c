/* Which part of a rank's user buffer is a plan's chunk, and who may write it. */
#include "daemon/broker/broker.h"
#include "daemon/broker/buffer.h"
#include "daemon/broker/comm.h"
#include "daemon/broker/plan.h"
#include "daemon/broker/plan_hold.h"
#include "daemon/broker/session.h"
#include "proto/status.h"
#include "proto/types.h"

bool cgm_plan_buffer_is_of(const struct cgm_session *session, const struct cgm_buffer *buffer)
{
    const struct cgm_broker *broker = session->broker;
    const struct cgm_plan *plan = cgm_registry_find(&broker->plans, buffer->plan);
    const struct cgm_comm *comm = plan ? cgm_registry_find(&broker->comms, plan->comm) : NULL;
    for (uint32_t rank = 0; comm && rank < plan->world; rank++)
        if (plan->buffers[rank] == buffer)
            return comm->sessions[rank] == session->id;
    return false;
}

/* call.object: the buffer, since its id is never given out again and a plan's may be; call.other:
 * the chunk. */
static void on_chunk_granted(struct cgm_broker *broker, const struct cgm_call *call,
                             const struct cgm_result *result)
{
    const struct cgm_buffer *buffer = cgm_registry_find(&broker->buffers, call->object);
    const struct cgm_plan *plan = buffer ? cgm_registry_find(&broker->plans, buffer->plan) : NULL;
    Cgm__PlanChunkReply reply = CGM__PLAN_CHUNK_REPLY__INIT;
    if (result->status != CGM_OK || !plan) {
        cgm_answer_error(broker, call->session, call->serial, plan ? result->status : CGM_NOT_FOUND,
                         "%s", plan ? result->detail : "the plan was destroyed meanwhile");
        return;
    }
    reply.buffer = buffer->id;
    reply.generation = buffer->generation;
    reply.rows = plan->user_rows;
    reply.cols = plan->user_cols;
    reply.dtype = plan->user_dtype;
    if (call->other != UINT32_MAX) {
        reply.rows = plan->user_rows / plan->chunks;
        reply.offset_bytes =
            call->other * reply.rows * plan->user_cols * cgm_dtype_bytes((int)plan->user_dtype);
    }
    cgm_answer(broker, call->session, call->serial, CGM_MSG_PLAN_CHUNK_REPLY, &reply.base, NULL, 0);
}

int cgm_plan_on_chunk(struct cgm_request *request)
{
    const Cgm__PlanChunk *chunk = (const Cgm__PlanChunk *)request->message;
    const struct cgm_plan *plan = ((const struct cgm_plan_hold *)request->object)->plan;
    char detail[CGM_CQE_DETAIL];
    if (chunk->rank >= plan->world)
        return cgm_refuse(request, CGM_INVALID_ARGUMENT, "rank is %u; it must be from 0 to %u",
                          chunk->rank, plan->world - 1);
    if (chunk->chunk >= plan->chunks && chunk->chunk != UINT32_MAX)
        return cgm_refuse(request, CGM_INVALID_ARGUMENT,
                          "chunk is %u; it must be from 0 to %u, or %u for the whole buffer",
                          chunk->chunk, plan->chunks - 1, UINT32_MAX);
    struct cgm_buffer *buffer = plan->buffers[chunk->rank];
    struct cgm_call call = cgm_request_call(request, on_chunk_granted, buffer->id);
    bool own = cgm_plan_buffer_is_of(request->session, buffer);
    call.other = chunk->chunk;
    int status =
        cgm_buffer_grant(request->session, buffer, own, true, &call, detail, sizeof(detail));
    return status == CGM_OK ? CGM_OK : cgm_refuse(request, status, "%s", detail);
}
