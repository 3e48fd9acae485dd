/* What auto measured: recalled for plans that are asked for, remembered of those that were made,
 * listed, cleared and imported by commgemmctl tune. */
#ifndef CGM_BROKER_TUNE_H
#define CGM_BROKER_TUNE_H

#include <stdint.h>

#include "daemon/broker/request.h"
#include "daemon/broker/rows.h"

struct cgm_plan;

/* A plan that was not made yet: gives it the times of an earlier one like it. */
void cgm_tune_recall(struct cgm_broker *broker, struct cgm_plan *plan);
/* The plan's times are new. */
void cgm_tune_remember(struct cgm_broker *broker, const struct cgm_plan *plan);

void cgm_tune_rows(const struct cgm_broker *broker, uint64_t after, struct cgm_rows *rows);

/* What the dispatch table calls. */
int cgm_tune_on_tune(struct cgm_request *request);

#endif
