/* Phases of a job that has ended, of any status. */
#ifndef PHASES_H
#define PHASES_H

#include <stdbool.h>

#include "client/include/commgemm.h"

/* Clocks of devices are read against the host's. */
#define PHASES_SLACK_NS 100000000u

/* All lie between its launch and its end; what was not launched has none. */
static inline bool phases_are_right(const struct commgemm_completion *done)
{
    for (uint32_t i = 0; i < done->n_phases; i++) {
        const struct commgemm_phase *phase = &done->phases[i];
        if (done->running_ns == 0 || phase->begin_ns > phase->end_ns ||
            phase->end_ns > done->running_ns + PHASES_SLACK_NS)
            return false;
    }
    return true;
}

#endif
