#include "daemon/broker/estate.h"

#include <stdlib.h>

#include "daemon/broker/broker.h"
#include "daemon/broker/indices.h"
#include "daemon/broker/request.h"
#include "daemon/broker/session.h"
#include "proto/messages.h"
#include "proto/status.h"

int cgm_estate_new(struct cgm_broker *broker, uid_t uid, const struct cgm_charge *charge,
                   struct cgm_indices *indices, uint32_t n_index_max, char *ret_detail, size_t size,
                   struct cgm_estate **ret_estate)
{
    struct cgm_estate *estate = malloc(sizeof(*estate) + n_index_max * sizeof(estate->index[0]));
    if (!estate)
        return cgm_detail(ret_detail, size, CGM_NO_MEMORY, "the daemon has no memory left");
    int status = cgm_quota_take(broker, uid, charge, ret_detail, size);
    if (status != CGM_OK) {
        free(estate);
        return status;
    }
    *estate = (struct cgm_estate){.uid = uid, .charge = *charge, .indices = indices};
    *ret_estate = estate;
    return CGM_OK;
}

void cgm_estate_add_index(struct cgm_estate *estate, uint32_t index)
{
    estate->index[estate->n_index++] = index;
}

void cgm_estate_give_part(struct cgm_broker *broker, struct cgm_estate *estate,
                          enum cgm_quota_kind kind)
{
    struct cgm_charge part = {{0}};
    part.amount[kind] = estate->charge.amount[kind];
    estate->charge.amount[kind] = 0;
    cgm_quota_give(broker, estate->uid, &part);
}

int cgm_estate_pass(struct cgm_broker *broker, struct cgm_estate *estate, uid_t uid,
                    char *ret_detail, size_t size)
{
    if (uid == estate->uid)
        return CGM_OK;
    int status = cgm_quota_pass(broker, estate->uid, uid, &estate->charge, ret_detail, size);
    if (status == CGM_OK)
        estate->uid = uid;
    return status;
}

void cgm_estate_end(struct cgm_broker *broker, struct cgm_estate *estate)
{
    if (!estate->ending)
        cgm_quota_end(broker, estate->uid, &estate->charge);
    estate->ending = true;
}

void cgm_estate_free(struct cgm_broker *broker, struct cgm_estate *estate)
{
    if (!estate)
        return;
    for (uint32_t i = 0; i < estate->n_index; i++)
        cgm_indices_give(estate->indices, estate->index[i]);
    cgm_closer_drop(broker, estate->uid, estate->fds, estate->n_fds);
    free(estate->fds);
    if (estate->ending)
        cgm_quota_ended(broker, estate->uid, &estate->charge);
    else
        cgm_quota_give(broker, estate->uid, &estate->charge);
    if (estate->session != 0)
        cgm_answer_ok(broker, estate->session, estate->serial);
    free(estate);
}

void cgm_estate_await(struct cgm_estate *estate, const struct cgm_request *request)
{
    estate->session = request->session->id;
    estate->serial = request->serial;
}

/* With its executor the object is gone too, and one that is not told of everything yet never had
 * it. */
static bool is_gone(int status)
{
    return status == CGM_OK || status == CGM_EXECUTOR_LOST || status == CGM_NOT_FOUND;
}

static void on_removed(struct cgm_broker *broker, const struct cgm_call *call,
                       const struct cgm_result *result)
{
    struct cgm_estate *estate = (struct cgm_estate *)(uintptr_t)call->other;
    if (estate->session != 0 && !is_gone(result->status)) {
        cgm_answer_error(broker, estate->session, estate->serial, result->status, "%s",
                         result->detail);
        estate->session = 0;
    }
    cgm_estate_free(broker, estate);
}

void cgm_estate_settle(struct cgm_broker *broker, struct cgm_estate *estate, uint16_t type,
                       const ProtobufCMessage *removal)
{
    struct cgm_call call = {.done = on_removed, .other = (uintptr_t)estate};
    if (estate->session != 0) {
        call.session = estate->session;
        call.uid = estate->uid;
    }
    cgm_estate_end(broker, estate);
    int status = cgm_call_executor(broker, type, removal, NULL, 0, &call);
    if (status == CGM_OK)
        return;
    if (status == CGM_NO_MEMORY)
        cgm_executor_doom(broker, "no memory to tell it what is gone");
    cgm_estate_free(broker, estate);
}
