/* What a submission must know without asking: which comm a plan belongs to, whether its operation
 * is collective, and how many collective jobs each rank has submitted. What the session has comes
 * and goes here with the daemon's replies, in their order. Everything is guarded by the lock of the
 * jobs. */
#ifndef CGM_CLIENT_PLANS_H
#define CGM_CLIENT_PLANS_H

#include <stdbool.h>
#include <stdint.h>

#include "client/lib/numbers.h"
#include "proto/messages.h"

#define CGM_REASON_BYTES 160

struct cgm_comm {
    uint64_t id;
    uint32_t size;
    uint32_t refs;                                  /* of the table and of plans */
    struct cgm_numbers *numbers[CGM_COMM_SIZE_MAX]; /* by rank; NULL: it has submitted nothing */
    struct cgm_comm *next;
};

struct cgm_plan {
    uint64_t id;
    struct cgm_comm *comm;
    int op, algorithm;
    bool collective;
    uint32_t refs; /* of the table and of slots */
    char reason[CGM_REASON_BYTES];
};

/* Plans by id: open addressing, at most half full; ids are hashes already. */
struct cgm_plans {
    struct cgm_plan **table;
    uint32_t mask, count; /* table NULL: empty */
    struct cgm_comm *comms;
};
void cgm_plans_fini(struct cgm_plans *plans);

/* NULL: no memory. Freed by cgm_comms_add, or by free(). */
struct cgm_comm *cgm_comm_new(void);
/* Notes a comm; one that is known keeps its numbers. Takes over `comm`. */
void cgm_comms_add(struct cgm_plans *plans, struct cgm_comm *comm, uint64_t id, uint32_t size);
/* Before the rank's first number is taken. NO_MEMORY. */
int cgm_comm_ensure_numbers(struct cgm_comm *comm, uint32_t rank);
/* Forgets the comm and its plans. */
void cgm_comms_remove(struct cgm_plans *plans, uint64_t id);

/* Notes a plan and its comm; replaces an older record of the same id. NO_MEMORY. */
int cgm_plans_add(struct cgm_plans *plans, uint64_t comm, const Cgm__PlanReply *reply);
struct cgm_plan *cgm_plans_find(const struct cgm_plans *plans, uint64_t id);
void cgm_plans_remove(struct cgm_plans *plans, uint64_t id);
void cgm_plans_remove_all(struct cgm_plans *plans);

void cgm_plan_unref(struct cgm_plan *plan);

#endif
