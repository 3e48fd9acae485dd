/* The daemon's state as rows. What only the executor knows is asked there: its rows are added to
 * the broker's, or its one row of status merged into it. */
#ifndef CGM_BROKER_QUERY_H
#define CGM_BROKER_QUERY_H

#include "daemon/broker/request.h"
#include "daemon/broker/rows.h"

int cgm_query_on_query(struct cgm_request *request);

/* Drain and SessionKill: the daemon's own uid and root may. */
int cgm_query_find_operator(struct cgm_request *request);
int cgm_query_on_drain(struct cgm_request *request);

/* doctor.c: what the broker can tell about this machine and itself. */
void cgm_doctor_rows(const struct cgm_broker *broker, struct cgm_rows *rows);

/* The texts of the doctor's warnings and failures, as one JSON list. The caller frees it. */
char *cgm_doctor_warnings(const struct cgm_broker *broker);

#endif
