/* Trust ends here: everything that a client says in an entry is checked on the executor's copy. */
#ifndef CGM_ENTRY_H
#define CGM_ENTRY_H

#include "daemon/executor/endpoint.h"

/* Checks the copy of an entry (not a noop) against plan, comm, grants and memory bounds, and fills
 * the job: plan and memory objects referenced, views resolved. On failure the detail names the
 * field, its value and the limits, and job->plan and those results that are right by themselves may
 * be referenced. *ret_burns is the comm when it, rank and number were right, so that the refusal
 * must reach the other ranks; else NULL. */
int cgm_entry_check(struct cgm_endpoint *endpoint, const struct cgm_entry *entry,
                    struct cgm_job *job, char *ret_detail, size_t detail_bytes,
                    struct cgm_comm **ret_burns);

const char *cgm_operand_name(int operand);

/* Whether a job of this plan reads the operand: also out, where it adds to it. */
bool cgm_job_reads(const struct cgm_job *job, int operand);

/* Drops what cgm_entry_check referenced. */
void cgm_job_release(struct cgm_job *job);

#endif
