/* What an object leaves when it ends: its charge, its indices in the journal, fds. The executor may
 * go on using the object for as long as a job of it runs, and freeing takes time; so the next of
 * kin gets them when the executor has answered the removal, or is gone itself. Made together with
 * the object, so that ending one never needs memory. */
#ifndef CGM_ESTATE_H
#define CGM_ESTATE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "daemon/broker/quota.h"
#include "proto/packet.h"

struct cgm_broker;
struct cgm_indices;
struct cgm_request;

struct cgm_estate {
    uid_t uid;
    bool ending;      /* cgm_quota_end was called */
    uint64_t session; /* whose request waits for the end; 0: nobody's */
    uint32_t serial;
    struct cgm_charge charge;
    int *fds; /* [n_fds], malloc'ed; closed with it */
    unsigned n_fds;
    struct cgm_indices *indices;
    uint32_t n_index, index[];
};

/* Charges the uid. Room for n_index_max indices. QUOTA with a detail; NO_MEMORY. */
int cgm_estate_new(struct cgm_broker *broker, uid_t uid, const struct cgm_charge *charge,
                   struct cgm_indices *indices, uint32_t n_index_max, char *ret_detail, size_t size,
                   struct cgm_estate **ret_estate);
void cgm_estate_add_index(struct cgm_estate *estate, uint32_t index);

/* The object lives on with less. */
void cgm_estate_give_part(struct cgm_broker *broker, struct cgm_estate *estate,
                          enum cgm_quota_kind kind);

/* The object lives on at another uid's cost. QUOTA with a detail: that has no room for it, and it
 * stays as it is; NO_MEMORY. */
int cgm_estate_pass(struct cgm_broker *broker, struct cgm_estate *estate, uid_t uid,
                    char *ret_detail, size_t size);

/* The object has ended; the executor may not be through with it. */
void cgm_estate_end(struct cgm_broker *broker, struct cgm_estate *estate);

/* The request is answered when the estate is freed, or the executor says that it keeps the object.
 */
void cgm_estate_await(struct cgm_estate *estate, const struct cgm_request *request);

/* The executor never had the object, or has it no more. NULL: nothing. */
void cgm_estate_free(struct cgm_broker *broker, struct cgm_estate *estate);

/* Ends it and asks the executor to remove the object; frees the estate when it has. */
void cgm_estate_settle(struct cgm_broker *broker, struct cgm_estate *estate, uint16_t type,
                       const ProtobufCMessage *removal);

#endif
