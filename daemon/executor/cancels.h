/* What clients take back: jobs that are in flight, and entries that still lie in the ring, which
 * are taken back when they have their turn. On the poller. */
#ifndef CGM_CANCELS_H
#define CGM_CANCELS_H

struct cgm_endpoint;
struct cgm_request;

/* The broker's request. */
void cgm_cancels_on_request(struct cgm_request *request);

/* Cancels what need not wait for its entry any more, or a piece of that. */
void cgm_cancels_step(struct cgm_endpoint *endpoint);

/* Of a session that has ended: its jobs fail with that. */
void cgm_cancels_drop(struct cgm_endpoint *endpoint);

#endif
