/* How clients hear of the ends of their jobs: records in their rings, or messages. */
#ifndef CGM_COMPLETIONS_H
#define CGM_COMPLETIONS_H

#include <stdint.h>

struct cgm_endpoint;
struct cgm_job;
struct cgm_phase;

/* What a completion says; times in ns. */
struct cgm_outcome {
    int status;
    const char *detail; /* NULL on success */
    uint16_t algorithm;
    uint64_t queued_ns, waiting_ns, running_ns, begin_ns;
    const struct cgm_phase *phases; /* NULL: none */
    uint32_t n_phases;              /* may exceed phases_stored */
    uint32_t phases_stored;
};

/* Writes done slot and record, or sends them, and ends the job's writes. job: NULL for a noop that
 * never was one. */
void cgm_completion_write(struct cgm_endpoint *endpoint, struct cgm_job *job, uint64_t ticket,
                          uint32_t slot, uint64_t comm_number, const struct cgm_outcome *outcome);

/* Wakes the client if it sleeps and completions were written since the last time. 0, or when it is
 * to be called again, because the client has to wait (notices.h). */
uint64_t cgm_completions_notify(struct cgm_endpoint *endpoint);

#endif
