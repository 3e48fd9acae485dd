/* What a submission has in common, whichever way it goes. */
#ifndef CGM_CLIENT_SUBMIT_H
#define CGM_CLIENT_SUBMIT_H

#include "client/lib/client.h"

/* Checks everything that needs no lock. *ret_job: the job as the library knows it, perhaps
 * *ret_copy. */
int cgm_submit_check(const commgemm_client *client, const struct commgemm_job *job,
                     const uint64_t *ret_ticket, struct commgemm_job *ret_copy,
                     const struct commgemm_job **ret_job);

/* ---- under the lock of the jobs: */

/* Ticket, slot and, if the job is collective, its rank's next number in the comm. */
int cgm_submit_take(struct cgm_jobs *jobs, const struct commgemm_job *job,
                    struct cgm_slot **ret_slot);

/* Undoes the last take, also when the job was lost meanwhile. It is not detached yet, so nobody
 * waits for it among those that are; nor is it held. */
void cgm_submit_take_back(struct cgm_jobs *jobs, struct cgm_slot *slot);

/* Fills the slot's entry and pushes it. It has no effect before its ready word is set. A ring that
 * is dead by now ends the job here: every done word is set then, so that no stream waits for ever.
 */
void cgm_submit_push(struct cgm_jobs *jobs, struct cgm_slot *slot, const struct commgemm_job *job);

#endif
