/* The executables of executors that may be started: the preferred one first, another one where
 * backend = auto leaves the choice. Once one has said hello it stays. */
#ifndef CGM_BROKER_CANDIDATES_H
#define CGM_BROKER_CANDIDATES_H

#include <stdbool.h>

#include "daemon/broker/config.h"

#define CGM_CANDIDATES_MAX 2

struct cgm_candidates {
    char paths[CGM_CANDIDATES_MAX][256];
    unsigned count, current;
    bool chosen;           /* the current one has said hello: it stays */
    char passed_over[256]; /* why it is not the preferred one; "": it is */
};

/* Looks again, unless one is chosen or being tried. Finding none is no error. */
void cgm_candidates_find(struct cgm_candidates *candidates, const struct cgm_config *config);

/* The path of the current one; "" when there is none. */
const char *cgm_candidates_path(const struct cgm_candidates *candidates);

/* The same without its folder. */
const char *cgm_candidates_name(const struct cgm_candidates *candidates);

/* True while backend = auto looks for one that starts. */
bool cgm_candidates_has_next(const struct cgm_candidates *candidates);

/* Goes on to the next one, which must be there; `why` is what became of the current one. */
void cgm_candidates_pass_over(struct cgm_candidates *candidates, const char *why);

/* None has started: the preferred one is the next, unless one is chosen. */
void cgm_candidates_start_over(struct cgm_candidates *candidates);

/* The current one has said hello. */
void cgm_candidates_choose(struct cgm_candidates *candidates);

#endif
